"""A delivery report counts whenever it comes: before the answer of its call, at the end, twice, out of order."""

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.utils import timezone

from campaigns.engine import audit, delivery_reports, lifecycle
from campaigns.engine.claiming.claims import Lease, OpenClaim
from campaigns.engine.finishing import finalizer
from campaigns.models import Claim, Job, Message, MessageEvent
from campaigns.models.jobs import new_uuids, read_reference
from tests import calling, factories
from tests.campaigns.rows import accepted, called, family, in_doubt, logged, messages, recount, refused
from tests.faults.sending import meanwhile
from tests.lock_waits import count_lock_waits
from tests.waiting import wait_until
from vendors.adapters.reports import Reported
from vendors.outcomes import Accepted, Outcome, Refused

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def take(job: Job, *reports: tuple[str, Any, int]) -> delivery_reports.ReportsStored:
    """Takes reports: (reference, kind, minutes after noon), ..."""
    return delivery_reports.store_reports(
        job.vendor_id, [Reported(name, kind, NOON + timedelta(minutes=at)) for name, kind, at in reports]
    )


def stored(job: Job) -> list[str | None]:
    return [row.report for row in messages(job)]


def counters(job: Job) -> tuple[int, int, int, int, int]:
    job.refresh_from_db()
    return job.accepted, job.refused, job.in_doubt, job.delivered, job.bounced


def broken() -> list[str]:
    return [f"{check.question}: {check.examples}" for check in audit.ask_all_questions() if not check.is_kept]


@pytest.mark.parametrize("offset", ["+16:00", "-23:59"])
def test_a_report_of_any_offset_is_stored_in_utc(offset: str) -> None:
    """An adapter gives times as its vendor writes them; PostgreSQL refuses an offset of 16 hours."""
    job = logged(1, [accepted()])
    at = datetime.fromisoformat(f"2026-03-01T12:00:00{offset}")
    delivery_reports.store_reports(job.vendor_id, [Reported(messages(job)[0].reference, "bounced", at)])
    (row,), (event,) = messages(job), MessageEvent.objects.all()
    assert (row.report, row.report_at, event.at) == ("bounced", at, at)


def test_a_reference_tells_its_message_and_a_guess_does_not() -> None:
    ids = range(2**40, 2**40 + 4001)
    made = [read_reference(f"{factories.UUID(uuid.decode())}-3") for uuid in new_uuids(ids)]
    assert [one.id for one in made if one] == list(ids) and {one.resend_no for one in made if one} == {3}
    assert len({one.uuid for one in made if one}) == len(ids) and {one.uuid.version for one in made if one} == {8}
    assert read_reference(f"{uuid4()}-0") is None, "made before numbers stood in uuids"


@pytest.mark.parametrize(
    ("reports", "end"),
    [
        ([("delivered", 1), ("bounced", 2)], "bounced"),
        ([("bounced", 1), ("delivered", 2)], "delivered"),
        ([("delivered", 1), ("bounced", 1)], "bounced"),
        ([("bounced", 1), ("delivered", 2), ("bounced", 3)], "bounced"),
        ([("delivered", 1), ("delivered", 3), ("bounced", 2)], "delivered"),
    ],
)
def test_in_whatever_order_receipts_come_the_last_by_the_vendors_clock_counts(
    reports: list[tuple[str, int]], end: str
) -> None:
    for order in permutations(reports):
        for at_once in (True, False):
            job = logged(1, [accepted()])
            (row,) = messages(job)
            facts = [(row.reference, kind, at) for kind, at in order for _ in range(2)]
            for batch in [facts] if at_once else [[fact] for fact in facts]:
                take(job, *batch)
            assert stored(job) == [end], order
            assert counters(job)[3:] == (int(end == "delivered"), int(end == "bounced"))
    assert broken() == []


