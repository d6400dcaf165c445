"""Whole jobs over described vendors: real rows, a real sender, real sockets; the vendor's books decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from campaigns.engine import delivery_reports
from campaigns.models import Identity, Job, Message
from tests import factories
from tests.described.servers import (
    ACCOUNT,
    DOMAIN,
    KEY,
    MAILGUN_KEY,
    SERVER_TOKEN,
    TOKEN,
    Answer,
    Called,
    Lob,
    Mailgun,
    Postmark,
    Twilio,
)
from tests.described.test_descriptions import GOOD, Pigeon
from tests.described.test_mailgun import webhook
from tests.described.test_reports import BODY, REPORTS
from tests.faults.checker import sums
from tests.faults.sending import send_the_rest, taken
from vendors.adapters.reports import ReportRequest, ReportSource
from vendors.described.adapter import Described

pytestmark = pytest.mark.django_db(transaction=True)


def job(channel: str, settings: Mapping[str, Any], secret: Mapping[str, str], to: list[str], **content: Any) -> Job:
    vendor = factories.vendor(adapter="described", channel=channel, settings=dict(settings))
    made = taken(to, factories.credential(vendor, secret=dict(secret)))
    params = content.pop("params", None)
    if params:
        Message.objects.update(params=params)
    for name, value in content.items():
        setattr(made.campaign, name, value)
    made.campaign.save()
    return made


class Forgetful(Twilio):
    """Takes every tenth SMS and answers 503."""

    def answer(self, called: Called) -> Answer:
        usual = super().answer(called)
        return Answer(503) if usual.status == 201 and b"7&" in called.body.split(b"From")[0] else usual


def test_each_sms_is_at_twilio_once_and_only_lost_answers_are_in_doubt() -> None:
    to = [f"+155501{number:05}" for number in range(60)]
    with Forgetful() as vendor:
        vendor.stopped = to[3]
        settings = {"description": "twilio", "server": vendor.url, "account": ACCOUNT, "from": "+15005550001"}
        settings |= {"concurrency": 4, "reports_to": "https://mail.example.com/api/v1/receipts/sms"}
        send_the_rest(job("sms", settings, {"auth_token": TOKEN}, to))
        assert sums() == {"accepted": 53, "refused": 1, "in doubt": 6}
        assert len(vendor.books) == 59 and set(vendor.books.values()) == {1}
    ids = set(Message.objects.filter(message_id__startswith="SM").values_list("message_id", flat=True))
    assert len(ids) == 53


def test_each_letter_is_at_lob_once() -> None:
    to = [f"person{number}@example.com" for number in range(12)]
    address = {"name": "Ann", "address_line1": "1 Main St", "address_city": "Austin", "address_state": "TX"}
    with Lob() as vendor:
        settings = {"description": "lob", "server": vendor.url, "return_address": "adr_210a8d4b0b76d77b"}
        settings |= {"use_type": "operational", "concurrency": "3"}
        own = {"params": address | {"address_zip": "78701"}, "html": True, "body": "<p>Dear {{ name }}</p>"}
        send_the_rest(job("print", settings, {"api_key": KEY}, to, **own))
        assert sums() == {"accepted": 12}
        references = {one.reference for one in Message.objects.all()}
        assert set(vendor.books) == references and set(vendor.books.values()) == {1}
        assert {letter["file"] for letter in vendor.letters} == {"<p>Dear Ann</p>"}


def test_a_job_over_postmark_is_called_in_batches() -> None:
    to = [f"person{number}@example.com" for number in range(1200)]
    to[5] = Postmark.inactive
    with Postmark() as vendor:
        settings = {"description": "postmark", "server": vendor.url, "concurrency": "2"}
        made = job("email", settings, {"server_token": SERVER_TOKEN}, to)
        made.campaign.identity = Identity.objects.create(
            sponsor=made.sponsor, name="main", from_name="Velma", from_address="velma@example.com"
        )
        made.campaign.save()
        send_the_rest(made)
        assert sums() == {"accepted": 1199, "refused": 1}
        assert sum(vendor.books.values()) == len(vendor.books) == 1199
        assert len(vendor.calls) < 20


def test_a_job_over_mailgun_is_called_in_batches_and_each_letter_has_evidence_of_its_own() -> None:
    to = [f"person{number}@example.com" for number in range(2200)]
    with Mailgun() as vendor:
        settings = {"description": "mailgun", "server": vendor.url, "domain": DOMAIN, "concurrency": "2"}
        made = job("email", settings, {"api_key": MAILGUN_KEY}, to)
        made.campaign.identity = Identity.objects.create(
            sponsor=made.sponsor, name="main", from_name="Velma", from_address="velma@example.com"
        )
        made.campaign.save()
        send_the_rest(made)
        assert sums() == {"accepted": 2200}
        assert vendor.books == {one.reference: 1 for one in Message.objects.all()}
        assert len(vendor.calls) < 20
        assert {mail.to for mail in vendor.mails} == set(to)
    assert Message.objects.values("message_id").distinct().count() == 2200
    one = Message.objects.get(recipient=to[7])
    assert one.message_id is not None
    event = {"event": "delivered", "user-variables": {"reference": one.reference}}
    name = one.message_id.partition(" ")[0]
    signed = webhook(event | {"message": {"headers": {"message-id": name}}})
    reported = Described.read_report(signed, ReportSource({"description": "mailgun", "domain": DOMAIN}, ["hush"]))
    assert [report.vendor_id for report in reported] == [one.message_id]
    assert delivery_reports.store_reports(made.vendor_id, reported, "mailgun").changed == 1
    assert Message.objects.get(pk=one.pk).report == "delivered"


def test_a_report_that_names_the_vendors_id_alone_finds_its_letter() -> None:
    with Pigeon() as server:
        settings = {"description": GOOD + REPORTS.replace("SCHEME", "header"), "server": server.url}
        made = job("email", settings, {"token": "t"}, ["ann@example.com"])
        send_the_rest(made)
    request = ReportRequest("POST", "https://mail.example.com/r", {"x-token": "hush"}, BODY.replace(b"7", b'"p-1"', 1))
    reported = Described.read_report(request, ReportSource(settings, ["hush"]))
    assert [(one.reference, one.vendor_id) for one in reported] == [("", "p-1"), ("", "a")]
    assert delivery_reports.store_reports(made.vendor_id, reported[:1], "pigeon").changed == 1
    assert Message.objects.get().report == "delivered"
