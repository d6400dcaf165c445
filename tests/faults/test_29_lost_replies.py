"""Faults 29, 30: PostgreSQL executes a statement and its reply is lost, at each statement of a job's life.

A proxy cuts the connection behind the statement (tests/postgres_proxy.py). The caller fails as its task would. Then the
sweeps alone must finish the story. Either a person has stopped the job, so calls end; or nobody decides, and the
casters and senders notified by a sweep continue.

A run loses the reply to every fifth statement of each story, and to the statements that a story names. With
MAILHUB_NIGHTLY=1 it loses every reply.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from django.db import Error as DjangoError
from django.db import connection
from django.utils import timezone

from campaigns.engine import audit
from campaigns.engine import sending as sender
from campaigns.engine.casting import mailcaster
from campaigns.engine.casting.mailcaster import ClaimedJob
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.doubts import reconciler
from campaigns.engine.finishing import finalizer
from campaigns.engine.finishing import sweep as recovery
from campaigns.models import AnswerBatch, Campaign, Claim, Job, Message
from campaigns.models.states import DONE
from campaigns.operations import actions
from tests import factories
from tests.faults import rounds
from tests.faults.checker import judge
from tests.faults.sending import login, meanwhile
from tests.postgres_proxy import PostgresProxy
from tests.sandbox import Sandbox
from tests.waiting import wait_until
from vendors.models import Credential, Usage, Vendor

pytestmark = [pytest.mark.slow("many"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
CONCURRENCY = 2
NOW = timedelta()
TRIES = 200  # more statements than any story has
NIGHTLY = os.environ.get("MAILHUB_NIGHTLY") == "1"
STEP = 1 if NIGHTLY else 5
ROUNDS = 10  # sweeps until all is at its end


@contextmanager
def through(proxy: PostgresProxy) -> Iterator[None]:
    """Send new connections of the block through the proxy; the open one stays direct."""
    database: dict[str, Any] = connection.settings_dict
    host = parse_qs(urlsplit(proxy.url).query)["host"][0]
    before = database["HOST"], database["OPTIONS"]
    database["HOST"], database["OPTIONS"] = host, {name: word for name, word in before[1].items() if name != "host"}
    try:
        yield
    finally:
        database["HOST"], database["OPTIONS"] = before


def attempt(step: Callable[..., Any], *args: Any) -> Any:
    """Runs a step like a task, which fails when its database is gone; the next one has a new connection."""
    try:
        return step(*args)
    except (DjangoError, psycopg.Error):
        connection.close()
        return None


def cast(job: Job) -> ClaimedJob | None:
    """Dispatches the job, and lets the vendor's mailcaster take it."""
    attempt(dispatcher.dispatch_ready, [job.pk])
    Job.objects.filter(pk=job.pk).update(not_before=None)
    return mailcaster.claim_next_job(job.vendor.mailcasters.get().pk, job.created_at)


def send(job: Job, stopping: Callable[[], bool] = bool) -> None:
    job.refresh_from_db()
    sender.send_claimed_job(job.pk, job.fence, stopping)


def is_put_back(job: Job, vendor: Sandbox) -> None:
    """Puts the job back by a sender that has to end after its first calls."""
    asked = iter(range(4))
    attempt(cast, job)
    attempt(send, job, lambda: next(asked, None) is None)


def is_stopped(job: Job, vendor: Sandbox) -> None:
    """Stops the job while calls are open."""
    before = len(vendor.books().entries)
    attempt(cast, job)
    with meanwhile(attempt, send, job) as sending:
        wait_until(lambda: sending.done() or len(vendor.books().entries) > before, "a call is made")
        attempt(actions.stop_jobs, [job.pk])
    attempt(finalizer.finalise_job, job.pk)


def is_drained(job: Job, vendor: Sandbox) -> None:
    """Drains the job, whole or as a parent's only child."""
    claimed = attempt(cast, job)
    if claimed:
        attempt(sender.send_claimed_job, claimed.job_id, claimed.fence)
        attempt(finalizer.finalise_job, claimed.job_id)
        attempt(finalizer.finish_parent, job.pk)


def is_settled(job: Job, vendor: Sandbox) -> None:
    """Reconcile twice, for doubts without an answer the first time."""
    for _ in range(2):
        attempt(time_passes)
        attempt(reconciler.reconcile_due_doubts)


def time_passes() -> None:
    """Ends all waits for a time."""
    rounds.an_hour_passes()
    Job.objects.update(not_before=None)
    AnswerBatch.objects.update(at=timezone.now() - recovery.LEFT_BEHIND)
    Credential.objects.update(retry_after_until=None, rate_limited_until=None)


def sweep() -> None:
    recovery.run_sweep(NOW)


