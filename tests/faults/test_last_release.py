"""The last release and this version beside each other while mail goes out: judged by the vendor's books.

The release is a wheel, built from its commit, beside the packages of the tests. Whoever makes the next release names it
here and in mailhub/upgrades.py.
"""

import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from campaigns.engine.dispatch.dispatcher import notify_queue
from campaigns.engine.failover import guard
from campaigns.models import Job, Message, Store
from mailhub import upgrades
from mailhub.celery import app
from sandbox.vendor.books import worst_window
from tests import factories, forks
from tests.faults.checker import judge, sums
from tests.faults.sending import calls, login
from tests.programs import NO_WATCHDOG, environment, sweeping, worker
from tests.sandbox import Sandbox
from tests.waiting import DEADLINE, exit_of, wait_until
from vendors.models import Credential, RateLimit

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
RELEASE, COMMIT = "0.3.0", "23becce0da73e54ab286191828dd6be817d6504f"
UNITS, SECONDS = 10, 1.0
MANY = 2_000  # more than this limit lets through before everything was seen
LITTLE = 20


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages of the release's wheel."""
    try:
        archive = git("archive", COMMIT)
    except FileNotFoundError:
        pytest.skip("there is no git here to ask for the last release")
    if archive.returncode:
        pytest.skip(f"release {RELEASE} is not in this clone, which has not the whole history: {archive.stderr!r}")
    sources, wheels, packages = (tmp_path_factory.mktemp(name) for name in ("sources", "wheels", "packages"))
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as opened:
        opened.extractall(sources, filter="data")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation", "--quiet")
    subprocess.run([*pip, "--wheel-dir", wheels, sources], env=os.environ | {"MAILHUB_COMMIT": COMMIT}, check=True)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened_wheel:
        opened_wheel.extractall(packages)
    return packages


