"""Fault 42, further: who settles doubts keeps the limits and hears what the vendor says, as a sender does.

Look-ups and repeats are calls: they need permits, are in the ledger, and end where the vendor asks to
wait or refuses the login.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from campaigns.engine.claiming import rebuild
from campaigns.engine.doubts import calls, reconciler
from campaigns.models import Job, Message
from campaigns.models.states import Status
from tests import factories
from tests.faults.checker import judge, sums
from tests.faults.sending import login
from tests.sandbox import Sandbox
from vendors import redis_clients
from vendors.limits.throttle import Throttle
from vendors.limits.values import Limit, Scope, Wait
from vendors.models import Credential, RateLimit, Usage, Vendor

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]


def in_doubt(many: int, of: Credential, **fields: Any) -> Job:
    """A logged job whose answers were lost an hour ago; the vendor has none of its letters."""
    job = factories.campaign_with_job(many, of=of, status=Status.LOGGED, finished_at=timezone.now(), **fields)
    past = timezone.now() - timedelta(hours=1)
    messages = Message.objects.filter(id__gte=job.first_message, id__lt=job.end)
    messages.update(dequeued_at=past, sent_at=past, in_doubt_at=past, settle_at=past)
    Job.objects.filter(pk=job.pk).update(in_doubt=many)
    return job


def due() -> int:
    return Message.objects.filter(settle_at__lte=timezone.now()).count()


def opened(account: Credential) -> None:
    Credential.objects.filter(pk=account.pk).update(retry_after_until=None, paused=False)


def the_window_runs_out(of: Vendor) -> None:
    """Deletes the window, and makes the ledger too old to count."""
    Usage.objects.filter(vendor=of).delete()
    with redis_clients.make_client(settings.REDIS_URL) as redis:
        redis.delete(*redis.keys(f"mailhub:{{v{of.pk}}}*"))


def test_42_look_ups_take_permits_and_are_in_the_ledger(sandbox: Sandbox) -> None:
    account = login(sandbox.url, (5, 600), lookup="weak")
    in_doubt(40, account)
    reconciler.reconcile_due_doubts()
    reconciler.reconcile_due_doubts()
    assert len(sandbox.books().look_ups) == 5 and due() == 35
    assert sum(Usage.objects.values_list("units", flat=True)) == 5
    assert judge(sandbox.books(), windows=[(5, 600, None)]) == []


def test_42_a_window_made_anew_knows_the_look_ups(sandbox: Sandbox) -> None:
    account = login(sandbox.url, (3, 600), lookup="weak")
    in_doubt(10, account)
    reconciler.reconcile_due_doubts()
    with redis_clients.make_client(settings.REDIS_URL) as redis:
        redis.flushdb()
        throttle, generation = Throttle(redis), Vendor.objects.get(pk=account.vendor_id).generation
        assert rebuild.rebuild_window(throttle, account.vendor_id, generation)
        scope = Scope(account.vendor_id, account.pk, generation + 1, (Limit(3, 600.0),))
        assert isinstance(throttle.acquire(scope, 1, 10.0), Wait)
    reconciler.reconcile_due_doubts()
    assert len(sandbox.books().look_ups) == 3


@pytest.mark.parametrize("means", [{"lookup": "weak"}, {"dedupe": True}], ids=["look-ups", "repeats"])
def test_42_a_429_ends_the_run_and_closes_the_credential_for_as_long_as_it_says(
    means: dict[str, Any], sandbox: Sandbox
) -> None:
    sandbox.settings(throttle="2/3000")
    account = login(sandbox.url, **means)
    in_doubt(20, account)
    reconciler.reconcile_due_doubts()
    account.refresh_from_db()
    assert len(sandbox.books().arrivals()) == 3, "two answers and the 429"
    assert account.retry_after_until and account.retry_after_until > timezone.now() + timedelta(minutes=30)
    reconciler.reconcile_due_doubts()
    assert len(sandbox.books().arrivals()) == 3
    sandbox.settings(throttle="")
    opened(account)
    assert due() >= 17, "the rest stays due for when the credential is open"
    reconciler.reconcile_due_doubts()
    assert len(sandbox.books().arrivals()) >= 3 + 17


@pytest.mark.parametrize("means", [{"lookup": "weak"}, {"dedupe": True}], ids=["look-ups", "repeats"])
def test_42_a_refused_login_ends_the_run_and_pauses_the_credential_with_the_reason(
    means: dict[str, Any], sandbox: Sandbox
) -> None:
    sandbox.settings(unauthorized=True)
    account = login(sandbox.url, **means)
    in_doubt(20, account)
    reconciler.reconcile_due_doubts()
    reconciler.reconcile_due_doubts()
    account.refresh_from_db()
    assert len(sandbox.books().arrivals()) == 1
    assert account.paused and "401" in account.paused_reason
    sandbox.settings(unauthorized=False)
    opened(account)
    assert due() == 20
    reconciler.reconcile_due_doubts()
    assert len(sandbox.books().arrivals()) == 21


def test_42_other_credentials_are_settled_while_one_is_closed_however_many_doubts_it_has(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, other = login(sandbox.url, lookup="weak"), login(sandbox.url, lookup="weak")
    in_doubt(10_001, closed)
    in_doubt(3, other)
    Credential.objects.filter(pk=closed.pk).update(retry_after_until=timezone.now() + timedelta(hours=1))
    assert reconciler.reconcile_due_doubts() == 3
    assert len(sandbox.books().look_ups) == 3


@pytest.mark.parametrize(
    "shut",
    [
        lambda account: Credential.objects.filter(pk=account.pk).update(paused=True),
        lambda account: Vendor.objects.filter(pk=account.vendor_id).update(paused=True),
        lambda account: RateLimit.objects.create(vendor=account.vendor, units=0, seconds=1),
    ],
    ids=["paused credential", "paused vendor", "limit of 0"],
)
def test_42_what_is_shut_is_not_asked_and_its_doubts_stay_due(shut: Any, sandbox: Sandbox) -> None:
    account = login(sandbox.url, lookup="strong", dedupe=True)
    in_doubt(3, account)
    shut(account)
    reconciler.reconcile_due_doubts()
    assert sandbox.books().arrivals() == [] and due() == 3


def test_42_what_was_looked_up_without_a_permit_for_the_repeat_is_repeated_later_and_not_looked_up_again(
    sandbox: Sandbox,
) -> None:
    """A limit of one call: the look-up takes the permit that the repeat needs."""
    account = login(sandbox.url, (1, 600), lookup="strong")
    in_doubt(1, account)
    reconciler.reconcile_due_doubts()
    assert (len(sandbox.books().look_ups), len(sandbox.books().entries)) == (1, 0)
    the_window_runs_out(account.vendor)
    reconciler.reconcile_due_doubts()
    assert (len(sandbox.books().look_ups), len(sandbox.books().entries)) == (1, 1)
    assert sums() == {"accepted": 1} and judge(sandbox.books()) == []


def test_42_a_proof_holds_for_the_call_that_was_asked_about_only(sandbox: Sandbox) -> None:
    """If the repeat is lost as well, the vendor is asked again before the next one."""
    sandbox.settings(error_after_rate=1.0)
    account = login(sandbox.url, lookup="strong")
    job = in_doubt(1, account)
    reconciler.reconcile_due_doubts()
    assert sums() == {"in doubt": 1} and len(sandbox.books().acceptances) == 1
    past = timezone.now() - timedelta(hours=1)
    Message.objects.filter(pk=job.first_message).update(sent_at=past, settle_at=past)
    reconciler.reconcile_due_doubts()
    assert sums() == {"accepted": 1} and len(sandbox.books().entries) == 1
    assert judge(sandbox.books()) == []


@pytest.mark.parametrize("means", [{"lookup": "strong"}, {"dedupe": True}], ids=["strong look-up", "dedupe"])
def test_42_after_its_deadline_a_campaign_is_not_called_for_its_doubts_either(
    means: dict[str, Any], sandbox: Sandbox
) -> None:
    job = in_doubt(2, login(sandbox.url, **means))
    type(job.campaign).objects.update(deadline=timezone.now() - timedelta(minutes=1))
    reconciler.reconcile_due_doubts()
    assert sandbox.books().entries == [] and sums() == {"in doubt": 2}


@pytest.mark.parametrize("means", [{"lookup": "strong"}, {"dedupe": True}], ids=["strong look-up", "dedupe"])
def test_42_behind_its_first_n_a_campaign_is_not_called_for_its_doubts_before_somebody_lets_the_rest_go(
    means: dict[str, Any], sandbox: Sandbox
) -> None:
    """After a recovery without Redis all that waits is in doubt, uncut or not."""
    job = in_doubt(3, login(sandbox.url, **means), wait_after=1)
    reconciler.reconcile_due_doubts()
    assert (len(sandbox.books().entries), sums()) == (1, {"accepted": 1, "in doubt": 2})
    Job.objects.filter(pk=job.pk).update(wait_after=None)
    Message.objects.filter(in_doubt_at__isnull=False).update(settle_at=timezone.now())
    reconciler.reconcile_due_doubts()
    assert (len(sandbox.books().entries), sums()) == (3, {"accepted": 3})


def test_42_outside_of_its_hours_a_campaign_is_looked_up_but_not_called(sandbox: Sandbox) -> None:
    account = login(sandbox.url, lookup="strong")
    job = in_doubt(2, account)
    now = timezone.now()
    hours = {"hours_from": (now + timedelta(hours=2)).time(), "hours_to": (now + timedelta(hours=3)).time()}
    type(job.campaign).objects.update(time_zone="UTC", **hours)
    reconciler.reconcile_due_doubts()
    assert (len(sandbox.books().look_ups), len(sandbox.books().entries)) == (2, 0)
    again = Message.objects.get(pk=job.first_message).settle_at
    assert again and timedelta(minutes=110) < again - timezone.now() < timedelta(minutes=121)


def test_42_outside_of_the_hours_of_its_recipient_a_message_is_looked_up_but_not_called(sandbox: Sandbox) -> None:
    """The hours of a campaign by each recipient's clock: one of the two is three hours ahead of the other."""
    job = in_doubt(2, login(sandbox.url, lookup="strong"))
    now = timezone.now()
    hours = {"each_from": (now + timedelta(hours=2)).time(), "each_to": (now + timedelta(hours=4)).time()}
    begin = {name: at.replace(second=0, microsecond=0) for name, at in hours.items()}
    type(job.campaign).objects.update(time_zone="UTC", **begin)
    Message.objects.filter(pk=job.first_message).update(params={"time_zone": "Etc/GMT-3"})
    reconciler.reconcile_due_doubts()
    assert (len(sandbox.books().look_ups), len(sandbox.books().entries)) == (2, 1)
    assert not Message.objects.get(pk=job.first_message).in_doubt_at
    again = Message.objects.get(pk=job.first_message + 1).settle_at
    assert again and timedelta(minutes=110) < again - timezone.now() < timedelta(minutes=121)


def test_42_a_vendor_that_does_not_answer_is_asked_a_few_times_a_run_and_not_fifty(sandbox: Sandbox) -> None:
    account = login(sandbox.url, lookup="weak")
    in_doubt(50, account)
    sandbox.settings(down="503")
    reconciler.reconcile_due_doubts()
    assert len(sandbox.books().look_ups) == calls.UNANSWERED
    assert due() == 50 - calls.UNANSWERED
