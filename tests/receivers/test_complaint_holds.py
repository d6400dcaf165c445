"""After too many complaints at one provider a sponsor's bulk mail to it waits for a person; all other mail goes on."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.engine import sending
from campaigns.engine.claiming import claims, receiving
from campaigns.engine.connections import open_connection
from campaigns.engine.doubts import reconciler
from campaigns.models import Campaign, ComplaintPause, Job, Message, Sponsor
from campaigns.models.states import S
from campaigns.operations import pausing
from tests import calling, factories
from tests.faults.sending import being_sent, calls, login, sent, take_again
from tests.faults.test_42_settling import in_doubt
from tests.sandbox import Sandbox
from vendors.history import Actor
from vendors.models import Credential

pytestmark = pytest.mark.django_db(transaction=True)
WHOM = [f"r{number}@{domain}" for number in range(20) for domain in ("gmail.com", "yahoo.com", "firm.example")]


def hold(of: Sponsor, receiver: str) -> ComplaintPause:
    return ComplaintPause.objects.create(
        sponsor=of, receiver=receiver, since=timezone.now(), complaints=3, accepted=1000, limit=0.3
    )


def taken_of(whose: Sponsor, whom: list[str], of: Credential) -> Job:
    return take_again(factories.campaign_with_job(whom, of=of, by=whose, status="DISPATCHED"))


def domains(sandbox: Sandbox) -> Counter[str]:
    return Counter(entry.recipient.rpartition("@")[2] for entry in sandbox.books().entries)


def test_bulk_mail_to_that_provider_waits_and_a_resume_lets_the_rest_go(sandbox: Sandbox) -> None:
    whose = factories.sponsor()
    pause = hold(whose, "gmail")
    job = taken_of(whose, WHOM, login(sandbox.url))
    assert sending.send_claimed_job(job.pk, job.fence).left
    job.refresh_from_db()
    assert domains(sandbox) == {"yahoo.com": 20, "firm.example": 20}
    assert job.status == S.DISPATCHED and job.not_before and job.not_before > timezone.now()
    assert job.waits_for == "gmail waits: bulk mail there is paused, too many complained"
    again = take_again(job)
    assert sending.send_claimed_job(again.pk, again.fence).left  # looked at again, nothing more is called
    assert pausing.resume_receiver(pause.pk, Actor("ann"))
    job.refresh_from_db()
    assert job.not_before is None
    sent(take_again(job))
    assert domains(sandbox) == {"yahoo.com": 20, "firm.example": 20, "gmail.com": 20}
    assert sandbox.books().duplicates() == {}


def test_other_sponsors_single_letters_and_transactional_mail_go_on(sandbox: Sandbox) -> None:
    whose, other = factories.sponsor(), factories.sponsor()
    hold(whose, "gmail")
    of = login(sandbox.url)
    sent(taken_of(other, ["a@gmail.com", "b@gmail.com"], of))
    sent(taken_of(whose, ["c@gmail.com"], of))
    invoices = factories.campaign_with_job(["d@gmail.com", "e@gmail.com"], of=of, by=whose, status="DISPATCHED")
    Campaign.objects.filter(pk=invoices.campaign_id).update(transactional=True)
    sent(take_again(invoices))
    assert domains(sandbox) == {"gmail.com": 5}


def test_the_group_of_all_others_holds_no_provider_of_the_table(sandbox: Sandbox) -> None:
    whose = factories.sponsor()
    hold(whose, "*")
    job = taken_of(whose, WHOM, login(sandbox.url))
    assert sending.send_claimed_job(job.pk, job.fence).left
    assert domains(sandbox) == {"gmail.com": 20, "yahoo.com": 20}


def test_any_number_may_be_held_and_the_others_behind_them_go_on(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "HELD_MOST", 10)
    monkeypatch.setattr(receiving, "READ_AT_ONCE", 10)
    whose = factories.sponsor()
    hold(whose, "gmail")
    whom = [f"r{number}@gmail.com" for number in range(100)] + ["last@yahoo.com"]
    job = taken_of(whose, whom, login(sandbox.url))
    assert sending.send_claimed_job(job.pk, job.fence).left
    assert domains(sandbox) == {"yahoo.com": 1}


def test_a_pause_during_sending_takes_effect_and_so_does_its_end(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=100)  # so at most forty calls a second, and a sender looks every three
    whose = factories.sponsor()
    whom = [f"r{number}@{('gmail.com', 'yahoo.com')[number % 2]}" for number in range(400)]
    job = taken_of(whose, whom, login(sandbox.url))
    with being_sent(job) as sender:
        calls(sandbox, 8)
        pause = hold(whose, "gmail")
        assert sender.result().left
    assert domains(sandbox)["yahoo.com"] == 200 and domains(sandbox)["gmail.com"] < 200
    sandbox.settings(latency_ms=0)
    pausing.resume_receiver(pause.pk, Actor("ann"))
    sent(take_again(job))
    assert domains(sandbox) == {"gmail.com": 200, "yahoo.com": 200} and sandbox.books().duplicates() == {}


def test_after_the_commit_of_a_pause_nothing_more_is_claimed_for_that_provider(sandbox: Sandbox) -> None:
    """As after every pause: calls that were allowed before end."""
    sandbox.settings(latency_ms=50)
    whose = factories.sponsor()
    job = taken_of(whose, [f"r{number}@gmail.com" for number in range(400)], login(sandbox.url))
    with being_sent(job) as sender:
        calls(sandbox, 8)
        hold(whose, "gmail")
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            [committed] = cursor.fetchone()
        assert sender.result().left
    allowed = Message.objects.filter(campaign=job.campaign_id, sent_at__isnull=False)
    assert 8 <= allowed.count() < 400 and not allowed.filter(sent_at__gt=committed).exists()


def test_a_claim_by_what_was_read_before_a_pause_gets_nothing(sandbox: Sandbox) -> None:
    whose = factories.sponsor()
    job = taken_of(whose, ["a@gmail.com", "b@gmail.com"], login(sandbox.url))
    lease = calling.started(job)

    async def claimed(pauses: bool) -> bool:
        async with await open_connection() as rows:
            known = await calling.to_claim(rows, job, lease)
            if pauses:
                await asyncio.to_thread(held_elsewhere, whose)
            [found] = await claims.claim_for_jobs(rows, known, [calling.asked(job, lease)])
            return found.claim is not None

    assert asyncio.run(claimed(pauses=False))
    assert not asyncio.run(claimed(pauses=True))
    assert asyncio.run(claimed(pauses=False)), "who has read it since may claim, for others"


def held_elsewhere(whose: Sponsor) -> None:
    hold(whose, "gmail")
    connection.close()


def test_a_repeat_of_a_doubt_waits_for_the_resume_too(sandbox: Sandbox) -> None:
    whose = factories.sponsor()
    pause = hold(whose, "gmail")
    of = login(sandbox.url, dedupe=True)
    single = in_doubt(1, of, by=whose)
    bulk = in_doubt(2, of, by=whose)
    Message.objects.filter(pk=single.first_message).update(recipient="a@gmail.com")
    Message.objects.filter(pk=bulk.first_message).update(recipient="b@gmail.com")
    reconciler.reconcile_due_doubts()
    assert domains(sandbox)["gmail.com"] == 1, "a single letter goes on"
    [held] = Message.objects.filter(in_doubt_at__isnull=False)
    assert held.recipient == "b@gmail.com" and held.settle_at, "it is tried again"
    assert pausing.resume_receiver(pause.pk, Actor("ann"))
    Message.objects.update(settle_at=timezone.now())
    reconciler.reconcile_due_doubts()
    assert domains(sandbox)["gmail.com"] == 2 and sandbox.books().duplicates() == {}


def test_letters_that_differ_in_cost_go_on_to_all_others(sandbox: Sandbox) -> None:
    whose = factories.sponsor()
    hold(whose, "gmail")
    job = taken_of(whose, WHOM, login(sandbox.url, unit="segment"))
    assert sending.send_claimed_job(job.pk, job.fence).left
    assert domains(sandbox) == {"yahoo.com": 20, "firm.example": 20}


def test_a_resume_during_sending_lets_those_go_that_were_passed_over(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=100)
    whose = factories.sponsor()
    pause = hold(whose, "gmail")
    whom = [f"r{number}@{('gmail.com', 'yahoo.com')[number % 2]}" for number in range(400)]
    job = taken_of(whose, whom, login(sandbox.url))
    with being_sent(job) as sender:
        calls(sandbox, 8)
        pausing.resume_receiver(pause.pk, Actor("ann"))
        sender.result()
    assert domains(sandbox) == {"gmail.com": 200, "yahoo.com": 200} and sandbox.books().duplicates() == {}


def test_those_that_are_held_expire_at_the_deadline(sandbox: Sandbox) -> None:
    whose = factories.sponsor()
    hold(whose, "gmail")
    job = taken_of(whose, ["a@gmail.com", "b@yahoo.com"], login(sandbox.url))
    assert sending.send_claimed_job(job.pk, job.fence).left
    Campaign.objects.filter(pk=job.campaign_id).update(deadline=timezone.now() - timedelta(seconds=1))
    sent(take_again(job))
    assert Message.objects.get(campaign=job.campaign_id, error_code="expired").recipient == "a@gmail.com"
