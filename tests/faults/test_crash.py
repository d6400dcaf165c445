"""PostgreSQL crashes while mail goes out: kill -9 of all of its processes, and the same cluster again.

With sessions that commit to the disk nothing is lost, and mail goes on by itself. Where commits are lost all the same,
Redis tells, and a person decides.
"""

import io
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from campaigns.engine import sending as sender
from campaigns.engine.claiming import claims
from campaigns.engine.failover import crash, guard, recovery
from campaigns.engine.failover.queries import mark_intact
from campaigns.engine.finishing import finalizer
from campaigns.engine.finishing import sweep as sweeper
from campaigns.models import Job
from campaigns.reporting.forecast import queues
from mailhub.monitoring import probes
from tests.connected import connected_to
from tests.faults.checker import judge, sums
from tests.faults.sending import CONCURRENCY, being_sent, calls, login, send_the_rest, sent, take_again, taken
from tests.faults.test_28_database import once_cut_at_the_commit
from tests.plugin import folders
from tests.postgres_pair import Server
from tests.sandbox import Sandbox
from tests.waiting import wait_until
from vendors import redis_clients
from vendors.limits.throttle import Grant, Throttle
from vendors.limits.values import Limit, Scope
from vendors.models import Credential, RateLimit, Usage, Vendor

