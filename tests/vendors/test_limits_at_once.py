"""Two people store a limit at the same moment: both pages answer, and the limits of both are there."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client

from tests import factories
from tests.lock_waits import count_lock_waits
from tests.receivers.test_admin import rows
from tests.vendors.test_admin import form, login_form
from tests.waiting import result_of, wait_until
from vendors import configuration, locks, receiver_limits
from vendors.history import Actor
from vendors.models import Credential, RateLimit, ReceiverLimit, Vendor

pytestmark = pytest.mark.django_db(transaction=True)
ANN = Actor("ann")


@pytest.fixture
def login() -> Credential:
    return factories.credential(factories.vendor("v", settings={"url": "http://127.0.0.1:1/letters"}), "login")


@pytest.fixture
def bob() -> Client:
    client = Client()
    client.force_login(User.objects.create(username="bob", is_staff=True, is_superuser=True))
    return client


def posted_while(ann: Callable[[], Any], of: Vendor, post: Callable[[], Any]) -> Any:
    """Return Bob's answer. He posts while Ann's transaction is open, and waits for her."""

    def in_thread() -> Any:
        try:
            return post()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            locks.lock_vendor(of.pk)
            ann()
            answer = pool.submit(in_thread)
            wait_until(lambda: count_lock_waits() or answer.done(), "Bob waits for Ann")
            assert not answer.done()
        return result_of(answer, "Bob's page")


def gmail(units: int, seconds: float = 60) -> ReceiverLimit:
    return ReceiverLimit(units=units, seconds=seconds)


@pytest.mark.parametrize("at", ["vendor", "credential"])
def test_the_same_limit_of_a_receiver_is_there_once(login: Credential, bob: Client, at: str) -> None:
    of, own = login.vendor, login if at == "credential" else None
    page = f"/admin/vendors/{at}/{login.pk if own else of.pk}/change/"
    fields = (login_form if own else form)(**rows({"units": 100}))
    answer = posted_while(
        lambda: receiver_limits.change_receiver_limits(of, own, "gmail", [gmail(100)], ANN),
        of,
        lambda: bob.post(page, fields),
    )
    assert answer.status_code == 302
    assert list(ReceiverLimit.objects.values_list("credential", "receiver", "units")) == [
        (own and own.pk, "gmail", 100)
    ]
    said = [entry.get_change_message() for entry in LogEntry.objects.all()]
    assert len([one for one in said if "limits of gmail" in one]) == 1, "only Ann has changed something"


def test_another_limit_of_the_same_receiver_stays(login: Credential, bob: Client) -> None:
    of = login.vendor
    answer = posted_while(
        lambda: receiver_limits.change_receiver_limits(of, None, "gmail", [gmail(9, 1)], ANN),
        of,
        lambda: bob.post(f"/admin/vendors/vendor/{of.pk}/change/", form(**rows({"units": 100}))),
    )
    assert answer.status_code == 302
    assert set(ReceiverLimit.objects.values_list("units", "seconds")) == {(9, 1.0), (100, 60.0)}


def test_the_same_rate_limit_is_there_once(login: Credential, bob: Client) -> None:
    of = login.vendor
    limit = {"limits-TOTAL_FORMS": 1, "limits-0-units": 5, "limits-0-seconds": 60}
    answer = posted_while(
        lambda: configuration.replace_rate_limits(of, None, [(5, 60), (9, 1)]),
        of,
        lambda: bob.post(f"/admin/vendors/vendor/{of.pk}/change/", form(**limit)),
    )
    assert answer.status_code == 302
    assert set(RateLimit.objects.values_list("units", "seconds")) == {(5, 60.0), (9, 1.0)}


def test_the_same_row_of_any_other_table_is_told(login: Credential, bob: Client) -> None:
    of = login.vendor
    caster = {"name": "MC1", "kind": "large-priority", "min_size": 2000, "max_size": 10_000, "percentage": 3}
    typed = {f"mailcasters-0-{name}": value for name, value in caster.items()} | {"mailcasters-TOTAL_FORMS": 1}
    answer = posted_while(
        lambda: factories.caster(of, "MC1"),
        of,
        lambda: bob.post(f"/admin/vendors/vendor/{of.pk}/change/", form(**typed), follow=True),
    )
    assert "somebody else has stored the same" in answer.content.decode()
    assert of.mailcasters.count() == 1
