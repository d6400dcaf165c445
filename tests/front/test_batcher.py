"""The batcher: those who come while one is served are served together, and nobody is forgotten."""

import threading

import pytest

from mailhub.front.batcher import Batcher
from tests.waiting import DEADLINE, wait_until


class Clerk:
    """Serves nobody before the test says so; remembers who came together."""

    def __init__(self):
        self.open, self.arrived = threading.Event(), threading.Event()
        self.batches = []

    def serve(self, items):
        self.arrived.set()
        assert self.open.wait(DEADLINE)
        self.batches.append(list(items))
        return [ValueError(item) if item < 0 else item * 10 for item in items]


def asked(counter, *items):
    """Threads that ask, each with a list for what came of it."""
    told = [[] for _ in items]

    def ask(item, answer):
        try:
            answer.append(counter.ask(item))
        except ValueError as error:
            answer.append(error)

    threads = [threading.Thread(target=ask, args=pair) for pair in zip(items, told, strict=True)]
    for thread in threads:
        thread.start()
    return threads, told


def waiting(counter, number):
    wait_until(lambda: len(counter._line) == number, f"{number} wait", every=0.01)


def test_one_alone_waits_for_nobody():
    clerk = Clerk()
    clerk.open.set()
    assert [Batcher(clerk.serve).ask(number) for number in (1, 2)] == [10, 20]
    assert clerk.batches == [[1], [2]]


def test_those_who_come_meanwhile_are_served_together_at_most_so_many_at_once():
    clerk = Clerk()
    counter = Batcher(clerk.serve, most=4, places=1)
    first, told_first = asked(counter, 1)
    assert clerk.arrived.wait(DEADLINE)
    others, told = asked(counter, *range(2, 12))
    waiting(counter, 10)
    clerk.open.set()
    for thread in first + others:
        thread.join(DEADLINE)
    assert told_first == [[10]] and told == [[number * 10] for number in range(2, 12)]
    assert [len(batch) for batch in clerk.batches] == [1, 4, 4, 2]
    assert counter.ask(7) == 70, "the counter is free again"


def test_while_one_round_is_served_the_next_one_may_be():
    clerk = Clerk()
    counter = Batcher(clerk.serve, places=2)
    first, told_first = asked(counter, 1)
    assert clerk.arrived.wait(DEADLINE)
    clerk.arrived.clear()
    second, told_second = asked(counter, 2)
    assert clerk.arrived.wait(DEADLINE), "it does not wait for the first"
    others, told = asked(counter, 3, 4)
    waiting(counter, 2)
    clerk.open.set()
    for thread in first + second + others:
        thread.join(DEADLINE)
    assert (told_first, told_second, told) == ([[10]], [[20]], [[30], [40]])
    assert sorted(map(len, clerk.batches)) in ([1, 1, 2], [1, 1, 1, 1])


def test_the_error_of_one_is_not_the_others():
    clerk = Clerk()
    counter = Batcher(clerk.serve, places=1)
    first, _ = asked(counter, 1)
    assert clerk.arrived.wait(DEADLINE)
    others, told = asked(counter, 2, -3)
    waiting(counter, 2)
    clerk.open.set()
    for thread in first + others:
        thread.join(DEADLINE)
    assert told[0] == [20] and isinstance(told[1][0], ValueError)


def test_who_serves_and_fails_fails_for_all_and_the_next_are_served():
    def fail(items):
        raise ValueError("no")

    counter = Batcher(fail)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            counter.ask(1)
