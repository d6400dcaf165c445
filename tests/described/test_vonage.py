"""The shipped description of Vonage, which answers 200 to everything."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.described.calling import send
from tests.described.servers import API_KEY, API_SECRET, Answer, Vonage
from vendors.adapters.base import Letter, Origin
from vendors.adapters.reports import BadReport, InboundText, NotTheVendor, Reported, ReportRequest, ReportSource
from vendors.described.adapter import Described
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

SECRET = {"api_secret": API_SECRET}
SMS = Letter("0190-1", "+447700900000", "", "Grüße & bye")


def settings(vendor: Vonage) -> dict[str, str]:
    return {"description": "vonage", "server": vendor.url, "api_key": API_KEY, "from": "Velma"}


def test_an_sms_is_sent_in_the_alphabet_that_it_needs_and_comes_to_its_id() -> None:
    texts = ["Grüße & bye", "Cost: 5 € {x}", "Здравствуйте", "👍"]
    with Vonage() as vendor:
        outcomes = send(settings(vendor), SECRET, *(SMS._replace(body=text) for text in texts))
        assert {type(one) for one in outcomes} == {Accepted}
        assert vendor.texts == texts
        types = [call.body.decode().partition("type=")[2].partition("&")[0] for call in vendor.calls]
        assert types == ["text", "text", "unicode", "unicode"]
        assert vendor.books == {"0190-1": 4}
    made = Described({"description": "vonage", "api_key": API_KEY, "from": "1"}, SECRET)
    assert made.capabilities.cost(SMS._replace(body="ж" * 71)) == 2


def test_the_sender_identity_comes_before_the_vendors_setting() -> None:
    pool = SMS._replace(origin=Origin("+447700900999"))
    with Vonage() as vendor:
        send(settings(vendor), SECRET, SMS, pool, SMS._replace(origin=Origin("Brand & Co")))
        froms = [parse_qs(call.body.decode())["from"] for call in vendor.calls]
    assert froms == [["Velma"], ["447700900999"], ["Brand & Co"]]
    assert not Described.asks_origin({"description": "vonage", "api_key": API_KEY, "from": "Velma"})


def several(first: int) -> Answer:
    """To a long SMS of two parts, of which the second one is on its way."""
    parts = [{"status": str(first)}, {"status": "0", "message-id": "0B"}]
    return Answer(200, {"message-count": "2", "messages": parts})


def statuses(vendor: Vonage) -> list[tuple[Answer, Outcome]]:
    def paused(number: int) -> NotSent:
        return NotSent(f"http 200: {number}", scope="credential", pause=True)

    return [
        (vendor.status(1, "Throttled"), NotSent("http 200: 1", 30.0, "credential")),
        (vendor.status(5, "Internal Error"), InDoubt("http 200: 5")),
        (vendor.status(6, "Invalid Message"), Refused("6")),
        (vendor.status(9, "Partner quota violation"), paused(9)),
        (vendor.status(15, "Invalid sender"), paused(15)),
        (vendor.status(99, "Something new"), InDoubt("http 200: 99")),
        *((several(status), InDoubt(f"http 200: {status}")) for status in (1, 3, 9)),
        (Answer(200, {"message-count": "0", "messages": []}), InDoubt("http 200")),
        (Answer(200, {"messages": [{"status": "0"}]}), InDoubt("http 200 without an id")),
        (Answer(502), InDoubt("http 502")),
    ]


@pytest.mark.parametrize("number", range(12))
def test_a_status_proves_what_vonages_list_of_errors_says_and_no_more(number: int) -> None:
    with Vonage() as vendor:
        vendor.next_answer, expected = statuses(vendor)[number]
        assert send(settings(vendor), SECRET, SMS) == [expected]


def test_a_barred_number_is_refused_and_a_wrong_secret_pauses() -> None:
    with Vonage() as vendor:
        barred, wrong = SMS._replace(recipient=f"+{vendor.barred}"), SMS._replace(recipient="none")
        assert send(settings(vendor), SECRET, barred, wrong) == [Refused("7"), Refused("3")]
        [outcome] = send(settings(vendor), {"api_secret": "other"}, SMS)
        assert outcome == NotSent("http 200: 4", scope="credential", pause=True)


# --- reports ----------------------------------------------------------------------------------------------------------

RECEIPT = {
    "err-code": "0", "message-timestamp": "2026-11-01 10:00:00", "messageId": "0B00000127FDBC63", "status": "delivered",
    "msisdn": "447700900000", "network-code": "23410", "price": "0.03330000", "scts": "2611011000", "to": "A & B = C",
    "api-key": API_KEY, "client-ref": "0190-1", "nonce": "aaaaaaaa-bbbb-cccc",
}  # fmt: skip


def receipt(key: str = "hush", at: float | None = None, upper: bool = True, **more: str) -> ReportRequest:
    """As Vonage's guide to signing messages has it, by SHA-256 HMAC."""
    fields = {**RECEIPT, "timestamp": str(int(at or time.time())), **{k.replace("_", "-"): v for k, v in more.items()}}
    text = "".join(f"&{name}={fields[name].replace('&', '_').replace('=', '_')}" for name in sorted(fields))
    signature = hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
    return as_receipt(fields | {"sig": signature.upper() if upper else signature})


