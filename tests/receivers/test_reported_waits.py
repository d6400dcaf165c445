"""Bounces and delivery reports about us or our rate: their receiver waits, and nobody is suppressed for them."""

import json
import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns.audience.bounces import inbound
from campaigns.audience.bounces.inbound import InboundMail
from campaigns.content import return_paths
from campaigns.content.return_paths import ReturnPaths
from campaigns.engine import delivery_reports, sending
from campaigns.engine.claiming.receiver_waits import QUIET
from campaigns.models import Job, Message, MessageEvent, Suppression
from tests import factories
from tests.audience.forms import failed, written
from tests.audience.test_receiver import deliver, receiving
from tests.campaigns.rows import accepted, logged, messages
from tests.contracts.services import SERVICES
from tests.described.servers import Answer, Called, VendorServer
from tests.faults.sending import taken
from tests.front.program import fresh
from tests.front.test_reports_of_services import post
from tests.front.test_reports_of_services import sent as sent_by_service
from tests.receivers.relays import account, moody_relay
from vendors import receiver_domains
from vendors.adapters.reports import Reported
from vendors.models import Credential, ReceiverWait, Vendor

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
MAILBOX = "bounces@brand.example"
TSS04 = "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume or user complaints"
FULL = "452 4.2.2 <ann@example.org>: Recipient mailbox is full"
WEEK = [f"person{number}@yahoo.com" for number in range(3)]
DAY = timedelta(days=1)


def mailed(whom: list[str], by: Credential | None = None) -> Job:
    """A job by e-mail that a relay or service has accepted."""
    job = logged(len(whom), [accepted(f"v-{n}") for n in range(len(whom))], **({"of": by} if by else {}))
    Vendor.objects.filter(pk=job.vendor_id).update(channel="email")
    for row, recipient in zip(messages(job), whom, strict=True):
        Message.objects.filter(pk=row.pk).update(recipient=recipient)
    return job


def report(job: Job, kind: Any, note: str, number: int = 0, **more: Any) -> delivery_reports.ReportsStored:
    row, at = messages(job)[number], more.pop("at", None) or timezone.now()
    return delivery_reports.store_reports(
        job.vendor_id, [Reported(row.reference, kind, at, note=note, **more)], "relay"
    )


def report_named(job: Job, reference: str) -> delivery_reports.ReportsStored:
    return delivery_reports.store_reports(
        job.vendor_id, [Reported(reference, "deferred", timezone.now(), note=TSS04)], "relay"
    )


def return_path(row: Message) -> str:
    return ReturnPaths(MAILBOX, return_paths.return_path_keys()).of(row.reference)


def returned(row: Message, said: str, action: str = "failed") -> str:
    """A DSN about the message comes to its return path."""
    form, to = failed(said.split()[1], f"smtp; {said}", action), return_path(row)
    return inbound.store_mail(InboundMail(written(form, to), (to,), True, timezone.now()), "receiver").what


def waits() -> dict[tuple[int, str], tuple[str, float]]:
    rows = ReceiverWait.objects.values_list("credential", "receiver", "cause", "seconds")
    return {(login, receiver): (cause, seconds) for login, receiver, cause, seconds in rows}


def later(by: timedelta) -> None:
    """Let time pass: move all stored events back by this much."""
    MessageEvent.objects.update(at=F("at") - by, stored_at=F("stored_at") - by)
    Message.objects.update(sent_at=F("sent_at") - by)
    ReceiverWait.objects.update(since=F("since") - by, until=F("until") - by)


def by_smtp(job: Job, said: str) -> None:
    with receiving("smtp") as door, door.client() as client:
        _deliver_all(client, job, said)


def by_lmtp(job: Job, said: str) -> None:
    with receiving("lmtp") as door, door.client() as client:
        _deliver_all(client, job, said)


def _deliver_all(client: Any, job: Job, said: str) -> None:
    for row in messages(job):
        to = return_path(row)
        assert deliver(client, to, written(failed(said.split()[1], f"smtp; {said}"), to))[0] == 250


def by_report(job: Job, said: str) -> None:
    for number in range(len(WEEK)):
        report(job, "bounced", said, number, bounce="soft")


