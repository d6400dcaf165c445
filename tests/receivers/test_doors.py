"""How operators see receivers that wait, and end a wait."""

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
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
