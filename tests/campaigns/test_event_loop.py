"""An interrupted caller returns only when its coroutine has ended, also if that had not begun."""

import asyncio
import gc
import os
import signal
import socket
import threading
from queue import SimpleQueue

import pytest

from campaigns.engine import threads
from campaigns.engine.threads import LoopThread, cut_off
from tests.waiting import in_time

HOST = "nobody.invalid"


class Interrupted(BaseException):
    """Raised out of a signal, as by Celery's time limits or a shutdown."""


@pytest.fixture
def loop():
    made = LoopThread()
    yield made
    made.close()


@pytest.fixture
def interrupt():
    def now(*_):
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, now)
    yield lambda: os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


class Asked:
    """The loop of a thread, which notes each callback that it is given."""

    def __init__(self, loop):
        self.loop, self.queued = loop, SimpleQueue()

    def __getattr__(self, name):
        return getattr(self.loop, name)

    def call_soon_threadsafe(self, *task):
        self.loop.call_soon_threadsafe(*task)
        self.queued.put(task)


def test_work_that_had_not_begun_is_never_begun(loop, interrupt):
    held, go, back, begun = (threading.Event() for _ in range(4))
    early = []

    async def hold():
        held.set()
        go.wait()

    async def task():
        begun.set()
        await asyncio.sleep(3600)

    loop.start_coroutine(hold())
    held.wait()
    loop._loop = asked = Asked(loop._loop)

    def meanwhile():
        asked.queued.get()  # the work is behind the other
        interrupt()
        asked.queued.get()  # and so is its end
        early.append(back.wait(0.5))
        go.set()

    interrupting = threading.Thread(target=meanwhile)
    interrupting.start()
    with pytest.raises(Interrupted):
        loop.run_coroutine(task())
    back.set()
    interrupting.join()
    assert early == [False] and not begun.is_set()


def test_work_that_had_begun_has_ended(loop, interrupt):
    ended = threading.Event()

    async def task():
        try:
            interrupt()
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.1)
            ended.set()

    with pytest.raises(Interrupted):
        loop.run_coroutine(task())
    assert ended.is_set()


def test_a_signal_that_does_not_end_the_wait_is_noticed(loop, interrupt):
    """Like a signal that arrives just before the caller begins to wait: here another thread takes it."""
    ended = threading.Event()

    async def task():
        try:
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
            await asyncio.sleep(3600)
        finally:
            ended.set()

    with pytest.raises(Interrupted):
        loop.run_coroutine(task())
    assert ended.is_set()


def test_what_the_work_returns_and_raises_reaches_the_caller(loop):
    async def answer():
        return 42

    async def fail():
        raise ValueError("as it is")

    assert loop.run_coroutine(answer()) == 42
    with pytest.raises(ValueError, match="as it is"):
        loop.run_coroutine(fail())


def test_a_task_that_misses_its_cancellation_is_cancelled_again(monkeypatch) -> None:
    monkeypatch.setattr(threads, "AGAIN", 0.05)
    rounds = 0

    async def works(ready: asyncio.Event) -> None:
        nonlocal rounds
        while True:
            await asyncio.wait_for(ready.wait(), 60)  # as the client of Redis writes
            ready.clear()
            rounds += 1

    async def story() -> None:
        ready = asyncio.Event()
        task = asyncio.create_task(works(ready))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ready.set()
        await asyncio.sleep(0)  # what it waits for has ended, and it does not know yet
        async with in_time("the task ends"):
            await cut_off(task)
        assert task.cancelled()

    asyncio.run(story())
    assert rounds == 1, "the first cancellation was dropped"


def test_a_connection_that_was_given_up_says_nothing_of_its_host_and_other_errors_are_told(loop, caplog) -> None:
    """uvloop looks for the host until it knows that there is none, although nobody waits any more."""

    async def given_up() -> None:
        running = asyncio.get_running_loop()
        opening = [running.create_task(running.create_connection(asyncio.Protocol, HOST, 80)) for _ in range(8)]
        await asyncio.sleep(0)
        await cut_off(*opening)
        for _ in range(8):  # the same look-ups once more: by then the others have ended
            with pytest.raises(socket.gaierror):
                await running.getaddrinfo(HOST, 80)

    async def forgotten() -> None:
        asyncio.get_running_loop().create_future().set_exception(ValueError("nobody waits"))

    loop.run_coroutine(given_up())
    gc.collect()
    assert caplog.text == ""
    loop.run_coroutine(forgotten())
    gc.collect()
    assert "nobody waits" in caplog.text
