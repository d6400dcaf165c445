"""An end for many calls with one timer: late ones end, others go on, and a cancellation stays one."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from tests.waiting import in_time
from vendors.adapters.transport import Deadlines

LONG = 600.0  # never reached


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def with_an_end() -> None:
        async with in_time("the story ends"):
            await story()

    asyncio.run(with_an_end())


async def call(deadlines: Deadlines, answer: "asyncio.Future[str]") -> str:
    with deadlines:
        return await answer


def test_calls_that_are_never_answered_end_one_after_the_other_and_a_later_one_goes_on() -> None:
    async def story() -> None:
        deadlines, loop = Deadlines(0.05), asyncio.get_running_loop()
        calls = [asyncio.create_task(call(deadlines, loop.create_future())) for _ in range(3)]
        assert [type(end) for end in await asyncio.gather(*calls, return_exceptions=True)] == [TimeoutError] * 3
        answer = loop.create_future()
        answer.set_result("here")
        assert await call(deadlines, answer) == "here"

    run(story)


def test_a_task_that_was_late_once_can_make_its_next_call() -> None:
    async def story() -> None:
        deadlines, loop = Deadlines(0.05), asyncio.get_running_loop()
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await call(deadlines, loop.create_future())
        assert not asyncio.current_task().cancelling()  # type: ignore[union-attr]

    run(story)


def test_who_is_cancelled_by_somebody_else_is_cancelled() -> None:
    async def story() -> None:
        deadlines = Deadlines(LONG)
        mine = asyncio.create_task(call(deadlines, asyncio.get_running_loop().create_future()))
        await asyncio.sleep(0)
        mine.cancel()
        with pytest.raises(asyncio.CancelledError):
            await mine

    run(story)


def test_of_two_ends_around_a_call_the_first_counts() -> None:
    async def story() -> None:
        inner, outer, seen = Deadlines(0.05), Deadlines(LONG), []
        with outer:
            try:
                await call(inner, asyncio.get_running_loop().create_future())
            except TimeoutError:
                seen.append("inner")
        assert seen == ["inner"]

    run(story)


def test_a_call_that_swallows_its_end_is_not_cancelled_again() -> None:
    went_on = []

    async def story() -> None:
        with Deadlines(0.05), contextlib.suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)
        went_on.append(True)

    run(story)
    assert went_on


async def call_until(deadlines: Deadlines, seconds: float, answer: "asyncio.Future[str]") -> str:
    with deadlines:
        deadlines.reschedule(asyncio.get_running_loop().time() + seconds)
        return await answer


def test_an_end_that_is_moved_up_comes_before_those_of_earlier_calls() -> None:
    async def story() -> None:
        deadlines, loop = Deadlines(LONG), asyncio.get_running_loop()
        earlier = asyncio.create_task(call(deadlines, kept := loop.create_future()))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await call_until(deadlines, 0.05, loop.create_future())
        kept.set_result("here")
        assert await earlier == "here"

    run(story)


def test_a_call_that_got_more_time_goes_on_when_the_others_end() -> None:
    async def story() -> None:
        deadlines, loop = Deadlines(0.05), asyncio.get_running_loop()
        longer = asyncio.create_task(call_until(deadlines, LONG, kept := loop.create_future()))
        await asyncio.sleep(0)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await call(deadlines, loop.create_future())
        kept.set_result("here")
        assert await longer == "here"

    run(story)
