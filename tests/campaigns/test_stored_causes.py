"""A message keeps whose fault it is that it was not taken, until it is called again or an acceptance wins."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from campaigns.engine import delivery_reports, ground_truth, lifecycle
from campaigns.engine.claiming.claims import OpenClaim
from campaigns.engine.doubts import resolve
from campaigns.engine.finishing import finalizer
from campaigns.engine.sending import recording
from campaigns.engine.suppressed.recent import SuppressedRecipient
from campaigns.models import Claim, Job, Message, Suppression
from campaigns.operations import actions
from campaigns.suppression import comparing, lists
from campaigns.suppression.lists import NewSuppression
from mailhub.monitoring import metrics
from tests import calling, factories
from tests.campaigns.rows import accepted, in_doubt, logged, messages, refused
from vendors.adapters.reports import Bounce, Reported, ReportedKind
from vendors.causes import AnswerCause
from vendors.history import Actor
from vendors.outcomes import Accepted, InDoubt, NotSent, Refused

pytestmark = pytest.mark.django_db(transaction=True)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
US, RECIPIENT, CAPACITY = AnswerCause.US, AnswerCause.RECIPIENT, AnswerCause.CAPACITY
BLAMED = refused() | {"cause": "us"}


def causes(job: Job) -> list[str | None]:
    return [row.cause for row in messages(job)]


def answer(job: Job, *outcomes: Any) -> list[str | None]:
    """The calls of a claim of the whole job come to this; returns the causes of its messages."""
    of = factories.claim(job)
    open_claim = OpenClaim(of.pk, of.at, len(outcomes))
    answers = list(zip(of.messages, outcomes, strict=True))
    calling.by_sender(lambda rows: calling.answer(rows, calling.Lease(job.pk, job.fence), open_claim, answers))
    return causes(job)


def report(job: Job, kind: ReportedKind, at: datetime = NOON, bounce: Bounce = "soft", **said: str) -> str | None:
    """The vendor reports on the job's first letter; returns the cause of its message."""
    reference = messages(job)[0].reference
    delivery_reports.store_reports(job.vendor_id, [Reported(reference, kind, at, bounce=bounce, **said)])
    return causes(job)[0]


def test_answers_of_a_batch_each_have_their_cause() -> None:
    job = factories.campaign_with_job(6, status="SENDING", fence=2)
    outcomes = (
        Accepted("v-1"), Refused("550", "5.1.1", RECIPIENT), Refused("550", "5.7.1", US), Refused("x"),
        SuppressedRecipient("unsubscribed"), InDoubt("read timeout"),
    )  # fmt: skip
    assert answer(job, *outcomes) == [None, "recipient", "us", "unknown", "recipient", None]


def test_a_deferral_has_its_cause_and_keeps_it_if_the_deadline_passes() -> None:
    job = factories.campaign_with_job(3, status="SENDING", fence=2)
    outcomes = (
        NotSent("smtp 450 4.7.1", retry_after=60.0, cause=US), NotSent("smtp 451", retry_after=60.0), Accepted("v-1"),
    )  # fmt: skip
    assert answer(job, *outcomes) == ["us", None, None]
    lease = calling.Lease(job.pk, job.fence)
    calling.by_sender(lambda rows: recording.expire_uncalled(rows, lease, job.first_message, job.end))
    assert [(row.error_code, row.cause) for row in messages(job)] == [
        ("expired", "us"),
        ("expired", None),
        (None, None),
    ]


def test_a_deferred_message_that_is_accepted_has_no_cause_any_more() -> None:
    job = factories.campaign_with_job(1, status="SENDING", fence=2)
    assert answer(job, NotSent("smtp 450", retry_after=60.0, cause=CAPACITY)) == ["capacity"]
    assert answer(job, Accepted("v-1")) == [None]


def test_refusals_and_deferrals_are_counted_by_cause_whichever_message_they_put_off() -> None:
    job = factories.campaign_with_job(6, status="SENDING", fence=2)
    outcomes = (
        Refused("550", "5.1.1", RECIPIENT), Refused("550", "5.1.1", RECIPIENT), Refused("odd"),
        NotSent("450", retry_after=60.0, cause=US), NotSent("421", retry_after=9.0, scope="credential", cause=CAPACITY),
        Accepted("v-1"),
    )  # fmt: skip
    answer(job, *outcomes)
    shown = metrics.metrics_text().decode()

    def counted(cause: str, what: str) -> str:
        return f'mailhub_causes_total{{cause="{cause}",vendor="{job.vendor.slug}",what="{what}"}}'

    assert f"{counted('recipient', 'refused')} 2.0" in shown and f"{counted('unknown', 'refused')} 1.0" in shown
    assert f"{counted('us', 'put_off')} 1.0" in shown and f"{counted('capacity', 'put_off')} 1.0" in shown
    assert shown.count("mailhub_causes_total{") == 4


