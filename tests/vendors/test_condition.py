"""A credential works after a good answer alone, and says since when it fails, why it is shut, and who can mend it."""

import asyncio
import os
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from campaigns.engine.connections import SharedRows
from tests import factories
from tests.waiting import eventually
from vendors.condition import feeding
from vendors.condition.feeding import ConditionFeeds
from vendors.condition.reading import conditions_of_credentials, conditions_of_vendors
from vendors.condition.values import Condition, ConditionKind, Mender, describe_condition
from vendors.models import Credential, RateLimit, VendorCondition
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome

pytestmark = pytest.mark.django_db(transaction=True)
GOOD, DOUBT, UNREACHED = Accepted("1"), InDoubt("http 500", answered=True), NotSent("no connection: refused")


def clock(at: datetime) -> str:
    return f"{at:%H:%M}"


def condition(login: Credential) -> Condition:
    return conditions_of_credentials([login.pk])[login.pk]


def answered(login: Credential, *outcomes: Outcome | None, destination: int = 0) -> None:
    """One sender's process hears these answers, and tells them once."""

    async def feed() -> None:
        rows = SharedRows(1)
        feeds = ConditionFeeds(rows)
        of = feeds.feed_of(login.pk, destination)
        for one in outcomes:
            good = isinstance(one, Accepted)
            of.note_outcome(one, good, getattr(one, "reason", ""))
        await feeds.close()
        await rows.close(float("inf"))

    asyncio.run(feed())


def test_nobody_is_comforted_before_the_first_good_answer() -> None:
    login = factories.credential()
    assert condition(login).kind == ConditionKind.UNTRIED and not condition(login).works
    answered(login, DOUBT)
    failing = condition(login)
    assert (failing.kind, failing.tries, failing.answer) == (ConditionKind.FAILING, 1, "http 500")
    assert failing.mending.mender == Mender.VENDOR and not failing.has_end
    assert describe_condition(failing, clock).startswith("failing since ")
    answered(login, GOOD)
    assert condition(login).works and condition(login).has_end


def test_bad_answers_of_many_senders_are_one_row_of_failures() -> None:
    login = factories.credential()
    answered(login, GOOD, UNREACHED)
    since = condition(login).since
    answered(login, DOUBT, DOUBT)
    answered(login, UNREACHED)
    now = condition(login)
    assert (now.kind, now.tries, now.since, now.answer) == (ConditionKind.FAILING, 4, since, "no connection: refused")
    assert VendorCondition.objects.get().doubts == 2


def test_nothing_is_forgotten_but_what_another_address_said() -> None:
    login = factories.credential()
    answered(login, GOOD, DOUBT)
    VendorCondition.objects.update(failing_since=timezone.now() - timedelta(days=40))
    assert condition(login).kind == ConditionKind.FAILING
    Credential.objects.filter(pk=login.pk).update(secret={"user": "another"})
    login.refresh_from_db()
    assert condition(login).kind == ConditionKind.UNTRIED
    answered(login, GOOD, destination=login.destination)
    assert condition(login).works
    answered(login, DOUBT, destination=login.destination - 1)
    assert condition(login).works, "a late answer from the former address says nothing"


def test_what_is_shut_names_who_opens_it() -> None:
    sponsor = factories.sponsor()
    vendor = factories.vendor(owner=sponsor)
    login = factories.credential(vendor, name="main", paused=True, paused_reason="http 401")
    shut = condition(login)
    assert (shut.kind, shut.mending.mender) == (ConditionKind.SHUT, Mender.OWNER)
    assert shut.mending.command == f"credential resume {vendor.slug} main"
    assert describe_condition(shut, clock) == "credential main paused: http 401"
    assert describe_condition(shut, clock, is_disclosed=False) == "credential paused"
    Credential.objects.filter(pk=login.pk).update(paused=False)
    RateLimit.objects.create(vendor=vendor, units=0, seconds=60)
    assert condition(login).reason == "the vendor's limit is 0" and not condition(login).has_end


