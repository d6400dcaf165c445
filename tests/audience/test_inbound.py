"""A mail that comes back is one event of its message, suppresses whom it must, and is counted whatever it is."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from campaigns.audience.bounces import inbound
from campaigns.audience.bounces.inbound import InboundMail
from campaigns.content import return_paths
from campaigns.content.return_paths import ReturnPaths
from campaigns.doors import token_keys
from campaigns.engine import audit
from campaigns.models import InboundCount, Job, Message, MessageEvent, Suppression
from campaigns.suppression import lists
from tests.audience.forms import FORMS, written
from tests.campaigns.rows import accepted, in_doubt, logged, messages
from vendors.models import Vendor

pytestmark = pytest.mark.django_db
Kind = MessageEvent.Kind
MAILBOX = "bounces@brand.example"


@pytest.fixture(autouse=True)
def by_email(settings: Any) -> None:
    settings.SOFT_BOUNCES = 3


def sent(number: int = 1, shape: dict[str, Any] | None = None) -> Job:
    job = logged(number, [shape or accepted(f"v-{n}") for n in range(number)])
    Vendor.objects.filter(pk=job.vendor_id).update(channel="email")
    for row in messages(job):
        Message.objects.filter(pk=row.pk).update(recipient=f"person{row.pk}@example.org")
    return job


def address(row: Message) -> str:
    return ReturnPaths(MAILBOX, return_paths.return_path_keys()).of(row.reference)


def back(row: Message, form: str, *, to: str | None = None, reference: str = "x", at: datetime | None = None) -> str:
    """Takes the mail as its return path gets it; returns what it was."""
    to = to or address(row)
    mail = InboundMail(written(FORMS[form][0], to, reference), (to,), True, at or timezone.now())
    return inbound.store_mail(mail, "receiver").what


def events() -> list[tuple[int, str, str]]:
    return list(MessageEvent.objects.order_by("id").values_list("message_id", "kind", "code"))


def suppressed() -> set[tuple[str, str]]:
    return set(Suppression.objects.values_list("address", "reason"))


def counts() -> dict[str, int]:
    """Of all days: one may end within a test."""
    return dict(InboundCount.objects.values_list("what").annotate(Sum("mails")).order_by())


def broken() -> list[str]:
    return [f"{check.question}: {check.examples}" for check in audit.ask_all_questions() if not check.is_kept]


def test_a_hard_bounce_is_an_event_and_suppresses_its_recipient_and_the_message_stays_sent() -> None:
    job = sent(2)
    first, second = messages(job)
    assert back(first, "postfix, unknown") == Kind.HARD_BOUNCE
    assert events() == [(first.pk, "hard_bounce", "5.1.1")]
    assert suppressed() == {(first.recipient, "bounced")}
    first.refresh_from_db()
    assert (first.message_id, first.report, first.error_code) == ("v-0", "bounced", None)
    job.refresh_from_db()
    assert (job.accepted, job.bounced) == (2, 1)
    assert Suppression.objects.get().sponsor_id == job.sponsor_id
    assert broken() == [] and second.report is None


def test_the_same_mail_again_is_one_event_also_after_a_person_has_lifted_the_suppression() -> None:
    (row,) = messages(sent())
    assert back(row, "postfix, unknown") == Kind.HARD_BOUNCE
    lists.lift_suppressions(Suppression.objects.values_list("pk", flat=True))
    assert [back(row, "postfix, unknown") for _ in range(3)] == ["repeated"] * 3
    assert len(events()) == 1
    assert Suppression.objects.get().until is not None
    assert counts() == {"hard_bounce": 1, "repeated": 3}


def test_a_complaint_suppresses_and_is_no_delivery() -> None:
    (row,) = messages(sent())
    assert back(row, "yahoo, feedback", to=address(row)) == Kind.COMPLAINT
    assert events() == [(row.pk, "complaint", "")] and suppressed() == {(row.recipient, "complained")}
    row.refresh_from_db()
    assert row.report is None


def test_feedback_that_comes_to_the_mailbox_names_the_message_by_its_return_path() -> None:
    (row,) = messages(sent())
    mail = InboundMail(written(FORMS["yahoo, feedback"][0], address(row)), (MAILBOX,), False, timezone.now())
    assert inbound.store_mail(mail, "mailbox").what == Kind.COMPLAINT


def test_a_report_to_another_address_names_the_message_by_its_message_id() -> None:
    (row,) = messages(sent())
    assert back(row, "postfix, unknown", to="hello@brand.example", reference=row.reference) == Kind.HARD_BOUNCE
    assert back(row, "qmail", to="hello@brand.example", reference=row.reference) == "repeated"


def test_who_is_blocked_or_full_is_not_suppressed() -> None:
    (row,) = messages(sent())
    assert back(row, "gmail, as spam") == Kind.BLOCKED
    assert back(row, "full, though 5.x") == Kind.SOFT_BOUNCE
    assert suppressed() == set() and len(events()) == 2


def test_soft_bounces_on_several_days_harden_into_a_suppression() -> None:
    today = timezone.now()
    jobs = [sent() for _ in range(5)]
    rows = [messages(job)[0] for job in jobs]
    for row, job in zip(rows, jobs, strict=True):
        Message.objects.filter(pk=row.pk).update(recipient="ann@example.org")
        type(job.campaign).objects.filter(pk=job.campaign_id).update(sponsor=jobs[0].sponsor_id)
    back(rows[0], "full, though 5.x", at=today - timedelta(days=2))
    back(rows[1], "full, though 5.x", at=today - timedelta(days=2))  # the same day counts once
    back(rows[2], "full, though 5.x", at=today - timedelta(days=1))
    assert suppressed() == set()
    back(rows[3], "full, though 5.x", at=today)
    assert suppressed() == {("ann@example.org", "bounced")}
    assert "soft bounces on 3 days" in Suppression.objects.get().source
    lists.lift_suppressions(Suppression.objects.values_list("pk", flat=True))
    back(rows[4], "full, though 5.x")
    assert Suppression.objects.filter(until=None).count() == 0, "it counts anew after a person has lifted it"


def test_soft_bounces_never_harden_where_the_setting_is_0(settings: Any) -> None:
    settings.SOFT_BOUNCES = 0
    (row,) = messages(sent())
    back(row, "full, though 5.x")
    assert suppressed() == set()


def test_a_bounce_proves_that_a_message_in_doubt_was_sent_and_never_makes_one_callable() -> None:
    job = sent(1, in_doubt())
    (row,) = messages(job)
    back(row, "postfix, unknown")
    row.refresh_from_db()
    assert row.in_doubt_at is None and row.message_id and row.report == "bounced"
    assert broken() == []


def test_a_delay_is_an_event_once_and_changes_nothing() -> None:
    (row,) = messages(sent())
    assert [back(row, "postfix, delayed") for _ in range(2)] == ["delayed"] * 2
    assert events() == [(row.pk, "deferred", "4.4.1")] and suppressed() == set() and counts() == {"delayed": 2}
    row.refresh_from_db()
    assert (row.message_id, row.report) == ("v-0", None) and broken() == []


@pytest.mark.parametrize("form", ["out of office", "a person answers", "challenge", "empty"])
def test_what_is_no_bounce_is_counted_and_changes_nothing(form: str) -> None:
    (row,) = messages(sent())
    what = back(row, form)
    assert events() == [] and suppressed() == set() and counts() == {what: 1}


def test_an_address_that_we_did_not_make_harms_nobody() -> None:
    (row,) = messages(sent())
    good = address(row)
    token = good.partition("+")[2].partition("@")[0]
    wrong = token[:-1] + ("a" if token[-1] != "a" else "b")
    assert back(row, "postfix, unknown", to=good.replace(token, wrong)) == "forged"
    other = "0" if row.reference[-3] != "0" else "1"
    mailto = ReturnPaths(MAILBOX, return_paths.return_path_keys()).of(row.reference, "unsubscribe")
    assert back(row, "postfix, unknown", to=mailto) == "forged", "made for another purpose"
    assert back(row, "postfix, unknown", to=MAILBOX, reference=f"{row.reference[:-3]}{other}-0") == "not_ours"
    assert events() == [] and suppressed() == set()


def test_an_address_is_read_in_capitals_with_other_signs_and_after_new_keys() -> None:
    (row,) = messages(sent())
    old = address(row)
    token_keys.add_key()
    for written_so in (old, old.upper(), old.replace("+", "-"), f"prvs=1234567890={old}"):
        found = return_paths.read_return_path(written_so, "return-path")
        assert found and (found.id, found.uuid, found.resend_no) == (row.pk, row.uuid, 0), written_so
    assert len(old.rpartition("@")[0]) <= 64


def test_a_sending_that_there_was_not_is_no_event() -> None:
    (row,) = messages(sent())
    later = ReturnPaths(MAILBOX, return_paths.return_path_keys()).of(f"{row.uuid}-1")
    assert back(row, "postfix, unknown", to=later) == "not_ours" and events() == []


def test_a_mail_from_the_future_is_of_now() -> None:
    (row,) = messages(sent())
    back(row, "postfix, unknown", at=datetime(2999, 1, 1, tzinfo=UTC))
    assert MessageEvent.objects.get().at <= timezone.now()


def test_a_mail_takes_few_statements(django_assert_max_num_queries: Any) -> None:
    (row,) = messages(sent())
    to = address(row)
    with django_assert_max_num_queries(40, connection=connection):
        back(row, "postfix, unknown", to=to)


def test_a_mail_to_the_address_of_list_unsubscribe_unsubscribes_and_a_bounce_there_does_not() -> None:
    (row,) = messages(sent())
    to = ReturnPaths(MAILBOX, return_paths.return_path_keys()).of(row.reference, "unsubscribe")

    def comes(content: bytes, *, null_sender: bool = False) -> str:
        return inbound.store_mail(InboundMail(content, (to,), null_sender, timezone.now()), "receiver").what

    assert comes(b"Subject: unsubscribe\r\n\r\n", null_sender=True) == "not_a_report"
    assert comes(written(FORMS["out of office"][0])) == "auto_reply"
    assert comes(written(FORMS["postfix, unknown"][0])) == "not_ours"
    assert suppressed() == set()
    assert comes(b"From: ann@example.org\r\nSubject: unsubscribe\r\n\r\n") == "unsubscribed"
    assert suppressed() == {(row.recipient, "unsubscribed")} and events() == []
    assert comes(b"Subject: unsubscribe\r\n\r\n") == "unsubscribed" and Suppression.objects.count() == 1
