"""The hot statements find rows by key, whatever the planner was told of their tables."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from campaigns.engine import connections, merging, progress
from campaigns.engine.casting import mailcaster as casting_queries
from campaigns.engine.claiming import claims
from campaigns.engine.claiming.letters import Lease
from campaigns.engine.finishing import finalizer
from campaigns.engine.sending import recording, sender
from campaigns.models import AnswerBatch, Claim, Job
from campaigns.models.states import Status
from campaigns.suppression.refused import REFUSED_SO
from tests import calling, factories
from tests.emptying import Emptying

ROWS, JOBS = 1000, 6
CLAIMED, ANSWERED = 100, 50
HOT = ("campaigns_message", "campaigns_claim", "campaigns_answerbatch")
Run = Callable[[str, dict[str, Any]], list[dict[str, Any]]]
BY_KEY = ("Index Scan", "Index Only Scan", "Bitmap Heap Scan")


@pytest.fixture(scope="module", params=["never analysed", "analysed while they were empty", "analysed"])
def sent_now(django_db_setup: Emptying, django_db_blocker: Any, request: pytest.FixtureRequest) -> Iterator[list[Job]]:
    """Jobs of equal size that are being sent, made once for all tests: each has open claims, and answers to be merged.

    Neither what autovacuum has found in the rows of other tests, which TRUNCATE leaves to the planner, nor what it
    would find in these counts.
    """
    with django_db_blocker.unblock(), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(HOT)} CASCADE")
        cursor.execute("DELETE FROM pg_statistic WHERE starelid = ANY(%s::regclass[])", [list(HOT)])
        autovacuum(cursor, "SET (autovacuum_enabled = off)")
        if request.param == "analysed while they were empty":  # with pages, as after a campaign
            list(sending(1))
            for table in reversed(HOT):
                cursor.execute(f"DELETE FROM {table}")
            cursor.execute(f"ANALYZE {', '.join(HOT)}")
            cursor.execute(
                "SELECT count(*) FROM pg_class WHERE relname = ANY(%s) AND reltuples = 0 AND relpages > 0", [list(HOT)]
            )
            assert cursor.fetchone() == (len(HOT),)
        jobs = list(sending(JOBS))
        if request.param == "analysed":
            cursor.execute(f"ANALYZE {', '.join(HOT)}")
    yield jobs
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        autovacuum(cursor, "RESET (autovacuum_enabled)")
        django_db_setup.put_back()


def autovacuum(cursor: Any, change: str) -> None:
    for table in HOT:
        cursor.execute(f"ALTER TABLE {table} {change}")


@pytest.fixture
def job(sent_now: list[Job], db: None) -> Job:
    """One of them."""
    return Job.objects.select_related("vendor").get(pk=sent_now[JOBS // 2].pk)


def sending(jobs: int) -> Iterator[Job]:
    others = range(1, 1000)  # without messages: for size
    ids = list(range(CLAIMED))
    at = timezone.now()
    Claim.objects.bulk_create(Claim(job_id=-n, fence=1, at=at, messages=ids) for n in others)
    AnswerBatch.objects.bulk_create(
        AnswerBatch(job_id=-n, claim_id=0, fence=1, called_at=at, last=False, messages=ids, kinds="a" * CLAIMED)
        for n in others
    )
    for _ in range(jobs):
        made = factories.campaign_with_job(ROWS, status="SENDING")
        for first in range(0, ROWS // 2, CLAIMED):
            claim = factories.claim(made, range(first, first + CLAIMED))
            AnswerBatch.objects.create(
                job=made, claim=claim, fence=claim.fence, called_at=claim.at, last=False,
                messages=claim.messages[:ANSWERED], kinds="a" * ANSWERED, codes=["id"] * ANSWERED,
            )  # fmt: skip
        yield made


def steps(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(step for part in node.get("Plans", ()) for step in steps(part))]


def by_django(statement: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of the plan that Django's connection makes, and runs."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", params)
        [(plan,)] = cursor.fetchall()
    found = json.loads(plan) if isinstance(plan, str) else plan
    return steps(found[0]["Plan"])


def by_sender(statement: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of the plan that a sender's connection makes, and runs: one for all values, as it is prepared."""
    prepared = statement % {name: f"${number}" for number, name in enumerate(params, start=1)}
    types = ", ".join(map(type_of, params.values()))
    with connection.cursor() as cursor:
        cursor.execute(connections.BY_KEY)
        cursor.execute(f"PREPARE planned({types}) AS {prepared}")
        steps = by_django(f"EXECUTE planned({', '.join(f'%({name})s' for name in params)})", params)
        cursor.execute("DEALLOCATE planned")
    return steps