pytestmark = [pytest.mark.slow("servers"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
LEASE = timedelta(seconds=15)
MANY = 60


def copy_if_there(source: str, target: str) -> str:
    """Other tests remove files of their databases meanwhile."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)
    return target


def copy_cluster(server: Server) -> None:
    """Makes the server one like the tests' own, with the same rows, from a base backup."""
    server.folder.mkdir(mode=0o700)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backup_start('crash', true)")
        home = Path(os.environ["MAILHUB_HOME"], "postgres")
        without: Any = {"ignore": shutil.ignore_patterns("postmaster.*"), "copy_function": copy_if_there}
        shutil.copytree(home, server.data, **without)
        cursor.execute("SELECT labelfile FROM pg_backup_stop(false)")
        shutil.copytree(home / "pg_wal", server.data / "pg_wal", dirs_exist_ok=True, **without)
        (server.data / "backup_label").write_text(cursor.fetchone()[0])
    server.data.chmod(0o700)


@pytest.fixture
def postgres() -> Iterator[Server]:
    """One of the test's own; this process's sessions are there. Server, database and role want no durable commits."""
    folder = Path(tempfile.mkdtemp(prefix="crash-", dir=folders()[0]))
    server, name = Server(folder / "a", synchronous_commit="off"), connection.settings_dict["NAME"]
    try:
        copy_cluster(server)
        server.start()
        with connected_to(f"postgres://mailhub@/{name}?host={quote(str(server.folder), safe='')}"):
            mark_intact()  # a backup is what a crash leaves
            for of in (f'DATABASE "{name}"', "ROLE mailhub"):
                server.ask(f"ALTER {of} SET synchronous_commit = off")
            yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
        with redis_clients.make_client(settings.REDIS_URL) as redis:
            redis.flushdb()  # the test's own database will give the same numbers to other vendors


def crashes(server: Server) -> None:
    server.kill()
    connection.close()
    server.start()


def swept() -> str | None:
    sweeper.run_sweep(LEASE)
    return guard.halt_reason()


def test_a_crash_is_noticed_and_an_orderly_restart_is_none(postgres: Server) -> None:
    connection.close()
    postgres.stop()
    postgres.start()
    assert guard.halt_reason() is None
    crashes(postgres)
    assert guard.halt_reason() == guard.CRASHED
    assert swept() is None, "there was nothing to lose"


def test_crashes_that_lost_nothing_stop_mail_for_a_moment_and_need_nobody(postgres: Server, sandbox: Sandbox) -> None:
    """Server, database and role say off; the sessions commit to the disk all the same."""
    sandbox.settings(latency_ms=50.0)
    job = taken(MANY, login(sandbox.url))
    for least in (15, 30, 45):
        postgres.hold_back_commits()
        with being_sent(job) as sending:
            calls(sandbox, least)
            crashes(postgres)
            sending.exception()
        assert wait_until(lambda: swept() is None, "nothing is found to be lost")
        finalizer.recover_job(job.pk, timedelta())  # its sender may have ended with the database
        Job.objects.update(not_before=None)
        take_again(job)
    sender.send_claimed_job(job.pk, job.fence)
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums()["in doubt"] <= 3 * CONCURRENCY and sums().total() == MANY


@pytest.fixture
def sessions_that_do_not_care(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before sessions set what they need."""
    monkeypatch.setattr(guard, "NOTED", guard.NOTED.removesuffix(f", {guard.DURABLE}"))


@pytest.mark.usefixtures("sessions_that_do_not_care")
def test_a_crash_that_lost_commits_is_found_by_what_redis_remembers_and_nobody_is_called_twice(
    postgres: Server, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    account = login(sandbox.url, (40, 3600))  # so that some are not called, however fast this machine is
    sent(taken(2, account))  # Redis is to know the generation that the rows will have
    job = taken(MANY, account)
    postgres.hold_back_commits()
    with being_sent(job) as sending:
        known = calls(sandbox, 22)
        crashes(postgres)
        sending.exception()
    before = len(sandbox.books().entries)
    assert sums()["accepted"] - 2 <= CONCURRENCY < before, "the rows know only what was answered since"
    assert wait_until(swept, "it is found") == guard.LOST
    assert "PostgreSQL has lost commits in a crash: " in caplog.text
    take_again(job)
    assert sender.send_claimed_job(job.pk, job.fence).left and len(sandbox.books().entries) == before >= known
    assert Job.objects.get(pk=job.pk).waits_for == guard.LOST
    crashes(postgres)
    assert swept() == guard.LOST, "another crash does not make it forgotten"
    call_command("recover_store", yes=True, reason="the disk lied", stdout=io.StringIO())
    assert guard.halt_reason() is None and before <= sums()["in doubt"] + sums()["accepted"] < 2 + MANY
    RateLimit.objects.all().delete()
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert judge(sandbox.books()) == []
    assert sums()["accepted"] + sums()["in doubt"] == 2 + MANY


def forget_the_mark() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM campaigns_intact")


@pytest.fixture
def crashed() -> Iterator[None]:
    """As a crash leaves the table by which it is noticed."""
    forget_the_mark()
    try:
        yield
    finally:
        mark_intact()


@pytest.fixture
def throttle() -> Iterator[Throttle]:
    with redis_clients.make_client(settings.REDIS_URL) as redis:
        yield Throttle(redis)


def grant(throttle: Throttle, of: Credential, hold: float = 60.0) -> tuple[Scope, Grant]:
    """Permits for messages of which the rows know no claim."""
    vendor = Vendor.objects.get(pk=of.vendor_id)
    scope = Scope(vendor.pk, of.pk, vendor.generation, (Limit(100, 1),))
    throttle.rebuild(vendor.pk, vendor.generation, 1.0, [])
    found = throttle.acquire(scope, 3, hold, note=f"{of.pk} 1 100 3")
    assert isinstance(found, Grant)
    return scope, found


def claimed(of: Credential, found: Grant) -> None:
    """The ledger's row of the claim under this grant."""
    until = Now() + timedelta(seconds=60)
    Usage.objects.create(vendor=of.vendor, credential=of, at=Now(), until=until, units=found.units, grant=found.id)


@pytest.mark.usefixtures("crashed")
def test_permits_without_a_claim_are_no_loss_once_their_sender_has_cancelled_them(throttle: Throttle) -> None:
    scope, found = grant(throttle, login("http://127.0.0.1:1"))
    assert swept() == guard.CRASHED, "its sender may be calling"
    throttle.cancel(scope, found.places())
    assert swept() is None


@pytest.mark.usefixtures("crashed")
def test_a_sender_that_died_with_postgresql_holds_mail_up_until_its_time_is_over(throttle: Throttle) -> None:
    grant(throttle, login("http://127.0.0.1:1"), hold=2.0)
    began = time.monotonic()
    wait_until(lambda: swept() is None, "its time is over")
    assert time.monotonic() - began >= 1.0


@pytest.mark.usefixtures("crashed")
def test_while_a_call_may_be_open_every_door_says_until_when_nothing_is_called(throttle: Throttle) -> None:
    account = login("http://127.0.0.1:1")
    assert not any("at the latest" in said for said in halted_at(account)), "no call can be open"
    grant(throttle, account, hold=3000.0)
    ends = throttle.places(Scope(account.vendor_id, account.pk, 0))[0][-1]
    end = f"{timezone.localtime(datetime.fromtimestamp(ends, UTC)):%H:%M:%S}"
    for said in halted_at(account):
        assert f"what Redis remembers is compared with the rows, until {end} at the latest" in said


def halted_at(account: Credential) -> list[str]:
    """What the operations page, /readyz, the command status and a forecast say."""
    out = io.StringIO()
    call_command("status", stdout=out)
    halt = recovery.current_halt()
    queue = queues.queues_of_vendors([account.vendor_id], timezone.now())[account.vendor_id]
    assert halt and not halt.taken_over
    return [halt.why, probes.probe_database()["calls"], " ".join(out.getvalue().split()), queue.halted]


@pytest.mark.usefixtures("crashed")
def test_a_call_that_has_ended_without_a_claim_proves_that_a_commit_was_lost(throttle: Throttle) -> None:
    account = login("http://127.0.0.1:1")
    for of_claim in (True, False):
        scope, found = grant(throttle, account)
        throttle.done(scope, found.places()[:1])
        throttle.cancel(scope, found.places()[1:])
        if of_claim:
            claimed(account, found)
            assert swept() is None
            forget_the_mark()
    assert swept() == guard.LOST


@pytest.mark.usefixtures("crashed")
def test_what_the_ledger_keeps_no_more_proves_nothing(throttle: Throttle, monkeypatch: pytest.MonkeyPatch) -> None:
    scope, found = grant(throttle, login("http://127.0.0.1:1"))
    throttle.done(scope, found.places())
    monkeypatch.setattr(crash, "LEDGER", timedelta())
    assert swept() is None


@pytest.mark.usefixtures("crashed")
def test_while_redis_is_away_nothing_is_compared_and_the_sweep_goes_on(settings: Any, tmp_path: Path) -> None:
    login("http://127.0.0.1:1")
    there = settings.REDIS_URL
    settings.REDIS_URL = f"unix://{tmp_path}/nobody"
    assert swept() == guard.CRASHED
    settings.REDIS_URL = there
    assert swept() is None


@pytest.mark.usefixtures("crashed")
def test_a_stream_compares_by_itself_and_sends(sandbox: Sandbox) -> None:
    job = taken(5, login(sandbox.url))
    sender.send_claimed_job(job.pk, job.fence)
    assert guard.halt_reason() is None and sums() == {"accepted": 5}


def test_a_sender_cancels_the_permits_of_a_claim_of_which_it_heard_nothing(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, throttle: Throttle
) -> None:
    account = login(sandbox.url)
    job = taken(10, account)
    monkeypatch.setattr(claims, "claim_for_jobs", once_cut_at_the_commit(claims.claim_for_jobs))
    sender.send_claimed_job(job.pk, job.fence)
    trail = throttle.granted(account.vendor_id, Vendor.objects.get(pk=account.vendor_id).generation)
    assert trail is not None and trail.grants == (), "its calls are open no more"
