"""Which marks are those of the same installation; what the page and the probe say while calls are held."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client

from campaigns.engine.failover import guard, holding
from campaigns.models import Job, Store
from campaigns.operations import answering
from mailhub import presence
from mailhub.monitoring import probes
from tests import factories
from vendors.history import Actor

MARK = {"disk": "1-2-3-4", "machine": "m", "boot": "b"}
PAGE = "/admin/operations/recover/"


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"boot": "another"}, True),  # the machine was started again
        ({"machine": "another"}, True),  # a container with an id of its own, on the same machine
        ({"machine": "another", "boot": "another"}, False),
        ({"disk": "another"}, False),
    ],
)
def test_a_reboot_or_a_new_container_is_the_same_installation_and_another_disk_or_machine_is_not(
    change: dict[str, str], same: bool
) -> None:
    assert presence.is_same({**MARK, **change}, MARK) is same


def test_where_nothing_tells_the_machine_another_boot_is_the_same() -> None:
    unknown = {**MARK, "machine": "", "boot": ""}
    assert presence.is_same(unknown, unknown)


@pytest.fixture
def written_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows were written on another disk."""
    monkeypatch.setattr(presence, "present_mark", lambda: MARK)
    holding.note_mark(json.dumps({**MARK, "disk": "another"}))


def operator() -> Client:
    user = User.objects.create(username="olga", is_staff=True)
    user.groups.set(Group.objects.filter(name__in=["operator", "all sponsors"]))
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.django_db
def test_a_copy_in_which_nothing_waits_is_asked_nothing_and_takes_its_own_mark(written_elsewhere: None) -> None:
    factories.campaign_with_job(2, status="LOGGED")
    assert presence._look_for_reason() is None
    assert Store.objects.get().mark == MARK and guard.halt_reason() is None


@pytest.mark.django_db
@pytest.mark.parametrize("status", ["RENDERED", "READY", "DISPATCHED"])
def test_whatever_waits_in_a_copy_is_held_also_before_it_is_due(written_elsewhere: None, status: str) -> None:
    factories.campaign_with_job(2, status=status)
    why = presence._look_for_reason()
    assert why and why.startswith(guard.HELD) and why.endswith("waiting: 1 job for 2 recipients")
    assert guard.halt_reason() == guard.HELD == presence._look_for_reason(), "and stays so"
    assert "written on another disk" in probes._forbidden_calls_reason()
    with connection.cursor() as cursor:
        cursor.execute(guard.KNOWN)
        assert cursor.fetchone() is None, "no claim, look-up or repeat starts"


@pytest.mark.django_db
def test_the_page_asks_and_its_answer_lets_calls_start(written_elsewhere: None) -> None:
    factories.campaign_with_job(2, status="DISPATCHED")
    presence._look_for_reason()
    client = operator()
    page = client.get(PAGE).content.decode()
    assert "Waiting now: 1 job for 2 recipients." in page
    assert client.post(PAGE, {"answer": "go_on", "reason": ""}).status_code == 200 and guard.halt_reason() == guard.HELD
    client.post(PAGE, {"answer": "go_on", "reason": "moved"})
    assert guard.halt_reason() is None and Store.objects.get().mark == MARK and presence._look_for_reason() is None
    assert client.post(PAGE, {"answer": "copy", "reason": "twice"}).status_code == 200
    assert Job.objects.get().status == "DISPATCHED", "the second answer had no question"


@pytest.mark.django_db
def test_the_answer_that_it_is_a_copy_stops_what_waits(written_elsewhere: None) -> None:
    factories.campaign_with_job(2, status="DISPATCHED")
    factories.campaign_with_job(2, status="RENDERED")
    presence._look_for_reason()
    operator().post(PAGE, {"answer": "copy", "reason": "a rehearsal"})
    assert guard.halt_reason() is None and not Job.objects.filter(stopped_at=None).exists()


@pytest.mark.django_db
def test_an_answer_without_a_question_does_nothing() -> None:
    for verb in (answering.go_on, answering.stop_copy):
        with pytest.raises(holding.NotHeld):
            verb(Actor("ann"), "why")


@pytest.mark.django_db
def test_a_takeover_while_calls_are_held_is_still_asked_about(written_elsewhere: None) -> None:
    factories.campaign_with_job(2, status="DISPATCHED")
    presence._look_for_reason()
    held: dict[str, Any] = Store.objects.get().held
    Store.objects.update(held={**held, "timeline": "0000FFFF"})
    answering.go_on(Actor("ann"), "moved")
    assert guard.halt_reason() == guard.TAKEN_OVER


@pytest.mark.django_db(transaction=True)
def test_a_process_that_began_without_postgresql_asks_with_its_first_session(
    written_elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    factories.campaign_with_job(2, status="DISPATCHED")
    monkeypatch.setattr(guard, "ask_first", presence._ask_first)
    connection.close()
    assert Job.objects.count() == 1
    assert guard.ask_first is None and guard.halt_reason() == guard.HELD