def sweep_and_send() -> None:
    """The sweep's notifications are received, as tasks.sweep sends them."""
    swept = recovery.run_sweep(NOW)
    claimed = [(job.pk, job.fence) for job in swept.unanswered]
    casters = [caster for vendor_id in swept.vendors_waiting for caster in mailcaster.idle_casters(vendor_id)]
    found = (mailcaster.claim_next_job(caster, timezone.now()) for caster in casters)
    for job_id, fence in [*claimed, *((one.job_id, one.fence) for one in found if one)]:
        sender.send_claimed_job(job_id, fence)


def come_to_an_end(step: Callable[[], None], *, settled: bool) -> None:
    """Sweeps and reconciles until the job has ended. settled: until nothing is in doubt."""
    for _ in range(ROUNDS):
        time_passes()
        step()
        reconciler.reconcile_due_doubts()
        unfinished, doubts = Job.objects.exclude(status__in=DONE), Message.objects.filter(in_doubt_at__isnull=False)
        open_calls = Claim.objects.exists() or AnswerBatch.objects.exists()
        if not (unfinished.exists() or open_calls or (settled and doubts.exists())):
            return
    raise AssertionError(f"stuck: {list(unfinished.values())}, in doubt: {list(doubts.values())}")


def each_reply_is_lost(
    make: Callable[[], Job],
    story: Callable[[Job, Sandbox], None],
    after: Callable[[Job], None],
    vendor: Sandbox,
    among: tuple[str, ...],
) -> None:
    """The story without the reply to its first statement, then to the next one of the run, and so on; then once whole.

    after: brings its job to an end; then no promise may be broken. among: parts of statements whose replies must have
    been lost. Threads run differently each time, so that counting may pass over a statement: the first reply to one
    that was passed over is lost by its text.
    """
    lost: set[str] = set()

    def once(**which: Any) -> bool:
        """Return True if a reply was lost."""
        job = make()
        with through(proxy):
            proxy.lose_next(**which)
            with meanwhile(story, job, vendor) as running:  # over connections of its own
                running.result()
        after(job)
        broken = [f"{check.question}: {check.examples}" for check in audit.ask_all_questions() if not check.is_kept]
        assert broken == [], f"of {which} was lost: {proxy.lost}"
        now, proxy.lost[:] = list(proxy.lost), []
        lost.update(now)
        return bool(now)

    with PostgresProxy(os.environ["DATABASE_URL"]) as proxy:
        first = len(story.__name__ + "".join(among)) % STEP  # stories have many statements in common: not the same ones
        if all(once(after=number) for number in range(first, TRIES, STEP)):
            raise AssertionError("there are more statements than tries")
        for part in among:
            if not any(part in statement for statement in lost):
                assert once(of=lambda statement, part=part: part in statement), part
    assert judge(vendor.books()) == []


def to(*names: str) -> list[str]:
    return [f"{name}@sandbox.example" for name in names]


def counters(job: Job) -> dict[str, int]:
    """Return the job's counters other than 0."""
    job.refresh_from_db()
    every = {name: getattr(job, name) for name in finalizer.COUNTERS}
    return {name: count for name, count in every.items() if count}


@pytest.fixture
def credential(sandbox: Sandbox, settings: Any) -> Credential:
    settings.LEASE_SECONDS = 1e-9  # the audit has no patience
    sandbox.settings(latency_ms=20.0)
    of = login(sandbox.url, concurrency=CONCURRENCY, lookup="strong")
    factories.caster(of.vendor)
    return of


@pytest.mark.parametrize("story", [is_put_back, is_stopped])
def test_29_30_whichever_reply_is_lost_a_stop_and_the_sweeps_bring_all_to_its_end(
    story: Callable[[Job, Sandbox], None], sandbox: Sandbox, credential: Credential
) -> None:
    def after(job: Job) -> None:
        actions.stop_jobs([job.pk], by="ann")
        come_to_an_end(sweep, settled=False)

    recipients = to("ann", "bounce", "lost", "ben", "error", "cat")
    among = (
        "INSERT INTO campaigns_claim",
        "INSERT INTO campaigns_answerbatch",
        "INSERT INTO vendors_minute",  # merge
        "DELETE FROM campaigns_claim WHERE job_id",  # put back
        "COMMIT",
    )
    each_reply_is_lost(lambda: factories.campaign_with_job(recipients, of=credential), story, after, sandbox, among)


def test_29_30_whichever_reply_is_lost_the_sweeps_have_a_large_job_sent_to_its_end(
    sandbox: Sandbox, credential: Credential
) -> None:
    Vendor.objects.update(small_audience_threshold=3)

    def after(job: Job) -> None:
        come_to_an_end(sweep_and_send, settled=True)
        assert counters(job) == {"accepted": 2, "refused": 1}
        assert (job.status, job.stopped_at) == ("P_FINISHED", None)

    recipients = to("ann", "bounce", "lost")
    among = ("'SENT'", "'LOGGED'", "'P_FINISHED'")
    each_reply_is_lost(
        lambda: factories.campaign_with_job(recipients, of=credential), is_drained, after, sandbox, among
    )


