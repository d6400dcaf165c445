"""A service's table of codes is used at every door where its answers come: answers, delivery reports and webhooks."""

import base64
import json
import tomllib
from collections import Counter
from datetime import datetime
from typing import Any

import pytest
from standardwebhooks import Webhook as Signer

from tests.described.calling import send
from tests.described.servers import Answer, Called, VendorServer
from vendors.adapters import anymail_answers, anymail_reports
from vendors.adapters.base import Letter
from vendors.adapters.http import Http
from vendors.adapters.http_client import Response
from vendors.adapters.reports import Reported, ReportRequest, ReportSource
from vendors.causes import AnswerCause, judge_code, judge_reply
from vendors.causes.services import BY_TEXT, CAUSES, TABLES, find_linked, find_service
from vendors.described.adapter import Described
from vendors.outcomes import InDoubt, NotSent, Outcome, Refused, classify_http, follow_cause

ROWS = tomllib.loads(TABLES.read_text("utf-8"))["service"]
WEBHOOK = "https://mail.example.com/r"
SECRET = "whsec_" + base64.b64encode(b"a secret of sixteen bytes").decode()
SMS = Letter("ref-1", "+447700900000", "", "Hello")
TELNYX = """[vendor]
name = "A house of ours"
channel = "sms"
documents = "https://developers.telnyx.com/docs/messaging"

[request]
url = "https://api.telnyx.com/v2/messages"

[request.content]
to = "{recipient}"
text = "{text}"

[answer]
id = "data.id"
code = "errors.0.code"

[reports]
kind = "event"
id = "id"
code = "code"
note = "note"

[reports.kinds]
failed = "failed"
undelivered = "soft bounce"
blocked = "blocked"
refused = "hard bounce"
later = "deferred"

[reports.signature]
scheme = "basic"
"""


class Telnyx(VendorServer):
    """Answers as it is told."""

    def answer(self, called: Called) -> Answer:
        return Answer(200, {"data": {"id": "m-1"}})


def sent(status: int, code: str | int, source: str = TELNYX) -> Outcome:
    with Telnyx() as vendor:
        vendor.next_answer = Answer(status, {"errors": [{"code": code}]})
        [outcome] = send({"description": source, "server": vendor.url}, {}, SMS)
    return outcome


def reported(kind: str, code: str | int, note: str = "", source: str = TELNYX) -> Reported:
    basic = "Basic " + base64.b64encode(b"us:pass").decode()
    body = json.dumps({"event": kind, "id": "m-1", "code": code, "note": note}).encode()
    request = ReportRequest("POST", WEBHOOK, {"authorization": basic}, body)
    [one] = Described.read_report(request, ReportSource({"description": source}, ["us:pass"]))
    assert isinstance(one, Reported)
    return one


def test_each_table_has_a_source_and_lists_a_code_once() -> None:
    for row in ROWS:
        assert row["source"].startswith("https://"), row["names"]
        assert set(row) <= {"names", "hosts", "source", "others", "codes", "answers", "reports"}, row["names"]
        assert row.get("others", "us") in CAUSES
        for door in ("answers", "reports"):
            tables = [row.get("codes", {}), row.get(door, {})]
            assert all(set(table) <= {*CAUSES, BY_TEXT} for table in tables), row["names"]
            times = Counter(code.casefold() for table in tables for codes in table.values() for code in codes)
            assert [code for code, count in times.items() if count > 1] == [], row["names"]


def test_no_two_services_have_a_name_or_a_host_in_common() -> None:
    for key in ("names", "hosts"):
        times = Counter(one.casefold() for row in ROWS for one in row.get(key, ()))
        assert [one for one, count in times.items() if count > 1] == []
    assert set(CAUSES) == {cause.value for cause in AnswerCause}


def test_a_service_is_known_by_its_host_before_its_name() -> None:
    for url in ("https://api.telnyx.com/v2/messages", "https://TELNYX.com", "https://eu.api.telnyx.com:444/x"):
        found = find_service("Plivo", url)
        assert found is not None and found.name == "Telnyx"
    by_name = find_service("plivo", "https://relay.example.com/sms")
    assert by_name is not None and by_name.name == "Plivo"
    for url in ("https://telnyx.com.example.org/", "https://nottelnyx.com/", "", "/no/host"):
        assert find_service("Pigeon", url) is None


def test_a_number_says_nothing_without_its_service() -> None:
    assert judge_code("1").cause == "unknown"
    assert judge_code("1", "", find_service("Vonage")).cause == "capacity"
    assert judge_code("8", "", find_service("Vonage")).cause == "us"
    assert judge_code("0105", "", find_service("Clickatell")).cause == "recipient"
    assert judge_code("no such code", "user opted out", find_service("Clickatell")).cause == "recipient"


