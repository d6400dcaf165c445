"""Delivery reports of described vendors: signed as the vendor does it, and taken as any other."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from django.apps import apps
from django.db.models.signals import post_migrate
from django.test import Client
from django.utils import timezone
from standardwebhooks import Webhook
from twilio.request_validator import RequestValidator

from campaigns.integrations.api.receipts import known_vendors
from tests.campaigns.rows import accepted
from tests.described.servers import ACCOUNT, TOKEN
from tests.described.test_descriptions import GOOD, faults
from tests.front.program import Program, api_vendor, fresh
from tests.front.test_delivery_reports import finished
from vendors import report_keys
from vendors.adapters.reports import BadReport, NotTheVendor, Reported, ReportRequest, ReportSource
from vendors.described.adapter import Described
from vendors.described.reading import read_entered
from vendors.models import Vendor

__all__ = ["fresh"]
URL = "https://mail.example.com/api/v1/receipts/sms?reference=0190-1"
DELIVERED = {"MessageSid": "SM1", "MessageStatus": "delivered", "AccountSid": ACCOUNT, "To": "+15005550006", "Ä": ""}


def read(description: str, request: ReportRequest, *secrets: str, **login: str) -> list[Reported]:
    settings = {"description": description, "account": ACCOUNT}
    return list(Described.read_report(request, ReportSource(settings, secrets, [login])))


def from_twilio(fields: Mapping[str, str], token: str = TOKEN, url: str = URL, signed: str = URL) -> ReportRequest:
    """As Twilio's own library signs it."""
    signature = RequestValidator(token).compute_signature(signed, fields)
    return ReportRequest("POST", url, {"x-twilio-signature": signature}, urlencode(fields).encode())


def test_twilios_reports_are_signed_with_the_auth_token_and_name_our_reference() -> None:
    [report] = read("twilio", from_twilio(DELIVERED), auth_token=TOKEN)
    assert (report.reference, report.kind, report.vendor_id) == ("0190-1", "delivered", "SM1")
    assert abs((report.at - datetime.now(UTC)).total_seconds()) < 60 and not report.timed, "Twilio says no time"
    with_port = URL.replace(".com/", ".com:443/")
    assert len(read("twilio", from_twilio(DELIVERED, signed=with_port), auth_token=TOKEN)) == 1


@pytest.mark.parametrize(
    ("fields", "kind", "bounce", "code"),
    [
        ({"MessageStatus": "undelivered", "ErrorCode": "30005"}, "bounced", "soft", "30005"),
        ({"MessageStatus": "undelivered", "ErrorCode": "30006"}, "bounced", "soft", "30006"),
        ({"MessageStatus": "undelivered", "ErrorCode": "30007"}, "bounced", "blocked", "30007"),
        ({"MessageStatus": "undelivered", "ErrorCode": "30003"}, "bounced", "soft", "30003"),
        ({"MessageStatus": "failed"}, "failed", "soft", ""),
    ],
)
def test_a_code_says_more_of_what_did_not_arrive(fields: dict[str, str], kind: str, bounce: str, code: str) -> None:
    [report] = read("twilio", from_twilio({"MessageSid": "SM1"} | fields), auth_token=TOKEN)
    assert (report.kind, report.bounce, report.code) == (kind, bounce, code)


def test_what_is_only_on_its_way_is_no_report() -> None:
    assert read("twilio", from_twilio({"MessageSid": "SM1", "MessageStatus": "sent"}), auth_token=TOKEN) == []


def test_nobody_else_reports_for_twilio() -> None:
    right = from_twilio(DELIVERED)
    others = [
        from_twilio(DELIVERED, token="another"),
        ReportRequest("POST", URL, right.headers, right.body.replace(b"SM1", b"SM2")),
        ReportRequest("POST", URL.replace("0190-1", "0190-2"), right.headers, right.body),
        ReportRequest("POST", URL, {}, right.body),
        ReportRequest("POST", URL, {"x-twilio-signature": "\ud83d"}, right.body),
    ]
    for request in others:
        with pytest.raises(NotTheVendor):
            read("twilio", request, auth_token=TOKEN)
    for logins in ({}, {"auth_token": ""}):
        with pytest.raises(NotTheVendor):
            read("twilio", from_twilio(DELIVERED, token=""), **logins)


