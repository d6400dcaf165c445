"""A Redis under Sentinel fails over while mail goes out: everything finds the new master by itself.

Each story is told twice: of plain servers, and of servers and Sentinels that speak TLS alone and want users.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from kombu.exceptions import OperationalError
from redis import RedisError

from campaigns.models import Job, Message
from campaigns.models.states import DONE
from mailhub.broker import connect_to
from tests import forks
from tests.faults.checker import judge
from tests.private_sentinels import PrivateSentinels
from tests.private_tls import redis_with_tls
from tests.programs import Program, environment
from tests.sandbox import Sandbox
from tests.waiting import wait_until
from vendors import redis_clients

pytestmark = [pytest.mark.slow("servers"), pytest.mark.timeout(600)]
RECIPIENTS, RATE = 400, 40
SHORT = {"LEASE_SECONDS": "5", "HEARTBEAT_SECONDS": "0.5", "SWEEP_SECONDS": "1"}


@pytest.fixture(params=["plain", "TLS and users"])
def sentinels(request: pytest.FixtureRequest) -> Iterator[PrivateSentinels]:
    program = ""
    if request.param != "plain" and not (program := redis_with_tls()):
        pytest.skip("no Redis with TLS is here, and the bundled one has none: name one by REDIS_WITH_TLS")
    servers = PrivateSentinels(program)
    try:
        yield servers
    finally:
        servers.end()


def works(attempt: Any) -> bool:
    try:
        attempt()
    except (RedisError, OperationalError, Empty):  # what only the demoted one knew is lost
        return False
    return True


def test_a_client_and_a_script_follow_a_master_that_dies_and_one_that_is_demoted(sentinels: PrivateSentinels) -> None:
    async def story() -> None:
        redis = redis_clients.connect_async(sentinels.url)
        script = redis_clients.AsyncScript(redis, "return redis.call('INCR', KEYS[1])")
        with redis_clients.make_client(sentinels.url) as plain:
            assert plain.connection_pool.connection_kwargs["db"] == 3
            assert await script.run_script(["counted"], []) == 1
            for change in (sentinels.demote_master, sentinels.kill_master):
                change()
                wait_until(lambda: works(lambda: plain.set("told", 1)), "the client is with the new master", 60)
                async with asyncio.timeout(60):
                    while True:
                        try:
                            counted = await script.run_script(["counted"], [])
                            break
                        except RedisError:
                            await asyncio.sleep(0.1)
                assert counted > 1, "the replica had what the master knew"
        await redis.aclose()

    asyncio.run(story())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # kombu leaves a line cut while it opens
def test_the_broker_is_found_by_the_sentinels_too(sentinels: PrivateSentinels) -> None:
    def sends() -> None:
        with connect_to(sentinels.url, 5.0) as line, line.SimpleQueue("q") as queue:
            queue.put({"n": 1})
            assert queue.get(timeout=5).payload == {"n": 1}

    sends()
    sentinels.demote_master()
    wait_until(lambda: works(sends), "the broker answers again", 60)


def test_a_worker_whose_line_was_closed_under_it_gives_its_messages_up_and_goes_on(sentinels: PrivateSentinels) -> None:
    """kombu returns what was not acknowledged while it closes, and has no address any more where the line broke."""
    with connect_to(sentinels.url, 5.0) as line:
        channel: Any = line.default_channel
        channel.queue_declare("q")
        channel.basic_publish(channel.prepare_message("{}"), "", "q")
        assert channel.basic_get("q") is not None, "it is not acknowledged"
        for pool in (channel.pool, channel.async_pool):
            pool.disconnect()
        channel._pool = channel._async_pool = channel.connection.client = None
        with pytest.raises(line.connection_errors, match="connection to the broker is closed"):
            channel.close()


class Installation:
    def __init__(self, home: Path, sentinels: PrivateSentinels) -> None:
        stores = {"REDIS_URL": sentinels.url, "BROKER_URL": sentinels.url, "RESULT_BACKEND": sentinels.url}
        self.settings = {**stores, "RESULT_URLS": sentinels.url, "MAILHUB_HOME": str(home), **SHORT}
        self.programs: list[Program] = []

    def manage(self, *args: str) -> str:
        done = forks.run(["manage.py", *args], env=environment(**self.settings), timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self) -> None:
        queues = ["-Q", "vendors,hub", "-c", "3", "--without-mingle"]
        for args in (["worker", *queues], ["beat", "--pidfile="]):
            self.programs.append(Program(["-m", "celery", "-A", "mailhub", *args], **self.settings))

    def said(self, text: str) -> bool:
        return any(text in program.log.read_text() for program in self.programs)

    def end(self) -> None:
        for program in self.programs:
            program.end()
            print(program.log.read_text()[-4000:])  # shown where the test fails
            program.log.unlink()


@pytest.mark.django_db(transaction=True)
def test_mail_goes_on_after_the_master_has_died_and_no_window_is_over_its_limit(
    sentinels: PrivateSentinels, sandbox: Sandbox, tmp_path: Path
) -> None:
    made = Installation(tmp_path, sentinels)
    options = [f"url={sandbox.url}", "concurrency=4", "timeout=5"]
    made.manage("vendor", "add", "v", "--adapter", "http", "--set", *options, "--limit", f"{RATE}/1")
    (tmp_path / "body").write_text("Hello")
    (tmp_path / "people.csv").write_text("email\n" + "".join(f"r{n}@x.example\n" for n in range(RECIPIENTS)))
    try:
        made.start()
        args = ["--sponsor", "s", "--vendor", "v", "--subject", "Hi", "--body", str(tmp_path / "body"), "--at", "now"]
        made.manage("send_campaign", *args, str(tmp_path / "people.csv"))
        wait_until(lambda: len(sandbox.books().entries) >= RECIPIENTS // 5, "the mail is under way")
        killed = time.monotonic()
        sentinels.kill_master()
        took = time.monotonic() - killed
        wait_until(lambda: len(sandbox.books().entries) == RECIPIENTS, "all were called", 240)
        wait_until(lambda: not Job.objects.exclude(status__in=DONE).exists(), "all jobs are logged")
        assert not Message.objects.filter(in_doubt_at__isnull=False).exists(), "senders keep their jobs"
        made.manage("audit")
    finally:
        made.end()
    assert judge(sandbox.books(), windows=[(RATE, 1.0, None)]) == []
    times = sorted(entry.t for entry in sandbox.books().entries)
    pause = max(later - before for before, later in itertools.pairwise(times))
    print(f"longest pause {pause:.1f} s, of which {took:.1f} s until there was a new master")
