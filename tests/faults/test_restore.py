"""Restores of PostgreSQL from a backup older than the vendor's acceptances: manage.py recover_store.

The steps are those of a real restore. No process runs, the copy replaces the database, an operator runs the command,
and mail then continues without help. A copy by TEMPLATE is another database of the same cluster; dumps and other
clusters show in the same way.
"""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from campaigns.engine import audit
from campaigns.engine import sending as sender
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.doubts.reconciler import reconcile_due_doubts
from campaigns.engine.failover import guard
from campaigns.models import AnswerBatch, Claim, Job, Message
from tests import factories
from tests.copies import backup, find_client, read_dump, restore, run_client
from tests.faults.checker import judge, sums
from tests.faults.sending import CONCURRENCY, being_sent, calls, login, send_the_rest, sent, take_again, taken
from tests.sandbox import Sandbox
from tests.waiting import wait_until
from vendors import redis_clients
from vendors.models import Usage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]


def recover(**options: Any) -> dict[str, Any]:
    """The command's facts."""
    out = StringIO()
    call_command("recover_store", json=True, stdout=out, **{"yes": True, **options})
    facts: dict[str, Any] = json.loads(out.getvalue())
    return facts


@contextmanager
def redis_lost_all() -> Iterator[None]:
    from django.conf import settings

    with redis_clients.make_client(settings.REDIS_URL) as redis:
        redis.flushdb()
    yield


@contextmanager
def frozen(vendor: Sandbox) -> Iterator[None]:
    """The vendor's process answers nobody during the block."""
    vendor.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        vendor.process.send_signal(signal.SIGCONT)


def claimed() -> set[int]:
    """The messages that stand in claims."""
    return {message for messages in Claim.objects.values_list("messages", flat=True) for message in messages}


def answered() -> set[int]:
    """The messages whose answers are stored, merged or not."""
    stored = AnswerBatch.objects.values_list("messages", flat=True)
    merged = Message.objects.filter(message_id__isnull=False).values_list("pk", flat=True)
    return {message for messages in stored for message in messages} | set(merged)


def asked(of: Job) -> bool:
    """The vendor has been asked about all of the job's messages in doubt."""
    Message.objects.filter(in_doubt_at__isnull=False).update(settle_at="2000-01-01T00:00Z")
    reconcile_due_doubts()
    return not Message.objects.filter(id__gte=of.first_message, id__lt=of.end, in_doubt_at__isnull=False).exists()


def test_nothing_is_called_before_a_person_has_said_so(sandbox: Sandbox) -> None:
    job = factories.campaign_with_job(5, of=login(sandbox.url), status="DISPATCHED")
    with backup() as name:
        restore(name)
        assert guard.halt_reason() == guard.TAKEN_OVER
        assert any(not check.is_kept and "recover_store" in check.question for check in audit.ask_all_questions())
        take_again(job)
        assert sender.send_claimed_job(job.pk, job.fence).left and sandbox.books().entries == []
        assert Job.objects.get(pk=job.pk).waits_for == guard.TAKEN_OVER
        with pytest.raises(CommandError, match="add --yes"):
            recover(yes=False)
        before = recover(dry_run=True)
        assert guard.halt_reason() == guard.TAKEN_OVER, "numbers only"
        assert recover() == before | {"dry_run": False}
        assert guard.halt_reason() is None and recover() == {"taken_over": False}


def test_what_redis_let_through_since_is_in_doubt_and_nothing_else(sandbox: Sandbox) -> None:
    """Redis's record names the calls: twelve of the first job; the rest of it and the other job go on."""
    account = login(sandbox.url)
    sent(take_again(factories.campaign_with_job(2, of=account, status="DISPATCHED")))
    first = factories.campaign_with_job(12, of=account, status="DISPATCHED")
    other = factories.campaign_with_job(10, of=account, status="DISPATCHED")
    with backup() as name:
        sent(take_again(first))
        restore(name)
        [loss] = recover()["vendors"]
        assert loss["witnessed"] and (loss["calls"], loss["messages"]) == (12, 12)
        assert sums() == {"accepted": 2, "in doubt": 12, "waiting": 10}
        for job in (first, other):
            send_the_rest(job)
        assert sums() == {"accepted": 12, "in doubt": 12} and judge(sandbox.books()) == []
        assert sum(Usage.objects.values_list("units", flat=True)) == 24, "the ledger knows of every call again"


def test_calls_for_a_campaign_that_is_lost_altogether_are_counted(sandbox: Sandbox) -> None:
    account = login(sandbox.url)
    sent(take_again(factories.campaign_with_job(2, of=account, status="DISPATCHED")))
    with backup() as name:
        sent(take_again(factories.campaign_with_job(7, of=account, status="DISPATCHED")))
        restore(name)
        [loss] = recover()["vendors"]
        assert (loss["calls"], loss["messages"]) == (7, 0) and sums() == {"accepted": 2}