def test_who_proves_nothing_costs_nothing_and_is_told_of_no_mistake_in_the_body() -> None:
    right = from_twilio(DELIVERED)
    many = b"&".join(b"a=1" for _ in range(1001))
    for signature in ("", "short", "x" * 10_000, right.headers["x-twilio-signature"]):
        for body in (b"\xff", many, b"a=" + b"x" * 70_000):
            with pytest.raises(NotTheVendor):
                read("twilio", ReportRequest("POST", URL, {"x-twilio-signature": signature}, body), auth_token=TOKEN)


EVENT = {
    "id": "evt_1",
    "event_type": {"id": "letter.delivered", "resource": "letters"},
    "date_created": "2026-11-01T10:00:00.123Z",
    "body": {"id": "ltr_1", "metadata": {"reference": "0190-1"}},
}


def from_lob(event: Any, secret: str = "hush", at: float | None = None) -> ReportRequest:
    body, stamp = json.dumps(event).encode(), str(int((at or time.time()) * 1000))
    signature = hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    headers = {"lob-signature": signature, "lob-signature-timestamp": stamp}
    return ReportRequest("POST", "https://mail.example.com/api/v1/receipts/letters", headers, body)


def lob(request: ReportRequest, *secrets: str) -> list[Reported]:
    settings = {"description": "lob", "return_address": "adr_1", "use_type": "marketing"}
    return list(Described.read_report(request, ReportSource(settings, secrets)))


def test_lobs_reports_are_signed_with_the_webhooks_secret_and_the_time() -> None:
    at = datetime(2026, 11, 1, 10, 0, 0, 123000, tzinfo=UTC)
    assert lob(from_lob(EVENT), "new", "hush") == [Reported("0190-1", "delivered", at, "ltr_1")]
    returned = EVENT | {"event_type": {"id": "letter.returned_to_sender"}}
    assert [one.kind for one in lob(from_lob(returned), "hush")] == ["bounced"]
    assert lob(from_lob(EVENT | {"event_type": {"id": "letter.mailed"}}), "hush") == []
    for wrong in (from_lob(EVENT, "other"), from_lob(EVENT, at=time.time() - 400)):
        with pytest.raises(NotTheVendor):
            lob(wrong, "hush")
    with pytest.raises(NotTheVendor):
        lob(from_lob(EVENT, ""))


@pytest.mark.parametrize(
    "event", [[1], "x", None, EVENT | {"body": {}}, EVENT | {"date_created": "soon"}, EVENT | {"date_created": 1e300}]
)
def test_a_report_that_is_signed_and_makes_no_sense_is_told(event: Any) -> None:
    with pytest.raises(BadReport):
        lob(from_lob(event), "hush")


REPORTS = """
[reports]
kind = "type"
events = "events"
id = "id"
time = "at"
note = "why"
kinds = { done = "delivered", spam = "complained" }
[reports.signature]
scheme = "SCHEME"
header = "X-Token"
"""
BODY = json.dumps({"events": [{"type": "done", "id": 7, "at": 1793527200, "why": "w"}, {"type": "spam", "id": "a",
                   "at": "Sun, 01 Nov 2026 10:00:00 +0000"}]}).encode()  # fmt: skip


@pytest.mark.parametrize("scheme", ["basic", "header", "standard-webhooks"])
def test_other_proofs_and_several_events_in_one_report(scheme: str) -> None:
    key = "whsec_" + base64.b64encode(b"k" * 24).decode() if scheme == "standard-webhooks" else "user:pass"
    moment = datetime.now(UTC)
    headers = {
        "basic": {"authorization": "Basic " + base64.b64encode(key.encode()).decode()},
        "header": {"x-token": key},
        "standard-webhooks": {"webhook-id": "m", "webhook-timestamp": str(int(moment.timestamp()))},
    }[scheme]
    if scheme == "standard-webhooks":
        headers["webhook-signature"] = Webhook(key).sign("m", moment, BODY.decode())
    source = GOOD + REPORTS.replace("SCHEME", scheme)
    at = datetime(2026, 11, 1, 10, tzinfo=UTC)
    request = ReportRequest("POST", "https://mail.example.com/r", headers, BODY)
    expected = [Reported("", "delivered", at, "7", "w"), Reported("", "complained", at, "a")]
    assert list(Described.read_report(request, ReportSource({"description": source}, [key]))) == expected
    with pytest.raises(NotTheVendor):
        Described.read_report(request, ReportSource({"description": source}, [key[:-1] + "x"]))