def test_a_sender_of_the_version_before_stores_answers_without_causes() -> None:
    job = factories.campaign_with_job(2, status="SENDING", fence=2)
    of = factories.claim(job)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO campaigns_answerbatch (job_id, fence, claim_id, called_at, last, messages, kinds, codes)"
            " VALUES (%s, %s, %s, %s, true, %s, 'ra', %s)",
            [job.pk, job.fence, of.pk, of.at, of.messages, ["550", "v-1"]],
        )
        lifecycle.hold_jobs([job.pk])
    assert [(row.error_code, row.cause) for row in messages(job)] == [("550", None), (None, None)]


def test_an_acceptance_wins_and_nobody_is_at_fault() -> None:
    job = logged(1, [BLAMED])
    calling.by_sender(lambda rows: ground_truth.accept_messages(rows, [(job.first_message, "v-1", 0)]))
    assert causes(job) == [None]


def test_a_refusal_that_settles_a_doubt_has_its_cause() -> None:
    job = logged(1, [in_doubt()])
    calling.by_sender(
        lambda rows: ground_truth.refuse_doubted(rows, [(job.first_message, Refused("550", "5.1.1", RECIPIENT))])
    )
    assert causes(job) == ["recipient"]


@pytest.mark.parametrize(("decision", "cause"), [("failed", "unknown"), ("sent", None), ("resend", None)])
def test_a_person_who_settles_a_doubt_blames_nobody(decision: str, cause: str | None) -> None:
    job = logged(1, [in_doubt() | {"cause": "vendor"}])
    resolve.resolve_doubts([job.first_message], decision, "they rang", "ann")
    assert causes(job) == [cause]


def test_what_is_sent_again_has_no_cause_until_it_is_answered_again() -> None:
    job = logged(2, [BLAMED, accepted()])
    assert actions.retry_jobs([job.pk], by=Actor("ann"), reason="mended")[0].verdict == "done"
    assert causes(job) == [None, None]


def test_suppressed_recipients_are_the_cause_and_are_none_when_they_are_freed() -> None:
    job = factories.campaign_with_job(2)
    job.campaign.sponsor.refresh_from_db()
    lists.add_suppressions(
        job.sponsor_id, "email", [NewSuppression(messages(job)[0].recipient, "unsubscribed", "by hand")]
    )
    assert comparing.end_suppressed(job) == 1
    assert causes(job) == ["recipient", None]
    Suppression.objects.update(until=NOON)
    comparing.free_lifted(job, [job])
    assert causes(job) == [None, None]


def test_a_lost_sender_leaves_a_doubt_without_the_cause_of_an_earlier_deferral() -> None:
    job = factories.campaign_with_job(1, status="SENDING", fence=2)
    Message.objects.filter(pk=job.first_message).update(cause="capacity", put_off_at=NOON)
    factories.claim(job)
    Job.objects.filter(pk=job.pk).update(heartbeat_at=NOON)
    assert finalizer.recover_job(job.pk, timedelta(minutes=1))
    assert messages(job)[0].in_doubt_at and causes(job) == [None] and Claim.objects.exists()


@pytest.mark.parametrize(
    ("kind", "bounce", "code", "note", "cause"),
    [
        ("bounced", "hard", "5.1.1", "", "recipient"),
        ("bounced", "hard", "", "gone", "recipient"),
        ("bounced", "soft", "4.2.2", "mailbox full", "recipient"),
        ("bounced", "soft", "", "", "unknown"),
        ("bounced", "blocked", "5.7.1", "Our system has detected that you are listed at Spamhaus", "us"),
        ("bounced", "blocked", "550", "user unknown", "unknown"),
        ("failed", "soft", "unknown_recipient", "", "recipient"),
    ],
)
def test_a_letter_that_comes_back_has_the_cause_that_is_reported(
    kind: ReportedKind, bounce: Bounce, code: str, note: str, cause: str
) -> None:
    assert report(logged(1, [accepted()]), kind, bounce=bounce, code=code, note=note) == cause


def test_a_later_delivery_takes_the_cause_of_a_bounce_away() -> None:
    job = logged(1, [accepted()])
    assert report(job, "bounced", code="4.2.2", note="mailbox full") == "recipient"
    assert report(job, "delivered", NOON.replace(hour=13)) is None
    assert report(job, "bounced", code="4.2.2", note="mailbox full") is None, "it is older"


def test_a_refusal_that_is_reported_for_a_doubt_has_its_cause() -> None:
    job = logged(1, [in_doubt()])
    assert report(job, "refused", code="5.1.1", note="no such user") == "recipient"
    assert messages(job)[0].error_code == "5.1.1"
