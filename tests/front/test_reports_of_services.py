"""E-mail services report in their own forms, each with its own signature."""

import json
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from campaigns.integrations.api.receipts import known_vendors
from campaigns.models import Message, MessageEvent, Suppression
from tests.campaigns.rows import accepted, logged, messages
from tests.contracts.services import AT, SERVICES, Service
from tests.front.program import api_vendor, fresh, problem
from vendors import report_keys
from vendors.adapters import anymail_reports
from vendors.adapters.anymail import SERVICES as ANYMAIL
from vendors.adapters.anymail import Anymail
from vendors.adapters.reports import NotTheVendor, ReportRequest, ReportSource
from vendors.models import Credential

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
each = pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
BASE = "https://mail.example.com"


@pytest.fixture(autouse=True)
def _public(settings: Any) -> None:
    settings.PUBLIC_URL = BASE


def sent(service: Service, letters: int = 1) -> tuple[Any, list[str]]:
    """A vendor of that service with the secret of its reports, and references of letters that it has accepted."""
    job = logged(letters, [accepted(f"v-{number}") for number in range(letters)])
    vendor = api_vendor(adapter="anymail", settings={"service": service.name, "more": service.more})
    Credential.objects.filter(pk=job.campaign.credential_id).update(vendor=vendor)
    report_keys.enter_key(vendor, service.signing, timezone.now())
    return vendor, [row.reference for row in messages(job)]


def post(vendor: Any, body: bytes, headers: dict[str, str]) -> Any:
    known_vendors.forget_all()
    return Client().post(f"/api/v1/receipts/{vendor.slug}", body, content_type="application/json", headers=headers)


@each
def test_what_a_service_reports_comes_to_the_letter(service: Service) -> None:
    kinds = ("delivered", "hard", "soft", "complained", "opened")
    vendor, names = sent(service, len(kinds))
    for _ in range(2):
        for kind, name in zip(kinds, names, strict=True):
            body = service.packed(kind, name)
            answer = post(vendor, body, service.sign(body))
            assert (answer.status_code, answer.json()["unknown"]) == (200, []), answer.content
    first = Message.objects.get(uuid=names[0][:36])
    if service.name != "brevo":  # which rounds
        assert first.report_at is not None and (first.report_at == AT or service.name in ("postmark", "resend"))
    mailgun = service.name == "mailgun"  # what failed for now it tries again by itself
    reports = list(
        Message.objects.filter(uuid__in=[name[:36] for name in names]).order_by("id").values_list("report", flat=True)
    )
    assert reports == ["delivered", "bounced", None if mailgun else "bounced", None, None]
    soft = ["deferred"] if mailgun else ["blocked"] if service.name == "sendgrid" else ["soft_bounce"]
    found = list(MessageEvent.objects.order_by("message_id").values_list("kind", flat=True))
    assert found == ["hard_bounce", *soft, "complaint", "opened"]
    assert sorted(Suppression.objects.values_list("reason", flat=True)) == ["bounced", "complained"]


@each
def test_a_report_without_the_services_signature_is_refused(service: Service) -> None:
    vendor, (name,) = sent(service)
    body = service.packed("delivered", name)
    good = service.sign(body)
    forged = [{}, dict.fromkeys(good, "nonsense")] if good else []
    if service.name in ("sendgrid", "resend"):
        forged.append(good)
        problem(post(vendor, body.replace(b"ann@", b"eve@"), good), "not-the-vendor", 401)
        forged.pop()
    if service.name == "mailgun":
        body = body.replace(b'"token": "t', b'"token": "x')
        forged = [{}]
    for headers in forged:
        problem(post(vendor, body, headers), "not-the-vendor", 401)
    report_keys.revoke_keys(vendor)
    body = service.packed("delivered", name)
    problem(post(vendor, body, service.sign(body)), "not-the-vendor", 401)
    assert Message.objects.get(uuid=name[:36]).report is None


@each
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"event": 7}', b"\xff\xfe", b"[[[[", b"null"])
def test_nonsense_stores_nothing_and_is_told(service: Service, body: bytes) -> None:
    vendor, _ = sent(service)
    assert post(vendor, body, service.sign(body) if body != b"\xff\xfe" else {}).status_code in (200, 401, 422)
    assert not MessageEvent.objects.exists()


@each
def test_both_signing_secrets_hold_during_a_rotation(service: Service) -> None:
    vendor, (name,) = sent(service)
    other = "whsec_b3RoZXI=" if service.name == "resend" else "u:p"
    report_keys.enter_key(vendor, other, timezone.now())
    body = service.packed("opened", name)
    assert post(vendor, body, service.sign(body)).status_code == 200
    assert MessageEvent.objects.count() == 1


