"""Fault 1: kill -9 at every failpoint, and at every two of them, one after the other.

Each story sends the same mail in processes that die at their failpoint, and is then brought to its end from the
rows alone (no notification is ever received). The vendor's own books are the judge. All pairs: MAILHUB_NIGHTLY=1.
"""

import os

import pytest

from campaigns.engine import failpoints
from tests.faults import rounds, stories
from tests.faults.checker import judge, sums
from tests.faults.rounds import CONCURRENCY, Driver, Mail
from tests.sandbox import Sandbox

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
DOUBTS = 4  # of the mail itself
NIGHTLY = os.environ.get("MAILHUB_NIGHTLY") == "1"


def begin(vendor: Sandbox, kind: str) -> Mail:
    vendor.settings(dedupe=kind == "deduplicates")
    return rounds.mail(vendor.url, **stories.VENDORS[kind])


def die_at(point: str, vendor: Sandbox, driver: Driver) -> Mail:
    """Runs the story up to the death at the point."""
    story = stories.story(point)
    mail = begin(vendor, story.vendor)
    for armed in story.before:
        driver.round(armed)
        rounds.an_hour_passes()
    if story.loses_journals:
        rounds.lose_journals()
    result = driver.round(f"{point}:{story.nth}", stopping=story.stopping)
    assert result["end"] == "killed", f"{point} is not on the way of its story"
    return mail


def in_doubt_now() -> int:
    return rounds.open_calls() + sums()["in doubt"]


@pytest.mark.parametrize("point", failpoints.NAMES)
def test_a_kill_loses_nothing_doubles_nothing_and_leaves_few_in_doubt(
    point: str, vendor: Sandbox, driver: Driver
) -> None:
    mail = die_at(point, vendor, driver)
    assert rounds.open_calls() <= CONCURRENCY
    kills = 1 + sum(1 for armed in stories.story(point).before if armed)
    rounds.finish(mail, driver)
    assert judge(vendor.books()) == []
    assert sums()["in doubt"] <= DOUBTS + kills * CONCURRENCY
    assert sums().total() == 23


@pytest.mark.parametrize(("first", "second"), stories.pairs() if NIGHTLY else stories.sample())
def test_a_kill_in_the_recovery_from_a_kill_does_no_more_harm(
    first: str, second: str, vendor: Sandbox, driver: Driver
) -> None:
    mail = die_at(first, vendor, driver)
    rounds.an_hour_passes()
    driver.round(second)
    assert rounds.open_calls() <= 2 * CONCURRENCY
    rounds.finish(mail, driver)
    assert judge(vendor.books()) == []
    assert sums()["in doubt"] <= DOUBTS + 3 * CONCURRENCY and sums().total() == 23
