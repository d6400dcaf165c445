"""Sender identities of SMS: a sender id, or a pool of numbers of which each recipient always sees the same one."""

import asyncio
import io
import json
import threading
from collections import Counter
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from campaigns.doors.front.vendor_cache import vendor_cache
from campaigns.engine.connections import open_connection
from campaigns.engine.doubts import queries
from campaigns.engine.ports import NotEntitled
from campaigns.models import Campaign, Identity
from campaigns.models.identities import NumberPool
from campaigns.senders import entitlements
from tests import factories as make
from tests.described.servers import ACCOUNT, TOKEN, Twilio
from tests.faults.checker import sums
from tests.faults.sending import send_the_rest, taken
from tests.front.program import Program, api_vendor, fresh, letter, pointers

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
RECIPIENTS = [f"+44770090{number:04}" for number in range(2000)]
NUMBERS = [f"+1500555000{number}" for number in range(5)]


def command(*arguments: str) -> str:
    out = io.StringIO()
    call_command("identity", *arguments, stdout=out)
    return out.getvalue()


def facts(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command(*arguments, "--json"))
    return found


class TestPool:
    def seen(self, numbers: list[str]) -> dict[str, str]:
        pool = NumberPool(numbers)
        return {one: pool.of(one).address for one in RECIPIENTS}

    def test_a_recipient_sees_one_number_and_all_numbers_are_used_alike(self) -> None:
        assert self.seen(NUMBERS) == self.seen(NUMBERS[::-1])
        shares = Counter(self.seen(NUMBERS).values())
        assert len(shares) == 5 and all(300 < count < 500 for count in shares.values()), shares

    def test_a_new_number_moves_only_recipients_that_are_its_own_then(self) -> None:
        before, after = self.seen(NUMBERS[:4]), self.seen(NUMBERS)
        moved = [one for one in RECIPIENTS if before[one] != after[one]]
        assert 300 < len(moved) < 500 and {after[one] for one in moved} == {NUMBERS[4]}

    def test_a_number_that_goes_leaves_the_others_theirs(self) -> None:
        before, after = self.seen(NUMBERS), self.seen(NUMBERS[1:])
        assert {before[one] for one in RECIPIENTS if before[one] != after[one]} == {NUMBERS[0]}


class TestCommand:
    def test_a_sender_id_and_a_pool_each_default_of_their_channel(self) -> None:
        make.sponsor("Velma")
        command("add", "Velma", "mail", "--from", "post@velma.example")
        call_command("sponsor", "set", "Velma", "--region", "GB", stdout=io.StringIO())
        first = facts("add", "Velma", "brand", "--sender-id", "Velma & Co")
        assert (first["channel"], first["from"], first["default"]) == ("sms", "Velma & Co", True)
        pool = ("--number", "07700 900123", "--number", "+44 7700 900124")
        second = facts("add", "Velma", "pool", *pool)
        assert (second["from"], second["default"]) == ("+447700900123, +447700900124", False)
        assert command("add", "Velma", "pool", *pool) == "Velma/pool: already there\n"
        assert facts("set", "Velma", "pool", "--default")["default"] is True
        found = Identity.objects.filter(default=True).values_list("channel", "name")
        assert sorted(found) == [("email", "mail"), ("sms", "pool")]
        assert facts("set", "Velma", "pool", "--number", "07700 900125")["from"] == "+447700900125"
        assert facts("set", "Velma", "pool", "--sender-id", "Velma")["from"] == "Velma"

    @pytest.mark.parametrize(
        ("typed", "sentence"),
        [
            (["--sender-id", "123456"], "not digits alone"),
            (["--sender-id", "+44 77009"], "not digits alone"),
            (["--sender-id", "Twelve chars"], "at most 11 characters"),
            (["--sender-id", "Велма"], "1 to 11 characters of the alphabet of SMS"),
            (["--sender-id", " Velma"], "no blank at its ends"),
            (["--number", "07700 900123"], "is not a phone number"),
            (["--number", "+447700900123", "--reply-to", "a@b.example"], "reply_to: is for e-mail"),
            (["--from", "a@b.example", "--sender-id", "Velma"], "say --from for e-mail, or"),
            ([], "say --from for e-mail, or"),
        ],
    )
    def test_what_is_wrong_is_told(self, typed: list[str], sentence: str) -> None:
        make.sponsor("Velma")
        with pytest.raises(CommandError, match=sentence):
            command("add", "Velma", "sms", *typed)
        assert not Identity.objects.exists()

    def test_a_number_is_of_one_identity_alone(self) -> None:
        make.sponsor("Velma"), make.sponsor("Bob")
        command("add", "Velma", "sms", "--number", NUMBERS[0])
        with pytest.raises(CommandError, match="another identity's"):
            command("add", "Bob", "sms", "--number", NUMBERS[1], "--number", NUMBERS[0])
        command("add", "Bob", "sms", "--number", NUMBERS[1])
        with pytest.raises(CommandError, match="another identity's"):
            command("set", "Bob", "sms", "--number", NUMBERS[0])

    def test_the_dns_is_not_asked_about_it(self) -> None:
        make.sponsor("Velma")
        command("add", "Velma", "sms", "--sender-id", "Velma")
        with pytest.raises(CommandError, match="is for SMS"):
            call_command("doctor", "--identity", "Velma/sms")


