"""Domains that operators put into groups win over the table, in each process and before the next claim."""

import json
import threading
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, transaction
from django.test import Client, TestCase
from django.utils import timezone

from campaigns.engine.claiming.rebuild import read_receiver_ledger
from tests import factories
from tests.lock_waits import count_lock_waits
from tests.receivers.test_admin import URL, at_vendor, rows
from tests.vendors.test_admin import form
from tests.waiting import wait_until
from vendors import receiver_domains
from vendors.history import Actor
from vendors.models import Credential, ReceiverDomain, ReceiverLimit, Usage, Vendor
from vendors.receivers import OTHERS, group_of, known_groups, replace_own_domains, waiting_part

pytestmark = pytest.mark.django_db
ANN = Actor("ann")


@pytest.fixture
def admin_user(db: None) -> User:
    """Without a password: hashing one takes longer than a test."""
    return User.objects.create(username="admin", is_staff=True, is_superuser=True)


def said(*arguments: str) -> str:
    """Run the command as if its transaction were committed. Returns its lines, also those of warning."""
    out = StringIO()
    with TestCase.captureOnCommitCallbacks(execute=True):
        call_command("receiver", *arguments, stdout=out, stderr=out)
    return out.getvalue()


def counted(login: Credential, receiver: str) -> list[int]:
    """Return the units that a rebuilt window of the receiver would hold, call by call."""
    return sorted(units for _, _, units in read_receiver_ledger(login.vendor_id, receiver, 86_400, 1_000))


def test_a_row_wins_over_the_table_until_it_is_removed() -> None:
    assert "now gmail" in said("add", "Firm.Example.", "gmail")
    assert group_of("ann.firm.example") == OTHERS and group_of("FIRM.example") == "gmail"
    assert "firm.example" in known_groups()["gmail"] and waiting_part("firm.example") == "gmail"
    assert "already gmail" in said("add", "firm.example", "gmail")
    said("add", "googlemail.com", OTHERS)
    assert waiting_part("googlemail.com") == "googlemail.com" and "googlemail.com" not in known_groups()["gmail"]
    said("add", "branch.example", "firm")
    assert known_groups()["firm"] == ("branch.example",)
    listed = [json.loads(line) for line in said("domains", "gmail", "--json").splitlines()]
    assert {"domain": "firm.example", "receiver": "gmail", "source": "own"} in listed
    assert {"domain": "gmail.com", "receiver": "gmail", "source": "table"} in listed
    assert "its group is gmail" in said("remove", "googlemail.com") and group_of("googlemail.com") == "gmail"
    assert "no row of its own" in said("remove", "googlemail.com")
    about = [entry.change_message for entry in LogEntry.objects.order_by("id")]
    assert about[0].startswith("firm.example: * → gmail") and about[-1].startswith("googlemail.com: * → gmail")
    assert len(about) == 4, "what changes nothing is in no history"


@pytest.mark.parametrize(
    ("domain", "group", "why"),
    [
        ("no domain", "gmail", "is no domain"),
        ("example", "gmail", "is no domain"),
        ("a@b.example", "gmail", "is no domain"),
        ("x" * 300 + ".example", "gmail", "is no domain"),
        ("firm.example", "Gmail!", "no name of a group"),
        ("firm.example", "g" * 41, "no name of a group"),
    ],
)
def test_what_is_no_domain_or_group_is_refused(domain: str, group: str, why: str) -> None:
    with pytest.raises(CommandError, match=why):
        said("add", domain, group)
    assert not ReceiverDomain.objects.exists()


def test_the_number_of_rows_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_domains, "MOST_DOMAINS", 1)
    said("add", "firm.example", "gmail")
    with pytest.raises(CommandError, match="1 domains already"):
        said("add", "other.example", "gmail")
    said("add", "firm.example", "yahoo")


