"""A pytest plugin: `-n N` runs the tests in N forks of the process that has collected them.

The tests are collected once, and the imports are made once. A fork takes a file of tests at a time. It has a database
(pytest-django's suffix), a Redis database and a folder of temporary files of its own. The first process reports. If a
fork dies, its test has failed, and a new fork runs the rest of what the dead one had taken.
"""

import atexit
import contextlib
import itertools
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest

NUMBER = "PYTEST_FORK"  # in the environment of a fork and of its processes
LOOK_SECONDS = 1.0  # between two looks at forks that may have died
END_SECONDS = 60.0  # for a fork that is told to end: it ends its tests' servers


class Hooks:
    """What other plugins may implement."""

    def pytest_fork_started(self, config: pytest.Config, number: int) -> None:
        """Give a fork what it may not share. Called in the fork, before its first test; number: 0, 1, ..."""


class Line:
    """A plugin of a fork: tells the first process what its tests do, and asks for more of them."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logstart(self) -> None:
        self._connection.send(("began", None))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("reported", data))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._connection.send(("finished", (nodeid, location)))

    def next_file(self) -> int | None:
        """Return the index of the file to run next, None if there is none. Raises EOFError without first process."""
        self._connection.send(("asked", None))
        index: int | None = self._connection.recv()
        return index

    def end(self) -> None:
        self._connection.send(("ended", None))


class Fork:
    """A fork as the first process knows it: the test that runs, and those it has still to run."""

    def __init__(self, process: ForkProcess, connection: Connection, left: list[pytest.Item]) -> None:
        self.process = process
        self.connection = connection
        self.running: pytest.Item | None = None
        self.left = deque(left)


class Forks:
    """The forks of a session, and the files of tests that none of them has taken."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._config = session.config
        files: dict[Path, list[pytest.Item]] = {}
        for item in session.items:
            files.setdefault(item.path, []).append(item)
        self._files = list(files.values())
        self._untaken = iter(range(len(self._files)))
        self._numbers = itertools.count()
        self._forks: list[Fork] = []

    def run(self, most: int) -> None:
        """Run all tests. Raises pytest's exceptions if it is to stop, RuntimeError if a fork dies between two tests."""
        try:
            for _ in range(min(most, len(self._files))):
                self._start([])
            while self._forks:
                wait([fork.connection for fork in self._forks], LOOK_SECONDS)
                for fork in list(self._forks):
                    if fork.connection.poll():
                        self._hear(fork)
                    elif not fork.process.is_alive() and not fork.connection.poll():
                        self._replace(fork)
        finally:
            for fork in self._forks:
                fork.process.terminate()
            for fork in self._forks:
                fork.process.join(END_SECONDS)
                fork.process.kill()

    def _start(self, items: list[pytest.Item]) -> None:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(
            target=self._work,
            args=(next(self._numbers), items, theirs, [ours, *(one.connection for one in self._forks)]),
        )
        process.start()
        theirs.close()
        self._forks.append(Fork(process, ours, items))

    def _hear(self, fork: Fork) -> None:
        try:
            event, content = fork.connection.recv()
        except (EOFError, OSError):
            fork.process.join(END_SECONDS)
            return self._replace(fork)
        hook = self._config.hook
        if event == "asked":
            index = next(self._untaken, None)
            fork.left += [] if index is None else self._files[index]
            with contextlib.suppress(OSError):  # it has died: that is seen later
                fork.connection.send(index)
        elif event == "began":
            fork.running = fork.left.popleft()
        elif event == "reported":
            report = hook.pytest_report_from_serializable(config=self._config, data=content)
            hook.pytest_runtest_logreport(report=report)
        elif event == "finished":
            hook.pytest_runtest_logfinish(nodeid=content[0], location=content[1])
            fork.running = None
            self._raise_if_stopped()
        else:
            self._forks.remove(fork)
            fork.connection.close()
            fork.process.join()
        return None

    def _replace(self, fork: Fork) -> None:
        self._forks.remove(fork)
        fork.connection.close()
        died = f"a fork died, exit code {fork.process.exitcode}"
        if not fork.running:
            raise RuntimeError(f"{died}, between two tests")
        node, location = fork.running.nodeid, fork.running.location
        report = pytest.TestReport(node, location, {}, "failed", f"{died}, while it ran {node}", "call")
        self._config.hook.pytest_runtest_logreport(report=report)
        self._config.hook.pytest_runtest_logfinish(nodeid=node, location=location)
        self._raise_if_stopped()
        self._start(list(fork.left))

    def _raise_if_stopped(self) -> None:
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _work(self, number: int, first: list[pytest.Item], connection: Connection, inherited: list[Connection]) -> None:
        """The life of a fork. It ends with its tests, if it is told to, or with the first process."""
        for one in inherited:
            one.close()
        atexit._clear()  # they are the first process's
        line = Line(self._config, connection)
        _settle(self._config, number)
        self._config.pluginmanager.register(line)
        hook = self._config.hook
        with contextlib.suppress(KeyboardInterrupt, EOFError, BrokenPipeError):
            items = self._deal(first, line)
            item = next(items, None)
            while item:
                # the fixtures that the following one uses, too, stay
                following = next(items, None)
                hook.pytest_runtest_protocol(item=item, nextitem=following)
                item = following
        hook.pytest_sessionfinish(session=self._session, exitstatus=pytest.ExitCode.OK)
        self._config._ensure_unconfigure()
        atexit._run_exitfuncs()
        with contextlib.suppress(BrokenPipeError):
            line.end()

    def _deal(self, first: list[pytest.Item], line: Line) -> Iterator[pytest.Item]:
        yield from first
        while (index := line.next_file()) is not None:
            yield from self._files[index]


def _settle(config: pytest.Config, number: int) -> None:
    """Make the fork's own what pytest and its plugins made for the first process."""
    os.environ[NUMBER] = str(number)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: fixtures are ended
    config.workerinput = {"workerid": f"gw{number}"}  # type: ignore[attr-defined]  # as of pytest-xdist
    capture = config.pluginmanager.get_plugin("capturemanager")
    assert capture
    capture.stop_global_capturing()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # the first process reports
    os.close(nowhere)
    capture.start_global_capturing()
    capture.suspend_global_capture()
    if factory := getattr(config, "_tmp_path_factory", None):
        factory._basetemp = factory.mktemp(f"gw{number}", numbered=False)
    config.hook.pytest_fork_started(config=config, number=number)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run the tests in so many forks; 0, the default: in this process"
    group = parser.getgroup("forked")
    group._addoption("-n", dest="forks", type=int, default=0, metavar="N", help=text)  # pytest reserves small letters


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in forks. Leave to pytest what needs none, and errors in what it has collected."""
    config = session.config
    forks = config.getoption("forks")
    if not forks or config.getoption("collectonly") or session.testsfailed:
        return None
    if reporter := config.pluginmanager.get_plugin("terminalreporter"):
        reporter.showfspath = False  # of several files at a time
    if factory := getattr(config, "_tmp_path_factory", None):
        factory.getbasetemp()
    Forks(session).run(forks)
    return True
