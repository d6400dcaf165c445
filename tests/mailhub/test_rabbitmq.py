"""RabbitMQ as broker instead of Redis, with quorum queues: real processes, where RabbitMQ is installed."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from django.test import override_settings

from campaigns.doors.front.problems import Problem
from campaigns.models import Job
from mailhub.front import broker_check
from tests import factories
from tests.celery_tasks import notes
from tests.faults.checker import judge, sums
from tests.faults.sending import calls, login
from tests.private_rabbitmq import PROGRAM, PrivateRabbitCluster, PrivateRabbitMQ
from tests.programs import PROJECT, Program, environment, running, wait_until
from tests.sandbox import Sandbox
from waiter.models import ParkedTask

pytestmark = [
    pytest.mark.slow("programs"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PROGRAM, reason="no rabbitmq-server is installed (Debian's package rabbitmq-server)"),
]
VARIABLES = {"LEASE_SECONDS": "4", "HEARTBEAT_SECONDS": "0.5", "SWEEP_SECONDS": "1", "CELERY_LOG_LEVEL": "INFO"}


@pytest.fixture(scope="module")
def rabbit() -> Iterator[PrivateRabbitMQ]:
    server = PrivateRabbitMQ()
    try:
        yield server
    finally:
        server.end()


class Site:
    """mailhub's processes on that broker."""

    def __init__(self, broker: PrivateRabbitMQ | PrivateRabbitCluster, stack: ExitStack) -> None:
        self._variables = {**VARIABLES, "BROKER_URL": broker.url}
        self._stack = stack

    def python(self, *args: str) -> str:
        env = environment(**self._variables)
        done = subprocess.run([sys.executable, *args], cwd=PROJECT, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def manage(self, *args: str) -> str:
        return self.python("manage.py", *args)

    def celery(self, *args: str) -> Program:
        return self._stack.enter_context(running("-m", "celery", "-A", "mailhub", *args, **self._variables))

    def worker(self, queues: str = "hub,vendors", processes: int = 2) -> Program:
        name = factories.unique("rabbit") + "@localhost"
        args = ["-Q", queues, "-c", str(processes), "-n", name, "-I", "tests.celery_tasks", "--without-mingle"]
        program = self.celery("worker", *args)
        wait_until(lambda: program.said(" ready."), "the worker is ready")
        return program

    def note(self, page: str, word: str, queue: str, countdown: int = 0) -> None:
        """A task of somebody else's, called by a process that ends at once."""
        code = f"note.apply_async([{page!r}, {word!r}], queue={queue!r}, countdown={countdown} or None)"
        self.python("-c", f"import django; django.setup(); from tests.celery_tasks import note; {code}")


@pytest.fixture
def site(rabbit: PrivateRabbitMQ, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "mailhub.settings")
    with ExitStack() as stack:
        yield Site(rabbit, stack)


def logged(job: Job, status: str = "LOGGED") -> None:
    wait_until(lambda: Job.objects.get(pk=job.pk).status == status, f"job {job.pk} is {status}")


def test_a_campaign_is_cut_sent_killed_stopped_and_resumed_as_on_redis(
    sandbox: Sandbox, site: Site, rabbit: PrivateRabbitMQ
) -> None:
    sandbox.settings(latency_ms=5000.0)  # nobody is done before the stop
    account = login(sandbox.url)
    vendor = account.vendor
    type(vendor).objects.filter(pk=vendor.pk).update(small_audience_threshold=100)
    for name in ("MC1", "MC2"):
        factories.caster(vendor, name, "large-priority", min_size=100, max_size=200, percentage=10)
    parent = factories.campaign_with_job(1000, of=account, status="RENDERED")
    small = factories.campaign_with_job(3, of=account, status="RENDERED")
    site.celery("beat", "--pidfile=")
    worker = site.worker()
    site.manage("dispatch_jobs", "--vendor", vendor.slug)
    calls(sandbox, 4)
    worker.end()
    second = site.worker()
    calls(sandbox, len(sandbox.books().entries) + 1)
    site.manage("stop_job", str(parent.pk))
    logged(parent, "P_STOPPED")
    sandbox.settings(latency_ms=0.0)
    open_children = Job.objects.filter(parent=parent).exclude(status="LOGGED")
    wait_until(lambda: not open_children.exists(), "what was in flight is finalised")
    site.manage("retry_job", str(parent.pk))
    logged(parent, "P_FINISHED")
    logged(small)
    assert judge(sandbox.books()) == [] and sums().total() == 1003
    shown = site.manage("status")
    assert "1 worker" in shown and "webhooks" in shown and vendor.queue not in shown, "only the webhooks have no worker"
    kinds = dict(line.split() for line in rabbit.control("list_queues", "name", "type").splitlines()[1:])
    assert kinds["hub"] == kinds[vendor.queue] == "quorum", kinds
    assert second.process.poll() is None


def test_what_is_due_later_holds_up_no_queue_and_comes_when_it_is_due(site: Site) -> None:
    """A worker gets two messages of a quorum queue at a time here: three that are due later would fill it."""
    queue, page = factories.unique("later"), factories.unique("page")
    site.worker(queue, processes=2)
    for _ in range(3):
        site.note(page, "in ten minutes", queue, countdown=600)
    site.note(page, "in two seconds", queue, countdown=2)
    site.note(page, "now", queue)
    wait_until(lambda: sorted(notes(page)) == ["in two seconds", "now"], "what is due soon comes, and nothing else")


def test_what_is_due_much_later_is_parked_and_released_once(site: Site) -> None:
    queue, page = factories.unique("parked"), factories.unique("page")
    site.note(page, "tomorrow", queue, countdown=86_400)
    [row] = ParkedTask.waiting.all()
    assert row.queue == queue
    site.worker(queue, processes=1)
    site.manage("waiter", "--release", str(row.pk))
    wait_until(lambda: notes(page) == ["tomorrow"], "it runs when a person releases it")
    assert not ParkedTask.waiting.exists()


def test_a_vendor_that_was_added_while_the_worker_runs_is_served(sandbox: Sandbox, site: Site) -> None:
    site.worker("vendors", processes=1)
    account = login(sandbox.url)
    factories.caster(account.vendor)
    job = factories.campaign_with_job(5, of=account, status="RENDERED")
    site.manage("dispatch_jobs", "--vendor", account.vendor.slug)
    logged(job)


def test_a_rabbitmq_that_comes_back_empty_is_furnished_again_by_the_workers(
    sandbox: Sandbox, site: Site, rabbit: PrivateRabbitMQ
) -> None:
    account = login(sandbox.url)
    factories.caster(account.vendor)
    site.celery("beat", "--pidfile=")
    site.worker()
    job = factories.campaign_with_job(5, of=account, status="RENDERED")
    rabbit.lose_all()
    site.manage("dispatch_jobs", "--vendor", account.vendor.slug)
    logged(job)


def test_the_front_notices_that_rabbitmq_is_away_and_that_it_is_back(rabbit: PrivateRabbitMQ) -> None:
    def answers() -> bool:
        try:
            broker_check.check_broker()
        except Problem:
            return False
        return True

    with override_settings(BROKER_URL=rabbit.url):
        assert answers()
        rabbit.stop()
        assert not answers()
        rabbit.start()
        wait_until(answers, "the front sees it again")