@pytest.mark.parametrize("secrets", [(), ("",)])
@pytest.mark.parametrize("scheme", ["hmac", "basic", "header", "standard-webhooks"])
def test_a_vendor_without_a_secret_reports_nothing(scheme: str, secrets: tuple[str, ...]) -> None:
    """Whatever proof is given: also that of an empty secret, which anybody can make."""
    stamp = str(int(time.time()))
    of_nothing = hmac.digest(b"", BODY, "sha256").hex()
    webhook = base64.b64encode(hmac.digest(b"", f"m.{stamp}.".encode() + BODY, "sha256")).decode()
    proofs = {
        "hmac": {"x-token": of_nothing},
        "basic": {"authorization": "Basic " + base64.b64encode(b"").decode()},
        "header": {"x-token": ""},
        "standard-webhooks": {
            "webhook-id": "m",
            "webhook-timestamp": stamp,
            "webhook-signature": f"v1,{webhook}",
        },
    }
    source = ReportSource({"description": GOOD + REPORTS.replace("SCHEME", scheme)}, secrets)
    for headers in (proofs[scheme], {}):
        with pytest.raises(NotTheVendor):
            Described.read_report(ReportRequest("POST", "https://mail.example.com/r", headers, BODY), source)


def test_a_key_that_cannot_sign_is_told_when_it_is_entered() -> None:
    for scheme, key in (("standard-webhooks", "user:pass"), ("standard-webhooks", ""), ("header", "")):
        with pytest.raises(ValueError, match=r"bytes|empty"):
            Described.check_report_key({"description": GOOD + REPORTS.replace("SCHEME", scheme)}, key)
    Described.check_report_key({"description": GOOD + REPORTS.replace("SCHEME", "header")}, "user:pass")


def test_mistakes_in_what_is_said_of_reports_are_told() -> None:
    wrong = (
        REPORTS.replace("SCHEME", "hmac").replace('header = "X-Token"', 'over = "{timestamp}{boody}"\nkey = "abc"')
        .replace('id = "id"\n', "").replace('"complained"', '"gone"') + "[reports.codes]\n1 = \"failed\"\n"
    )  # fmt: skip
    assert faults(GOOD + wrong).keys() == {
        "reports", "reports.kinds.spam", "reports.codes", "reports.signature", "reports.signature.over",
        "reports.signature.timestamp", "reports.signature.key",
    }  # fmt: skip
    assert not Described.sends_reports({"description": GOOD}) and Described.sends_reports({"description": "lob"})


@pytest.mark.parametrize(
    ("body", "reference", "over", "missing"),
    [
        ("json", "", "constant", "{body} or {fields}"), ("json", "", "{url}", "{body} or {fields}"),
        ("form", "", "{url}", "{body} or {form} or {fields}"), ("query", "", "{body}", "{url} or {fields}"),
        ("json", "ref", "{body}", "{url}"), ("form", "ref", "{form}", "{url}"),
        ("json", "", "{body}", ""), ("json", "ref", "{url}{body}", ""), ("form", "", "{form}", ""),
        ("form", "ref", "{url}{body}", ""), ("query", "ref", "{url}", ""), ("json", "", "{fields}", ""),
    ],
)  # fmt: skip
def test_what_is_read_of_a_report_is_signed(body: str, reference: str, over: str, missing: str) -> None:
    more = f'body = "{body}"\n' + (f'reference_query = "{reference}"\n' if reference else "")
    source = REPORTS.replace('events = "events"\n', more).replace('"SCHEME"', f'"hmac"\nover = "{over}"')
    if not missing:
        read_entered(GOOD + source)
        return
    assert faults(GOOD + source) == {
        "reports.signature.over": (source.count("\n", 0, source.index("over =")) + GOOD.count("\n") + 1,
                                   f"must hold {missing}, of which reports are read; if the vendor signs less, "
                                   'say where it does: contract = "..."')
    }  # fmt: skip
    read_entered(GOOD + source + 'contract = "https://pigeon.example/docs: nothing else is signed"\n')


