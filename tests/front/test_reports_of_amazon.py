"""Reports of Amazon SES come by SNS, which wants its subscription to be confirmed before it reports."""

import base64
import json
import re
import sys
from typing import Any

import pytest
from django.test import Client

from campaigns.integrations.api.receipts import known_vendors
from tests.contracts.services import AmazonSes
from tests.front.program import fresh, problem
from tests.front.test_reports_of_services import post, sent
from tests.front.test_webhooks import receiver
from vendors import webhook_http
from vendors.adapters import anymail_reports
from vendors.adapters.anymail import Anymail
from vendors.adapters.reports import BadReport, NotTheVendor, ReportRequest, ReportSource, ToConfirm

__all__ = ["fresh", "receiver"]
pytestmark = pytest.mark.django_db
SES = AmazonSes()
ASKED = "?Action=ConfirmSubscription&TopicArn=arn:aws:sns:eu-west-1:123456789012:news&Token=2336412f"
GOOD = f"https://sns.eu-west-1.amazonaws.com/{ASKED}"


def confirming(url: str) -> bytes:
    return SES.notice("SubscriptionConfirmation", SubscribeURL=url, Token="2336412f", Message="You have chosen ...")


def read(body: bytes, headers: dict[str, str]) -> Any:
    request = ReportRequest("POST", "https://mail.example.com/x", headers, body)
    return Anymail.read_report(request, ReportSource({"service": "amazon_ses"}, [SES.signing]))


def test_a_subscription_is_confirmed_once_it_has_proved_to_be_ours(receiver: Any, monkeypatch: Any) -> None:
    vendor, _ = sent(SES)
    monkeypatch.setattr(anymail_reports, "_SUBSCRIBE", re.compile(r"http://127\.0\.0\.1:\d+/.*(?P<region>eu-west-1).*"))
    body = confirming(receiver.url.partition("/hook")[0] + "/" + ASKED)
    problem(post(vendor, body, {}), "not-the-vendor", 401)
    assert not receiver.got
    receiver.statuses = [500, 200]
    assert post(vendor, body, SES.sign(body)).status_code == 503, "SNS asks again"
    answer = post(vendor, body, SES.sign(body))
    assert (answer.status_code, answer.json()) == (200, {"changed": 0, "unknown": []})
    assert [path for _, _, path in receiver.got] == [f"/{ASKED}"] * 2
    assert not any("Authorization" in headers for headers, _, _ in receiver.got)


def test_the_reader_vouches_for_amazon_sns_in_the_topics_region() -> None:
    body = confirming(GOOD)
    with pytest.raises(ToConfirm) as wanted:
        read(body, SES.sign(body))
    assert wanted.value.url == GOOD
    with pytest.raises(NotTheVendor):
        read(body, {})


FOREIGN = [
    f"http://sns.eu-west-1.amazonaws.com/{ASKED}",
    f"https://sns.us-east-1.amazonaws.com/{ASKED}",
    f"https://sns.eu-west-1.amazonaws.com.example.com/{ASKED}",
    f"https://sns.eu-west-1.amazonaws.com@example.com/{ASKED}",
    f"https://example.com/sns.eu-west-1.amazonaws.com/{ASKED}",
    f"https://evil.eu-west-1.amazonaws.com/{ASKED}",
    f"https://sns.eu-west-1.amazonaws.com:8443/{ASKED}",
    "https://sns.eu-west-1.amazonaws.com/?Action=DeleteTopic&TopicArn=x",
    f"{GOOD}\r\nHost: example.com",
    f"{GOOD}\n",
    "https://169.254.169.254/latest/meta-data/",
    "",
]


@pytest.mark.parametrize("url", FOREIGN)
def test_nothing_else_is_called(url: str, monkeypatch: Any) -> None:
    async def called(_: str) -> None:
        raise AssertionError("a call")

    vendor, _ = sent(SES)
    monkeypatch.setattr(webhook_http, "get_once", called)
    body = confirming(url)
    problem(post(vendor, body, SES.sign(body)), "validation", 422)
    with pytest.raises(BadReport):
        read(body, SES.sign(body))


def test_a_name_of_amazons_that_leads_into_our_own_network_is_not_called(monkeypatch: Any) -> None:
    vendor, _ = sent(SES)
    monkeypatch.setattr(webhook_http.socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("169.254.169.254", 443))])
    body = confirming(GOOD)
    assert post(vendor, body, SES.sign(body)).status_code == 503


def test_sns_is_asked_for_its_login() -> None:
    vendor, (name,) = sent(SES)
    known_vendors.forget_all()
    body, path = SES.packed("delivered", name), f"/api/v1/receipts/{vendor.slug}"
    headers = {name: value for name, value in SES.sign(body).items() if name != "authorization"}
    first = Client().post(path, body, content_type="text/plain; charset=UTF-8", headers=headers)
    assert (first.status_code, first["WWW-Authenticate"]) == (401, 'Basic realm="receipts"')
    login = "Basic " + base64.b64encode(SES.signing.encode()).decode()
    second = Client().post(
        path, body, content_type="text/plain; charset=UTF-8", headers=headers | {"authorization": login}
    )
    assert (second.status_code, second.json()["changed"]) == (200, 1)


BOUNCES = [
    ("Permanent", "General", "smtp; 550 5.1.1 user unknown", "hard"),
    ("Permanent", "NoEmail", "", "hard"),
    ("Permanent", "Suppressed", "Amazon SES has suppressed sending to this address because of a history", "hard"),
    ("Permanent", "OnAccountSuppressionList", "it is on the suppression list for your account", "soft"),
    ("Permanent", "General", "smtp; 552 5.2.2 mailbox full", "soft"),
    ("Permanent", "General", "smtp; 550 5.7.1 rejected, listed at spamhaus", "blocked"),
    ("Transient", "General", "smtp; 550 5.1.1 user unknown", "soft"),
    ("Undetermined", "Undetermined", "", "soft"),
]


@pytest.mark.parametrize(("kind", "detail", "said", "bounce"), BOUNCES)
def test_a_bounce_is_hard_only_if_nothing_speaks_against_it(kind: str, detail: str, said: str, bounce: str) -> None:
    report = SES.report("hard", "ref-0") | {"bounce": SES.bounce(kind, detail, said)}
    body = SES.notice("Notification", Message=json.dumps(report))
    (found,) = read(body, SES.sign(body))
    assert (found.kind, found.bounce, found.reference) == ("bounced", bounce, "ref-0")


def test_reports_need_boto3_where_they_are_taken_and_that_is_told(monkeypatch: Any, caplog: Any) -> None:
    vendor, (name,) = sent(SES)
    monkeypatch.setitem(sys.modules, "boto3", None)
    body = SES.packed("delivered", name)
    problem(post(vendor, body, SES.sign(body)), "not-the-vendor", 401)
    assert "requirements-extras.txt" in caplog.text