def by_careless_report(job: Job, said: str) -> None:
    """The vendor calls each bounce hard. A full mailbox is the recipient's own affair, and the vendor is believed."""
    for number in range(len(WEEK)):
        report(job, "bounced", said, number, bounce="hard")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("door", [by_smtp, by_lmtp, by_report, by_careless_report])
@pytest.mark.parametrize(("said", "number"), [(TSS04, 0), (FULL, 3)])
def test_after_a_week_of_tss04_nobody_is_suppressed_and_yahoo_waits(
    door: Callable[[Job, str], None], said: str, number: int, admin_client: Client
) -> None:
    """A full mailbox on as many days suppresses: the days are counted."""
    login = factories.credential(factories.vendor(channel="email"))
    sponsor = factories.sponsor()
    for _ in range(7):
        later(DAY)
        job = mailed(WEEK, login)
        type(job.campaign).objects.filter(pk=job.campaign_id).update(sponsor=sponsor)
        door(job, said)
    assert Suppression.objects.filter(reason="bounced").count() == number
    kinds = set(MessageEvent.objects.values_list("kind", flat=True))
    hard = number and door is by_careless_report
    assert kinds == ({"blocked"} if not number else {"hard_bounce"} if hard else {"soft_bounce"})
    login.refresh_from_db()
    assert not login.paused and login.retry_after_until is None
    if number:
        assert waits() == {}
        return
    assert waits() == {(login.pk, "yahoo"): ("us", 14400.0)}, "twice as long each day, up to the most of its rule"
    running = factories.campaign_with_job(WEEK, of=login, by=sponsor, status="DISPATCHED")
    page = admin_client.get(f"/campaigns/{running.campaign_id}/").content.decode()
    assert "yahoo waits until" in page and "it asked us to slow down" in page


@pytest.mark.parametrize(
    ("recipient", "said", "receiver", "cause", "seconds"),
    [
        ("a@yahoo.de", TSS04, "yahoo", "us", 1800),
        (
            "a@hotmail.com",
            "451 4.7.650 The mail server [192.0.2.1] has been temporarily rate limited due to IP reputation",
            "outlook",
            "us",
            1800,
        ),
        ("a@gmail.com", "421 4.7.28 Gmail has detected an unusual rate of email originating", "gmail", "us", 900),
        ("a@firm.example", "450 4.7.1 too many messages, slow down", "firm.example", "capacity", 30),
    ],
)
@pytest.mark.parametrize("action", ["delayed", "failed"])
def test_a_delay_or_a_bounce_lets_the_receiver_wait_on_the_credential_of_the_message(
    recipient: str, said: str, receiver: str, cause: str, seconds: float, action: str
) -> None:
    job, other = mailed([recipient]), mailed([recipient])
    assert returned(messages(job)[0], said, action) == ("delayed" if action == "delayed" else "blocked")
    [wait] = ReceiverWait.objects.all()
    assert (wait.credential_id, wait.receiver, wait.cause) == (job.credential_id, receiver, cause)
    assert wait.seconds >= seconds and wait.until > timezone.now() and wait.reported and not wait.refused
    assert "4.7." in wait.answer and "@" not in wait.answer and other.credential_id != job.credential_id
    (row,) = messages(job)
    assert row.message_id == "v-0" and row.report == (None if action == "delayed" else "bounced")
    assert not Suppression.objects.exists()


def test_a_refusal_for_good_because_of_us_is_shown_as_one() -> None:
    job = mailed(["a@gmail.com"])
    returned(messages(job)[0], "550 5.7.1 Our system has detected that this message is likely unsolicited mail")
    assert ReceiverWait.objects.get().refused


@pytest.mark.parametrize(
    "said",
    [
        "550 5.1.1 <ann@yahoo.com>: user unknown",
        "452 4.2.2 The recipient's mailbox is full",
        "450 4.7.1 Greylisted, please try again in 300 seconds",
        "552 5.3.4 Message size exceeds fixed limit",
        "421 4.4.1 Connection timed out",
        "550 5.1.90 Your message can't be sent because you've reached your daily limit for message recipients",
        "554 5.2.0 SubmissionQuotaExceededException; Message rejected by your submission quota",
        "550 5.7.1 relaying denied",
        "535 5.7.8 login failed for your account",
    ],
)
@pytest.mark.parametrize("kind", ["bounced", "deferred"])
def test_no_receiver_waits_for_what_it_has_not_said(said: str, kind: str) -> None:
    """Neither for its recipient's fault nor for the words of our relay about our account."""
    job = mailed(["ann@yahoo.com"])
    report(job, kind, said)
    assert waits() == {}