def type_of(value: Any) -> str:
    if isinstance(value, list):
        return f"{type_of(value[0])}[]"
    return {int: "bigint", float: "float8"}.get(type(value), "unknown")


def read(plan: list[dict[str, Any]], table: str) -> int:
    """How many rows of the table the busiest step read."""
    looked = [step for step in plan if step.get("Relation Name") == table and "Scan" in step["Node Type"]]
    assert looked
    assert {step["Node Type"] for step in looked} <= set(BY_KEY)
    dropped = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    return round(
        max((step["Actual Rows"] + sum(step.get(of, 0) for of in dropped)) * step["Actual Loops"] for step in looked)
    )


def of_job(job: Job, **more: Any) -> dict[str, Any]:
    return {"job": job.pk, "jobs": [job.pk], "fence": job.fence, "first": job.first_message, "end": job.end, **more}


def to_claim(job: Job, **more: Any) -> dict[str, Any]:
    asked = [calling.asked(job, Lease(job.pk, job.fence), cursor=job.first_message + ROWS // 2, **more)]
    return {
        "vendor": job.vendor_id, "limits_version": job.vendor.limits_version, "generation": 0, "hold": 10.0,
        "adoptions": 1, "probe": None, "grant": None, "receivers": None,
        "credential": job.credential_id, "asked": claims._asks_as_json(asked),
    }  # fmt: skip


def test_a_claim_reads_as_many_rows_as_it_takes(job: Job) -> None:
    plan = by_sender(claims.CLAIM, to_claim(job, most=100))
    assert read(plan, "campaigns_message") == 100
    assert Claim.objects.filter(job=job).count() == ROWS // 2 // CLAIMED + 1


def test_a_claim_by_cost_looks_at_what_comes_next_and_reads_as_many_rows_as_it_takes(job: Job) -> None:
    cursor = job.first_message + ROWS // 2
    plan = by_sender(claims.AHEAD, {"after": cursor, "end": job.end, "most": 100})
    assert read(plan, "campaigns_message") == 100
    units = dict.fromkeys(range(cursor, cursor + 50), 2)
    plan = by_sender(claims.CLAIM_LISTED, to_claim(job, most=50, units=units))
    assert read(plan, "campaigns_message") == 50


def test_a_claim_by_receiver_reads_its_own_messages_however_many_wait_between_them(job: Job) -> None:
    """For a wait or a hold of a large receiver, most rows from the first one on stay."""
    last = job.first_message + ROWS
    units = dict.fromkeys(range(job.first_message + ROWS // 2, last, 25), 1)
    plan = by_sender(claims.CLAIM_LISTED, to_claim(job, most=100, units=units))
    assert read(plan, "campaigns_message") == len(units) == 20


@pytest.mark.slow("many")
def test_a_claim_by_receiver_reads_twenty_rows_beside_a_hundred_thousand_that_are_held(db: None) -> None:
    held = factories.campaign_with_job(100_000, status="SENDING")
    units = dict.fromkeys(range(held.first_message, held.end, 5_000), 1)
    plan = by_sender(claims.CLAIM_LISTED, to_claim(held, most=100, units=units))
    assert read(plan, "campaigns_message") == len(units) == 20


both = pytest.mark.parametrize("run", [by_sender, by_django])


@both
def test_merging_reads_the_answers_of_the_job_and_their_messages(job: Job, run: Run) -> None:
    batches = ROWS // 2 // CLAIMED
    plan = run(merging.MERGE, of_job(job))
    assert read(plan, "campaigns_answerbatch") == batches
    assert read(plan, "campaigns_claim") == batches
    assert read(plan, "campaigns_message") == batches * ANSWERED
    assert sum(step.get("Rows Removed by Join Filter", 0) for step in plan) < ANSWERED
    job.refresh_from_db()
    assert job.accepted == batches * ANSWERED


@both
def test_whether_answers_are_to_be_merged_is_known_by_one_row(job: Job, run: Run) -> None:
    assert read(run(merging.WAITING_ANSWERS, of_job(job)), "campaigns_answerbatch") == 1


def test_draining_reads_the_job_only(job: Job) -> None:
    assert read(by_django(sender.WAITING, of_job(job)), "campaigns_message") == ROWS


@both
def test_a_new_pass_looks_for_one_message(job: Job, run: Run) -> None:
    """Django's connection comes here only after it has counted those that wait."""
    plan = run(claims.NEW_PASS, of_job(job))
    assert read(plan, "campaigns_message") <= (1 if run is by_sender else ROWS)
    assert read(plan, "campaigns_claim") == ROWS // 2 // CLAIMED


def test_finalising_reads_the_job_only(job: Job) -> None:
    by_django(merging.MERGE, of_job(job))
    plan = by_django(f"SELECT {finalizer.OPEN} FROM campaigns_job j WHERE j.id = %(job)s", of_job(job))
    assert read(plan, "campaigns_claim") <= ROWS // 2 // CLAIMED
    assert read(plan, "campaigns_message") <= ROWS // 2
    assert read(by_django(finalizer.COUNT.format(refused_so=REFUSED_SO), of_job(job)), "campaigns_message") == ROWS


def test_a_recovery_reads_what_the_lost_sender_claimed(job: Job) -> None:
    plan = by_django(finalizer.DOUBT, of_job(job))
    assert read(plan, "campaigns_claim") == ROWS // 2 // CLAIMED
    assert read(plan, "campaigns_message") == ROWS // 2


def test_what_is_in_flight_is_read_by_the_claims_of_the_job(job: Job) -> None:
    """Claims are few, those that are open; a planner without statistics may begin with all of them, but once."""
    plan = by_django(progress.CALLED, of_job(job))
    assert read(plan, "campaigns_claim") <= Claim.objects.count()
    assert read(plan, "campaigns_message") == ROWS // 2


def test_expiry_reads_the_slice_only(job: Job) -> None:
    bounds = {"low": job.first_message, "high": job.end, "put_off": None}
    plan = by_sender(recording.EXPIRE, of_job(job, **bounds))
    assert read(plan, "campaigns_message") == ROWS
    assert read(plan, "campaigns_claim") == ROWS // 2 // CLAIMED


@pytest.mark.django_db
def test_a_pick_reads_the_oldest_of_the_waiting_jobs_only() -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE campaigns_job CASCADE")
    job = factories.campaign_with_job(1, status="DISPATCHED")
    of = {"campaign_id": job.campaign_id, "sponsor_id": job.sponsor_id, "vendor_id": job.vendor_id}
    row = {"credential_id": job.credential_id, "status": job.status, "first_message": job.first_message, "size": 1}
    Job.objects.bulk_create(Job(**of, **row) for _ in range(2000))
    statement = casting_queries.PICK.format(
        rank=casting_queries.Rank((Status.DISPATCHED,)).job_condition, passed_over=""
    )
    params = {"vendor": job.vendor_id, "now": timezone.now(), "soon": timezone.now()}
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE campaigns_job, campaigns_campaign, vendors_credential, vendors_vendor")
    assert read(by_django(statement, params), "campaigns_job") == 1