@pytest.mark.parametrize("at_once", [True, False])
def test_without_a_time_of_the_vendors_a_bounce_counts_and_what_is_repeated_changes_nothing(at_once: bool) -> None:
    for order in permutations(["delivered", "bounced", "delivered", "bounced"]):
        job = logged(1, [accepted()])
        (row,) = messages(job)
        facts = [
            Reported(row.reference, kind, NOON + timedelta(minutes=number), timed=False)  # type: ignore[arg-type]
            for number, kind in enumerate(order)
        ]
        for batch in [facts] if at_once else [[fact] for fact in facts]:
            delivery_reports.store_reports(job.vendor_id, batch)
        assert stored(job) == ["bounced"] and counters(job)[3:] == (0, 1), order
    assert broken() == []


@pytest.mark.django_db(transaction=True)
def test_that_a_letter_was_opened_waits_for_nobody_who_holds_its_job() -> None:
    """A newsletter is opened while the rest of it is sent."""
    job = logged(1, [accepted()])
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            lifecycle.hold_jobs([job.pk])
            held.set()
            done.wait(60)

    def report() -> None:
        try:
            held.wait(60)
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '5s'")
            (row,) = messages(job)
            assert take(job, (row.reference, "opened", 1), (row.reference, "clicked", 2)).events == 2
        finally:
            done.set()

    together(hold, report)


class TestBeforeTheAnswerOfTheCall:
    @pytest.fixture
    def job(self) -> Job:
        """A job with two letters in flight."""
        job = factories.campaign_with_job(2, status="SENDING")
        factories.claim(job, at=called())
        return job

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("answer", [Accepted("v-1"), Refused("bounce")], ids=["accepted", "refused"])
    def test_the_receipt_is_the_acceptance(self, job: Job, answer: Outcome) -> None:
        names = [row.reference for row in messages(job)]
        take(job, (names[0], "delivered", 1))
        assert counters(job) == (1, 0, 0, 1, 0) and broken() == []
        record(job, [(job.first_message, answer), (job.first_message + 1, Accepted("v-2"))])
        assert counters(job) == (2, 0, 0, 1, 0)
        take(job, (names[1], "bounced", 1))
        assert counters(job) == (2, 0, 0, 1, 1) and broken() == []
        ended(job)
        assert stored(job) == ["delivered", "bounced"] and counters(job) == (2, 0, 0, 1, 1)
        assert [row.message_id for row in messages(job)] == [f"receipt:{names[0]}", "v-2"] and broken() == []

    def test_a_doubt_of_a_job_that_is_still_being_sent_is_settled(self, job: Job) -> None:
        for row in messages(job):
            Message.objects.filter(id=row.pk).update(dequeued_at=timezone.now(), **in_doubt())
        Job.objects.filter(pk=job.pk).update(in_doubt=2)
        take(job, *((row.reference, "delivered", 1) for row in messages(job)))
        assert counters(job) == (2, 0, 0, 2, 0) and broken() == []
        ended(job)
        assert counters(job) == (2, 0, 0, 2, 0) and broken() == []


def record(job: Job, answers: Sequence[tuple[int, Outcome]]) -> None:
    """The answers of the job's claim come in and are merged."""
    claim = Claim.objects.get(job=job)
    of = OpenClaim(claim.pk, claim.at, len(claim.messages))
    calling.by_sender(lambda rows: calling.answer(rows, Lease(job.pk, claim.fence), of, answers))


