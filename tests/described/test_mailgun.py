"""The shipped description of Mailgun: one form for up to 1,000 e-mails, and one id for all of them."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.described.calling import with_adapter
from tests.described.servers import DOMAIN, MAILGUN_KEY, Answer, Mailgun
from vendors.adapters.base import Attachment, Letter, Origin
from vendors.adapters.options import InvalidSettings
from vendors.adapters.reports import BadReport, NotTheVendor, Reported, ReportRequest, ReportSource
from vendors.described.adapter import Described
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

SECRET = {"api_key": MAILGUN_KEY}
US = Origin("us@example.com", "Velma, Inc.", "help@example.com")
MAIL = Letter("0190-1", "zoë@example.com", "Hello", "<p>Dear Zoë</p>", {}, html=True, text="Dear Zoë", origin=US)


def send(vendor: Mailgun, *letters: Letter, secret: Mapping[str, str] = SECRET, **more: str) -> list[Outcome]:
    async def story(adapter: Described) -> list[Outcome]:
        return await adapter.send(letters)

    settings = {"description": "mailgun", "server": vendor.url, "domain": DOMAIN, **more}
    outcomes: list[Outcome] = with_adapter(settings, secret, story)
    return outcomes


def to(number: int, **more: Any) -> Letter:
    return MAIL._replace(reference=f"r-{number}", recipient=f"person{number}@example.com", **more)


def test_a_batch_of_1000_is_one_call_and_each_gets_a_mail_of_its_own() -> None:
    mails = [
        to(number, subject=f"No. {number} %x% “”", body=f"<p>{number} {{}} & \\</p>", text=f"{number}\r\nbye")
        for number in range(1000)
    ]
    with Mailgun() as vendor:
        outcomes = send(vendor, *mails)
        assert len(vendor.calls) == 1
        assert outcomes == [Accepted(f"2026.1@{DOMAIN} r-{number}") for number in range(1000)], "an id for each"
        assert vendor.books == {f"r-{number}": 1 for number in range(1000)}
        got = {mail.to: mail.fields for mail in vendor.mails}
        assert got["person7@example.com"] == {
            "from": '"Velma, Inc." <us@example.com>',
            "subject": "No. 7 %x% “”",
            "text": "7\r\nbye",
            "html": "<p>7 {} & \\</p>",
            "h:Reply-To": "help@example.com",
            "v:reference": "r-7",
        }


def test_headers_of_each_letter_and_files_of_all_go_along() -> None:
    def unsubscribe(number: int) -> list[tuple[str, str]]:
        return [("List-Unsubscribe", f"<https://mail.example.com/u/{number}>"), ("X-Season", "spring")]

    files = (
        Attachment("terms “1”.pdf", "application/pdf", b"%PDF\r\n--"),
        Attachment("logo.png", "image/png", b"P", "l"),
    )
    with Mailgun() as vendor:
        outcomes = send(vendor, *(to(number, headers=unsubscribe(number), attachments=files) for number in range(3)))
        assert {type(one) for one in outcomes} == {Accepted} and len(vendor.calls) == 1
        assert [mail.fields["h:List-Unsubscribe"] for mail in vendor.mails] == [
            f"<https://mail.example.com/u/{number}>" for number in range(3)
        ]
        assert vendor.mails[0].files == [
            ("attachment", "terms “1”.pdf", "application/pdf", b"%PDF\r\n--"),
            ("inline", "l", "image/png", b"P"),
        ]


def test_letters_that_differ_in_more_go_in_calls_of_their_own() -> None:
    own = Attachment("own.txt", "text/plain", b"own")
    mails = [
        to(1), to(2, attachments=(own,)), to(3, html=False, body="only text", text=""), to(4),
        to(5, headers=[("X-A", "1")]), to(1)._replace(reference="r-6", recipient="PERSON1@example.com"),
    ]  # fmt: skip
    with Mailgun() as vendor:
        outcomes = send(vendor, *mails)
        assert {type(one) for one in outcomes} == {Accepted} and len(vendor.calls) == 5
        assert vendor.books == {f"r-{number}": 1 for number in range(1, 7)}
        by = {mail.fields["v:reference"]: mail for mail in vendor.mails}
        assert [name for name, mail in by.items() if mail.files] == ["r-2"]
        assert "html" not in by["r-3"].fields and by["r-3"].fields["text"] == "only text"
        assert outcomes[0].vendor_id.split()[0] == outcomes[3].vendor_id.split()[0]  # type: ignore[union-attr]
        assert all(one.vendor_id.endswith(mail.reference) for one, mail in zip(outcomes, mails, strict=True))  # type: ignore[union-attr]


def test_a_letter_that_cannot_be_written_holds_up_no_other() -> None:
    with Mailgun() as vendor:
        outcomes = send(vendor, to(1), to(2, subject="\ud83d"), to(3, origin=None))
        assert [type(one) for one in outcomes] == [Accepted, Refused, Refused]
        assert vendor.books == {"r-1": 1}


def test_a_wrong_address_takes_none_of_a_batch_along_and_alone_it_is_refused() -> None:
    wrong = to(2)._replace(recipient="person2")
    with Mailgun() as vendor:
        outcomes = send(vendor, to(1), wrong)
        reason = f"http 400 for a whole batch: {vendor.no_address['message']}"
        assert outcomes == [NotSent(reason, scope="credential", pause=True)] * 2
        assert not vendor.books
        assert send(vendor, wrong, batch="1") == [Refused(vendor.no_address["message"])]
    assert Described({"description": "mailgun", "domain": DOMAIN, "batch": "7"}, SECRET).capabilities.batch_max == 7
    with pytest.raises(InvalidSettings, match="batch must be"):
        Described.validate({"description": "mailgun", "domain": DOMAIN, "batch": "1001"})


MISBEHAVIOURS = [
    (Answer(400, {"message": "from parameter is missing"}), NotSent, True),
    (Answer(401, "Forbidden"), NotSent, True),
    (Answer(402, {"message": "The parameters were valid but the request failed"}), InDoubt, True),
    (Answer(403, {"message": "Domain is not allowed to send: Please activate your Mailgun account."}), NotSent, True),
    (Answer(404, {"message": "Domain not found"}), NotSent, True),
    (Answer(413, {"message": "Request Entity Too Large"}), NotSent, True),
    (Answer(429, {"message": "Too many requests"}, {"Retry-After": "9"}), NotSent, False),
    (Answer(500, {"message": "Internal Server Error"}), InDoubt, False),
    (Answer(502), InDoubt, False),
    (Answer(200), InDoubt, False),
    (Answer(200, {"message": "Queued. Thank you."}), InDoubt, False),
    (Answer(200, [{"id": "<1@x>"}]), InDoubt, False),
    (Answer(200, {"id": "<1@x>"}, cut=True), InDoubt, False),
    (Answer(400, {"message": "from parameter is missing"}, cut=True), InDoubt, False),
]


@pytest.mark.parametrize(("answer", "kind", "pauses"), MISBEHAVIOURS)
def test_an_answer_proves_no_more_than_it_says_for_a_whole_batch(answer: Answer, kind: type, pauses: bool) -> None:
    with Mailgun() as vendor:
        vendor.next_answer, vendor.accepts_before = answer, kind is InDoubt
        outcomes = send(vendor, to(1), to(2))
        assert len(set(outcomes)) == 1 and len(vendor.calls) == 1
        assert isinstance(outcomes[0], kind), outcomes[0]
        assert outcomes[0].pause is pauses  # type: ignore[union-attr]
        assert MAILGUN_KEY not in repr(outcomes)


def test_a_wrong_key_and_a_wrong_domain_pause() -> None:
    with Mailgun() as vendor:
        for secret, domain in (({"api_key": "other"}, DOMAIN), (SECRET, "other.example.com")):
            [outcome] = send(vendor, to(1), secret=secret, domain=domain)
            assert isinstance(outcome, NotSent) and outcome.pause
        assert not vendor.books


# --- reports ----------------------------------------------------------------------------------------------------------

AT = 1793527200.25
EVENT = {
    "id": "e-1", "timestamp": AT, "recipient": "zoë@example.com", "user-variables": {"reference": "0190-1"},
    "message": {"headers": {"message-id": f"2026.1@{DOMAIN}"}},
}  # fmt: skip


def webhook(event: Mapping[str, Any], key: str = "hush", at: float | None = None) -> ReportRequest:
    """As Mailgun's documents say that a webhook is signed."""
    stamp, token = str(int(at or time.time())), "50-characters"
    signature = hmac.new(key.encode(), f"{stamp}{token}".encode(), hashlib.sha256).hexdigest()
    signed = {"timestamp": stamp, "token": token, "signature": signature}
    body = json.dumps({"signature": signed, "event-data": {**EVENT, **event}}).encode()
    return ReportRequest("POST", "https://mail.example.com/api/v1/receipts/mail", {}, body)


