"""How operators see receivers that wait, and end a wait."""

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from tests import factories
from vendors import deferrals
from vendors.models import Credential, ReceiverLimit, ReceiverWait, Vendor

pytestmark = pytest.mark.django_db


def waiting(login: Credential, receiver: str = "gmail", **fields: Any) -> ReceiverWait:
    now = timezone.now()
    row = {"since": now, "until": now + timedelta(minutes=5), "seconds": 300.0, "cause": "us", "answer": "slow down"}
    return ReceiverWait.objects.create(credential=login, receiver=receiver, **{**row, **fields})


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("receiver", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_lists_who_waits_and_why() -> None:
    login = factories.credential()
    waiting(login)
    waiting(factories.credential(), "yahoo")
    [row] = json.loads("[" + said("list", login.vendor.slug, "--json").strip().replace("\n", ",") + "]")
    assert (row["vendor"], row["receiver"], row["answer"]) == (login.vendor.slug, "gmail", "slow down")
    assert "yahoo" in said("list") and "gmail" in said("list")


def test_a_wait_that_a_person_ends_is_in_the_history() -> None:
    login = factories.credential()
    waiting(login)
    assert "did not wait" in said("resume", login.vendor.slug, "yahoo")
    assert login.name in said("resume", login.vendor.slug, "gmail")
    assert not ReceiverWait.objects.exists()
    assert "the wait of gmail ended" in LogEntry.objects.latest("id").change_message


def test_a_wait_is_told_in_a_sentence() -> None:
    login, now = factories.credential(), timezone.now()
    wait = waiting(login, until=now + timedelta(minutes=5))
    at = f"{timezone.localtime(wait.until):%H:%M}"
    assert deferrals.describe_wait(wait, now) == f"gmail waits until {at}: it asked us to slow down"
    assert "one mail at a time" in deferrals.describe_wait(wait, now + timedelta(minutes=6))
    assert deferrals.receiver_waits([login.pk]) == [wait]


def limit_of(slug: str, *arguments: str) -> Any:
    return json.loads(said("limit", slug, *arguments, "--json"))


def test_limits_of_a_receiver_are_set_shown_and_kept_in_the_history() -> None:
    login = factories.credential()
    slug, before = login.vendor.slug, login.vendor
    assert "no limit" in said("limit", slug, "gmail")
    assert "changed: 4 at a time, 100 per 60 s" in said("limit", slug, "gmail", "100/60", "--at-a-time", "4")
    after = Vendor.objects.get(pk=before.pk)
    assert after.limits_version > before.limits_version, "in force from the next call"
    assert "limits of gmail: no limit → 4 at a time, 100 per 60 s" in LogEntry.objects.latest("id").change_message
    entries = LogEntry.objects.count()
    assert "already so" in said("limit", slug, "gmail", "100/60", "--at-a-time", "4")
    assert LogEntry.objects.count() == entries
    assert Vendor.objects.get(pk=before.pk).limits_version == after.limits_version
    facts = limit_of(slug, "gmail", "50/60", "--at-a-time", "4")
    assert facts["changed"] and [one["units"] for one in facts["limits"]] == [4, 50]
    assert "no limit" in said("limit", slug, "gmail", "--clear")
    assert Vendor.objects.get(pk=before.pk).limits_version > after.limits_version + 1


def test_a_warm_up_is_told_for_today_and_tomorrow_and_goes_on_when_it_is_asked_for_again() -> None:
    slug = factories.credential().vendor.slug
    assert "today 2,000 per day, tomorrow 3,000 per day" in said("limit", slug, "outlook", "--warm-up", "2000")
    ReceiverLimit.objects.update(grows_from=timezone.localdate() - timedelta(days=2))
    assert "already so: today 4,500 per day, tomorrow 6,750 per day" in said(
        "limit", slug, "outlook", "--warm-up", "2000"
    )
    [limit] = limit_of(slug, "outlook")["limits"]
    assert (limit["units"], limit["today"], limit["tomorrow"]) == (2000, 4500, 6750)
    assert "tomorrow 6,750 per day" in said("limits", slug) and "outlook" in said("limits")


REFUSED = (
    (("gmial", "5/60"), "There is no receiver gmial"),
    (("gmail", "5/86400", "--warm-up", "5"), "have the same window"),
    (("gmail", "--warm-up", "5", "--growth", "0.5"), "growth"),
    (("gmail", "--at-a-time", "-1"), "units"),
    (("gmail", "5/60", "--clear"), "not both"),
    (("gmail", "5/60", "--credential", "none"), "has no credential"),
)


@pytest.mark.parametrize(("given", "why"), REFUSED)
def test_what_holds_nothing_back_is_refused_in_a_sentence(given: tuple[str, ...], why: str) -> None:
    slug = factories.credential().vendor.slug
    with pytest.raises(CommandError, match=why):
        said("limit", slug, *given)
    assert not ReceiverLimit.objects.exists()


def test_limits_need_mail_and_count_units_where_letters_differ_in_size() -> None:
    sms = factories.credential(factories.vendor(channel="sms")).vendor
    with pytest.raises(CommandError, match="sends no e-mail"):
        said("limit", sms.slug, "gmail", "5/60")
    settings = {"host": "127.0.0.1", "port": 25, "tls": "none", "sender": "us@example.org", "unit_kb": 100}
    by_size = factories.credential(factories.vendor(adapter="smtp", channel="email", settings=settings)).vendor
    assert "5 per 60 s" in said("limit", by_size.slug, "gmail", "5/60")
