"""The demo as `make demo` runs it, in a home of its own, with everything that it starts."""

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mailhub.embedded.process import Daemon
from tests import factories
from tests.plain_browser import PlainBrowser, by_socket
from tests.plugin import folders
from tests.programs import all_have_ended
from tests.waiting import exit_of, wait_until

pytestmark = pytest.mark.slow("processes")

PROJECT = Path(__file__).parents[2]
DEADLINE = 480.0  # seconds; it takes under a minute on a machine that has nothing else to do
NIGHTLY = os.environ.get("MAILHUB_NIGHTLY") == "1"
PROCFILE = ["api", "beat", "flower", "web", "worker-hub", "worker-vendors.1", "worker-vendors.2", "worker-webhooks"]
FEWER = ("--recipients", "2000")  # than the default; the rest of the story is the same


@pytest.fixture
def home() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="mailhub-demo-", dir=folders()[0]))
    yield made
    shutil.rmtree(made)


class Demo:
    """`manage.py demo` as a process, and what it has said so far. stays: on a terminal, until it is told to end."""

    def __init__(self, home: Path, *options: str, stays: bool = False) -> None:
        self._log = home / factories.unique("said")
        with self._log.open("wb") as log:
            terminal, output = pty.openpty() if stays else (None, log.fileno())
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "demo", *([] if stays else ["--once"]), *(options or FEWER)],
                cwd=PROJECT,
                env=os.environ | {"MAILHUB_HOME": str(home), "PYTHONUNBUFFERED": "1", "TERM": "dumb"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            if terminal is not None:
                os.close(output)
                threading.Thread(target=self._heed, args=(terminal,), daemon=True).start()

    def _heed(self, terminal: int) -> None:
        """Write down what it says on its terminal, until that is closed."""
        with suppress(OSError), self._log.open("ab", buffering=0) as log:
            while said := os.read(terminal, 65536):
                log.write(said.replace(b"\r\n", b"\n"))
        os.close(terminal)

    def text(self) -> str:
        return self._log.read_text()

    def until(self, text: str) -> None:
        wait_until(
            lambda: text in self.text() or self.process.poll() is not None, f"the demo to say {text!r}", DEADLINE
        )
        assert text in self.text(), self.text()

    def logs(self, home: Path) -> str:
        """All that it and its processes said."""
        log = home / "demo" / "demo.log"
        return f"{self.text()}\n{log.read_text()[-5000:] if log.exists() else ''}"

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return exit_of(self.process)


def servers_run(home: Path) -> bool:
    return any(Daemon(name, home / "demo").is_alive() for name in ("postgres", "redis"))


@pytest.mark.timeout(2 * DEADLINE)
def test_a_demo_whose_database_ends_says_so_in_a_sentence(home: Path) -> None:
    demo = Demo(home)
    try:
        demo.until("Starting web")
        assert Daemon("postgres", home / "demo").stop_server(signal.SIGINT)
        assert exit_of(demo.process) == 1
        assert "Traceback" not in demo.text() and "What all processes said is in" in demo.text(), demo.text()
    finally:
        demo.end()


@pytest.mark.timeout(3 * DEADLINE)
def test_a_demo_that_was_interrupted_is_started_again_and_tells_its_story_to_the_end(home: Path) -> None:
    """Some are interrupted, each finds what the one before it left; the last one is not, and both sides' books agree.

    Then it stays, and its pages can be tried by the logins that it names. One is interrupted by day, by a kill; with
    MAILHUB_NIGHTLY=1 two more, by Ctrl-C and by SIGTERM, which test_up.py and test_demo_home.py have by day. One after
    the other in one home, because each of them starts a dozen processes.
    """
    demos: list[Demo] = []
    try:
        for moment, number, code in (
            ("Starting web", signal.SIGKILL, -signal.SIGKILL),
            *([("Starting web", signal.SIGINT, 130), ("Loading the lists", signal.SIGTERM, 143)] if NIGHTLY else []),
        ):
            demos.append(Demo(home))
            wait_until(lambda: (home / "demo" / "demo.lock").exists(), "the demo to begin")
            demos[-1].until(moment)
            assert demos[-1].end(number) == code
            assert number == signal.SIGKILL or not servers_run(home)
        demos.append(Demo(home, stays=True))
        demos[-1].until("Ctrl-C stops everything")
        a_campaign_in_the_browser(demos[-1].text())
        assert of_the_procfile("started", home) == PROCFILE, "each once"
        assert demos[-1].end(signal.SIGINT) == 0, demos[-1].logs(home)
        assert of_the_procfile("ended", home) == PROCFILE
        all_have_ended(f"MAILHUB_HOME={home / 'demo'}")
        for demo in demos:
            assert "Traceback" not in demo.text(), demo.text()
        said = demos[-1].text()
        assert "The books agree" in said
        assert "Document 003's children 104 to 111: 2000 2000 2000 2000 200 200 2000 600" in said
        assert not servers_run(home)
    finally:
        for demo in demos:
            demo.end()


def of_the_procfile(word: str, home: Path) -> list[str]:
    """The processes of which `manage.py up` has said that, each as often as it did."""
    return sorted(re.findall(rf"([\w.-]+) +\| {word}", (home / "demo" / "demo.log").read_text()))


def a_campaign_in_the_browser(said: str) -> None:
    """The owner sends to the readers that the demo names, without scripts; the approver is asked about the members."""
    home = re.search(r"Try it in a browser: (\S+)", said)
    password = re.search(r"has the password (\S+)", said)
    assert home and password, said
    lists = re.findall(r"^  (\S+\.csv) ", said, re.MULTILINE)
    readers, members = (PROJECT / one for one in lists)
    owner = _logged_in(home[1], "owner", password[1])
    assert "Operations" not in owner.text, "an owner is no operator"
    _upload(owner, readers, "Spring to readers")
    owner.submit("Leave these 3 rows out, and go on")
    owner.submit("Send 10 e-mails")
    assert "is stored, for 10 recipients" in owner.text, owner.text
    page = owner.address
    wait_until(lambda: owner.open(page) or "has ended" in owner.text, "the campaign's end", log=lambda: owner.text)
    _upload(owner, members, "Spring to members")
    owner.follow("Go on")
    owner.submit("Ask for approval to send 400 e-mails")
    assert "approv" in owner.text, owner.text
    approver = _logged_in(home[1], "approver", password[1])
    approver.follow("Approvals 1")
    assert "Spring to members" in approver.text
    operator = _logged_in(home[1], "demo", password[1])
    operator.follow("Operations")
    assert operator.status == 200 and "Vendors" in operator.text


def _logged_in(home: str, user: str, password: str) -> PlainBrowser:
    browser = PlainBrowser(by_socket(home))
    browser.open("/")
    browser.submit("Log in", username=user, password=password)
    assert (browser.status, browser.address) == (200, "/"), browser.text
    return browser


def _upload(browser: PlainBrowser, file: Path, name: str) -> None:
    browser.follow("New campaign")
    browser.submit("Keep, and go on", name=name, subject="Spring", text="Hello {{ name }}")
    browser.submit("Upload and check", files={"list": (file.name, file.read_bytes())})