def test_a_report_that_comes_again_and_one_that_is_old_change_nothing() -> None:
    job = mailed(WEEK)
    for _ in range(3):
        report(job, "deferred", TSS04)
    [wait] = ReceiverWait.objects.all()
    assert (wait.answers, wait.seconds) == (1, 1800)
    later(timedelta(hours=1))
    again = ReceiverWait.objects.get()
    report(job, "deferred", TSS04)
    assert ReceiverWait.objects.get().until == again.until, "the same message tells nothing new"
    ReceiverWait.objects.all().delete()
    report(job, "deferred", TSS04, 1, at=timezone.now() - timedelta(hours=2))
    assert waits() == {}, "the wait would be over already"


def test_only_what_is_said_after_a_wait_doubles_it() -> None:
    job = mailed(WEEK)
    report(job, "deferred", TSS04)
    report(job, "deferred", TSS04, 1)
    [wait] = ReceiverWait.objects.all()
    assert (wait.seconds, wait.answers) == (1800, 2)
    later(timedelta(seconds=1801))
    before: datetime = ReceiverWait.objects.get().until
    report(job, "deferred", TSS04, 2, at=before - timedelta(seconds=10))
    wait.refresh_from_db()
    assert wait.seconds == 1800 and wait.until > timezone.now(), "said in the wait: not more than its length from there"
    later(timedelta(seconds=1801))
    other = mailed(["b@yahoo.com", "c@yahoo.com", "d@yahoo.com"], job.credential)
    old, resent, probe = messages(other)
    Message.objects.filter(pk__in=[resent.pk, probe.pk]).update(sent_at=timezone.now())
    Message.objects.filter(pk=resent.pk).update(resend_no=1)
    for row, seconds in ((old, 1800), (resent, 1800), (probe, 3600)):  # of the resent one, the earlier sending
        assert report_named(other, row.reference).events == 1
        wait.refresh_from_db()
        assert (wait.seconds, wait.until > timezone.now()) == (seconds, row == probe)


def test_late_reports_of_letters_called_before_a_wait_do_not_double_it() -> None:
    """Nothing was called since the first report, and each further report of an old letter comes after the wait."""
    job = mailed([f"r{n}@yahoo.com" for n in range(8)])
    for number in range(8):
        report(job, "deferred", TSS04, number)
        [wait] = ReceiverWait.objects.all()
        assert (wait.seconds, wait.answers) == (1800, number + 1)
        later(timedelta(seconds=wait.seconds + 1))


@pytest.mark.parametrize("every", [600, 1700, 2000])
def test_late_reports_of_letters_called_before_a_wait_leave_the_receiver_its_next_call(every: int) -> None:
    """They prolong the wait once, by its length."""
    job = mailed([f"r{n}@yahoo.com" for n in range(10)])
    for number in range(10):
        report(job, "deferred", TSS04, number)
        [wait] = ReceiverWait.objects.all()
        assert wait.until <= wait.since + timedelta(hours=1)
        later(timedelta(seconds=every))
    assert ReceiverWait.objects.get().until < timezone.now()


@pytest.mark.parametrize(
    ("said", "kind", "cause"),
    [
        ("552 5.3.4 Message size exceeds fixed limit", "blocked", "content"),
        ("554 5.6.0 virus detected in your message", "blocked", "content"),
        ("554 5.4.14 mail loop", "soft_bounce", "vendor"),
        ("421 4.4.1 Connection timed out", "soft_bounce", "vendor"),
        ("554 5.7.1 message contains spam content", "blocked", None),
        ("550 no further words", "hard_bounce", "recipient"),
    ],
)
def test_a_bounce_that_a_vendor_calls_hard_suppresses_only_for_what_is_the_recipients(
    said: str, kind: str, cause: str | None
) -> None:
    job = mailed(["ann@yahoo.com"])
    report(job, "bounced", said, bounce="hard")
    assert MessageEvent.objects.get().kind == kind
    assert Suppression.objects.exists() == (kind == "hard_bounce")
    assert cause is None or Message.objects.get().cause == cause


