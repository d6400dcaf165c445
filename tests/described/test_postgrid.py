"""The shipped description of PostGrid, against a server with the members and answers of PostGrid's own client."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.described.calling import send
from tests.described.servers import POSTGRID_KEY, Answer, PostGrid
from vendors.adapters.base import Letter
from vendors.adapters.options import InvalidSettings
from vendors.adapters.reports import BadReport, NotTheVendor, Reported, ReportRequest, ReportSource
from vendors.described.adapter import Described
from vendors.outcomes import Accepted, InDoubt, NotSent, Refused

SECRET = {"api_key": POSTGRID_KEY}
TO = {"first_name": "Ann", "address_line1": "1 Main St", "city": "Austin", "state": "TX", "zip": 78701, "country": "US"}
LETTER = Letter("0190-1", "ann@example.com", "An offer", "<html>Dear Ann</html>", TO, html=True)


def settings(vendor: PostGrid, **more: Any) -> dict[str, Any]:
    return {"description": "postgrid", "server": vendor.url, "sender": "contact_7", **more}


def test_a_letter_is_sent_as_postgrid_documents_it_and_comes_to_its_id() -> None:
    company = LETTER._replace(reference="0190-2", params={"company": "Lob", "address_line1": "1", "country": "CA"})
    with PostGrid() as vendor:
        assert send(settings(vendor), SECRET, LETTER, company) == [Accepted("letter_1"), Accepted("letter_2")]
        first, second = (json.loads(call.body) for call in vendor.calls)
        assert vendor.books == {"0190-1": 1, "0190-2": 1}
    assert first == {
        "from": "contact_7",
        "html": LETTER.body,
        "description": "An offer",
        "color": False,
        "doubleSided": True,
        "addressPlacement": "top_first_page",
        "size": "us_letter",
        "metadata": {"reference": "0190-1"},
        "to": {
            "firstName": "Ann",
            "addressLine1": "1 Main St",
            "city": "Austin",
            "provinceOrState": "TX",
            "postalOrZip": "78701",
            "countryCode": "US",
        },
    }
    assert second["to"] == {"companyName": "Lob", "addressLine1": "1", "countryCode": "CA"}


def test_what_is_wrong_with_a_letter_refuses_it_and_a_wrong_key_pauses() -> None:
    with PostGrid() as vendor:
        nameless = LETTER._replace(params=TO | {"first_name": ""})
        homeless = LETTER._replace(params={"first_name": "Ann", "country": "US"})
        assert send(settings(vendor), SECRET, nameless, homeless) == [
            Refused("validation_error"),
            Refused("unsendable", "field: the field address_line1 is missing"),
        ]
        assert send(settings(vendor, size="a4"), SECRET, LETTER) == [Refused("unprocessable_error")]
        [outcome] = send(settings(vendor), {"api_key": "other"}, LETTER)
        assert isinstance(outcome, NotSent) and outcome.pause
        vendor.next_answer = Answer(429, {"error": {"type": "rate"}}, {"Retry-After": "3"})
        assert send(settings(vendor), SECRET, LETTER) == [
            NotSent("http 429: too fast for the vendor", 3.0, "credential")
        ]
        for answer in (Answer(500), Answer(201, {"object": "letter"}), Answer(201, {"id": "letter_9"}, cut=True)):
            vendor.next_answer, vendor.accepts_before = answer, True
            [outcome] = send(settings(vendor), SECRET, LETTER)
            assert isinstance(outcome, InDoubt), outcome
    can = Described({"description": "postgrid", "sender": "contact_7"}, SECRET).capabilities
    assert (can.dedupe, can.lookup) == (False, "none")
    with pytest.raises(InvalidSettings, match="sender has not the form"):
        Described.validate({"description": "postgrid", "sender": "me"})


# --- reports ----------------------------------------------------------------------------------------------------------

ORDER = {"id": "letter_1", "object": "letter", "metadata": {"reference": "0190-1"}}
ORDER |= {"status": "completed", "updatedAt": "2026-11-01T10:00:00.000Z"}


def webhook(key: str = "hush", at: float | None = None, form: str = "t={},v1={}", **more: Any) -> ReportRequest:
    """As PostGrid's guide to verifying signatures has it: milliseconds, a point, the body."""
    body = json.dumps({"id": "event_1", "type": "letter.updated", "data": ORDER | more}).encode()
    stamp = str(int((at or time.time()) * 1000))
    signature = hmac.new(key.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    headers = {"postgrid-signature": form.format(stamp, signature)}
    return ReportRequest("POST", "https://mail.example.com/api/v1/receipts/letters", headers, body)


def read(request: ReportRequest, *keys: str) -> list[Reported]:
    return list(Described.read_report(request, ReportSource({"description": "postgrid", "sender": "contact_7"}, keys)))


def test_its_webhooks_are_signed_with_the_time_and_say_where_a_letter_is() -> None:
    at = datetime(2026, 11, 1, 10, tzinfo=UTC)
    for form in ("t={},v1={}", "t={}, v0=abc, v1={}"):
        assert read(webhook(form=form), "new", "hush") == [Reported("0190-1", "delivered", at, "letter_1")]
    assert [one.kind for one in read(webhook(status="cancelled"), "hush")] == ["failed"]
    back = webhook(imbStatus="returned_to_sender")  # of a letter that is completed
    assert [(one.kind, one.bounce) for one in read(back, "hush")] == [("bounced", "soft")]
    assert [one.kind for one in read(webhook(imbStatus="out_for_delivery"), "hush")] == ["delivered"]
    for status in ("ready", "printing", "processed_for_delivery"):
        assert read(webhook(status=status), "hush") == []


def test_nobody_else_reports_for_postgrid() -> None:
    right = webhook()
    named = right.headers["postgrid-signature"]
    stamp, _, signature = named.removeprefix("t=").partition(",v1=")
    wrong = ["", "t=,v1=", f"v1={signature}", f"t={stamp}", f"t={int(stamp) + 1},v1={signature}", f"t=x,v1={signature}"]
    wrong += [f"t={stamp},v1={signature[:-1]}", f"t={stamp},v2={signature}", "," * 1000, "\ud83d", signature]
    others = [ReportRequest("POST", right.url, {"postgrid-signature": one}, right.body) for one in wrong]
    others += [webhook("other"), webhook(at=time.time() - 400)]
    others.append(ReportRequest("POST", right.url, right.headers, right.body.replace(b"0190-1", b"0190-2")))
    for request in others:
        with pytest.raises(NotTheVendor):
            read(request, "hush")
    with pytest.raises(BadReport):
        read(webhook(metadata={}, id=None), "hush")