def test_a_process_reads_the_rows_again_after_some_seconds_and_no_more_often(
    django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ReceiverDomain.objects.create(domain="firm.example", receiver="gmail")
    monkeypatch.setattr(receiver_domains, "_read_at", None)
    with django_assert_num_queries(1):
        for _ in range(3):
            receiver_domains.refresh_domains()
            assert group_of("firm.example") == "gmail"


def test_no_claim_is_made_under_other_domains_and_calls_of_before_count_in_the_group_that_gains_one() -> None:
    login = factories.credential(factories.vendor(channel="email"))
    now = timezone.now()
    of: dict[str, Any] = {"vendor": login.vendor, "credential": login, "at": now, "until": now}
    Usage.objects.create(**of, units=3, receivers={"gmail": 1, "yahoo": 1})
    assert counted(login, "gmail") == counted(login, "yahoo") == [1]
    version = Vendor.objects.get().limits_version
    said("add", "firm.example", "gmail")
    assert Vendor.objects.get().limits_version > version
    Usage.objects.create(**of, units=5, receivers={"gmail": 2, "yahoo": 2})
    assert counted(login, "gmail") == [2, 3], "a row of before counts whole, also in limits that are made later"
    assert counted(login, "yahoo") == [1, 2]
    said("remove", "firm.example")
    Usage.objects.create(**of, units=7, receivers={OTHERS: 4})
    assert counted(login, OTHERS) == [3, 4, 5], "the domain is back among all others"


@pytest.mark.django_db(transaction=True)
def test_two_people_who_add_one_domain_at_once_wait_for_each_other() -> None:
    results: list[Any] = []

    def add(group: str) -> None:
        try:
            results.append(receiver_domains.put_domain("firm.example", group, ANN))
        except Exception as error:
            results.append(error)
        finally:
            connection.close()

    adders = [threading.Thread(target=add, args=["gmail"]) for _ in range(2)]
    with transaction.atomic():
        receiver_domains.put_domain("firm.example", "yahoo", ANN)
        for one in adders:
            one.start()
        wait_until(lambda: count_lock_waits() == 2, "both wait")
        assert group_of("firm.example") == OTHERS, "no process may know a row that may not be stored"
    for one in adders:
        one.join()
    assert sorted(results) == [False, True] and group_of("firm.example") == "gmail"


def test_a_change_that_is_rolled_back_is_known_to_nobody() -> None:
    with transaction.atomic():
        receiver_domains.put_domain("firm.example", "gmail", ANN)
        transaction.set_rollback(True)
    assert not ReceiverDomain.objects.exists() and group_of("firm.example") == OTHERS


def test_a_limit_of_a_group_of_ones_own() -> None:
    slug = factories.credential(factories.vendor(channel="email")).vendor.slug
    with pytest.raises(CommandError, match="There is no receiver firm"):
        said("limit", slug, "firm", "5/60")
    said("add", "branch.example", "firm")
    assert "5 per 60 s" in said("limit", slug, "firm", "5/60")
    assert "no domain any more" not in said("add", "office.example", "firm")
    said("remove", "office.example")
    assert "firm has no domain any more, so its limits hold nothing back" in said("remove", "branch.example")
    with pytest.raises(CommandError, match="There is no receiver firm"):
        said("limit", slug, "firm", "6/60")
    assert "changed: no limit" in said("limit", slug, "firm", "--clear")


@pytest.mark.parametrize("left", ["known", "gone", "not read yet"])
def test_the_page_of_a_vendor_is_saved_whatever_became_of_a_group(admin_client: Client, left: str) -> None:
    login = factories.credential(factories.vendor(channel="email", settings=URL))
    said("add", "firm.example", "firm")
    said("limit", login.vendor.slug, "firm", "5/60")
    limit = ReceiverLimit.objects.get()
    if left == "gone":
        said("remove", "firm.example")
    if left == "not read yet":
        replace_own_domains({})
    typed = {"id": limit.pk, "receiver": "firm", "units": 7}
    assert 'value="firm" selected' in admin_client.get(at_vendor(login.vendor)).content.decode()
    answer = admin_client.post(at_vendor(login.vendor), form(**rows(typed)))
    assert answer.status_code == 302, answer.context["errors"]
    assert ReceiverLimit.objects.get().units == 7


def test_the_admin_adds_changes_and_removes_them(admin_client: Client) -> None:
    def post(page: str, **typed: str) -> Any:
        with TestCase.captureOnCommitCallbacks(execute=True):
            return admin_client.post(page, typed, follow=True)

    login = factories.credential(factories.vendor(channel="email"))
    at = "/admin/vendors/receiverdomain/"
    assert "is no domain" in admin_client.post(f"{at}add/", {"domain": "x", "receiver": "gmail"}).content.decode()
    assert "success" in post(f"{at}add/", domain="Firm.example", receiver="gmail").content.decode()
    row = ReceiverDomain.objects.get()
    assert (row.domain, group_of("firm.example")) == ("firm.example", "gmail")
    again = admin_client.post(f"{at}add/", {"domain": "firm.example", "receiver": "yahoo"}).content.decode()
    assert "already exists" in again
    post(f"{at}{row.pk}/change/", receiver="yahoo")
    assert group_of("firm.example") == "yahoo"
    assert LogEntry.objects.latest("id").change_message == "firm.example: gmail → yahoo"
    post(f"{at}{row.pk}/change/", receiver="firm")
    ReceiverLimit.objects.create(vendor=login.vendor, receiver="firm", units=5, seconds=60)
    assert "firm has no domain any more" in post(f"{at}{row.pk}/delete/", post="yes").content.decode()
    assert group_of("firm.example") == OTHERS and not ReceiverDomain.objects.exists()
