"""Hundreds of streams in one process with RabbitMQ as broker, and jobs that run for longer than it waits for an
acknowledgement: real processes, where RabbitMQ is installed.
"""

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from campaigns.models import Job
from tests import factories
from tests.faults import rounds
from tests.faults.checker import judge, sums
from tests.faults.sending import calls, login
from tests.flower import flower, listens, running_jobs
from tests.private_rabbitmq import PROGRAM, PrivateRabbitMQ
from tests.programs import Program, running, wait_until, worker
from tests.sandbox import Sandbox
from vendors.models import Credential

pytestmark = [
    pytest.mark.slow("programs"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(400),
    pytest.mark.skipif(not PROGRAM, reason="no rabbitmq-server is installed (Debian's package rabbitmq-server)"),
]
STREAMS = 200
EACH = 12  # messages of a job
AT_ONCE = 2  # calls of a stream
LEASE = {"LEASE_SECONDS": "10", "HEARTBEAT_SECONDS": "1"}
SWEEPS = """
import time
import django
django.setup()
from campaigns.tasks import sweep
while True:
    sweep.apply_async(expires=10)
    time.sleep(0.5)
"""
PATIENCE = 3000  # milliseconds that RabbitMQ waits for an acknowledgement in some tests, half an hour as it is shipped


@pytest.fixture(scope="module")
def rabbit() -> Iterator[PrivateRabbitMQ]:
    server = PrivateRabbitMQ()
    try:
        yield server
    finally:
        server.end()


@pytest.fixture
def impatient(rabbit: PrivateRabbitMQ) -> Iterator[PrivateRabbitMQ]:
    """Waits for acknowledgements for PATIENCE, on channels that are opened during the test."""
    shipped = rabbit.control("eval", "{ok, T} = application:get_env(rabbit, consumer_timeout), T.").strip()
    set_timeout = "application:set_env(rabbit, consumer_timeout, {})."
    rabbit.control("eval", set_timeout.format(PATIENCE))
    yield rabbit
    rabbit.control("eval", set_timeout.format(shipped))


def sender_process(broker: PrivateRabbitMQ, threads: int = STREAMS + 20) -> AbstractContextManager[Program]:
    return worker(threads=threads, BROKER_URL=broker.url, **LEASE)


@contextmanager
def sweeping(broker: PrivateRabbitMQ) -> Iterator[Program]:
    """A process that starts the sweep every half second, which notifies of whatever waits."""
    with running("-c", SWEEPS, DJANGO_SETTINGS_MODULE="mailhub.settings", BROKER_URL=broker.url) as program:
        yield program


def jobs(number: int, of: Credential, recipients: int = EACH) -> list[Job]:
    """Each has a mailcaster of its own."""
    for _ in range(number):
        factories.caster(of.vendor)
    return [factories.campaign_with_job(recipients, of=of, status="DISPATCHED") for _ in range(number)]


def all_are(status: str, number: int) -> None:
    wait_until(lambda: Job.objects.filter(status=status).count() == number, f"{number} jobs are {status}")


def cut_off(broker: PrivateRabbitMQ) -> int:
    """How often RabbitMQ has closed a channel for an acknowledgement that did not come."""
    said = "".join(log.read_text() for log in Path(broker.folder, "log").glob("*.log"))
    return said.count("timed out waiting for delivery acknowledgement")


def test_a_killed_process_of_200_streams_leaves_no_more_in_doubt_than_its_open_calls(
    sandbox: Sandbox, rabbit: PrivateRabbitMQ
) -> None:
    sandbox.settings(latency_ms=4000.0)
    jobs(STREAMS, login(sandbox.url, concurrency=AT_ONCE))
    with sweeping(rabbit):
        with sender_process(rabbit) as program:
            all_are("SENDING", STREAMS)
            calls(sandbox, STREAMS * AT_ONCE)
            program.end()
        left_open = rounds.open_calls()
        assert left_open <= STREAMS * AT_ONCE
        sandbox.settings(latency_ms=0.0)
        with sender_process(rabbit):
            all_are("LOGGED", STREAMS)
    assert judge(sandbox.books()) == []
    assert sums()["in doubt"] <= left_open and sums().total() == STREAMS * EACH


def test_a_process_of_200_streams_that_is_asked_to_end_leaves_nothing_in_doubt(
    sandbox: Sandbox, rabbit: PrivateRabbitMQ
) -> None:
    sandbox.settings(latency_ms=4000.0)
    jobs(STREAMS, login(sandbox.url, concurrency=AT_ONCE))
    with sweeping(rabbit):
        with sender_process(rabbit) as program:
            all_are("SENDING", STREAMS)
            calls(sandbox, STREAMS)
            assert program.end(signal.SIGTERM) == 0
        assert rounds.open_calls() == 0 and sums()["in doubt"] == 0
        assert not Job.objects.filter(heartbeat_at__isnull=False).exclude(status="LOGGED").exists()
        sandbox.settings(latency_ms=0.0)
        with sender_process(rabbit):
            all_are("LOGGED", STREAMS)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": STREAMS * EACH}


def test_jobs_that_run_for_longer_than_rabbitmq_waits_stay_where_they_are_and_flower_shows_them(
    sandbox: Sandbox, impatient: PrivateRabbitMQ, tmp_path: Path
) -> None:
    sandbox.settings(latency_ms=PATIENCE)
    sent = jobs(10, login(sandbox.url, concurrency=1), recipients=40)
    before = cut_off(impatient)
    with flower(tmp_path, BROKER_URL=impatient.url) as page, sender_process(impatient) as program:
        [name] = page.until(lambda: listens(tmp_path), "it hears the worker")
        with sweeping(impatient):
            calls(sandbox, 3 * len(sent))
        shown = {f"(job={job.pk} n=40)": name for job in sent}
        page.until(lambda: running_jobs(tmp_path) == shown, "all that run, after twice that time")
        sandbox.settings(latency_ms=0.0)
        all_are("LOGGED", len(sent))
        assert program.process.poll() is None
    assert cut_off(impatient) == before
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 40 * len(sent)}


def test_a_worker_that_rabbitmq_cuts_off_for_what_waits_in_it_goes_on_and_nothing_is_sent_twice(
    sandbox: Sandbox, impatient: PrivateRabbitMQ
) -> None:
    """Two threads are busy, so the third job's notification waits in the worker, and is not acknowledged."""
    sandbox.settings(latency_ms=2.0 * PATIENCE)
    account = login(sandbox.url)
    jobs(3, account, recipients=1)
    before = cut_off(impatient)
    with sweeping(impatient), sender_process(impatient, threads=2) as program:
        wait_until(lambda: cut_off(impatient) > before, "RabbitMQ closes the worker's channel")
        sandbox.settings(latency_ms=0.0)
        all_are("LOGGED", 3)
        after = login(sandbox.url)
        jobs(2, after)
        all_are("LOGGED", 5)
        assert program.said("PRECONDITION_FAILED")
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 3 + 2 * EACH}