def test_without_a_complete_record_all_that_may_have_been_called_is_in_doubt_and_asked_about(sandbox: Sandbox) -> None:
    account = login(sandbox.url, lookup="strong", timeout=2)
    whole = factories.campaign_with_job(20, of=account, status="DISPATCHED")
    later = factories.campaign_with_job(10, of=account, status="RENDERED")
    surely_not = factories.campaign_with_job(3, of=account, status="DISPATCHED")
    stopped = factories.campaign_with_job(4, of=account, status="STOPPED", stopped_at=timezone.now())
    with backup() as name, redis_lost_all():
        sent(take_again(whole))
        with redis_lost_all():
            restore(name)
        assert sums() == {"waiting": 37}, "they would be sent, twenty of them again"
        [loss] = recover(without=[surely_not.pk])["vendors"]
        assert not loss["witnessed"] and sums() == {"in doubt": 30, "waiting": 7}
        dispatcher.dispatch_rendered()
        for job in (whole, later, surely_not):
            send_the_rest(job)
            wait_until(lambda job=job: asked(job), "the vendor was asked")  # type: ignore[misc]
        assert sums() == {"accepted": 33, "waiting": 4} and stopped.pk
        assert judge(sandbox.books(), final=False) == []


def test_a_job_that_was_half_sent_at_the_backup_keeps_what_is_known_of_it(sandbox: Sandbox) -> None:
    """Answers in the backup are kept, merged or not; calls open then become in doubt."""
    account = login(sandbox.url, lookup="strong", timeout=2)
    half = factories.campaign_with_job(10, of=account, status="SENDING")
    claim = factories.claim(half, [0, 1])
    AnswerBatch.objects.create(
        job=half, claim=claim, fence=half.fence, called_at=claim.at, last=False,
        messages=claim.messages[:1], kinds="a", codes=["v"],
    )  # fmt: skip
    with backup() as name, redis_lost_all():
        restore(name)
        recover()
        assert sums() == {"accepted": 1, "in flight": 1, "in doubt": 8}
        Job.objects.filter(pk=half.pk).update(heartbeat_at="2000-01-01T00:00Z")
        send_the_rest(half)
        assert sums() == {"accepted": 1, "in doubt": 9}, "nothing is called before the vendor was asked"
        wait_until(lambda: asked(half), "the vendor was asked")
        assert sums() == {"accepted": 10}


def test_a_sender_from_before_the_takeover_claims_nothing_after_it(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=300.0)
    many = 400  # more than are called before a slow machine has recovered the store
    job = factories.campaign_with_job(many, of=login(sandbox.url), status="DISPATCHED")
    take_again(job)
    with being_sent(job) as sending:
        calls(sandbox, CONCURRENCY)
        recover(since=timezone.now().isoformat())  # as a person says it of a copy of the disk
        assert sending.result().left
    sandbox.settings(latency_ms=0.0)
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums()["accepted"] + sums()["in doubt"] == many


@pytest.mark.parametrize("redis", ["kept", "emptied"])
@pytest.mark.slow("servers")
def test_a_dump_that_is_taken_in_mid_send_calls_nobody_twice_and_loses_nobody(
    redis: str, sandbox: Sandbox, tmp_path: Path
) -> None:
    """pg_dump while calls are open, sending goes on, then pg_restore and recover_store as the page says.

    One job is half sent in the dump, one is sent after it, and one is never called before the restore.
    """
    pg_dump, pg_restore = find_client("pg_dump"), find_client("pg_restore")
    sandbox.settings(latency_ms=200.0)
    many = 400  # more than are called before a slow machine looks
    account = login(sandbox.url, timeout=240)  # the vendor answers nobody while the dump is taken
    half = taken(many, account)
    later, never = [factories.campaign_with_job(size, of=account, status="DISPATCHED") for size in (5, 7)]
    dump = tmp_path / "mailhub.dump"
    with being_sent(half) as sending:
        calls(sandbox, 20)
        wait_until(AnswerBatch.objects.exists, "answers are stored")
        with frozen(sandbox):
            wait_until(lambda: len(claimed() - answered()) == CONCURRENCY, "calls are open")
            began = timezone.now()
            database = connection.settings_dict["NAME"]
            run_client(pg_dump, "--format=custom", f"--file={dump}", f"--dbname={database}")
        sandbox.settings(latency_ms=0.0)
        assert not sending.result().left
    sent(take_again(later))
    assert sandbox.ledger()["accepted"] == many + 5
    if redis == "emptied":
        with redis_lost_all():
            pass
    with read_dump(dump, pg_restore) as name:
        restore(name)
        known = len(answered())
        assert 0 < known < many and len(claimed() - answered()) == CONCURRENCY, "the dump is of the middle"
        take_again(never)
        assert sender.send_claimed_job(never.pk, never.fence).left, "nothing is called before a person has said so"
        recover(since=began.isoformat())
        Job.objects.update(heartbeat_at="2000-01-01T00:00Z")
        for job in (half, later, never):
            send_the_rest(job)
        called = 7 if redis == "kept" else 0  # without Redis's record nobody knows that these were not called
        assert sandbox.ledger()["accepted"] == many + 5 + called
        assert judge(sandbox.books(), final=False) == []
        assert sums() == {"accepted": known + called, "in doubt": many + 5 + 7 - known - called}
