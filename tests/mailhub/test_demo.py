"""The demo as `make demo` runs it, in a home of its own, with everything that it starts."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailhub.embedded.process import Daemon
from tests import factories
from tests.waiting import wait_until

PROJECT = Path(__file__).parents[2]
DEADLINE = 480.0  # seconds; it takes under a minute on a machine that has nothing else to do
# Fewer recipients than the default; the rest of the story is the same.
DEMO = [sys.executable, "manage.py", "demo", "--once", "--recipients", "2000"]


@pytest.fixture
def home() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="mailhub-demo-"))
    yield made
    shutil.rmtree(made)


class Demo:
    """`manage.py demo` as a process, and what it has said so far."""

    def __init__(self, home: Path) -> None:
        self._log = home / factories.unique("said")
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                DEMO,
                cwd=PROJECT,
                env=os.environ | {"MAILHUB_HOME": str(home), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def text(self) -> str:
        return self._log.read_text()

    def until(self, text: str) -> None:
        wait_until(
            lambda: text in self.text() or self.process.poll() is not None, f"the demo to say {text!r}", DEADLINE
        )
        assert text in self.text(), self.text()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)


@pytest.mark.timeout(2 * DEADLINE)
@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("Starting web", signal.SIGKILL),
        ("Loading the lists", signal.SIGTERM),
    ],
)
def test_a_demo_that_was_interrupted_and_started_again_goes_on_without_a_traceback(
    home: Path, moment: str, number: signal.Signals
) -> None:
    first = Demo(home)
    demos = [first]
    try:
        wait_until(lambda: (home / "demo" / "demo.lock").exists(), "the demo to begin")
        first.until(moment)
        first.process.send_signal(number)
        first.process.wait(DEADLINE)
        again = Demo(home)
        demos.append(again)
        again.until("Loading the lists")
        again.end(signal.SIGINT)
        for demo in demos:
            assert "Traceback" not in demo.text(), demo.text()
        assert not any(Daemon(name, home / "demo").alive() for name in ("postgres", "redis"))
    finally:
        for demo in demos:
            demo.end()


@pytest.mark.timeout(2 * DEADLINE)
def test_a_demo_whose_database_ends_says_so_in_a_sentence(home: Path) -> None:
    demo = Demo(home)
    try:
        demo.until("Starting web")
        assert Daemon("postgres", home / "demo").stop(signal.SIGINT)
        assert demo.process.wait(DEADLINE) == 1
        assert "Traceback" not in demo.text() and "What all processes said is in" in demo.text(), demo.text()
    finally:
        demo.end()


@pytest.mark.timeout(DEADLINE + 120)
def test_the_demo_tells_its_story_to_the_end_and_both_sides_books_agree(home: Path) -> None:
    demo = subprocess.Popen(
        DEMO,
        cwd=PROJECT,
        env=os.environ | {"MAILHUB_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = demo.communicate(timeout=DEADLINE)
    finally:
        demo.terminate()
        demo.wait()
    log = home / "demo" / "demo.log"
    assert demo.returncode == 0, f"{said}\n{log.read_text()[-5000:] if log.exists() else ''}"
    assert "The books agree" in said
    assert "Document 003's children 104 to 111: 2000 2000 2000 2000 200 200 2000 600" in said
    assert not any(Daemon(name, home / "demo").alive() for name in ("postgres", "redis"))