def test_a_listed_code_decides_whatever_words_stand_beside_it() -> None:
    assert judge_code("301", "unknown recipient", find_service("MSG91")).cause == "us"
    assert judge_code("9", "no (correct) recipients found", find_service("MessageBird")).cause == "recipient"


@pytest.mark.parametrize(
    ("status", "code", "expected", "cause"),
    [
        (400, "40310", Refused("40310"), "recipient"),
        (422, 40302, Refused("40302"), "content"),
        (422, "40305", NotSent("http 422: 40305", scope="credential", pause=True), "us"),
        (400, "40318", NotSent("http 400: 40318", 30.0, "credential"), "capacity"),
        (403, "40300", Refused("40300"), "recipient"),
        (403, "20013", NotSent("http 403: 20013", scope="credential", pause=True), "us"),
        (403, "99999", NotSent("http 403: login or account refused", scope="credential", pause=True), "us"),
        (401, "40310", NotSent("http 401: login or account refused", scope="credential", pause=True), "us"),
        (500, "40310", InDoubt("http 500"), None),
    ],
)
def test_an_answer_to_a_described_call_is_explained_by_the_table_of_the_host(
    status: int, code: str | int, expected: Outcome, cause: str | None
) -> None:
    outcome = sent(status, code)
    assert outcome == expected and getattr(outcome, "cause", None) == cause


def test_a_description_says_more_than_the_table() -> None:
    own = TELNYX + '\n[answer.causes]\n40310 = "us"\n\n[reports.codes]\n40012 = "us"\n'
    outcome = sent(400, "40310", own)
    assert isinstance(outcome, NotSent) and outcome.pause
    assert reported("undelivered", "40012", source=own).cause == "us"


def test_a_call_without_its_answers_end_is_in_doubt_where_a_code_would_decide() -> None:
    with Telnyx() as vendor:
        vendor.next_answer = Answer(422, {"errors": [{"code": "40305"}]}, cut=True)
        [outcome] = send({"description": TELNYX, "server": vendor.url}, {}, SMS)
    assert isinstance(outcome, InDoubt)


@pytest.mark.parametrize(
    ("kind", "code", "found"),
    [
        ("failed", "40012", ("bounced", "soft", "recipient")),
        ("undelivered", 40013, ("bounced", "blocked", "us")),
        ("blocked", "40001", ("bounced", "soft", "recipient")),
        ("refused", "40008", ("bounced", "hard", "recipient")),
        ("undelivered", "40011", ("bounced", "blocked", "capacity")),
        ("later", "40018", ("deferred", "soft", "capacity")),
        ("failed", "40300", ("failed", "soft", "")),
        ("undelivered", "99999", ("bounced", "soft", "")),
    ],
)
def test_a_described_report_is_explained_by_the_table(kind: str, code: str | int, found: tuple[str, str, str]) -> None:
    one = reported(kind, code)
    assert (one.kind, one.bounce, one.cause) == found


