"""Some of the pairs of verbs, interleaved, in each run; all of them by `python -m tests.interleaving --long`."""

import time
from collections.abc import Iterator

import pytest

from tests.interleaving.pairs import Interleaver, Pair, Verdict, some_pairs

pytestmark = [pytest.mark.slow("many"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
SEED, MOST, SECONDS = 11, 120, 12.0  # so many, or as many as that time allows
# What broke once: halted before its commit, and ended before the other begins.
BROKE = [
    ("logged", "resolve failed", "look up"),  # counters: lock and read in one statement
    ("stopped", "recover", "answer not sent"),  # the same in a sender's answers
    ("halfway", "retry child", "stop"),  # a stopped parent hid a child that sends
    ("sending", "put back", "stop child"),  # stopped with open calls that nobody answers for
    ("proved", "stop", "finalise"),  # sent, stopped, and sent on
]


@pytest.fixture
def interleaver() -> Iterator[Interleaver]:
    made = Interleaver()
    yield made
    made.close()


def described(verdict: Verdict) -> str:
    return f"{verdict.pair} [{verdict.statement[:90]}]: {'; '.join(verdict.problems)}"


@pytest.mark.parametrize("broke", BROKE, ids=", ".join)
def test_pairs_that_broke_a_promise_once_keep_it(interleaver: Interleaver, broke: tuple[str, str, str]) -> None:
    start, halted, other = broke
    length = interleaver.length(start, halted)
    verdicts = [interleaver.run(Pair(start, halted, other, gap)) for gap in (length, length + 1)]
    assert [described(verdict) for verdict in verdicts if verdict.problems] == []
    assert verdicts[0].statement and not verdicts[1].statement, "halted midway, and not"


def test_whatever_two_verbs_do_at_once_every_promise_is_kept(interleaver: Interleaver) -> None:
    until = time.monotonic() + SECONDS
    broken, halted = [], 0
    for pair in some_pairs(interleaver, MOST, SEED):
        verdict = interleaver.run(pair)
        halted += bool(verdict.statement)
        broken += [described(verdict)] if verdict.problems else []
        if time.monotonic() > until:
            break
    assert broken == [] and halted
