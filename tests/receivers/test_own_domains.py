"""Domains that operators put into groups win over the table, in each process and before the next claim."""

import json
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.utils import timezone

from tests import factories
from vendors import receiver_domains
from vendors.history import Actor
from vendors.models import ReceiverDomain, ReceiverLimit, Usage, Vendor
from vendors.receivers import OTHERS, group_of, known_groups, waiting_part

pytestmark = pytest.mark.django_db
ANN = Actor("ann")


@pytest.fixture
def admin_user(db: None) -> User:
    """Without a password: hashing one takes longer than a test."""
    return User.objects.create(username="admin", is_staff=True, is_superuser=True)


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("receiver", *arguments, stdout=out)
    return out.getvalue()


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
    other = factories.credential(factories.vendor(channel="email"))
    ReceiverLimit.objects.create(vendor=login.vendor, receiver="gmail", units=5, seconds=60)
    now = timezone.now()
    of: dict[str, Any] = {"at": now, "until": now, "units": 3, "receivers": {"gmail": 1, "yahoo": 1}}
    counted, elsewhere = (Usage.objects.create(vendor=one.vendor, credential=one, **of) for one in (login, other))
    versions = dict(Vendor.objects.values_list("pk", "limits_version"))
    said("add", "firm.example", "gmail")
    assert all(version > versions[pk] for pk, version in Vendor.objects.values_list("pk", "limits_version"))
    counted.refresh_from_db()
    elsewhere.refresh_from_db()
    assert counted.receivers == {"yahoo": 1}, "a row that does not name the group counts whole"
    assert elsewhere.receivers == {"gmail": 1, "yahoo": 1}, "nobody limits gmail there"


def test_a_limit_of_a_group_of_ones_own() -> None:
    slug = factories.credential(factories.vendor(channel="email")).vendor.slug
    with pytest.raises(CommandError, match="There is no receiver firm"):
        said("limit", slug, "firm", "5/60")
    said("add", "branch.example", "firm")
    assert "5 per 60 s" in said("limit", slug, "firm", "5/60")


def test_the_admin_adds_changes_and_removes_them(admin_client: Client) -> None:
    at = "/admin/vendors/receiverdomain/"
    assert "is no domain" in admin_client.post(f"{at}add/", {"domain": "x", "receiver": "gmail"}).content.decode()
    assert admin_client.post(f"{at}add/", {"domain": "Firm.example", "receiver": "gmail"}).status_code == 302
    row = ReceiverDomain.objects.get()
    assert (row.domain, group_of("firm.example")) == ("firm.example", "gmail")
    again = admin_client.post(f"{at}add/", {"domain": "firm.example", "receiver": "yahoo"}).content.decode()
    assert "already exists" in again
    admin_client.post(f"{at}{row.pk}/change/", {"receiver": "yahoo"})
    assert group_of("firm.example") == "yahoo"
    assert LogEntry.objects.latest("id").change_message == "firm.example: gmail → yahoo"
    admin_client.post(f"{at}{row.pk}/delete/", {"post": "yes"})
    assert group_of("firm.example") == OTHERS and not ReceiverDomain.objects.exists()