def test_our_own_form_of_answers_and_reports_has_the_table_of_its_host() -> None:
    table = find_service(url="https://api.telnyx.com/letters")

    def answered(status: int, body: Any) -> Outcome:
        return follow_cause(classify_http(status, {}, json.dumps(body).encode(), now=0.0, service=table))

    assert answered(400, {"code": "40310"}) == Refused("40310")
    paused = answered(422, {"code": 40305})
    assert isinstance(paused, NotSent) and paused.pause
    assert answered(403, {"code": "40300"}) == Refused("40300")
    assert isinstance(answered(403, {"code": "else"}), NotSent)
    for code, cause in (("40013", "us"), ("40012", "recipient"), ("none", "")):
        at = datetime.fromisoformat("2026-03-01T12:00:00+00:00")
        entry = {"reference": "ref-1", "id": "m-1", "status": "bounced", "at": at.isoformat(), "code": code}
        body = json.dumps({"receipts": [entry]})
        now = datetime.now().astimezone()
        signed = Signer(SECRET).sign("msg-1", now, body)
        headers = {"webhook-id": "msg-1", "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signed}
        source = ReportSource({"url": "https://api.telnyx.com/letters"}, [SECRET])
        [one] = Http.read_report(ReportRequest("POST", WEBHOOK, headers, body.encode()), source)
        assert isinstance(one, Reported) and one.cause == cause


def test_a_link_in_an_answer_tells_its_service() -> None:
    more = {"code": 21712, "message": "Hm", "more_info": "https://www.twilio.com/docs/errors/21712"}
    body = json.dumps(more).replace("/", "\\/").encode()
    assert isinstance(outcome := classify_http(400, {}, body, now=0.0), Refused) and outcome.cause == "us"
    assert find_linked('{"errors": [{"code": "40310", "url": "https://developers.telnyx.com/docs"}]}') == "recipient"
    assert judge_reply(None, "Error 21614: https://www.twilio.com/docs/errors/21614").cause == "recipient"
    assert find_linked("see https://example.org/errors/21614") == ""
    assert find_linked("https://www.twilio.com/docs/errors/99999") == ""
    assert find_linked("https://twilio.com/x " * 5 + "https://www.twilio.com/docs/errors/21614") == ""  # few are read
    assert judge_reply(550, "5.1.1 No such user. See https://postmarkapp.com/support").cause == "recipient"


@pytest.mark.parametrize(
    ("service", "body", "expected", "cause"),
    [
        ("sparkpost", {"errors": [{"code": "2102", "message": "limit"}]}, NotSent, "capacity"),
        ("sparkpost", {"errors": [{"code": "7001", "message": "recipient"}]}, NotSent, "us"),
        ("sparkpost", {"errors": [{"code": "5002", "message": "-"}]}, Refused, "recipient"),
        ("resend", {"name": "daily_quota_exceeded", "message": "recipient"}, NotSent, "capacity"),
        ("brevo", {"code": "not_enough_credits", "message": "to"}, NotSent, "us"),
        ("postmark", {"ErrorCode": 406, "Message": "account suspended"}, Refused, "recipient"),
        ("postmark", {"ErrorCode": 999, "Message": "to"}, NotSent, "us"),
        ("mailersend", {"message": "Reached its limit for recipients. #MS42204"}, NotSent, "capacity"),
    ],
)
def test_a_mail_services_answer_is_explained_by_its_table(
    service: str, body: Any, expected: type[Outcome], cause: str
) -> None:
    answer = Response(422, {}, json.dumps(body).encode())
    outcome = anymail_answers.judge_refused_request(service, answer, Refused("http_422"))
    assert type(outcome) is expected and getattr(outcome, "cause", None) == cause


@pytest.mark.parametrize(
    ("why", "expected", "cause"),
    [("unsub", Refused, "recipient"), ("unsigned", NotSent, "us"), ("test-mode-limit", NotSent, "capacity")],
)
def test_a_recipient_rejected_in_a_good_answer_has_the_cause_of_its_reason(
    why: str, expected: type[Outcome], cause: str
) -> None:
    body = json.dumps([{"email": "ann@example.com", "status": "rejected", "reject_reason": why}]).encode()
    outcome = anymail_answers.judge_rejected("mandrill", "rejected", Response(200, {}, body))
    assert type(outcome) is expected and getattr(outcome, "cause", None) == cause


SPARKPOST = {"type": "bounce", "raw_reason": "-", "rcpt_meta": {"reference": "ref-1"}, "message_id": "m-1"}
MAILJET = {"event": "bounce", "time": 1772366400, "email": "ann@example.com", "MessageID": 7}


@pytest.mark.parametrize(
    ("service", "event", "found"),
    [
        ("sparkpost", [{"msys": {"message_event": SPARKPOST | {"bounce_class": "51"}}}], "us"),
        ("sparkpost", [{"msys": {"message_event": SPARKPOST | {"bounce_class": "22"}}}], "recipient"),
        ("sparkpost", [{"msys": {"message_event": SPARKPOST | {"bounce_class": "1"}}}], ""),
        ("mailjet", [MAILJET | {"error": "sender blocked"}], "us"),
        ("mailjet", [MAILJET | {"error": "user unknown"}], "recipient"),
        ("mailjet", [MAILJET | {"error": "content blocked"}], "content"),
    ],
)
def test_a_mail_services_webhook_is_explained_by_its_table(service: str, event: Any, found: str) -> None:
    login = "Basic " + base64.b64encode(b"us:pass").decode()
    headers = {"content-type": "application/json", "authorization": login}
    request = ReportRequest("POST", WEBHOOK, headers, json.dumps(event).encode())
    [one] = anymail_reports.read_events(service, request, ["us:pass"])
    assert one.cause == found


@pytest.mark.parametrize(
    ("classified", "found"), [("Reputation", "us"), ("Invalid Address", "recipient"), ("Unclassified", "")]
)
def test_a_bounce_of_sendgrid_is_explained_by_its_classification(classified: str, found: str) -> None:
    event = {"email": "ann@example.org", "event": "bounce", "bounce_classification": classified}
    assert anymail_reports._listed_cause("sendgrid", event) == found