@pytest.mark.parametrize(
    ("columns", "kind", "has_end"),
    [
        ({"asked_wait": 600.0, "retry_after_until": 600}, ConditionKind.SHUT, True),
        ({"retry_after_until": 600}, ConditionKind.SILENT, True),
        ({"rate_limited_until": 600}, ConditionKind.SILENT, True),
        ({"rate_limited_until": 30}, ConditionKind.WORKS, True),
        ({"unreached_since": -600, "retry_after_until": 20}, ConditionKind.FAILING, False),
        ({"braked_at": -600, "retry_after_until": 20}, ConditionKind.FAILING, False),
        ({"braked_at": -600, "brake_held_at": -5}, ConditionKind.SHUT, False),
    ],
)
def test_each_wait_has_its_name(columns: dict[str, float], kind: ConditionKind, has_end: bool) -> None:
    vendor = factories.vendor(limits=[(5, 60)])
    now = timezone.now()
    fields: dict[str, Any] = {
        name: value if name == "asked_wait" else now + timedelta(seconds=value) for name, value in columns.items()
    }
    login = factories.credential(vendor, **fields)
    answered(login, GOOD)
    found = condition(login)
    assert (found.kind, found.has_end) == (kind, has_end)
    assert describe_condition(found, clock)


def test_a_vendor_is_as_its_best_credential_and_one_never_called_proves_nothing() -> None:
    vendor = factories.vendor()
    assert conditions_of_vendors([vendor.pk])[vendor.pk].kind == ConditionKind.SHUT, "it has no credential"
    one, other = factories.credential(vendor), factories.credential(vendor)
    answered(one, DOUBT)
    assert conditions_of_vendors([vendor.pk])[vendor.pk].kind == ConditionKind.FAILING
    answered(other, GOOD)
    assert conditions_of_vendors([vendor.pk])[vendor.pk].works
    third = factories.credential(vendor)
    paused = Credential.objects.filter(vendor=vendor).exclude(pk=third.pk)
    paused.update(paused=True)
    assert conditions_of_vendors([vendor.pk])[vendor.pk].kind == ConditionKind.SHUT, "one never called proves nothing"
    VendorCondition.objects.all().delete()
    assert conditions_of_vendors([vendor.pk])[vendor.pk].kind == ConditionKind.UNTRIED, "nor does one that never was"
    with connection.execute_wrapper(counted := Counted()):
        conditions_of_vendors([vendor.pk, factories.vendor().pk])
        counted.statements.clear()
        conditions_of_vendors([vendor.pk] * 5)
    assert len(counted.statements) == 1


class Counted:
    """Keeps the statements that run."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def __call__(self, execute: Any, sql: str, *args: Any) -> Any:
        self.statements.append(sql)
        return execute(sql, *args)


@pytest.mark.parametrize("unlocked", [True, False], ids=["unlocked", "locked until the end"])
def test_feeds_that_close_leave_no_write_behind(unlocked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that went on would use a connection that nobody closes any more."""
    login = factories.credential()
    answered(login, GOOD)
    rival = psycopg.connect(os.environ["DATABASE_URL"], dbname=connection.settings_dict["NAME"])
    if not unlocked:
        monkeypatch.setattr(feeding, "LAST_WRITE", 0.05)

    async def is_waiting() -> bool:
        rival.execute("SELECT pg_stat_clear_snapshot()")  # else a transaction sees what it saw first
        seen = rival.execute(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return seen.fetchone() is not None

    async def feed() -> None:
        rows = SharedRows(1)
        feeds = ConditionFeeds(rows)
        feeds.feed_of(login.pk, 0).note_outcome(DOUBT, False, "http 500")
        await eventually(is_waiting, "the write waits for the lock")
        ending = asyncio.create_task(feeds.close())
        await asyncio.sleep(0)
        if unlocked:
            rival.rollback()
        await ending
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await rows.close(float("inf"))

    with closing(rival):
        rival.execute("SELECT FROM vendors_vendorcondition FOR UPDATE")
        asyncio.run(feed())
    assert condition(login).kind == (ConditionKind.FAILING if unlocked else ConditionKind.WORKS)