def test_mistakes_in_where_a_signature_is_are_told() -> None:
    wrong = REPORTS.replace('"SCHEME"', '"hmac"\npath = "sig"\ntoken_path = "token"\ntimestamp_prefix = "t="')
    assert faults(GOOD + wrong).keys() == {
        "reports.signature", "reports.signature.token_path", "reports.signature.timestamp_prefix",
    }  # fmt: skip
    elsewhere = REPORTS.replace('"SCHEME"', '"basic"\npath = "sig"')
    assert faults(GOOD + elsewhere).keys() == {"reports.signature.path"}


@pytest.mark.parametrize("more", ['body = "query"\n', 'reference_query = "ref"\n'])
def test_standard_webhooks_signs_nothing_of_the_url(more: str) -> None:
    source = REPORTS.replace('events = "events"\n', more).replace("SCHEME", "standard-webhooks")
    assert faults(GOOD + source).keys() == {"reports.signature.scheme"}


@pytest.mark.django_db
def test_how_stored_vendors_report_is_read_again_after_an_upgrade() -> None:
    settings = {"description": GOOD + REPORTS.replace("SCHEME", "header")}
    by_id, other = (api_vendor(adapter="described", settings=one) for one in (settings, {"description": GOOD}))
    Vendor.objects.update(reports_by_id=False)
    Vendor.objects.filter(pk=other.pk).update(reports_by_id=True)
    vendors = apps.get_app_config("vendors")
    post_migrate.send(vendors, app_config=vendors, using="default", verbosity=0, interactive=False)
    assert list(Vendor.objects.filter(reports_by_id=True)) == [by_id]


@pytest.mark.django_db
def test_a_report_of_twilio_changes_the_message_it_names(settings: Any) -> None:
    settings.PUBLIC_URL = "https://mail.example.com"
    row = api_vendor(adapter="described", settings={"description": "twilio", "account": ACCOUNT})
    login = row.credentials.get()
    login.secret = {"auth_token": TOKEN}
    login.save()
    program = Program()
    links, [reference] = finished(program, row, [accepted("SM1")])
    path = f"/api/v1/receipts/{row.slug}?reference={reference}"
    signed = from_twilio(DELIVERED, signed=f"https://mail.example.com{path}")
    known_vendors.forget_all()

    def post(headers: Mapping[str, str]) -> Any:
        form = "application/x-www-form-urlencoded"
        return Client().post(path, signed.body, content_type=form, headers=headers)

    assert post({}).status_code == 401
    answer = post(signed.headers)
    assert answer.status_code == 200 and answer.json() == {"changed": 1, "unknown": []}
    assert [one["status"] for one in program.get(links["messages"]).json()["data"]] == ["delivered"]
    post(signed.headers)
    assert [one["status"] for one in program.get(links["messages"]).json()["data"]] == ["delivered"]


@pytest.mark.django_db
def test_a_report_of_lob_changes_the_message_it_names() -> None:
    own = {"description": "lob", "return_address": "adr_1", "use_type": "marketing"}
    row = api_vendor(adapter="described", settings=own)
    report_keys.enter_key(row, "hush", timezone.now())
    program = Program()
    address = {"name": "Ann", "address_line1": "Main Street 1", "address_city": "Town"}
    links, [reference] = finished(program, row, [accepted("ltr_1")], fields=address)
    signed = from_lob(EVENT | {"body": {"id": "ltr_1", "metadata": {"reference": reference}}})
    known_vendors.forget_all()
    path = f"/api/v1/receipts/{row.slug}"
    for changed in (1, 0):
        answer = Client().post(path, signed.body, content_type="application/json", headers=signed.headers)
        assert answer.status_code == 200 and answer.json() == {"changed": changed, "unknown": []}
    assert [one["status"] for one in program.get(links["messages"]).json()["data"]] == ["delivered"]