@contextmanager
def released_worker(packages: Path, queues: str, name: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker of the release on this test's database and Redis; what it leaves is killed."""
    given = environment(LEASE_SECONDS="4", HEARTBEAT_SECONDS="0.5", CELERY_LOG_LEVEL="INFO", **NO_WATCHDOG)
    given |= {"PYTHONPATH": str(packages)}
    options = ["-Q", queues, "-P", "threads", "-c", "20", "-n", name, "--without-mingle"]
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w+b") as log:
        command = [sys.executable, "-m", "celery", "-A", "mailhub", "worker", *options]
        process = subprocess.Popen(command, env=given, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        said = Path(folder, "log").read_bytes

        def is_ready() -> bool:
            assert process.poll() is None, said().decode()
            return b" ready." in said()

        try:
            wait_until(is_ready, "the release's worker is ready", log=lambda: said().decode())
            yield process
        except BaseException:
            print(f"--- {RELEASE}\n{said().decode()[-6000:]}")
            raise
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            exit_of(process)


@contextmanager
def tables_of_the_release() -> Iterator[None]:
    """Tables that `migrate --back-to` has made those of the release; afterwards they are this version's again."""
    call_command("migrate", back_to=RELEASE, verbosity=0)
    try:
        yield
    finally:
        call_command("migrate", force=True, verbosity=0)


def applied() -> set[tuple[str, str]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT app, name FROM django_migrations WHERE app = ANY(%s)", [list(guard.OURS)])
        return set(cursor.fetchall())


def has_sent(job: Job, least: int) -> bool:
    return Job.objects.values_list("accepted", flat=True).get(pk=job.pk) >= least


def dispatched(size: int, of: Credential) -> Job:
    return factories.campaign_with_job(size, of=of, status="DISPATCHED")


def test_the_release_goes_on_beside_the_new_tables_and_this_version_takes_over_under_one_window(
    sandbox: Sandbox, release: Path
) -> None:
    sandbox.settings(latency_ms=100.0)
    account, other = login(sandbox.url, (UNITS, SECONDS), concurrency=8), login(sandbox.url)
    for one in (account, other):
        factories.caster(one.vendor)
    jobs = [dispatched(MANY, account), dispatched(LITTLE, other)]
    queue, rest = account.vendor.queue, other.vendor.queue
    old_name = factories.unique("release@localhost")
    with (
        tables_of_the_release(),
        released_worker(release, f"hub,{queue}", old_name) as old,
        worker(queues=rest),
    ):
        notify_queue(account.vendor_id, queue)
        notify_queue(other.vendor_id, rest)
        calls(sandbox, UNITS)

        began = time.time()
        done = forks.run(["manage.py", "migrate"], env=environment(), timeout=DEADLINE)
        assert done.returncode == 0 and "Nothing stands still" in done.stderr, done.stderr
        assert "no call starts" not in done.stderr and Store.objects.get().applied == guard.newest_migrations()

        jobs.append(dispatched(MANY, account))
        notify_queue(account.vendor_id, queue)
        wait_until(lambda: has_sent(jobs[2], LITTLE), "the release sends what was stored in the new tables")
        assert sums()["in doubt"] == 0

        notify_queue(other.vendor_id, rest)
        wait_until(
            lambda: has_sent(jobs[1], LITTLE), "this version, begun beside the old tables, sends without a restart"
        )

        app.control.cancel_consumer(queue, destination=[old_name], reply=True, timeout=DEADLINE)
        with worker(queues=f"hub,{queue}"), sweeping():
            jobs.append(dispatched(MANY, account))
            notify_queue(account.vendor_id, queue)
            wait_until(lambda: has_sent(jobs[3], LITTLE), "this version sends, while the release has jobs under way")
            old.send_signal(signal.SIGTERM)
            assert exit_of(old) == 0
            here = [job.pk for job in jobs]
            lifted = time.time()
            RateLimit.objects.all().delete()
            sandbox.settings(latency_ms=0.0)
            wait_until(lambda: Job.objects.filter(pk__in=here, status="LOGGED").count() == len(here), "all is sent")
    books = sandbox.books()
    assert judge(books) == [] and sums() == {"accepted": 3 * MANY + LITTLE}
    others = {str(uuid) for uuid in Message.objects.filter(campaign=jobs[1].campaign_id).values_list("uuid", flat=True)}
    of_others = [entry.wall for entry in books.entries if entry.reference.rpartition("-")[0] in others]
    assert len(of_others) == LITTLE and min(of_others) > began, "beside the old tables this version called nobody"
    limited = [e.t for e in books.entries if e.wall < lifted and e.reference.rpartition("-")[0] not in others]
    assert worst_window(limited, SECONDS) <= UNITS


def test_going_back_undoes_what_came_since_the_release_and_the_release_fits_alone() -> None:
    newer = {(app, name) for app, names in guard.list_migrations().items() for name in names}
    newer = {(app, name) for app, name in newer if name > upgrades.RELEASES[RELEASE][app]}
    assert newer and newer <= applied() and guard.halt_reason() is None
    with tables_of_the_release():
        assert not newer & applied()
        with connection.cursor() as cursor:
            cursor.execute("SELECT tables FROM campaigns_store")
            assert cursor.fetchone()[0] == " ".join(f"{app}.{name}" for app, name in upgrades.RELEASES[RELEASE].items())
        assert guard.halt_reason() == guard.OTHER_TABLES, "and this version calls nobody"
    assert newer <= applied() and guard.halt_reason() is None


def test_where_there_is_no_way_back_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    before, store = applied(), Store.objects.values().get()
    monkeypatch.setattr(upgrades, "find_no_way_back", lambda migration: "it deletes what is older than a year")
    with pytest.raises(
        CommandError, match=r"no way back to 0\.3\.0 but a dump: .*it deletes what is older than a year"
    ):
        call_command("migrate", back_to=RELEASE, verbosity=0)
    assert applied() == before and Store.objects.values().get() == store