TOO_OLD = {"severity": "permanent", "reason": "old", "delivery-status": {"code": 602, "message": "Too old"}}
FULL = {"code": 552, "message": "mailbox full"}
UNKNOWN = {"code": 550, "enhanced-code": "5.1.1", "message": "no such user"}
BOUNCES = [
    ("mailgun", TOO_OLD, "soft"),
    ("mailgun", {"severity": "permanent", "reason": "bounce", "delivery-status": FULL}, "soft"),
    ("mailgun", {"severity": "permanent", "reason": "suppress-unsubscribe"}, "soft"),
    ("mailgun", {"severity": "permanent", "reason": "suppress-complaint"}, "soft"),
    ("mailgun", {"severity": "permanent", "reason": "generic", "delivery-status": UNKNOWN}, "hard"),
    ("mailgun", {"severity": "permanent", "reason": "bounce"}, "hard"),
    ("sendgrid", {"event": "bounce", "type": "bounce", "status": "5.2.2", "reason": "552 quota"}, "soft"),
    ("sendgrid", {"event": "bounce", "type": "bounce", "status": "5.2.2", "reason": ""}, "soft"),
    ("sendgrid", {"event": "bounce", "reason": "it came back"}, "soft"),
    ("sendgrid", {"event": "bounce", "reason": "550 5.1.1 unknown user"}, "hard"),
    ("postmark", {"Type": "HardBounce", "Details": "smtp;550 mailbox is full"}, "soft"),
]


@pytest.mark.parametrize(("name", "change", "bounce"), BOUNCES)
def test_a_bounce_is_hard_only_if_nothing_speaks_against_it(name: str, change: dict[str, Any], bounce: str) -> None:
    service = next(one for one in SERVICES if one.name == name)
    report = service.report("hard", "ref-0")
    event = report["event-data"] if name == "mailgun" else report[0] if name == "sendgrid" else report
    for old in ("type", "reason"):
        event.pop(old, None)
    event.update(change)
    body = json.dumps(report).encode()
    headers = {"content-type": "application/json"} | service.sign(body)
    (found,) = anymail_reports.read_events(name, ReportRequest("POST", f"{BASE}/x", headers, body), [service.signing])
    assert (found.kind, found.bounce) == ("bounced", bounce)


@pytest.mark.parametrize("name", ANYMAIL)
@pytest.mark.parametrize("body", [b"[" * 100_000, b"{}", b"\xff"])
def test_what_a_stranger_posts_is_not_the_vendors_whatever_it_is(name: str, body: bytes) -> None:
    for kind in ("application/json", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        request = ReportRequest("POST", f"{BASE}/x", {"content-type": kind}, body)
        with pytest.raises(NotTheVendor):
            anymail_reports.read_events(name, request, ["user:password"])


@pytest.mark.parametrize("name", sorted(set(ANYMAIL) - set(anymail_reports.SIGNED) - {"resend", "scaleway"}))
def test_of_who_has_not_the_login_nothing_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(anymail_reports, "_to_django_request", lambda request: read.append(request.url))
    guesses = ["", "user:password", "Basic", "Basic user:password", "Bearer dXNlcjpwYXNzd29yZA==", "Basic dXNlcjpw"]
    for guess in [*guesses, "Basic \ud800", "Basic \u00e9"]:
        request = ReportRequest("POST", f"{BASE}/x", {"authorization": guess}, b"[" * 5_000_000)
        with pytest.raises(NotTheVendor):
            anymail_reports.read_events(name, request, ["user:password", "other:one"])
    assert read == []
    request = ReportRequest("POST", f"{BASE}/x", {"authorization": "basic dXNlcjpwYXNzd29yZA=="}, b"{}")
    with pytest.raises(NotTheVendor):  # what is read here is nothing
        anymail_reports.read_events(name, request, ["other:one", "user:password"])
    assert len(read) == 1, "by the secret that it has"


def test_a_report_needs_no_file_of_the_workers_and_scaleway_sends_none() -> None:
    service = next(one for one in SERVICES if one.name == "postmark")
    body = service.packed("delivered", "ref-0")
    request = ReportRequest("POST", f"{BASE}/x", service.sign(body), body)
    settings = {"service": "postmark", "ca_file": "/nowhere/ca.pem"}
    (found,) = Anymail.read_report(request, ReportSource(settings, [service.signing]))
    assert (found.kind, found.reference) == ("delivered", "ref-0")
    assert Anymail.sends_reports(settings) and not Anymail.sends_reports({"service": "scaleway"})
