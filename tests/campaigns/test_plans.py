"""The hot statements find rows by key, whatever the planner was told of ops: nothing yet, or that it has no row."""

import json
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from campaigns import connections
from campaigns.casting import mailcaster as casting_queries
from campaigns.claiming import claims
from campaigns.claiming.claims import Lease
from campaigns.lifecycle import Status
from campaigns.models import Job, Message, OpsMessage
from campaigns.sending import recording
from tests import factories

ROWS = 5000


@pytest.fixture(params=["never analysed", "analysed while it was empty"])
def job(db: None, request: pytest.FixtureRequest) -> Job:
    """Enqueued just now: no statistics know of its rows."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE campaigns_opsmessage, campaigns_message CASCADE")  # as a table that was never analysed
        made = factories.campaign_with_job(ROWS, status="READY")
        lease = {"status": "ENQUEUED", "fence": 1, "heartbeat_at": timezone.now()}
        Job.objects.filter(pk=made.pk).update(**lease)
        assert claims.start(Lease(made.pk, 1))
        if request.param == "analysed while it was empty":  # with pages, as after a campaign
            run(claims.ENQUEUE, slice_of(made, made.size))
            OpsMessage.objects.all().delete()
            Message.objects.update(dequeued_at=None)
            cursor.execute("ANALYZE campaigns_opsmessage")
            cursor.execute("SELECT reltuples = 0 AND relpages > 0 FROM pg_class WHERE relname = 'campaigns_opsmessage'")
            assert cursor.fetchone() == (True,)
    run(claims.ENQUEUE, slice_of(made, made.size))
    return made


def slice_of(job: Job, size: int) -> dict[str, Any]:
    return {"job": job.pk, "fence": 1, "low": job.first_message, "high": job.first_message + size}


def steps(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(step for part in node.get("Plans", ()) for step in steps(part))]


def run(statement: str, params: dict[str, Any], settings: str = connections.BY_KEY) -> list[dict[str, Any]]:
    """The steps of the plan that a sender's connection, or one with these settings, makes and runs."""
    with connection.cursor() as cursor:
        cursor.execute(settings)
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", params)
        [(plan,)] = cursor.fetchall()
    found = json.loads(plan) if isinstance(plan, str) else plan
    return steps(found[0]["Plan"])


def read(plan: list[dict[str, Any]], table: str) -> int:
    """How many rows of the table the busiest step read."""
    looked = [step for step in plan if step.get("Relation Name") == table and "Scan" in step["Node Type"]]
    assert looked
    assert {step["Node Type"] for step in looked} <= {"Index Scan", "Index Only Scan"}
    return max((step["Actual Rows"] + step.get("Rows Removed by Filter", 0)) * step["Actual Loops"] for step in looked)


def test_enqueueing_a_slice_reads_the_slice_only(job: Job) -> None:
    plan = run(claims.ENQUEUE, slice_of(job, 100))
    assert read(plan, "campaigns_message") == 100


def test_how_far_a_job_is_enqueued_is_known_by_one_row_of_each_table(job: Job) -> None:
    Message.objects.filter(id__gte=job.first_message + 4000).update(dequeued_at=None)
    OpsMessage.objects.filter(id__gte=job.first_message + 4000).delete()
    plan = run(claims.REACHED, {"job": job.pk, "first": job.first_message, "end": job.end})
    assert read(plan, "campaigns_opsmessage") == read(plan, "campaigns_message") == 1


def to_claim(job: Job, **more: Any) -> dict[str, Any]:
    return {
        "job": job.pk, "fence": 1, "vendor": job.vendor_id,
        "limits_version": job.vendor.limits_version, "generation": 0, "hold": 10.0,
        "adoptions": 1, "grant": None, "credential": job.credential_id,
        "cursor": job.first_message, "end": job.end, "closes": None,
        **more,
    }  # fmt: skip


def test_a_claim_reads_as_many_rows_as_it_takes(job: Job) -> None:
    plan = run(claims.CLAIM, to_claim(job, most=100))
    assert read(plan, "campaigns_opsmessage") == read(plan, "campaigns_message") == 100


def test_a_claim_by_cost_looks_at_what_comes_next_and_reads_as_many_rows_as_it_takes(job: Job) -> None:
    plan = run(claims.AHEAD, {"job": job.pk, "after": job.first_message, "end": job.end, "most": 100})
    assert read(plan, "campaigns_opsmessage") == read(plan, "campaigns_message") == 100
    ids = list(range(job.first_message, job.first_message + 50))
    plan = run(claims.CLAIM_THESE, to_claim(job, ids=ids, units=[2] * 50))
    assert read(plan, "campaigns_opsmessage") == read(plan, "campaigns_message") == 50


@pytest.mark.parametrize("statement", [recording.RECORD, recording.RECORD_AGAIN], ids=["RECORD", "RECORD_AGAIN"])
def test_a_record_reads_as_many_rows_as_it_writes(job: Job, statement: str) -> None:
    ids = list(range(job.first_message, job.first_message + 100))
    answers = {"kinds": "a" * 100, "codes": ["id"] * 100, "notes": [None] * 100, "waits": [None] * 100}
    plan = run(statement, {"job": job.pk, "jobs": [job.pk], "fence": 1, "ids": ids, **answers})
    assert read(plan, "campaigns_opsmessage") == 100
    assert sum(step.get("Rows Removed by Join Filter", 0) for step in plan) == 0


@pytest.mark.django_db
def test_a_pick_reads_the_oldest_of_the_waiting_jobs_only() -> None:
    job = factories.campaign_with_job(1, status="DISPATCHED")
    of = {"campaign_id": job.campaign_id, "sponsor_id": job.sponsor_id, "vendor_id": job.vendor_id}
    row = {"credential_id": job.credential_id, "status": job.status, "first_message": job.first_message, "size": 1}
    Job.objects.bulk_create(Job(**of, **row) for _ in range(2000))
    statement = casting_queries.PICK.format(rank=casting_queries.Rank((Status.DISPATCHED,)).condition, passed_over="")
    params = {"vendor": job.vendor_id, "now": timezone.now(), "soon": timezone.now()}
    analysed = "ANALYZE campaigns_job, campaigns_campaign, vendors_credential, vendors_vendor"
    assert read(run(statement, params, analysed), "campaigns_job") == 1
