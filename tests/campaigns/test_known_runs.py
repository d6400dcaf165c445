"""Which refusals are a run, for the sender that stores them."""

from typing import Any

import pytest

from campaigns.engine import sending
from campaigns.engine.finishing.sweep import run_sweep
from campaigns.engine.refusal_runs.known_runs import KnownRuns
from campaigns.engine.refusal_runs.run_rows import RunKey
from campaigns.models import RefusalRun
from tests.campaigns.refused_lists import LEASE, failed, no_other_sender, paused, swept, taken, vendor
from tests.faults.sending import login, meanwhile
from vendors.causes import AnswerCause
from vendors.outcomes import Accepted, InDoubt, Refused, follow_cause

__all__ = ["no_other_sender", "vendor"]


def test_a_part_of_a_run_is_equal_in_a_row_and_not_of_recipients() -> None:
    def part(*answers: Any) -> tuple[int, bool] | None:
        found = KnownRuns().read_part(RunKey(1), enumerate(follow_cause(one) for one in answers))
        return found and (len(found.messages), found.anew)

    policy, other = Refused("550", "5.3.0"), Refused("554", "")
    nobody, full = Refused("550", "5.1.1"), Refused("550", "5.2.2")
    assert part(policy, policy, policy) == (3, False)
    assert part(policy, InDoubt("lost"), nobody, policy) == (2, False), "what says nothing of us is passed by"
    assert part(policy, policy, other, policy, policy) == (2, True)
    assert part(policy, Accepted("1"), policy) == (1, True) and part(policy, Accepted("1")) is None
    assert part(*[nobody] * 9) is None and part(*[full] * 9) is None and part(Refused("unsendable", "no @")) is None
    assert part(Refused("550", "5.3.0", AnswerCause.RECIPIENT)) is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("recipients", [19, ["good@example.org", *(f"bad{n}@example.org" for n in range(19))]])
def test_a_short_run_refuses_one_by_one(recipients: Any, vendor: Any) -> None:
    account = login(vendor.url, concurrency=1)
    job = taken(recipients, account)
    assert not sending.send_claimed_job(job.pk, job.fence).left and not paused(account)
    run_sweep(LEASE)
    assert failed(job) == 19 and not paused(account)


@pytest.mark.django_db(transaction=True)
def test_an_acceptance_ends_the_run_and_a_new_one_begins_after_any_number(vendor: Any) -> None:
    account = login(vendor.url, concurrency=1)
    mixed = [f"{'good' if n % 15 == 14 else 'bad'}{n}@example.org" for n in range(60)]
    job = taken([*mixed, *(f"bad{n}@example.org" for n in range(100, 130))], account)
    assert sending.send_claimed_job(job.pk, job.fence).left and vendor.calls == 80
    assert paused(account).startswith("20 messages in a row")
    swept()
    assert failed(job) == 56


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("code", ["unknown_recipient", "invalid_number", "mailbox_full"])
def test_dead_mailboxes_at_the_head_of_a_list_pause_nothing(code: str, vendor: Any) -> None:
    vendor.refusal = {"code": code}
    account = login(vendor.url)
    job = taken([*(f"dead{n}@example.org" for n in range(200)), *(f"good{n}@example.org" for n in range(100))], account)
    assert not sending.send_claimed_job(job.pk, job.fence).left and not paused(account)
    assert failed(job) == 200 and job.accepted == 100 and not RefusalRun.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("refusal", "is_paused"),
    [({"code": "account_suspended"}, True), ({"code": "quota", "sub_type": "daily sending limit exceeded"}, False)],
)
def test_what_a_code_says_of_us_refuses_nobody(refusal: Any, is_paused: bool, vendor: Any) -> None:
    vendor.refusal = refusal
    account = login(vendor.url, concurrency=1)
    job = taken([f"good{n}@example.org" if n < 30 else f"r{n}@example.org" for n in range(90)], account)
    sent = sending.send_claimed_job(job.pk, job.fence)
    assert sent.left and vendor.calls == 31 and failed(job) == 0 and job.accepted == 30
    assert bool(paused(account)) == is_paused and bool(account.retry_after_until) != is_paused


@pytest.mark.django_db(transaction=True)
def test_another_sender_contradicts_a_run(vendor: Any) -> None:
    account = login(vendor.url)
    job = taken(19, account)
    assert not sending.send_claimed_job(job.pk, job.fence).left
    assert RefusalRun.objects.get().credential_id == account.pk
    later = taken([f"good{n}@example.org" for n in range(200)], account)
    with meanwhile(sending.send_claimed_job, later.pk, later.fence) as sent:
        assert not sent.result().left
    again = taken(5, account)
    assert not sending.send_claimed_job(again.pk, again.fence).left and not paused(account)


@pytest.mark.django_db(transaction=True)
def test_zero_in_the_settings_bears_any_number(vendor: Any, settings: Any) -> None:
    settings.EQUAL_REFUSALS = 0
    account = login(vendor.url)
    job = taken(40, account)
    assert not sending.send_claimed_job(job.pk, job.fence).left and not paused(account)
