"""A vendor that asks to wait is not called meanwhile, and ever more rarely where it asks again and again."""

import math
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from campaigns.engine import sending as sender
from campaigns.engine.claiming import limits
from campaigns.engine.claiming.limits import ASKED_MOST
from campaigns.engine.doubts import reconciler
from campaigns.models import Message
from tests import calling, factories
from tests.campaigns.test_rounds_of_mails import relay as serving
from tests.faults.sending import login, send_the_rest, take_again, taken
from tests.faults.test_42_settling import in_doubt
from tests.sandbox import Sandbox
from vendors import configuration
from vendors.condition import brake
from vendors.models import Credential
from vendors.outcomes import RETRY_MAX
from vendors.testing.http_server import GOOD, MisbehavingHttp, answer
from vendors.testing.smtp_relay import MisbehavingSmtp, say

pytestmark = pytest.mark.django_db(transaction=True)
LETTERS = 5
DAY = 86_400.0


def closed(account: Credential, seconds: float) -> float:
    """The vendor asks to wait so long; for how long its credential is closed."""
    calling.by_sender(lambda rows: limits.close_credential(rows, account.pk, seconds))
    account.refresh_from_db()
    assert account.retry_after_until is not None
    return round((account.retry_after_until - timezone.now()).total_seconds())


def wait_is_over(account: Credential) -> None:
    Credential.objects.filter(pk=account.pk).update(retry_after_until=timezone.now() - timedelta(seconds=0.1))


@pytest.mark.parametrize(
    ("stated", "waits"),
    [
        (0.0, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
        (0.3, [1, 2, 4]),
        (-5.0, [1, 2]),
        (math.nan, [1, 2]),
        (30.0, [30, 60, 120, 240, 300, 300]),
        (120.0, [120, 240, 300]),
        (7200.0, [7200, 7200]),
        (DAY, [DAY, DAY]),
        (1e300, [DAY, DAY]),
        (math.inf, [DAY, DAY]),
    ],
)
def test_the_whole_stated_wait_is_kept_up_to_a_day_and_short_ones_grow(stated: float, waits: list[float]) -> None:
    account = factories.credential()
    for wait in waits:
        assert abs(closed(account, stated) - wait) <= 1
        assert account.asked_wait == wait
        wait_is_over(account)


def test_answers_of_calls_that_were_made_together_let_it_grow_once() -> None:
    account = factories.credential()
    for _ in range(8):
        closed(account, 0.0)
    assert account.asked_wait == 1.0
    assert abs(closed(account, 600.0) - 600) <= 1, "the longest of them counts"


def test_a_good_answer_begins_it_anew_unless_the_vendor_has_asked_again_meanwhile() -> None:
    account = factories.credential()
    for _ in range(4):
        closed(account, 0.0)
        wait_is_over(account)
    closed(account, 0.0)

    def served() -> None:
        calling.by_sender(lambda rows: limits.record_good_answer(rows, account.pk))
        account.refresh_from_db()

    served()
    assert account.asked_wait == 16.0
    wait_is_over(account)
    served()
    assert account.asked_wait is None
    closed(account, 0.0)
    assert account.asked_wait == 1.0


@pytest.mark.parametrize(
    ("lines", "rounds", "last"),
    [
        (["Retry-After: 0"], 4, 8.0),  # of 1, 2 and 4 seconds a sender waits itself
        (["Retry-After: 0, 0"], 4, 8.0),
        ([], 1, 30.0),
        (["Retry-After: "], 1, 30.0),
        (["Retry-After: -1"], 1, 30.0),
        (["Retry-After: soon"], 1, 30.0),
        (["Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"], 1, 30.0),
        (["Retry-After: 120, 120"], 1, 120.0),
        (["Retry-After: 120", "Retry-After: 120"], 1, 120.0),
        (["Retry-After: 86400"], 1, DAY),
        (["Retry-After: 99999999999"], 1, DAY),
        (["Retry-After: Fri, 31 Dec 2999 23:59:59 GMT"], 1, DAY),
    ],
)
@pytest.mark.slow("time")
def test_a_vendor_that_answers_429_again_and_again_is_called_a_few_times(
    lines: list[str], rounds: int, last: float
) -> None:
    said = MisbehavingHttp(answer(429, b"", *lines))
    with serving(said) as port:  # type: ignore[arg-type]
        made = factories.vendor(settings={"url": f"http://127.0.0.1:{port}", "concurrency": LETTERS}, limits=[(50, 1)])
        account = factories.credential(made)
        job = taken(LETTERS, account)
        assert sender.send_claimed_job(job.pk, job.fence).left
        account.refresh_from_db()
        assert account.asked_wait == last
        assert len(said.requests) <= rounds * LETTERS
        wait_is_over(account)
        assert sender.send_claimed_job(take_again(job).pk, job.fence).left
        account.refresh_from_db()
        assert account.asked_wait == max(last, min(ASKED_MOST, 2 * last))
        assert len(said.requests) <= (rounds + 1) * LETTERS
        said.behaviour = GOOD
        wait_is_over(account)
        send_the_rest(take_again(job))
    assert Message.objects.filter(message_id=None).count() == 0


@pytest.mark.slow("time")
def test_a_503_that_the_contract_calls_safe_has_the_same_floor() -> None:
    said = MisbehavingHttp(answer(503, b"", "Retry-After: 0"))
    with serving(said) as port:  # type: ignore[arg-type]
        made = {"url": f"http://127.0.0.1:{port}", "concurrency": LETTERS, "safe_statuses": "503"}
        job = taken(LETTERS, factories.credential(factories.vendor(settings=made)))
        assert sender.send_claimed_job(job.pk, job.fence).left
    assert Credential.objects.get().asked_wait == 8.0 and len(said.requests) <= 4 * LETTERS


def test_a_relay_that_answers_421_again_and_again_is_called_ever_more_rarely() -> None:
    with serving(MisbehavingSmtp({"rcpt": say("421 not now")})) as port:
        known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "us@example.org", "concurrency": 2}
        account = factories.credential(factories.vendor(adapter="smtp", settings=known))
        job = taken([f"wild+{number}@example.org" for number in range(3)], account)
        for wait in (30.0, 60.0, 120.0):
            assert sender.send_claimed_job(job.pk, job.fence).left
            account.refresh_from_db()
            assert account.asked_wait == wait
            wait_is_over(account)
            job = take_again(job)


