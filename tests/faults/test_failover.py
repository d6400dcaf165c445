"""PostgreSQL is lost with its last seconds; a standby that lagged takes over while mail goes out.

Real servers, real workers that reconnect by themselves, and a vendor that neither deduplicates nor can be asked: only
its own books tell who got something twice.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests import forks
from tests.postgres_pair import Pair
from tests.private_redis import PrivateRedis
from tests.programs import Program, environment
from tests.sandbox import Sandbox
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow("servers"), pytest.mark.timeout(600)]
RECIPIENTS, RATE = 400, 40
MORE = 1000  # enough to go on while a standby is started again, on a slow machine too
CALLED = "m.dequeued_at IS NOT NULL OR m.id IN (SELECT unnest(messages) FROM campaigns_claim)"
IN_DOUBT = "m.in_doubt_at IS NOT NULL"
IN_FLIGHT = "m.dequeued_at IS NULL AND m.id IN (SELECT unnest(messages) FROM campaigns_claim)"
SHORT = {"LEASE_SECONDS": "5", "HEARTBEAT_SECONDS": "0.5", "SWEEP_SECONDS": "1"}


class Installation:
    """An installation on two PostgreSQL, with a Redis of its own."""

    def __init__(self, home: Path, vendor: Sandbox) -> None:
        self.pair, self.redis, self.vendor = Pair(), PrivateRedis(), vendor
        broker = self.redis.url.replace("unix://", "redis+socket://")
        stores = {"DATABASE_URL": self.pair.addresses, "REDIS_URL": self.redis.url, "BROKER_URL": broker}
        self.settings = {**stores, "RESULT_BACKEND": broker, "MAILHUB_HOME": str(home), **SHORT}
        self.programs: list[Program] = []

    def manage(self, *args: str, code: int = 0) -> str:
        done = forks.run(["manage.py", *args], env=environment(**self.settings), timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def start(self) -> None:
        queues = ["-Q", "vendors,hub", "-c", "3", "--without-mingle"]
        for args in (["worker", *queues], ["beat", "--pidfile="]):
            self.programs.append(Program(["-m", "celery", "-A", "mailhub", *args], **self.settings))

    def end(self) -> None:
        for program in self.programs:
            program.end()
            print(program.log.read_text()[-4000:])  # shown where the test fails
            program.log.unlink()
        self.redis.end()
        self.pair.end()

    def said(self, text: str) -> bool:
        return any(text in program.log.read_text() for program in self.programs)

    def called(self) -> Counter[str]:
        """How often each reference, by the vendor's own books."""
        return Counter(entry.reference for entry in self.vendor.books().entries)

    def references(self, which: str) -> set[str]:
        """Those of the messages `m` of which this SQL is true."""
        with psycopg.connect(self.pair.url) as line:
            found = line.execute(f"SELECT m.uuid || '-' || m.resend_no FROM campaigns_message m WHERE {which}")
            return {reference for (reference,) in found.fetchall()}

    def at_an_end(self) -> bool:
        with psycopg.connect(self.pair.url) as line:
            jobs = line.execute("SELECT status FROM campaigns_job").fetchall()
        return bool(jobs) and all(status in ("LOGGED", "P_FINISHED") for (status,) in jobs)


@pytest.fixture
def installation(tmp_path: Path, sandbox: Sandbox) -> Iterator[Installation]:
    made = Installation(tmp_path, sandbox)
    try:
        yield made
    finally:
        made.end()