def as_receipt(fields: Any) -> ReportRequest:
    return ReportRequest("POST", "https://mail.example.com/api/v1/receipts/sms", {}, json.dumps(fields).encode())


def read(request: ReportRequest, *keys: str) -> list[Reported]:
    source = ReportSource({"description": "vonage", "api_key": API_KEY, "from": "Velma"}, keys)
    return list(Described.read_report(request, source))


@pytest.mark.parametrize(
    ("status", "code", "kind", "bounce", "cause"),
    [
        ("delivered", "0", "delivered", "soft", ""),
        ("expired", "2", "bounced", "soft", "recipient"),
        ("failed", "3", "bounced", "hard", "recipient"),
        ("failed", "9", "unsubscribed", "soft", ""),
        ("rejected", "6", "bounced", "blocked", "us"),
        ("failed", "11", "bounced", "soft", "vendor"),
        ("failed", "77", "bounced", "soft", ""),
    ],
)
def test_its_receipts_are_signed_over_all_their_fields(
    status: str, code: str, kind: str, bounce: str, cause: str
) -> None:
    at = datetime(2026, 11, 1, 10, tzinfo=UTC)
    for upper in (True, False):
        [report] = read(receipt(status=status, err_code=code, upper=upper), "new", "hush")
        expected = Reported("0190-1", kind, at, "0B00000127FDBC63", "", bounce, code, cause=cause)  # type: ignore[arg-type]
        assert report == expected


def test_what_recipients_write_is_signed_as_its_receipts() -> None:
    more = {"msisdn": "447700900123", "to": "447700900001", "text": "Stop & go", "messageId": "0C", "type": "text"}
    source = ReportSource({"description": "vonage", "api_key": API_KEY, "from": "Velma"}, ["hush"])
    at = datetime(2026, 11, 1, 10, tzinfo=UTC)
    expected = [InboundText("0C", "447700900123", "447700900001", "Stop & go", at)]
    assert list(Described.read_inbound(receipt(**more), source)) == expected
    with pytest.raises(NotTheVendor):
        Described.read_inbound(receipt("other", **more), source)
    binary = {name: value for name, value in more.items() if name != "text"}
    assert Described.read_inbound(receipt(**binary), source)[0].text == ""


def test_what_vonage_has_only_passed_on_is_no_report() -> None:
    for status in ("accepted", "buffered", "unknown"):
        assert read(receipt(status=status), "hush") == []


def test_nobody_else_reports_for_vonage() -> None:
    fields = json.loads(receipt().body)
    changed = [fields | {"client-ref": "0190-2"}, fields | {"status": "failed"}, fields | {"more": "1"}]
    changed += [{**fields, "sig": ""}, {**fields, "sig": 7}, [fields], "x", None, {"sig": "0" * 64}, {"sig": {"a": 1}}]
    for request in [*map(as_receipt, changed), receipt("other"), receipt(at=time.time() - 90_000)]:
        with pytest.raises(NotTheVendor):
            read(request, "hush")
    with pytest.raises(NotTheVendor):
        read(receipt())
    with pytest.raises(BadReport):
        read(receipt(message_timestamp="soon"), "hush")
