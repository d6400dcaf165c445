"""The batcher: requests that arrive while a batch is served are served together, and none is forgotten."""

import threading

import pytest

from campaigns.doors.front import batcher as batcher_module
from campaigns.doors.front.batcher import Batcher
from tests.waiting import DEADLINE, joined, wait_until


class Server:
    """Serves no batch before the test says so; remembers the batches."""

    def __init__(self):
        self.open, self.arrived = threading.Event(), threading.Event()
        self.batches = []

    def serve(self, items):
        self.arrived.set()
        assert self.open.wait(DEADLINE)
        self.batches.append(list(items))
        return [ValueError(item) if item < 0 else item * 10 for item in items]


def asked(batcher, *items):
    """Threads that ask, each with a list for what came of it."""
    answers = [[] for _ in items]

    def ask(item, answer):
        try:
            answer.append(batcher.serve_in_batch(item))
        except ValueError as error:
            answer.append(error)

    threads = [threading.Thread(target=ask, args=pair) for pair in zip(items, answers, strict=True)]
    for thread in threads:
        thread.start()
    return threads, answers


def waiting(batcher, number):
    wait_until(lambda: len(batcher._queue) == number, f"{number} wait", every=0.01)


def test_one_alone_waits_for_nobody():
    server = Server()
    server.open.set()
    assert [Batcher(server.serve).serve_in_batch(number) for number in (1, 2)] == [10, 20]
    assert server.batches == [[1], [2]]


def test_those_who_come_meanwhile_are_served_together_at_most_so_many_at_once():
    server = Server()
    batcher = Batcher(server.serve, most=4, rounds=1)
    first, first_answers = asked(batcher, 1)
    assert server.arrived.wait(DEADLINE)
    others, answers = asked(batcher, *range(2, 12))
    waiting(batcher, 10)
    server.open.set()
    joined(*first, *others)
    assert first_answers == [[10]] and answers == [[number * 10] for number in range(2, 12)]
    assert [len(batch) for batch in server.batches] == [1, 4, 4, 2]
    assert batcher.serve_in_batch(7) == 70, "the round is free again"


def test_who_comes_back_at_once_is_served_with_those_who_waited(monkeypatch):
    """Two halves that took turns would be twice as many batches."""
    monkeypatch.setattr(batcher_module, "MOMENT", DEADLINE)
    server = Server()
    batcher = Batcher(server.serve, rounds=1)
    first, _ = asked(batcher, 1)
    assert server.arrived.wait(DEADLINE)
    others, answers = asked(batcher, 2, 3)
    waiting(batcher, 2)
    server.open.set()
    wait_until(lambda: batcher._awaited or len(server.batches) > 1, "the next round")
    assert batcher._awaited == 3, "it waits for who comes back; before that it would wait for a fourth"
    again, again_answers = asked(batcher, 4)  # as if the first had come back
    joined(*first, *others, *again)
    assert [sorted(batch) for batch in server.batches] == [[1], [2, 3, 4]]
    assert (answers, again_answers) == ([[20], [30]], [[40]])


def test_while_one_round_is_served_the_next_one_may_be():
    server = Server()
    batcher = Batcher(server.serve, rounds=2)
    first, first_answers = asked(batcher, 1)
    assert server.arrived.wait(DEADLINE)
    server.arrived.clear()
    second, second_answers = asked(batcher, 2)
    assert server.arrived.wait(DEADLINE), "it does not wait for the first"
    others, answers = asked(batcher, 3, 4)
    waiting(batcher, 2)
    server.open.set()
    joined(*first, *second, *others)
    assert (first_answers, second_answers, answers) == ([[10]], [[20]], [[30], [40]])
    assert sorted(map(len, server.batches)) in ([1, 1, 2], [1, 1, 1, 1])


def test_the_error_of_one_is_not_the_others():
    server = Server()
    batcher = Batcher(server.serve, rounds=1)
    first, _ = asked(batcher, 1)
    assert server.arrived.wait(DEADLINE)
    others, answers = asked(batcher, 2, -3)
    waiting(batcher, 2)
    server.open.set()
    joined(*first, *others)
    assert answers[0] == [20] and isinstance(answers[1][0], ValueError)


def test_who_serves_and_fails_fails_for_all_and_the_next_are_served():
    def fail(items):
        raise ValueError("no")

    batcher = Batcher(fail)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            batcher.serve_in_batch(1)