def start_sending(installation: Installation, tmp_path: Path, recipients: int = RECIPIENTS) -> int:
    """A campaign of which a fifth has been called, and the standby has heard of it. Of how many calls, at least."""
    installation.manage("migrate", "--verbosity", "0")
    options = [f"url={installation.vendor.url}", "concurrency=4", "timeout=5"]
    installation.manage("vendor", "add", "v", "--adapter", "http", "--set", *options, "--limit", f"{RATE}/1")
    (tmp_path / "body").write_text("Hello")
    (tmp_path / "people.csv").write_text("email\n" + "".join(f"r{n}@x.example\n" for n in range(recipients)))
    installation.start()
    args = ["--sponsor", "s", "--vendor", "v", "--subject", "Hi", "--body", str(tmp_path / "body"), "--at", "now"]
    installation.manage("send_campaign", *args, str(tmp_path / "people.csv"))
    wait_until(lambda: len(installation.called()) >= RECIPIENTS // 5, "the mail is under way")
    known = len(installation.called())
    wait_until(installation.pair.together, "the standby has followed so far")
    return known


def test_after_a_failover_that_lost_seconds_nobody_is_called_twice_and_only_what_was_lost_is_in_doubt(
    installation: Installation, tmp_path: Path
) -> None:
    known = start_sending(installation, tmp_path)
    installation.pair.hold()
    at = len(installation.called())
    wait_until(lambda: len(installation.called()) >= at + RECIPIENTS // 3, "calls that the standby does not hear of")
    installation.pair.fail_over()
    wait_until(lambda: installation.said("nothing is called: the store was taken over"), "it is seen")
    before = installation.called()
    found = json.loads(installation.manage("recover_store", "--dry-run", "--json"))
    assert "Nothing is called: the store was taken over" in installation.manage("status")
    installation.manage("recover_store", code=2)  # not without a person's word
    installation.manage("audit", code=1)
    assert installation.called() == before, "nothing is called meanwhile"
    installation.manage("recover_store", "--yes", "--reason", "the machine died")
    wait_until(installation.at_an_end, "all is sent", 240)
    calls = installation.called()
    assert {name: times for name, times in calls.items() if times > 1} == {}
    [vendor] = found["vendors"]
    most = len(before) - known + RATE  # some of the last permits were granted and not used any more
    assert vendor["witnessed"] and RECIPIENTS // 4 <= vendor["messages"] <= vendor["calls"] <= most
    doubts = installation.manage("resolve", "--list", "--json").splitlines()
    assert len(calls) >= RECIPIENTS - len(doubts), "whoever is not in doubt was called"
    installation.manage("audit")
    print(f"called {len(calls)} of {RECIPIENTS}, none twice; unknown {vendor['calls']}, in doubt {len(doubts)}")


def test_a_synchronous_standby_takes_over_with_all_rows_and_puts_nothing_in_doubt(
    installation: Installation, tmp_path: Path
) -> None:
    """Calls are open and claims on their way as the primary dies. The vendor's books agree with the rows."""
    pair = installation.pair
    installation.vendor.settings(latency_ms=300.0)  # calls are open at any moment
    installation.settings["LEASE_SECONDS"] = "120"  # however long the promotion takes, no sender counts as dead
    pair.wait_for_standby()
    start_sending(installation, tmp_path)
    pair.promote_with_all_received()
    wait_until(lambda: installation.said("nothing is called: the store was taken over"), "it is seen")
    wait_until(lambda: not installation.references(IN_FLIGHT), "the answers of the open calls are stored")
    before = installation.called()
    assert set(before) == installation.references(CALLED) and set(before.values()) == {1}, "rows = books"
    shown = ["recover_store", "--dry-run", "--json"]
    wait_until(lambda: json.loads(installation.manage(*shown))["vendors"] == [], "unused permits are cancelled", 60)
    installation.manage("recover_store", "--yes", "--reason", "the primary's disk died")
    assert installation.references(IN_DOUBT) == set()
    wait_until(installation.at_an_end, "all is sent", 240)
    calls = installation.called()
    assert len(calls) == RECIPIENTS and set(calls.values()) == {1}
    assert installation.references(IN_DOUBT) == set()
    installation.manage("audit")


@pytest.mark.parametrize(
    ("promote", "loses"),
    [
        pytest.param(Pair.promote_with_all_received, False, id="applies what it has stored"),
        pytest.param(Pair.promote_as_applied, True, id="ends where it stands"),
    ],
)
def test_after_the_promotion_of_a_standby_whose_replay_is_delayed_nobody_is_called_twice(
    promote: Callable[[Pair], None], loses: bool, installation: Installation, tmp_path: Path
) -> None:
    """The standby has stored the last seconds and applied none of them. The promotion decides what becomes of them."""
    pair = installation.pair
    start_sending(installation, tmp_path, MORE)
    pair.delay_replay()
    at = len(installation.called())
    wait_until(lambda: len(installation.called()) >= at + RECIPIENTS // 4, "calls that the standby does not apply")
    stored = set(installation.called())
    wait_until(pair.has_received_all, "the standby has stored them")
    promote(pair)
    wait_until(lambda: installation.said("nothing is called: the store was taken over"), "it is seen")
    before = installation.called()
    assert stored <= set(before) and set(before.values()) == {1}
    lost = set(before) - installation.references(CALLED)
    assert (len(lost) >= RECIPIENTS // 4) if loses else not lost & stored
    found = json.loads(installation.manage("recover_store", "--dry-run", "--json"))["vendors"]
    assert all(vendor["witnessed"] for vendor in found) and sum(vendor["calls"] for vendor in found) >= len(lost)
    assert installation.called() == before, "nothing is called meanwhile"
    installation.manage("recover_store", "--yes", "--reason", "the primary's disk died")
    assert lost <= installation.references(IN_DOUBT), "each of them by what Redis remembers"
    wait_until(installation.at_an_end, "all is sent", 240)
    calls, doubts = installation.called(), installation.references(IN_DOUBT)
    assert {name: times for name, times in calls.items() if times > 1} == {}
    assert lost <= doubts and len(calls) >= MORE - len(doubts), "whoever is not in doubt was called"
    assert len(doubts - set(calls)) <= RATE, "some of the last permits were granted and not used any more"
    installation.manage("audit")
    print(f"called {len(calls)}, none twice; lost {len(lost)}, in doubt {len(doubts)}")