def test_many_receivers_that_begin_to_wait_are_few_lines_of_the_log(caplog: Any) -> None:
    job = mailed([f"r@domain{n}.example" for n in range(40)])
    said = [Reported(row.reference, "deferred", timezone.now(), note=TSS04) for row in messages(job)]
    delivery_reports.store_reports(job.vendor_id, said, "relay")
    lines = [line for line in map(logging.LogRecord.getMessage, caplog.records) if " wait" in line]
    assert len(lines) == delivery_reports.MOST_NAMED + 1
    assert "30 more receivers wait" in lines[-1] and ReceiverWait.objects.count() == 40


def test_ten_thousand_reports_cost_no_query_each() -> None:
    """Those of 10 receivers and as many as one request holds: one row each, by one statement."""
    numbers = {}
    for size in (10, 1_000):
        ReceiverWait.objects.all().delete()
        job = mailed([f"r{n}@domain{n % 10}.example" for n in range(size)])
        said = [Reported(row.reference, "deferred", timezone.now(), note=TSS04) for row in messages(job)]
        receiver_domains.refresh_domains(at_once=True)  # otherwise read every few seconds, by one query
        with CaptureQueriesContext(connection) as queries:
            assert delivery_reports.store_reports(job.vendor_id, said, "relay").events == size
        numbers[size] = len(queries)
        assert sorted(ReceiverWait.objects.values_list("answers", flat=True)) == [size // 10] * 10
    assert numbers[10] == numbers[1_000]


@pytest.mark.django_db(transaction=True)
def test_a_report_slows_one_receiver_and_what_the_relay_takes_does_not_end_that_at_once() -> None:
    with moody_relay(lambda to: None) as (relay, port):
        login = account(port)
        report(mailed(["a@yahoo.com"], login), "deferred", TSS04)
        whom = [f"r{n}@{domain}" for n in range(20) for domain in ("yahoo.com", "gmail.com")]
        job = taken(whom, login)
        assert sending.send_claimed_job(job.pk, job.fence).left
        assert relay.took == {"gmail.com": 20}
        job.refresh_from_db()
        assert "yahoo waits" in job.waits_for


@pytest.mark.parametrize(("seconds", "ago", "left"), [(1800, QUIET - 60, 1), (1800, QUIET + 60, 0), (30, 60, 0)])
@pytest.mark.django_db(transaction=True)
def test_a_reported_wait_is_forgotten_after_a_quiet_time(seconds: float, ago: float, left: int) -> None:
    with moody_relay(lambda to: None) as (relay, port):
        login, now = account(port), timezone.now()
        ReceiverWait.objects.create(
            credential=login, receiver="yahoo", cause="us", since=now - timedelta(seconds=seconds + ago), answer="x",
            until=now - timedelta(seconds=ago), seconds=seconds, reported=True,
        )  # fmt: skip
        job = taken([f"r{n}@yahoo.com" for n in range(3)], login)
        sending.send_claimed_job(job.pk, job.fence)
    assert relay.took == {"yahoo.com": 3} and ReceiverWait.objects.count() == left


class QuotingService(VendorServer):
    """A service that tries each mail immediately, and hands on the receiver's answer."""

    def __init__(self, moods: dict[str, str], account: str = "") -> None:
        super().__init__()
        self.moods, self.account = moods, account
        self.took: Counter[str] = Counter()

    def answer(self, called: Called) -> Answer:
        said = json.loads(called.body)
        domain = said["recipient"].rpartition("@")[2]
        if wrong := self.account or self.moods.get(domain):
            return Answer(422, {"code": "delivery", "sub_type": wrong})
        self.took[domain] += 1
        return Answer(201, {"id": f"id-{said['reference']}"})


@pytest.mark.django_db(transaction=True)
def test_a_service_that_quotes_a_receiver_slows_that_receiver_alone() -> None:
    with QuotingService({"yahoo.com": TSS04}) as service:
        settings = {"url": f"{service.url}/mails", "timeout": 30, "concurrency": 4}
        login = factories.credential(factories.vendor(settings=settings, channel="email"))
        whom = [f"r{n}@{domain}" for n in range(20) for domain in ("yahoo.com", "gmail.com", "firm.example")]
        job = taken(whom, login)
        assert sending.send_claimed_job(job.pk, job.fence).left
        assert service.took == {"gmail.com": 20, "firm.example": 20}
        assert len(service.calls) <= 40 + 3 * 4, "yahoo is not called on"
    [wait] = ReceiverWait.objects.all()
    assert (wait.receiver, wait.cause) == ("yahoo", "us") and not wait.reported
    login.refresh_from_db()
    job.refresh_from_db()
    assert not login.paused and login.retry_after_until is None
    assert (job.accepted, job.refused, job.in_doubt) == (40, 0, 0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("said", "pauses"), [("daily quota of your account exceeded", False), ("invalid API key for yahoo.com", True)]
)
def test_what_a_service_says_of_our_account_closes_the_credential(said: str, pauses: bool) -> None:
    with QuotingService({}, said) as service:
        settings = {"url": f"{service.url}/mails", "timeout": 30, "concurrency": 1}
        login = factories.credential(factories.vendor(settings=settings, channel="email"))
        job = taken(["a@yahoo.com", "b@gmail.com"], login)
        sending.send_claimed_job(job.pk, job.fence)
    login.refresh_from_db()
    assert waits() == {} and (login.paused, login.retry_after_until is not None) == (pauses, not pauses)


DEFERRED: dict[str, dict[str, Any]] = {
    "postmark": {"RecordType": "Bounce", "Type": "Transient", "ID": 9, "Details": f"smtp;{TSS04}"},
    "sendgrid": {"event": "deferred", "response": TSS04, "attempt": "1"},
    "brevo": {"event": "deferred", "reason": TSS04},
    "mailgun": {"event": "failed", "severity": "temporary", "reason": "generic"},
    "amazon_ses": {"eventType": "DeliveryDelay"},
}


@pytest.mark.parametrize("service", [one for one in SERVICES if one.name in DEFERRED], ids=lambda service: service.name)
def test_a_services_event_of_a_delay_lets_its_receiver_wait(service: Any, settings: Any, monkeypatch: Any) -> None:
    settings.PUBLIC_URL = "https://mail.example.com"
    vendor, (name,) = sent_by_service(service)
    Vendor.objects.filter(pk=vendor.pk).update(channel="email")
    Message.objects.filter(uuid=name[:36]).update(recipient="ann@yahoo.com")
    original = type(service).report
    monkeypatch.setattr(type(service), "report", lambda self, kind, of: deferring(original(self, "soft", of), service))
    body = service.packed("soft", name)
    assert post(vendor, body, service.sign(body)).status_code == 200
    [event] = MessageEvent.objects.all()
    assert (event.kind, "TSS04" in event.note) == ("deferred", True)
    slow = [] if service.name == "amazon_ses" else [("yahoo", "us")]  # the notice of SNS is of long ago
    assert list(ReceiverWait.objects.values_list("receiver", "cause")) == slow
    assert Message.objects.get(uuid=name[:36]).report is None and not Suppression.objects.exists()


def deferring(said: Any, service: Any) -> Any:
    """The service's report of a soft bounce, as one of a delay because of TSS04, now."""
    stamp = timezone.now()
    more = DEFERRED[service.name]
    if service.name == "sendgrid":
        return [one | more | {"timestamp": int(stamp.timestamp())} for one in said]
    if service.name == "mailgun":
        event = said["event-data"] | more | {"timestamp": stamp.timestamp()}
        return said | {"event-data": event | {"delivery-status": {"code": 421, "message": TSS04}}}
    if service.name == "amazon_ses":
        whom = [{"emailAddress": "ann@yahoo.com", "status": "4.7.0", "diagnosticCode": f"smtp; {TSS04}"}]
        kept = {name: value for name, value in said.items() if name not in ("bounce", "notificationType")}
        return (
            kept | more | {"deliveryDelay": {"delayType": "TransientCommunicationFailure", "delayedRecipients": whom}}
        )
    when = {"BouncedAt": stamp.isoformat()} if service.name == "postmark" else {"ts_epoch": stamp.timestamp() * 1000}
    return said | more | when