@pytest.mark.slow("time")
def test_good_answers_of_a_sender_end_the_growth(sandbox: Sandbox) -> None:
    account = login(sandbox.url)
    closed(account, 200.0)
    wait_is_over(account)
    sandbox.settings(latency_ms=50.0)
    send_the_rest(taken(300, account))
    account.refresh_from_db()
    assert account.asked_wait is None


def test_look_ups_have_the_same_floor_and_their_good_answers_end_it(sandbox: Sandbox) -> None:
    sandbox.settings(throttle="1/3000", retry_after_s=0.0)
    account = login(sandbox.url, lookup="weak")
    in_doubt(6, account)
    reconciler.reconcile_due_doubts()
    account.refresh_from_db()
    first = account.asked_wait
    assert first is not None and first >= 1.0
    sandbox.settings(throttle="")
    wait_is_over(account)
    reconciler.reconcile_due_doubts()
    account.refresh_from_db()
    assert account.asked_wait is None


def test_a_person_ends_the_wait_by_a_command_and_the_growth_goes_on(capsys: Any) -> None:
    account = factories.credential()
    closed(account, DAY)
    call_command("credential", "resume", account.vendor.slug, account.name)
    assert "is called again now" in capsys.readouterr().out
    account.refresh_from_db()
    assert (account.retry_after_until, account.asked_wait) == (None, DAY)
    call_command("credential", "resume", account.vendor.slug, account.name)
    assert "is called again now" not in capsys.readouterr().out
    closed(account, 0.0)
    assert account.asked_wait == ASKED_MOST


def test_a_person_ends_the_wait_on_the_page_of_credentials(client: Client) -> None:
    client.force_login(User.objects.create_superuser("ann"))
    account, other = factories.credential(), factories.credential()
    closed(account, DAY)
    closed(other, DAY)
    page = client.post(
        "/admin/vendors/credential/", {"action": "end_waits", "_selected_action": [account.pk]}, follow=True
    )
    assert "Waits that were ended: 1" in page.content.decode()
    assert Credential.objects.get(pk=account.pk).retry_after_until is None
    assert Credential.objects.get(pk=other.pk).retry_after_until is not None


def test_a_wait_after_a_recovery_of_the_store_is_not_the_vendors_and_nobody_ends_it(capsys: Any) -> None:
    account = factories.credential()
    until = timezone.now() + timedelta(minutes=5)
    Credential.objects.filter(pk=account.pk).update(retry_after_until=until)
    call_command("credential", "resume", account.vendor.slug, account.name)
    account.refresh_from_db()
    assert account.retry_after_until == until


def test_what_binds_one_message_alone_waits_for_a_day_too_and_the_others_go() -> None:
    said = MisbehavingHttp(answer(425, b"", f"Retry-After: {RETRY_MAX:.0f}"))
    with serving(said) as port:  # type: ignore[arg-type]
        made = factories.vendor(settings={"url": f"http://127.0.0.1:{port}", "concurrency": LETTERS})
        job = taken(2, factories.credential(made))
        assert sender.send_claimed_job(job.pk, job.fence).left
    least = timezone.now() + timedelta(hours=23)
    assert Message.objects.filter(call_after__gt=least).count() == 2 and len(said.requests) == 2
    assert Credential.objects.get().retry_after_until is None


def test_a_running_wait_outlasts_an_operators_hold_whatever_open_calls_are_told_meanwhile() -> None:
    account = factories.credential()
    assert closed(account, 3600.0) > 3500
    assert configuration.hold_brake(account)
    assert closed(account, 5.0) > 3500, "a call that was under way"
    assert configuration.release_brake(account)
    account.refresh_from_db()
    assert account.retry_after_until and account.retry_after_until > timezone.now() + timedelta(seconds=3500)


def test_a_wait_that_is_asked_for_under_a_held_brake_lasts() -> None:
    """The answer ends the brake; what comes later, and the release of the hold, end no wait."""
    account = factories.credential()
    assert calling.by_sender(lambda rows: brake.put_on(rows, account.pk, 0.0))
    assert configuration.hold_brake(account)
    assert closed(account, 3600.0) > 3500
    assert closed(account, 5.0) > 3500
    assert configuration.release_brake(account)
    account.refresh_from_db()
    assert account.retry_after_until and account.retry_after_until > timezone.now() + timedelta(seconds=3500)
