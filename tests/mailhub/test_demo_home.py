"""The demo's beginning and end without its story: who may have its home, and what Ctrl-C finds started."""

import fcntl
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mailhub import embedded
from tests import forks
from tests.plugin import folders
from tests.waiting import wait_until

pytestmark = pytest.mark.slow("processes")

# What manage.py does with the home of the demo; the demo itself takes a minute.
AT_HOME = """
import signal, sys
from mailhub import embedded
from sandbox.demo import home
try:
    with home.own():
        print("has its home", flush=True)
        while True:
            signal.pause()
except embedded.EmbeddedError as why:
    sys.exit(str(why))
except KeyboardInterrupt:
    sys.exit(130)
"""
# A signal whose handler runs where Python drops exceptions: it prints them and goes on.
DROPS = """
import gc, os, signal, sys, time, weakref
from sandbox.demo import home
class Finalizer:
    def __del__(self):
        os.kill(os.getpid(), NUMBER)
class Watched:
    pass
class Cycle:
    def __init__(self):
        self.me = self
    def __del__(self):
        os.kill(os.getpid(), NUMBER)
def finalizer():
    Finalizer()
def callback():
    watched = Watched()
    reference = weakref.ref(watched, lambda _: os.kill(os.getpid(), NUMBER))
    del watched
def collected():
    Cycle()
    gc.collect()
def fork():
    os.register_at_fork(before=lambda: os.kill(os.getpid(), NUMBER))
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)
try:
    with home.own():
        PLACE()
        print("goes on", flush=True)
        time.sleep(60)
except KeyboardInterrupt:
    sys.exit(130)
"""
STARTS_A_VENDOR = """
import os, signal, sys
import django
django.setup()
from pathlib import Path
from sandbox.demo.processes import DemoLimits, Processes
signal.signal(signal.SIGINT, signal.default_int_handler)
with Processes(Path(os.environ["MAILHUB_HOME"])) as processes:
    processes.log.unlink()
    os.mkfifo(processes.log)  # it is begun to start, and goes on when somebody reads
    try:
        print("starts a vendor", flush=True)
        processes.start_vendor("post", DemoLimits(60, 1))
        signal.pause()
    except KeyboardInterrupt:
        print("and knows:", *processes.vendors, flush=True)
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def home() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="mailhub-demo-", dir=folders()[0]))
    yield made
    shutil.rmtree(made)


class Script:
    """A process of the demo's parts, and what it has said so far."""

    def __init__(self, program: str, home: Path, name: str) -> None:
        self._log = home / f"{name}.said"
        with self._log.open("w") as log:
            self.process = forks.start(
                ["-c", program], env=os.environ | {"MAILHUB_HOME": str(home)}, stdout=log, start_new_session=True
            )

    def text(self) -> str:
        return self._log.read_text()

    def until(self, text: str) -> None:
        wait_until(lambda: text in self.text() or self.process.poll() is not None, f"{text!r}", log=self.text)
        assert text in self.text(), self.text()

    def ends_with(self, code: int) -> None:
        assert wait_until(lambda: self.process.poll() is not None, "its end", log=self.text)
        assert self.process.returncode == code and "Traceback" not in self.text(), self.text()


@pytest.fixture
def start(home: Path) -> Iterator[Callable[[str], Script]]:
    """Starts a program; killed at the end."""
    started: list[Script] = []

    def one(program: str) -> Script:
        started.append(Script(program, home, f"script-{len(started)}"))
        return started[-1]

    yield one
    for each in started:
        each.process.kill()
        each.process.wait()


Start = Callable[[str], Script]


def test_a_demo_that_still_ends_is_waited_for_and_the_next_one_goes_on(home: Path, start: Start) -> None:
    lock = home / "demo" / "demo.lock"
    first = start(AT_HOME)
    first.until("has its home")
    with embedded.Home(home / "demo").hold_lock():  # it cannot stop its servers yet
        first.process.send_signal(signal.SIGINT)
        wait_until(lambda: "ending" in lock.read_text(), "the first one's end to begin", log=first.text)
        impatient, patient = start(AT_HOME), start(AT_HOME)
        for one in (impatient, patient):
            one.until(f"An earlier demo is still ending: waiting for process {first.process.pid}")
        impatient.process.send_signal(signal.SIGINT)
        impatient.ends_with(130)
    first.ends_with(130)
    patient.until("has its home")
    assert patient.text().count("still ending") == 1


def test_a_demo_that_runs_is_not_waited_for(start: Start) -> None:
    first = start(AT_HOME)
    first.until("has its home")
    second = start(AT_HOME)
    second.ends_with(1)
    assert second.text() == f"The demo runs already: process {first.process.pid}\n"
    first.process.send_signal(signal.SIGTERM)
    first.ends_with(143)


def test_the_demo_says_what_it_does_before_it_waits_for_its_servers(home: Path, start: Start) -> None:
    with embedded.Home(home / "demo").hold_lock():  # none can be started or stopped
        demo = start(AT_HOME)
        demo.until("Starting a PostgreSQL and a Redis of the demo's own")
        assert "has its home" not in demo.text()
    demo.until("has its home")


def test_what_a_killed_demo_started_is_waited_for(home: Path, start: Start) -> None:
    (home / "demo").mkdir(mode=0o700)
    with (home / "demo" / "up.lock").open("w") as place:
        fcntl.flock(place, fcntl.LOCK_EX)
        demo = start(AT_HOME)
        demo.until("What an earlier demo started is still ending: waiting for it")
    demo.until("has its home")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
@pytest.mark.parametrize("place", ["finalizer", "callback", "collected", "fork"])
def test_a_signal_that_comes_where_python_drops_its_exception_ends_the_demo_too(
    start: Start, place: str, number: signal.Signals, code: int
) -> None:
    demo = start(DROPS.replace("NUMBER", str(int(number))).replace("PLACE", place))
    demo.ends_with(code)
    assert "ignored" not in demo.text()


@linux
def test_what_was_started_while_ctrl_c_came_is_known_to_the_clean_up(home: Path, start: Start) -> None:
    demo = start(STARTS_A_VENDOR)
    demo.until("starts a vendor")
    wait_until(lambda: held_back(demo.process.pid, signal.SIGINT), "a vendor being started", log=demo.text)
    demo.process.send_signal(signal.SIGINT)
    with (home / "demo.log").open():
        demo.ends_with(0)
    assert demo.text().splitlines() == ["starts a vendor", "and knows: post"]


def held_back(pid: int, number: int) -> bool:
    """Does the process block that signal?"""
    found = re.search(r"^SigBlk:\s*([0-9a-f]+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(found and int(found[1], 16) >> (number - 1) & 1)