def ended(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(status="SENT")
    assert finalizer.finalise_job(job.pk)


class TestSentAgain:
    """An operator sent the message again after a doubt: its second reference waits, or was called."""

    @staticmethod
    def again(shape: dict[str, Any] | None) -> tuple[Job, str, str]:
        """The job, and the references of the first and the second sending."""
        job = logged(1, [shape] if shape else [], revision=1)
        Message.objects.filter(id=job.first_message).update(resend_no=1)
        recount(job)
        (row,) = messages(job)
        return job, f"{row.uuid}-0", f"{row.uuid}-1"

    def test_the_first_was_delivered_after_all_and_the_second_is_not_called(self) -> None:
        job, first, _ = self.again(None)
        job = factories.job(job.campaign, "SENDING", revision=1) if Job.objects.filter(pk=job.pk).delete() else job
        take(job, (first, "delivered", 1))
        assert [row.dequeued_at is None for row in messages(job)] == [False]
        ended(job)
        assert counters(job) == (1, 0, 0, 1, 0) and broken() == []

    def test_that_the_first_came_back_says_nothing_of_the_second(self) -> None:
        for shape in (accepted(), refused(), in_doubt(), None):
            job, first, second = self.again(shape)
            before = counters(job)
            assert take(job, (first, "bounced", 1)) == delivery_reports.ReportsStored(0, (), (), events=1)
            assert stored(job) == [None] and counters(job) == before
            take(job, (second, "delivered", 1), (first, "bounced", 2))
            assert stored(job) == ["delivered"]
        assert broken() == []

    def test_what_the_first_delivered_no_bounce_of_the_second_takes_back(self) -> None:
        for order in permutations([0, 1]):
            job, first, second = self.again(accepted())
            reports = [(first, "delivered", 1), (second, "bounced", 2)]
            for number in order:
                take(job, reports[number])
            assert stored(job) == ["delivered"]
            take(job, (first, "bounced", 3))
            assert stored(job) == ["bounced"], "but its own does"
        assert broken() == []

    def test_both_in_one_report(self) -> None:
        job, first, second = self.again(accepted())
        take(job, (second, "bounced", 2), (first, "delivered", 1))
        assert stored(job) == ["delivered"] and counters(job) == (1, 0, 0, 1, 0)


def test_a_parents_counters_are_its_childrens() -> None:
    top, (first, second) = family(parent="P_FINISHED", remaining=0, children=["LOGGED", "LOGGED"], each=2)
    for row in messages(top):
        Message.objects.filter(id=row.pk).update(dequeued_at=timezone.now(), **accepted(f"v-{row.pk}"))
    for job in (first, second, top):
        recount(job)
    take(top, *((row.reference, "delivered", 1) for row in messages(top)))
    assert [counters(job)[3] for job in (first, second, top)] == [2, 2, 4] and broken() == []


@pytest.mark.django_db(transaction=True)
def test_receipts_that_come_while_their_answers_are_stored_hold_up_nobody() -> None:
    """Both change the same rows: in different orders they would deadlock, and one would fail."""
    for _ in range(15):
        job = factories.campaign_with_job(40, status="SENDING")
        factories.claim(job, at=called())
        names = [row.reference for row in messages(job)]
        answers: list[tuple[int, Outcome]] = [(id, Accepted(f"v-{id}")) for id in range(job.first_message, job.end)]
        together(
            lambda job=job, answers=answers: record(job, answers),
            lambda job=job, names=names: take(job, *((name, "delivered", 1) for name in reversed(names))),
            lambda job=job, names=names: take(job, *((name, "bounced", 2) for name in names)),
        )
        assert counters(job) == (40, 0, 0, 0, 40)
        ended(job)
        assert counters(job) == (40, 0, 0, 0, 40)
    assert broken() == []


@pytest.mark.django_db(transaction=True)
def test_jobs_are_locked_in_the_order_of_their_ids_also_for_several_sendings_of_a_letter() -> None:
    """Who holds the first job may want the second one next."""
    first = factories.campaign_with_job(1, status="SENDING")
    second = factories.campaign_with_job(1, of=first.credential, status="SENDING")
    for job, sendings in ((first, 2), (second, 1)):
        Message.objects.filter(campaign=job.campaign_id).update(
            dequeued_at=timezone.now(), resend_no=sendings - 1, **accepted()
        )
    [twice], [once] = messages(first), messages(second)
    reports = ((f"{twice.uuid}-0", "opened", 1), (once.reference, "delivered", 1), (twice.reference, "delivered", 2))
    with ExitStack() as stack:
        with transaction.atomic():
            lifecycle.hold_jobs([first.pk])
            taking = stack.enter_context(meanwhile(take, first, *reports))
            wait_until(count_lock_waits, "the reports wait for the first job")
            assert Job.objects.select_for_update(nowait=True).get(pk=second.pk)
        assert taking.result().changed == 2


def together(*verbs: Any) -> None:
    """Runs all at once; raises what one of them raised."""
    start, errors = threading.Barrier(len(verbs)), []

    def run(verb: Any) -> None:
        try:
            start.wait()
            verb()
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(verb,)) for verb in verbs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