def read(request: ReportRequest, *keys: str) -> list[Reported]:
    return list(Described.read_report(request, ReportSource({"description": "mailgun", "domain": DOMAIN}, keys)))


FAILED = {"event": "failed", "severity": "permanent"}
UNKNOWN, POLICY = {"message": "550 5.1.1 no such user here"}, {"message": "550 5.7.1 blocked using spamhaus"}


@pytest.mark.parametrize(
    ("event", "kind", "bounce"),
    [
        ({"event": "delivered"}, "delivered", "soft"),
        (FAILED | {"reason": "bounce", "delivery-status": UNKNOWN}, "bounced", "hard"),
        (FAILED | {"reason": "bounce", "delivery-status": POLICY}, "bounced", "blocked"),
        (FAILED | {"reason": "bounce", "delivery-status": {"message": "552 5.2.2 mailbox full"}}, "bounced", "soft"),
        (FAILED | {"reason": "suppress-bounce"}, "bounced", "hard"),
        (FAILED | {"reason": "suppress-unsubscribe"}, "unsubscribed", "soft"),
        (FAILED | {"reason": "old"}, "bounced", "soft"),
        ({"event": "rejected", "reject": {"reason": "x"}}, "failed", "soft"),
        ({"event": "complained"}, "complained", "soft"),
        ({"event": "unsubscribed"}, "unsubscribed", "soft"),
        ({"event": "opened"}, "opened", "soft"),
        ({"event": "clicked"}, "clicked", "soft"),
    ],
)
def test_its_reports_name_our_reference_and_the_id_that_the_letter_has(
    event: dict[str, Any], kind: str, bounce: str
) -> None:
    [report] = read(webhook(event), "older", "hush")
    assert (report.reference, report.kind, report.bounce) == ("0190-1", kind, bounce)
    assert report.vendor_id == f"2026.1@{DOMAIN} 0190-1", "as the answer of the call had it"
    assert report.at == datetime.fromtimestamp(AT, UTC) and report.timed


def test_what_is_tried_again_is_a_delay_and_what_is_on_its_way_no_report() -> None:
    [delay] = read(webhook({"event": "failed", "severity": "temporary", "reason": "bounce"}), "hush")
    assert delay.kind == "deferred", "whatever its reason"
    assert read(webhook({"event": "accepted"}), "hush") == []


def test_nobody_else_reports_for_mailgun() -> None:
    right = webhook({"event": "delivered"})
    garbage = [b"", b"[]", b"{", b'"x"', b'{"signature": "x"}', b'{"signature": {"signature": 7}}', b"\xff" * 100]
    garbage += [right.body.replace(b"50-ch", b"51-ch"), b" " * 70_000 + right.body]
    others = [ReportRequest("POST", right.url, {}, body) for body in garbage]
    others += [webhook({"event": "delivered"}, "other"), webhook({"event": "delivered"}, at=time.time() - 50_000)]
    for request in others:
        with pytest.raises(NotTheVendor):
            read(request, "hush")
    for keys in ((), ("",)):
        with pytest.raises(NotTheVendor):
            read(webhook({"event": "delivered"}, "x"), *keys)
    with pytest.raises(BadReport):
        read(webhook({"event": "delivered", "user-variables": {}, "message": {}}), "hush")
