"""A pause, a resume and the first N of a campaign, in processes that are killed where it hurts most.

Two who pause and resume at once: tests/interleaving. The doors: tests/campaigns/test_pausing.py and
test_first_recipients.py.
"""

import pytest

from campaigns.engine.pausing import pauses
from campaigns.models import Job
from campaigns.models.jobs import read_reference
from campaigns.operations import pausing
from tests.faults import rounds, stories
from tests.faults.checker import judge, sums
from tests.faults.rounds import Driver, Mail
from tests.sandbox import Sandbox

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
FIRST = 10
POINTS = ["after_cut", "after_claim", "after_call", "before_record", "mid_merge", "after_drain", "mid_finalise"]


def until_quiet(driver: Driver) -> None:
    """Runs rounds until two of them in turn leave the same rows."""
    before = None
    for _ in range(rounds.MOST_ROUNDS):
        rounds.an_hour_passes()
        driver.round()
        before, last = list(Job.objects.order_by("pk").values_list("status", "fence", "accepted", "in_doubt")), before
        if before == last:
            return
    raise AssertionError(f"never quiet: {before}")


def called(of: Mail, vendor: Sandbox) -> set[int]:
    """Which of the large job's messages the vendor was called for, counted from 0."""
    ids = (read_reference(entry.reference) for entry in vendor.books().entries)
    first = of.parent.first_message
    return {found.id - first for found in ids if found and first <= found.id < of.parent.end}


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_lets_nobody_behind_the_first_n_be_called_and_loses_nobody(
    point: str, vendor: Sandbox, driver: Driver
) -> None:
    vendor.settings(dedupe=True)
    mail = rounds.mail(vendor.url, **stories.VENDORS["deduplicates"])
    Job.objects.filter(pk=mail.parent.pk).update(wait_after=FIRST)
    assert driver.round(point)["end"] == "killed"
    until_quiet(driver)
    assert called(mail, vendor) == set(range(FIRST))
    assert pauses.pause_after_first() == [mail.parent.pk]
    until_quiet(driver)
    assert called(mail, vendor) == set(range(FIRST))
    for _ in range(2):  # the second one changes nothing
        pausing.resume_jobs([mail.parent.pk], "ann")
    rounds.finish(mail, driver)
    assert judge(vendor.books()) == [] and sums().total() == 23


@pytest.mark.parametrize("point", POINTS)
def test_what_is_paused_after_a_kill_is_finished_and_called_no_more_until_it_is_resumed(
    point: str, vendor: Sandbox, driver: Driver
) -> None:
    vendor.settings(dedupe=True)
    mail = rounds.mail(vendor.url, **stories.VENDORS["deduplicates"])
    assert driver.round(point)["end"] == "killed"
    pausing.pause_jobs([mail.parent.pk], "ann")
    before = called(mail, vendor)
    until_quiet(driver)
    assert called(mail, vendor) == before
    pausing.resume_jobs([mail.parent.pk], "ann")
    rounds.finish(mail, driver)
    assert judge(vendor.books()) == [] and sums().total() == 23