def test_29_30_whichever_reply_is_lost_the_sweeps_have_a_job_expire_whole(
    sandbox: Sandbox, credential: Credential
) -> None:
    def late() -> Job:
        job = factories.campaign_with_job(to("ann", "ben"), of=credential)
        Campaign.objects.filter(pk=job.campaign_id).update(deadline=timezone.now())
        return job

    def after(job: Job) -> None:
        come_to_an_end(sweep_and_send, settled=True)
        assert counters(job) == {"expired": 2} and job.status == "LOGGED"

    each_reply_is_lost(late, is_drained, after, sandbox, ("error_code = 'expired'", "'SENT'", "'LOGGED'"))
    assert sandbox.books().entries == []


def test_29_30_whichever_reply_is_lost_a_message_that_the_vendor_has_put_off_is_sent_in_another_pass(
    sandbox: Sandbox, credential: Credential
) -> None:
    def after(job: Job) -> None:
        come_to_an_end(sweep_and_send, settled=True)
        assert counters(job) == {"accepted": 2} and job.status == "LOGGED"

    sandbox.settings(retry_after_s=0.0)  # the pass comes when the first one is over, not a second later
    among = ("INSERT INTO campaigns_answerbatch", "SET next_message", "'SENT'", "'LOGGED'")
    recipients = to("tempfail", "ann")
    each_reply_is_lost(
        lambda: factories.campaign_with_job(recipients, of=credential), is_drained, after, sandbox, among
    )


def test_29_30_whichever_reply_is_lost_while_a_lost_sender_is_found_its_calls_are_in_doubt_and_asked_about(
    sandbox: Sandbox, credential: Credential
) -> None:
    def left_behind() -> Job:
        """Two calls are open, the answer of a third is stored and not merged, and the sender is dead."""
        job = factories.campaign_with_job(4, of=credential, status="SENDING")
        claim = factories.claim(job, [0, 1, 2])
        AnswerBatch.objects.create(
            job=job, claim=claim, fence=job.fence, called_at=claim.at, last=False,
            messages=claim.messages[:1], kinds="r", codes=["bounce"],
        )  # fmt: skip
        at = timezone.now()
        Usage.objects.create(vendor_id=job.vendor_id, credential=credential, at=at, until=at, units=3)
        return job

    def after(job: Job) -> None:
        come_to_an_end(sweep_and_send, settled=True)
        assert counters(job) == {"accepted": 3, "refused": 1} and job.status == "LOGGED"

    among = ("DELETE FROM campaigns_answerbatch", "the sender was lost in the call", "'RECOVERING'", "COMMIT")
    each_reply_is_lost(left_behind, lambda job, vendor: attempt(sweep), after, sandbox, among)


@pytest.mark.parametrize(
    ("means", "who", "ends"),
    [
        ({"lookup": "strong"}, "ann", "accepted"),  # not found, so it is called again
        ({"lookup": "strong"}, "errorafter", "accepted"),  # its repeat has no answer, but is found
        ({"lookup": "strong"}, "bounce", "refused"),
        ({"lookup": "strong"}, "tempfail", "accepted"),  # the vendor asks to wait first
        ({"dedupe": True}, "ann", "accepted"),
        ({"dedupe": True}, "errorafter", "accepted"),  # known at its second repeat
    ],
    ids=lambda word: word if isinstance(word, str) else "-".join(word),
)
def test_29_30_whichever_reply_is_lost_while_a_doubt_is_settled_the_next_settlings_end_it(
    means: dict[str, Any], who: str, ends: str, sandbox: Sandbox, credential: Credential
) -> None:
    sandbox.settings(latency_ms=0.0, dedupe=bool(means.get("dedupe")))
    of = login(sandbox.url, **means)

    number = itertools.count()
    ended: list[str] = []

    def doubted() -> Job:
        """A message whose answer was lost and that the vendor does not have: to another one each time, because whom
        the vendor refuses as unknown is suppressed."""
        recipients = to(f"{who}{next(number)}")
        job = factories.campaign_with_job(recipients, of=of, status="LOGGED", finished_at=timezone.now(), in_doubt=1)
        now = timezone.now()
        Message.objects.filter(pk=job.first_message).update(
            dequeued_at=now, sent_at=now, in_doubt_at=now, settle_at=now
        )
        return job

    def after(job: Job) -> None:
        come_to_an_end(sweep, settled=True)
        [(end, count)] = counters(job).items()
        assert count == 1
        ended.append(end)

    among = ("FOR UPDATE OF m SKIP LOCKED", "INSERT INTO vendors_usage", "COMMIT")
    each_reply_is_lost(doubted, is_settled, after, sandbox, among)
    # A refusal suppresses its recipient before it is stored; what is lost between the two finds nobody to call again.
    assert ended[0] == ended[-1] == ends
    assert set(ended) == ({ends, "suppressed"} if ends == "refused" else {ends})
