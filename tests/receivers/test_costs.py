"""Letters that differ in cost are claimed by receiver, too: each window counts what they cost."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from threading import Thread
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.engine import sending
from campaigns.engine.claiming.letters import ClaimedMessage
from campaigns.engine.claiming.pricing import Priced
from campaigns.engine.claiming.receiving import ByReceiver
from campaigns.engine.doubts import calls, reconciler
from campaigns.models import Campaign, Job, Message
from tests.faults.sending import login, send_the_rest, sent, take_again, taken
from tests.faults.test_42_settling import in_doubt
from tests.sandbox import Sandbox
from vendors.adapters.base import Letter
from vendors.limits.values import Limit, Scope
from vendors.models import AT_A_TIME, Credential, ReceiverLimit, ReceiverWait, Usage

pytestmark = pytest.mark.django_db(transaction=True)
LENGTHS = {1: 10, 2: 200, 3: 400}  # characters of a text with so many segments


def of_costs(of: Credential, letters: list[tuple[str, int]]) -> Job:
    """A job with a letter for each (address, segments)."""
    job = taken([address for address, _ in letters], of)
    Campaign.objects.filter(pk=job.campaign_id).update(body="{{ text }}")
    for number, (_, cost) in enumerate(letters):
        Message.objects.filter(pk=job.first_message + number).update(params={"text": "x" * LENGTHS[cost]})
    return job


def by_segment(url: str, **settings: Any) -> Credential:
    return login(url, unit="segment", **settings)


def limited(of: Credential, units: int, receiver: str = "gmail", seconds: float = 3600.0) -> None:
    ReceiverLimit.objects.create(vendor=of.vendor, receiver=receiver, units=units, seconds=seconds)


def called(sandbox: Sandbox) -> Counter[str]:
    return Counter(entry.recipient.rpartition("@")[2] for entry in sandbox.books().entries)


def in_the_ledger(receiver: str) -> int:
    return sum((row.receivers or {}).get(receiver, 0) for row in Usage.objects.all())


def test_a_window_of_a_receiver_counts_units_and_others_go_on(sandbox: Sandbox) -> None:
    of = by_segment(sandbox.url)
    limited(of, 5)
    letters = [(f"a{n}@gmail.com", 2) for n in range(4)] + [(f"b{n}@firm.example", 1 + n % 3) for n in range(9)]
    job = of_costs(of, letters)
    assert sending.send_claimed_job(job.pk, job.fence).left
    assert called(sandbox) == {"gmail.com": 2, "firm.example": 9}, "two of two segments; one is left"
    assert in_the_ledger("gmail") == 4 and sum(Usage.objects.values_list("units", flat=True)) == 4 + 3 * 6
    ReceiverLimit.objects.update(units=8)
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert called(sandbox)["gmail.com"] == 4 and sandbox.books().duplicates() == {}


def test_a_letter_that_costs_more_than_its_receivers_limit_is_refused_and_the_rest_is_sent(sandbox: Sandbox) -> None:
    of = by_segment(sandbox.url)
    limited(of, 2)
    limited(of, 9, "yahoo")
    job = of_costs(of, [("a@gmail.com", 3), ("b@gmail.com", 2), ("c@yahoo.com", 3)])
    sent(job)
    assert called(sandbox) == {"gmail.com": 1, "yahoo.com": 1}
    assert Message.objects.get(recipient="a@gmail.com").error_code == "too_dear"


def warming(of: Credential, units: int, **limit: Any) -> None:
    """A warm-up that began today."""
    today = timezone.localdate(timezone=ZoneInfo(of.vendor.time_zone))
    row = {"units": units, "seconds": 86_400.0, "grows_from": today, "growth": 2.0, **limit}
    ReceiverLimit.objects.create(vendor=of.vendor, receiver="gmail", **row)


def a_day_later() -> None:
    limit = ReceiverLimit.objects.get()
    assert limit.grows_from
    limit.grows_from -= timedelta(days=1)
    limit.save()
    Job.objects.update(not_before=None)


def test_a_letter_too_dear_for_the_step_of_today_waits_for_the_day_that_allows_it(sandbox: Sandbox) -> None:
    of = by_segment(sandbox.url)
    warming(of, 1)
    job = of_costs(of, [("a@gmail.com", 3), ("b@firm.example", 1)])
    for _ in range(2):
        assert sending.send_claimed_job(job.pk, job.fence).left
        assert called(sandbox) == {"firm.example": 1}
        job.refresh_from_db()
        assert "gmail" in job.waits_for and job.not_before and job.not_before > timezone.now()
        assert not Message.objects.exclude(error_code=None).exists()
        a_day_later()
        take_again(job)
    send_the_rest(job)
    assert called(sandbox) == {"firm.example": 1, "gmail.com": 1}


@pytest.mark.parametrize("limit", ["today's step", "one at a time"])
def test_a_repeat_that_is_dear_is_made_when_it_may_be(sandbox: Sandbox, limit: str) -> None:
    of = by_segment(sandbox.url, dedupe=True)
    if limit == "one at a time":
        limited(of, 1, seconds=AT_A_TIME)
    else:
        warming(of, 2)
    job = in_doubt(1, of)
    Campaign.objects.filter(pk=job.campaign_id).update(body="{{ text }}")
    Message.objects.update(recipient="a@gmail.com", params={"text": "x" * LENGTHS[3]})
    reconciler.reconcile_due_doubts()
    if limit == "today's step":
        waiting = Message.objects.get()
        assert waiting.in_doubt_at and waiting.settle_at and waiting.settle_at > timezone.now()
        assert not called(sandbox)
        a_day_later()
        Message.objects.update(settle_at=timezone.now())
        reconciler.reconcile_due_doubts()
    assert called(sandbox) == {"gmail.com": 1} and Message.objects.get().in_doubt_at is None


def test_a_letter_dearer_than_all_days_of_a_warm_up_is_refused(sandbox: Sandbox) -> None:
    of = by_segment(sandbox.url)
    warming(of, 2, growth=1.0)
    sent(of_costs(of, [("a@gmail.com", 3), ("b@gmail.com", 2)]))
    assert called(sandbox) == {"gmail.com": 1}
    assert Message.objects.get(recipient="a@gmail.com").error_code == "too_dear"


def test_a_letter_of_three_units_is_one_call_at_a_time(sandbox: Sandbox) -> None:
    of = by_segment(sandbox.url)
    limited(of, 2, seconds=AT_A_TIME)
    sent(of_costs(of, [("a@gmail.com", 3), ("b@gmail.com", 1), ("c@gmail.com", 3), ("d@firm.example", 1)]))
    assert called(sandbox) == {"gmail.com": 3, "firm.example": 1} and sandbox.books().duplicates() == {}


def test_a_letter_that_was_too_dear_is_called_once_the_limit_is_raised() -> None:
    """The claim under the old limit was refused, so the same messages are asked for again."""

    class Threes:
        async def price_letters(self, found: list[ClaimedMessage]) -> list[Priced]:
            return [Priced(message, Letter("", "", "", ""), 3) for message in found]

    class Rows:
        async def execute(self, sql: str, params: dict[str, Any]) -> Any:
            self.found = [(1, "u1-0", "a@gmail.com", {})] if "ids" in params else [(1, "a@gmail.com")]
            return self

        async def fetchall(self) -> Any:
            return self.found

    claimer = ByReceiver(1, 2, Threes())  # type: ignore[arg-type]
    small = Scope(1, 1, 1, receivers={"gmail": ((Limit(2, 60),), ())})
    for units, cost in ((2, 0), (9, 3)):
        claimer._limits = {"gmail": ((Limit(units, 60),), ())}
        asyncio.run(claimer.read_ahead(Rows(), replace(small, receivers=claimer._limits), 1, 5))
        assert claimer.need(5).want == cost


def test_a_receiver_that_waits_holds_up_no_other_whatever_the_letters_cost(sandbox: Sandbox) -> None:
    of, now = by_segment(sandbox.url), timezone.now()
    row = {"since": now, "until": now + timedelta(hours=1), "seconds": 3600.0, "cause": "us", "answer": "slow down"}
    ReceiverWait.objects.create(credential=of, receiver="gmail", **row)
    job = of_costs(of, [(f"r{n}@{('gmail.com', 'firm.example')[n % 2]}", 1 + n % 3) for n in range(12)])
    assert sending.send_claimed_job(job.pk, job.fence).left
    assert called(sandbox) == {"firm.example": 6}
    ReceiverWait.objects.all().delete()
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert called(sandbox) == {"firm.example": 6, "gmail.com": 6} and sandbox.books().duplicates() == {}


def test_a_limit_of_nothing_stops_its_receiver_alone(sandbox: Sandbox) -> None:
    of = by_segment(sandbox.url)
    limited(of, 0)
    job = of_costs(of, [("a@gmail.com", 1), ("b@firm.example", 2)])
    assert sending.send_claimed_job(job.pk, job.fence).left
    assert called(sandbox) == {"firm.example": 1}


def test_a_doubt_waits_alone_for_its_receiver_and_its_repeat_is_in_the_ledger(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "PATIENCE", 0.0)
    of = login(sandbox.url, dedupe=True)
    limited(of, 2)
    job = in_doubt(6, of)
    for number in range(6):
        to = f"r{number}@{'gmail.com' if number < 4 else 'firm.example'}"
        Message.objects.filter(pk=job.first_message + number).update(recipient=to)
    reconciler.reconcile_due_doubts()
    assert called(sandbox) == {"gmail.com": 2, "firm.example": 2}
    waiting = Message.objects.filter(in_doubt_at__isnull=False)
    assert waiting.count() == 2 and not waiting.filter(settle_at__lt=timezone.now()).exists()
    of.refresh_from_db()
    assert of.retry_after_until is None, "nobody else waits"
    assert in_the_ledger("gmail") == 2
    assert sorted((row.receivers or {})["gmail"] for row in Usage.objects.all()) == [0, 0, 1, 1]
    assert sum(Usage.objects.values_list("units", flat=True)) == 4, "without room the vendor's permit was not taken"


def test_places_of_a_message_that_ended_elsewhere_go_back_to_its_receiver(sandbox: Sandbox) -> None:
    """Read ahead, then ended by a report: its place is free for the next."""
    of = login(sandbox.url)
    limited(of, 2)
    job = taken([f"r{n}@gmail.com" for n in range(3)], of)
    read = sending.stream.Stream._may_claim

    def end() -> None:
        first = Message.objects.filter(pk=job.first_message, dequeued_at=None)
        first.update(dequeued_at=timezone.now(), error_code="expired")
        connection.close()

    def ended_meanwhile(stream: Any) -> bool:
        thread = Thread(target=end)
        thread.start()
        thread.join()
        return read(stream)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sending.stream.Stream, "_may_claim", ended_meanwhile)
        assert sending.send_claimed_job(job.pk, job.fence).left
    assert called(sandbox) == {"gmail.com": 1}
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert called(sandbox) == {"gmail.com": 2}