@pytest.mark.django_db(transaction=True)
def test_of_two_who_take_a_number_at_once_one_gets_it() -> None:
    make.sponsor("Velma"), make.sponsor("Bob")
    faults: list[str] = []
    ready = threading.Barrier(2)

    def add(sponsor: str) -> None:
        ready.wait()
        try:
            command("add", sponsor, "sms", "--number", NUMBERS[0])
        except CommandError as error:
            faults.append(str(error))
        finally:
            connection.close()

    both = [threading.Thread(target=add, args=[name]) for name in ("Velma", "Bob")]
    [one.start() for one in both]
    [one.join() for one in both]
    assert Identity.objects.count() == 1 and len(faults) == 1 and "another identity's" in faults[0]


class TestPage:
    def test_one_is_made_and_its_channel_stays(self, client: Client) -> None:
        client.force_login(User.objects.create(username="admin", is_staff=True, is_superuser=True))
        sponsor = make.sponsor("Velma")
        form = {"sponsor": sponsor.pk, "name": "sms", "channel": "sms", "numbers": "+44 7700 900123,+447700900124"}
        assert client.post("/admin/campaigns/identity/add/", {**form, "enabled": "on"}).status_code == 302
        row = Identity.objects.get()
        assert row.numbers == ["+447700900123", "+447700900124"] and row.channel == "sms"
        there = f"/admin/campaigns/identity/{row.pk}/change/"
        client.post(there, {**form, "channel": "email", "numbers": "+447700900125", "enabled": "on"})
        row.refresh_from_db()
        assert (row.channel, row.numbers) == ("sms", ["+447700900125"])
        other = {**form, "name": "two", "numbers": "+447700900125", "enabled": "on"}
        assert b"is another identity&#x27;s" in client.post("/admin/campaigns/identity/add/", other).content


class TestChoice:
    def test_a_campaign_gets_the_identity_of_its_channel(self) -> None:
        sponsor, sms, print_ = make.sponsor(), make.vendor(channel="sms"), make.vendor(channel="print")
        Identity.objects.create(sponsor=sponsor, name="mail", from_address="a@b.example", default=True)
        pool = Identity.objects.create(sponsor=sponsor, name="pool", channel="sms", numbers=NUMBERS, default=True)
        assert entitlements.choose_identity_for(sponsor, sms) == pool
        with pytest.raises(NotEntitled, match="no sender identity 'mail' for sms that is enabled; there are: pool"):
            entitlements.choose_identity_for(sponsor, sms, "mail")
        with pytest.raises(NotEntitled, match="is for e-mail or SMS"):
            entitlements.choose_identity_for(sponsor, print_, "pool")

    def test_a_program_sees_and_names_it(self) -> None:
        program, vendor = Program(), api_vendor(channel="sms")
        Identity.objects.create(sponsor=program.sponsor, name="brand", channel="sms", sender_id="Velma")
        Identity.objects.create(sponsor=program.sponsor, name="mail", from_address="a@b.example", default=True)
        vendor_cache.forget_vendors()
        listed = {one["name"]: (one["channel"], one["senders"]) for one in program.get("identities").json()["data"]}
        assert listed == {"brand": ("sms", ["Velma"]), "mail": ("email", [])}
        assert program.send(letter(vendor, "+447700900123", identity="brand")).status_code == 202
        assert Campaign.objects.get().identity == Identity.objects.get(name="brand")
        answer = program.send(letter(vendor, "+447700900123", identity="mail"))
        assert pointers(answer) == {"/identity": "identity"}


@pytest.mark.django_db(transaction=True)
def test_each_sms_goes_out_from_the_number_that_its_recipient_knows() -> None:
    to = RECIPIENTS[:40]
    with Twilio() as vendor:
        settings = {"description": "twilio", "server": vendor.url, "account": ACCOUNT, "from": "+15005559999"}
        row = make.vendor(adapter="described", channel="sms", settings=settings)
        job = taken(to, make.credential(row, secret={"auth_token": TOKEN}))
        numbers = NUMBERS[:3]
        job.campaign.identity = Identity.objects.create(
            sponsor=job.sponsor, name="pool", channel="sms", numbers=numbers
        )
        job.campaign.save()
        send_the_rest(job)
        assert sums() == {"accepted": 40}
        called = [parse_qs(call.body.decode()) for call in vendor.calls]
    pool = NumberPool(numbers)
    assert {one["To"][0]: one["From"][0] for one in called} == {one: pool.of(one).address for one in to}
    assert {one["From"][0] for one in called} == set(numbers)


@pytest.mark.django_db(transaction=True)
def test_a_repeat_of_a_doubt_comes_from_the_same_number() -> None:
    identity = Identity.objects.create(sponsor=make.sponsor(), name="pool", channel="sms", numbers=NUMBERS)

    async def read() -> Identity:
        async with await open_connection() as rows:
            return await queries._load_origin(rows, identity.pk)

    found = asyncio.run(read())
    assert [found.origin_for(one) for one in RECIPIENTS[:9]] == [identity.origin_for(one) for one in RECIPIENTS[:9]]
