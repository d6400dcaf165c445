"""The page beside manage.py recover_store: who sees it, its numbers, a person's word, once and on what was shown."""

import re
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from campaigns.engine.failover import guard, recovery
from campaigns.engine.failover.queries import notice_halt
from campaigns.models import Job, Store
from campaigns.operations import actions
from tests import factories
from tests.campaigns.test_locks import while_it_waits
from tests.copies import backup, restore
from tests.faults.checker import judge, sums
from tests.faults.sending import login, send_the_rest, sent, take_again
from tests.faults.test_restore import redis_lost_all
from tests.sandbox import Sandbox
from vendors.history import Actor
from vendors.models import Credential

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
PAGE = "/admin/operations/recover/"
FRONT = ("/admin/", "/admin/operations/pulse/", "/admin/operations/halt/")


def person(name: str, *groups: str) -> Client:
    user = User.objects.create(username=name, is_staff=True)
    user.groups.set(Group.objects.filter(name__in=groups))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator() -> Client:
    return person("olga", "operator", "all sponsors")


@pytest.fixture
def account(sandbox: Sandbox) -> Credential:
    return login(sandbox.url, (1000, 2))


@pytest.fixture
def restored(account: Credential, operator: Client) -> Iterator[Job]:
    """A job of which the vendor has taken all twelve; the rows are those of before, another ten wait in them."""
    sent(take_again(factories.campaign_with_job(2, of=account, status="DISPATCHED")))
    job = factories.campaign_with_job(12, of=account, status="DISPATCHED")
    factories.campaign_with_job(10, of=account, status="DISPATCHED")
    with backup() as name:
        sent(take_again(job))
        restore(name)
        notice_halt()
        yield job


def text(response: Any) -> str:
    """The page's text."""
    return " ".join(re.sub(r"<[^>]*>", " ", response.content.decode()).split())


def form(response: Any, reason: str = "the disk died") -> dict[str, str]:
    """What the page would post."""
    return {"shown": response.context["shown"], "reason": reason, "confirmed": "yes"}


def decided() -> list[tuple[str, str]]:
    of_store = LogEntry.objects.filter(content_type__model="store")
    return list(of_store.values_list("user__username", "change_message"))


def test_the_numbers_are_shown_and_a_persons_word_puts_in_doubt_what_the_rows_do_not_know(
    sandbox: Sandbox, restored: Job, operator: Client
) -> None:
    page = operator.get(PAGE)
    assert [(loss.calls, loss.messages) for loss in page.context["losses"]] == [(12, 12)]
    assert "12 messages will be in doubt" in text(page) and "Redis remembers" in text(page)
    assert guard.halt_reason() == guard.TAKEN_OVER and sums() == {"accepted": 2, "waiting": 22}, "numbers only"
    after = operator.post(PAGE, form(page), follow=True)
    assert "12 calls that the rows do not know" in text(after) and "Calls start again" in text(after)
    assert guard.halt_reason() is None and sums() == {"accepted": 2, "in doubt": 12, "waiting": 10}
    [(who, what)] = decided()
    assert who == "olga" and what.endswith("in doubt: 12 messages. Reason: the disk died")
    assert "Decided before" in text(after) and "olga" in text(after)
    for job in Job.objects.exclude(status="LOGGED"):
        send_the_rest(job)
    assert sums() == {"accepted": 12, "in doubt": 12} and judge(sandbox.books()) == []


def test_pressed_twice_it_is_done_once(restored: Job, operator: Client) -> None:
    page = form(operator.get(PAGE))
    operator.post(PAGE, page)
    known, adoptions = sums(), Store.objects.get().adoptions
    again = operator.post(PAGE, page)
    assert "recovered in the meantime: nothing was done" in text(again) and "nothing to do" in text(again)
    assert sums() == known and Store.objects.get().adoptions == adoptions and len(decided()) == 1


def test_of_two_that_recover_at_once_the_second_does_nothing() -> None:
    """The command, too, though it may not ask; there is no job that could be held."""
    Store.objects.update(timeline="000000AA")
    adoptions = Store.objects.get().adoptions
    with pytest.raises(CommandError, match="in the meantime"), while_it_waits(by_command):
        recovery.recover_store(Actor("olga"), "the disk died")
    assert Store.objects.get().adoptions == adoptions + 1 and len(decided()) == 1


def by_command() -> None:
    call_command("recover_store", yes=True, by="a shell", stdout=StringIO())


def test_numbers_that_have_changed_since_are_shown_anew_and_nothing_is_done(
    account: Credential, operator: Client
) -> None:
    """Without a complete record; somebody stops one of the jobs while the page is read."""
    jobs = [factories.campaign_with_job(size, of=account, status="DISPATCHED") for size in (20, 7)]
    with backup() as name, redis_lost_all():
        restore(name)
        page = operator.get(PAGE)
        assert "The record of calls is not complete" in text(page) and "27 messages will be in doubt" in text(page)
        actions.stop_jobs([jobs[1].pk], Actor("ann"))
        stale = operator.post(PAGE, form(page, "power failed"))
        assert "The numbers have changed" in text(stale) and "20 messages will be in doubt" in text(stale)
        assert 'value="power failed"' in stale.content.decode(), "nobody types it twice"
        assert guard.halt_reason() == guard.TAKEN_OVER and sums() == {"waiting": 27} and decided() == []
        operator.post(PAGE, form(stale))
        assert guard.halt_reason() is None and sums() == {"in doubt": 20, "waiting": 7}


def test_without_a_reason_or_the_numbers_nothing_is_done(restored: Job, operator: Client) -> None:
    page = form(operator.get(PAGE))
    assert "say why" in text(operator.post(PAGE, page | {"reason": "  "}))
    assert "have changed" in text(operator.post(PAGE, {"reason": "by a script"}))
    assert guard.halt_reason() == guard.TAKEN_OVER and decided() == []


@pytest.mark.parametrize("groups", [("viewer", "all sponsors"), ("operator",), ("vendor admin", "all sponsors")])
def test_who_may_not_settle_doubts_of_all_sponsors_reads_why_and_can_do_nothing(groups: tuple[str, ...]) -> None:
    some, may = person("vic", *groups), person("olga", "operator", "all sponsors")
    assert all("Nothing is called" not in text(some.get(path)) for path in FRONT)
    Store.objects.update(timeline="000000AA")
    notice_halt()
    for path in FRONT:
        page = text(some.get(path))
        assert "Nothing is called: the store was taken over" in page and "First seen on" in page
        assert "manage.py recover_store" in page and PAGE not in some.get(path).content.decode()
        assert PAGE in may.get(path).content.decode()
    shown = may.get(PAGE).context["shown"]
    assert some.get(PAGE).status_code == 403
    assert some.post(PAGE, {"shown": shown, "reason": "I want to"}).status_code == 403
    assert guard.halt_reason() == guard.TAKEN_OVER and decided() == []


def test_a_halt_of_another_kind_is_shown_and_has_nothing_to_decide(operator: Client) -> None:
    Store.objects.update(tables="")
    assert "Nothing is called The tables are being migrated" in text(operator.get("/admin/"))
    page = operator.get(PAGE)
    assert "nothing to decide" in text(page)
    operator.post(PAGE, form(page))
    assert guard.halt_reason() == guard.MIGRATING and decided() == []


@pytest.mark.parametrize("path", FRONT)
def test_a_halt_costs_a_page_one_statement_more(operator: Client, path: str) -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as seen:
            operator.get(path)
        return len(seen)

    operator.get(path)
    calm = statements()
    Store.objects.update(timeline="000000AA")
    assert statements() == calm + 1
