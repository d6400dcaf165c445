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
from vendors.models import Credential, ReceiverWait

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


def test_limits_of_a_receiver_are_set_shown_and_kept_in_the_history() -> None:
    login = factories.credential()
    slug, version = login.vendor.slug, login.vendor.limits_version
    assert "no limit" in said("limit", slug, "gmail")
    assert "100/60 s" in said("limit", slug, "gmail", "100/60", "--at-a-time", "4", "--warm-up", "500")
    login.vendor.refresh_from_db()
    assert login.vendor.limits_version > version, "in force from the next call"
    assert "500/86400 s on 2" in said("limit", slug, "gmail") and "4 at a time" in said("limit", slug, "gmail")
    assert "limits of gmail: no limit" in LogEntry.objects.latest("id").change_message
    assert "no limit" in said("limit", slug, "gmail", "--clear")
    with pytest.raises(CommandError, match="there is no group 'gmial'"):
        said("limit", slug, "gmial", "5/60")
