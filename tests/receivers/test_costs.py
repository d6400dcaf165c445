"""Letters that differ in cost are claimed by receiver, too: each window counts what they cost."""

from collections import Counter
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.engine import sending
from campaigns.engine.doubts import calls, reconciler
from campaigns.models import Campaign, Job, Message
from tests.faults.sending import login, send_the_rest, sent, taken
from tests.faults.test_42_settling import in_doubt
from tests.sandbox import Sandbox
from vendors.models import Credential, ReceiverLimit, ReceiverWait, Usage

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
    assert sending.send(job.pk, job.fence).left
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


def test_a_receiver_that_waits_holds_up_no_other_whatever_the_letters_cost(sandbox: Sandbox) -> None:
    of, now = by_segment(sandbox.url), timezone.now()
    row = {"since": now, "until": now + timedelta(hours=1), "seconds": 3600.0, "cause": "us", "answer": "slow down"}
    ReceiverWait.objects.create(credential=of, receiver="gmail", **row)
    job = of_costs(of, [(f"r{n}@{('gmail.com', 'firm.example')[n % 2]}", 1 + n % 3) for n in range(12)])
    assert sending.send(job.pk, job.fence).left
    assert called(sandbox) == {"firm.example": 6}
    ReceiverWait.objects.all().delete()
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert called(sandbox) == {"firm.example": 6, "gmail.com": 6} and sandbox.books().duplicates() == {}


def test_a_limit_of_nothing_stops_its_receiver_alone(sandbox: Sandbox) -> None:
    of = by_segment(sandbox.url)
    limited(of, 0)
    job = of_costs(of, [("a@gmail.com", 1), ("b@firm.example", 2)])
    assert sending.send(job.pk, job.fence).left
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
    reconciler.reconcile()
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
        assert sending.send(job.pk, job.fence).left
    assert called(sandbox) == {"gmail.com": 1}
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert called(sandbox) == {"gmail.com": 2}
