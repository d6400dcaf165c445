"""The shipped description of Postmark: 500 e-mails a call, each with an answer of its own."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.described.calling import with_adapter
from tests.described.servers import SERVER_TOKEN, Answer, Postmark
from vendors.adapters.base import Attachment, Letter, Origin
from vendors.adapters.reports import NotTheVendor, Reported, ReportRequest, ReportSource
from vendors.described.adapter import Described
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

SECRET = {"server_token": SERVER_TOKEN}
US = Origin("us@example.com", "Velma, Inc.", "help@example.com")
MAIL = Letter("0190-1", "zoë@example.com", "Hello", "<p>Dear Zoë</p>", {}, html=True, text="Dear Zoë", origin=US)


def send(vendor: Postmark, *letters: Letter, secret: dict[str, str] = SECRET) -> list[Outcome]:
    async def story(adapter: Described) -> list[Outcome]:
        return await adapter.send(letters)

    outcomes: list[Outcome] = with_adapter({"description": "postmark", "server": vendor.url}, secret, story)
    return outcomes


def test_a_batch_of_500_is_one_call_and_each_mail_comes_to_its_own_outcome() -> None:
    mails = [MAIL._replace(reference=f"r-{number}") for number in range(500)]
    mails[7] = MAIL._replace(recipient=Postmark.inactive)
    mails[8] = MAIL._replace(recipient="nobody")
    mails[9] = MAIL._replace(origin=None)
    mails[10] = MAIL._replace(origin=Origin("us@unknown.example"))
    with Postmark() as vendor:
        outcomes = send(vendor, *mails)
        assert len(vendor.calls) == 1 and sum(vendor.books.values()) == 496
        assert outcomes[7:11] == [
            Refused("406"),
            Refused("300"),
            Refused("unsendable", "sender: it has no sender identity"),
            NotSent("http 200: 400", scope="credential", pause=True),
        ]
        others = outcomes[:7] + outcomes[11:]
        assert others == [Accepted(f"m-{number + 1}") for number in range(496)]
    assert Described({"description": "postmark"}, SECRET).capabilities.batch_max == 500
    assert Described.asks_origin({"description": "postmark"})
    assert Described.carries({"description": "postmark"}) == {"text", "headers", "attachments"}


def test_a_mail_has_all_its_parts() -> None:
    image = Attachment("a.png", "image/png", b"png", cid="logo")
    rich = MAIL._replace(headers=[("List-Unsubscribe", "<https://x>")], attachments=(image,))
    plain = MAIL._replace(html=False, body="Dear Zoë", text="", origin=Origin("us@example.com"))
    with Postmark() as vendor:
        assert {type(one) for one in send(vendor, rich, plain)} == {Accepted}
        first, second = json.loads(vendor.calls[0].body)
    assert first == {
        "From": '"Velma, Inc." <us@example.com>',
        "To": "zoë@example.com",
        "ReplyTo": "help@example.com",
        "Subject": "Hello",
        "HtmlBody": MAIL.body,
        "TextBody": "Dear Zoë",
        "MessageStream": "outbound",
        "Metadata": {"reference": "0190-1"},
        "Headers": [{"Name": "List-Unsubscribe", "Value": "<https://x>"}],
        "Attachments": [{"Name": "a.png", "Content": "cG5n", "ContentType": "image/png", "ContentID": "cid:logo"}],
    }
    assert second.keys() == {"From", "To", "Subject", "TextBody", "MessageStream", "Metadata"}


MISBEHAVIOURS: list[tuple[Answer, type, bool]] = [
    (Answer(401, {"ErrorCode": 10}), NotSent, True),
    (Answer(429, {"ErrorCode": 429}), NotSent, False),
    (Answer(402), InDoubt, True),
    (Answer(413), InDoubt, True),
    (Answer(422, {"ErrorCode": 402}), InDoubt, True),
    (Answer(422, {"ErrorCode": 402}, cut=True), InDoubt, True),
    (Answer(401, {"ErrorCode": 10}, cut=True), NotSent, True),
    (Answer(500), InDoubt, False),
    (Answer(200, [{"MessageID": "m", "ErrorCode": 0}]), InDoubt, False),
    (Answer(200, [{"MessageID": "m", "ErrorCode": 0}, {"MessageID": "n", "ErrorCode": 999}], cut=True), InDoubt, False),
    (Answer(200, {"MessageID": "m"}), InDoubt, False),
]


@pytest.mark.parametrize(("answer", "kind", "pauses"), MISBEHAVIOURS)
def test_an_answer_proves_no_more_than_it_says(answer: Answer, kind: type, pauses: bool) -> None:
    with Postmark() as vendor:
        vendor.next_answer, vendor.accepts_before = answer, kind is InDoubt
        outcomes = send(vendor, MAIL, MAIL)
        assert [(type(one), one.pause) for one in outcomes] == [(kind, pauses)] * 2  # type: ignore[union-attr]


def test_an_id_that_several_mails_have_is_none() -> None:
    taken = [{"MessageID": one, "ErrorCode": 0} for one in ("m", "n", "m")]
    with Postmark() as vendor:
        vendor.next_answer = Answer(200, taken)
        doubt = InDoubt("several letters have the same id")
        assert send(vendor, MAIL, MAIL, MAIL) == [doubt, Accepted("n"), doubt]


def test_an_unknown_code_is_in_doubt_for_its_mail_alone() -> None:
    with Postmark() as vendor:
        vendor.next_answer = Answer(200, [{"MessageID": "m", "ErrorCode": 0}, {"ErrorCode": 999, "MessageID": "n"}])
        assert send(vendor, MAIL, MAIL) == [Accepted("m"), InDoubt("http 200: 999")]


REPORTS: list[tuple[dict[str, Any], Reported]] = [
    ({"RecordType": "Delivery", "DeliveredAt": "2026-11-01T10:00:00Z"}, ("delivered", "soft", "", "")),
    ({"RecordType": "Bounce", "Type": "HardBounce", "BouncedAt": "2026-11-01T10:00:00Z", "Details": "no such user"},
     ("bounced", "hard", "HardBounce", "no such user")),
    ({"RecordType": "Bounce", "Type": "Transient", "BouncedAt": "2026-11-01T10:00:00Z"},
     ("deferred", "soft", "Transient", "")),
    ({"RecordType": "SpamComplaint", "Type": "SpamComplaint", "BouncedAt": "2026-11-01T10:00:00Z"},
     ("complained", "soft", "SpamComplaint", "")),
    ({"RecordType": "Open", "ReceivedAt": "2026-11-01T10:00:00Z"}, ("opened", "soft", "", "")),
]  # fmt: skip


@pytest.mark.parametrize(("event", "expected"), REPORTS)
def test_its_reports_come_with_the_login_of_the_webhook(event: dict[str, Any], expected: tuple[str, ...]) -> None:
    body = json.dumps(event | {"MessageID": "m-1", "Metadata": {"reference": "0190-1"}}).encode()
    login = {"authorization": "Basic " + base64.b64encode(b"postmark:hush").decode()}
    request = ReportRequest("POST", "https://mail.example.com/api/v1/receipts/mail", login, body)
    kind, bounce, code, note = expected
    at = datetime(2026, 11, 1, 10, tzinfo=UTC)
    source = ReportSource({"description": "postmark"}, ["postmark:hush"])
    [report] = Described.read_report(request, source)
    cause = "recipient" if kind == "bounced" else ""
    assert report == Reported("0190-1", kind, at, "m-1", note, bounce, code, cause=cause)  # type: ignore[arg-type]
    with pytest.raises(NotTheVendor):
        Described.read_report(request, ReportSource({"description": "postmark"}, ["postmark:other"]))
