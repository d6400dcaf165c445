"""What recipients write to our numbers: STOP suppresses before the answer, START lifts that, HELP is answered."""

import io
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client
from django.utils import timezone
from twilio.request_validator import RequestValidator

from campaigns.audience import inbound
from campaigns.integrations.api.receipts import known_vendors
from campaigns.models import Campaign, Entitlement, Identity, InboundMessage, Job, Message, Suppression
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from tests import factories
from tests.described.servers import ACCOUNT, TOKEN, Twilio
from tests.described.test_descriptions import GOOD, faults
from tests.described.test_reports import REPORTS
from tests.faults.sending import sent, take_again
from tests.front.program import Program, api_vendor, fresh, letter, pointers, problem
from vendors import report_keys
from vendors.adapters.reports import InboundText, ReportRequest, ReportSource
from vendors.described.adapter import Described
from vendors.models import Vendor

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
OTHER_TEXTS = ["İPTAL", "रोको", "توقف", "停止"]
OURS, THEIRS = "+15005550001", "+447700900123"


@pytest.fixture
def twilio() -> Any:
    return api_vendor(adapter="described", channel="sms", settings={"description": "twilio", "account": ACCOUNT})


@pytest.fixture
def velma(twilio: Any) -> Identity:
    twilio.credentials.all().delete()
    factories.credential(twilio, "default", secret={"auth_token": TOKEN})
    sponsor = factories.sponsor("Velma")
    factories.entitle([sponsor], [twilio])
    return Identity.objects.create(
        sponsor=sponsor,
        name="pool",
        channel="sms",
        numbers=[OURS],
        stop_texts=["Hör auf", *OTHER_TEXTS],
        help_answer="Velma {{ 1 }}",
    )


def post(vendor: Any, text: str, id: str = "SM1", to: str = OURS, token: str = TOKEN, **more: str) -> Any:
    """As Twilio hands a message on, signed by its own library."""
    where = f"/api/v1/inbound/{vendor.slug}"
    fields = {"MessageSid": id, "SmsStatus": "received", "From": THEIRS, "To": to, "Body": text, **more}
    signature = RequestValidator(token).compute_signature(f"http://testserver{where}", fields)
    form = "application/x-www-form-urlencoded"
    return Client().post(where, urlencode(fields), form, headers={"X-Twilio-Signature": signature})


def held() -> list[tuple[str | None, str | None]]:
    rows = Suppression.objects.filter(until=None).order_by("id")
    return [(row.sponsor.name if row.sponsor else None, row.address) for row in rows]


class TestStop:
    @pytest.mark.parametrize(
        "text",
        [
            "STOP",
            " stop.",
            "StopAll",
            "Stop\nall",
            "UNSUBSCRIBE",
            "END",
            "quit!",
            "ARRÊT",
            "arre\u0302t",
            "hör  auf",
            "\uff33\uff34\uff2f\uff30",
            "\u200bSto\u00adp",
            "🛑 STOP 🛑",
            "«Opt-Out»",
            *OTHER_TEXTS,
        ],
    )
    def test_it_suppresses_before_the_answer(self, twilio: Any, velma: Identity, text: str) -> None:
        answer = post(twilio, text)
        assert (answer.status_code, answer.content) == (204, b"")
        assert held() == [("Velma", THEIRS)]
        row = Suppression.objects.get()
        assert (row.reason, row.channel, row.source) == ("stop", "sms", f"inbound, {twilio.slug}: {OURS}")

    @pytest.mark.parametrize("sender", [THEIRS[1:], f"00{THEIRS[1:]}", f" {THEIRS} ", f"tel:{THEIRS}"])
    def test_it_suppresses_the_sender_in_any_spelling(self, twilio: Any, velma: Identity, sender: str) -> None:
        assert post(twilio, "STOP", From=sender).status_code == 204
        assert held() == [("Velma", THEIRS)]

    def test_it_suppresses_a_sender_told_with_the_0_of_our_numbers_country(self, twilio: Any, velma: Identity) -> None:
        assert post(twilio, "STOP", From=f"0{THEIRS[3:]}", to="+447700900999").status_code == 204
        assert held() == [("Velma", THEIRS)]

    @pytest.mark.parametrize("sender", ["12345", "00", "0", "MAILHUB", "000171"])
    def test_a_sender_that_is_no_number_is_kept_as_it_is(self, twilio: Any, velma: Identity, sender: str) -> None:
        assert post(twilio, "hello", From=sender).status_code == 204
        assert InboundMessage.objects.get().sender == sender

    @pytest.mark.parametrize("text", ["Stop it", "I cannot stop", "", "stops", "🛑", "...", "s t o p", "停"])
    def test_other_texts_are_kept_and_do_nothing(self, twilio: Any, velma: Identity, text: str) -> None:
        assert post(twilio, text).status_code == 204
        assert held() == [] and InboundMessage.objects.get().text == text

    def test_who_is_no_vendor_stops_nobody(self, twilio: Any, velma: Identity) -> None:
        problem(post(twilio, "STOP", token="other"), "not-the-vendor", 401)
        problem(Client().post("/api/v1/inbound/nobody", "{}", "application/json"), "not-the-vendor", 401)
        http = api_vendor()
        problem(Client().post(f"/api/v1/inbound/{http.slug}", "{}", "application/json"), "not-the-vendor", 401)
        assert held() == [] and not InboundMessage.objects.exists()

    def test_a_repeat_after_a_start_stops_nobody_again(self, twilio: Any, velma: Identity) -> None:
        post(twilio, "STOP", "SM1"), post(twilio, "START", "SM2")
        assert held() == []
        assert post(twilio, "STOP", "SM1").status_code == 204
        assert held() == [] and InboundMessage.objects.count() == 2

    def test_another_sponsor_goes_on(self, twilio: Any, velma: Identity) -> None:
        other = Program()
        factories.entitle([other.sponsor], [twilio])
        post(twilio, "STOP")
        other.send(letter(twilio, THEIRS))
        assert Message.objects.get().error_code is None
        mine = Program(velma.sponsor)
        mine.send(letter(twilio, "+44 7700 900 123"))
        assert Message.objects.latest("id").error_code == "suppressed"

    def test_a_number_of_no_identity_stops_all_who_may_use_the_vendor(self, twilio: Any, velma: Identity) -> None:
        other = factories.sponsor("Bob")
        factories.entitle([other], [twilio])
        factories.sponsor("Stranger").entitlements.all().delete()
        post(twilio, "STOP", to="+15005559999")
        assert sorted(held()) == [("Bob", THEIRS), ("Velma", THEIRS)]

    def test_a_number_of_another_sponsor_stops_that_one_alone(self, twilio: Any, velma: Identity) -> None:
        """Also over a vendor that its sponsor may not use any more; there it stops the others, too."""
        bob = factories.sponsor("Bob")
        factories.entitle([bob], [twilio])
        Identity.objects.create(sponsor=bob, name="pool", channel="sms", numbers=["+15005550002"])
        post(twilio, "STOP", "SM1", to="+15005550002")
        assert held() == [("Bob", THEIRS)]
        velma.sponsor.entitlements.all().delete()
        post(twilio, "STOP", "SM2")
        assert held() == [("Bob", THEIRS), ("Velma", THEIRS)]
        assert InboundMessage.objects.get(name="SM2").sponsor is None

    def test_who_signs_for_one_account_speaks_for_no_sponsor_of_another(self, twilio: Any, velma: Identity) -> None:
        """Bob may use an account of his own alone, and knows its token."""
        theirs, own = twilio.credentials.get(), factories.credential(twilio, "bob", secret={"auth_token": "bobs"})
        velma.sponsor.entitlements.update(credential=theirs)
        bob = factories.sponsor("Bob")
        Entitlement.objects.create(sponsor=bob, vendor=twilio, credential=own)
        known_vendors.forget_all()
        for number, text in enumerate(("STOP", "HELP", "hello")):
            assert post(twilio, text, f"SM{number}", token="bobs").status_code == 204
        assert held() == [("Bob", THEIRS)] and not Campaign.objects.exists()
        assert {row.sponsor for row in InboundMessage.objects.all()} == {None}, "Velma reads none of it"
        post(twilio, "STOP", "SM8")
        post(twilio, "START", "SM9", token="bobs")
        assert ("Velma", THEIRS) in held(), "and nobody lifts her STOP"
        factories.campaign([THEIRS], of=theirs, by=velma.sponsor)
        velma.sponsor.entitlements.all().delete()
        lists.lift_suppressions(list(Suppression.objects.values_list("pk", flat=True)))
        post(twilio, "STOP", "SM10")
        assert ("Velma", THEIRS) in held(), "her own account's STOP, although she may not use it any more"

    @pytest.mark.django_db(transaction=True)
    def test_a_campaign_that_is_dispatched_sends_it_nothing(self, twilio: Any, velma: Identity) -> None:
        with Twilio() as server:
            Vendor.objects.update(settings={"description": "twilio", "account": ACCOUNT, "server": server.url})
            campaign = factories.campaign([THEIRS, "+447700900124"], of=twilio.credentials.get(), by=velma.sponsor)
            Campaign.objects.update(identity=velma)
            job = take_again(factories.job(campaign, "DISPATCHED"))
            known_vendors.forget_all()
            post(twilio, "STOP")
            assert (sent(job).accepted, job.refresh_from_db(), job.suppressed) == (1, None, 1)
            assert len(server.books) == 1


NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)


def written(vendor: Any, *texts: tuple[str, int]) -> None:
    """Each with the second at which it was written, in the order in which they come."""
    some = [InboundText(factories.unique("SM"), THEIRS, OURS, text, NOON + timedelta(seconds=at)) for text, at in texts]
    assert inbound.store_texts(vendor.pk, some).new == len(texts)


class TestOutOfOrder:
    @pytest.mark.parametrize(
        ("texts", "stopped"),
        [
            ([("STOP", 1), ("START", 2)], False),
            ([("START", 2), ("STOP", 1)], False),
            ([("START", 1), ("STOP", 2)], True),
            ([("STOP", 2), ("START", 1)], True),
            ([("STOP", 1), ("START", 1)], True),
            ([("START", 1), ("STOP", 1)], True),
            ([("STOP", 3), ("START", 2), ("STOP", 1)], True),
            ([("START", 3), ("STOP", 2), ("START", 1)], False),
        ],
    )
    def test_what_was_written_last_holds(self, twilio: Any, velma: Identity, texts: Any, stopped: bool) -> None:
        written(twilio, *texts)
        assert held() == ([("Velma", THEIRS)] if stopped else [])

    def test_a_late_start_lifts_no_newer_stop_that_a_vendor_has_told_otherwise(
        self, twilio: Any, velma: Identity
    ) -> None:
        lists.add_suppressions(velma.sponsor_id, "sms", [NewSuppression(THEIRS, "stop", "refused")])
        written(twilio, ("START", 1))
        assert held() == [("Velma", THEIRS)]

    def test_a_time_in_the_future_is_now(self, twilio: Any, velma: Identity) -> None:
        inbound.store_texts(twilio.pk, [InboundText("SM1", THEIRS, OURS, "STOP", timezone.now() + timedelta(days=9))])
        post(twilio, "START", "SM2")
        assert held() == []

    def test_a_time_of_any_offset_is_stored_in_utc(self, twilio: Any, velma: Identity) -> None:
        """An adapter gives it as its vendor writes it; PostgreSQL refuses an offset of 16 hours."""
        at = datetime.fromisoformat("2026-03-01T12:00:00+16:00")
        assert inbound.store_texts(twilio.pk, [InboundText("SM1", THEIRS, OURS, "STOP", at)]).new == 1
        assert InboundMessage.objects.get().written_at == at and held() == [("Velma", THEIRS)]

    def test_a_description_says_where_the_time_is(self) -> None:
        keys = 'id = "i"\nfrom = "f"\nto = "t"\ntext = "x"\ntime = ["at", "other"]\n'
        source = GOOD + REPORTS.replace("SCHEME", "header") + f"[inbound]\n{keys}"
        event = {"i": 1, "f": THEIRS, "t": OURS, "x": "STOP", "other": "2026-11-02T12:00:00Z"}
        body = json.dumps({"events": [event]}).encode()
        request = ReportRequest("POST", "https://mail.example.com/r", {"x-token": "key"}, body)
        [one] = Described.read_inbound(request, ReportSource({"description": source}, ["key"]))
        assert (one.vendor_id, one.at) == ("1", NOON)

    def test_a_message_that_cannot_be_read_keeps_no_other_ones_stop_from_us(self, velma: Identity) -> None:
        keys = 'id = "i"\nfrom = "f"\nto = "t"\ntext = "x"\ntime = ["at"]\n'
        source = GOOD + REPORTS.replace("SCHEME", "header") + f"[inbound]\n{keys}"
        vendor = api_vendor(adapter="described", channel="sms", settings={"description": source})
        factories.entitle([velma.sponsor], [vendor])
        report_keys.enter_key(vendor, "key", timezone.now())
        known_vendors.forget_all()
        stop = {"i": 1, "f": THEIRS, "t": OURS, "x": "STOP"}
        bad: list[dict[str, Any]] = [{**stop, "i": None}, {**stop, "i": 2, "at": "soon"}]

        def handed_on(*events: dict[str, Any]) -> Any:
            body, where = json.dumps({"events": events}), f"/api/v1/inbound/{vendor.slug}"
            return Client().post(where, body, content_type="application/json", headers={"X-Token": "key"})

        assert handed_on(bad[0], stop, bad[1]).status_code == 204
        assert held() == [("Velma", THEIRS)] and InboundMessage.objects.count() == 1
        assert list(pointers(handed_on(*bad))) == ["/0", "/1"]


class TestStart:
    def test_it_lifts_only_what_a_stop_has_made(self, twilio: Any, velma: Identity) -> None:
        lists.add_suppressions(
            velma.sponsor_id, "sms", [NewSuppression(THEIRS, "by_hand"), NewSuppression(THEIRS, "stop")]
        )
        lists.add_suppressions(None, "sms", [NewSuppression(THEIRS, "stop")])
        post(twilio, "Unstop")
        left = Suppression.objects.filter(until=None).values_list("sponsor__name", "reason")
        assert sorted(left, key=str) == sorted([("Velma", "by_hand"), (None, "stop")], key=str)

    def test_to_a_number_of_nobody_it_lifts_what_was_stopped_by_that_number(self, twilio: Any, velma: Identity) -> None:
        bob = factories.sponsor("Bob")
        factories.entitle([bob], [twilio])
        post(twilio, "STOP", "SM1"), post(twilio, "STOP", "SM2", to="+15005559999")
        post(twilio, "START", "SM3", to="+15005559999")
        assert held() == [("Velma", THEIRS)]


class TestHelp:
    def test_it_is_answered_once_by_a_campaign_of_its_own(self, twilio: Any, velma: Identity) -> None:
        for _ in range(2):
            assert post(twilio, "help", "SM1").status_code == 204
        campaign = Campaign.objects.get()
        assert (campaign.identity, campaign.body) == (velma, "{% raw %}Velma {{ 1 }}{% endraw %}")
        assert Message.objects.get().recipient == THEIRS
        assert Job.objects.get().status in ("DISPATCHED", "ENQUEUED")
        assert InboundMessage.objects.get().answer == campaign

    def test_two_machines_do_not_answer_each_other(self, twilio: Any, velma: Identity) -> None:
        post(twilio, "INFO", "SM1"), post(twilio, "INFO", "SM2")
        assert Campaign.objects.count() == 1
        InboundMessage.objects.update(stored_at=timezone.now() - timedelta(hours=2))
        post(twilio, "INFO", "SM3")
        assert Campaign.objects.count() == 2

    def test_without_a_text_or_an_entitlement_nothing_is_sent(self, twilio: Any, velma: Identity) -> None:
        velma.sponsor.entitlements.all().delete()
        assert post(twilio, "HELP", "SM1").status_code == 204
        Identity.objects.update(help_answer="")
        assert post(twilio, "HELP", "SM2").status_code == 204
        assert not Campaign.objects.exists() and InboundMessage.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_ten_deliveries_of_a_message_at_once_are_one(twilio: Any, velma: Identity) -> None:
    assert together(lambda number: post(twilio, "HELP")) == [204] * 10
    assert InboundMessage.objects.count() == Campaign.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_ten_messages_of_one_sender_at_once_are_answered_once(twilio: Any, velma: Identity) -> None:
    assert together(lambda number: post(twilio, "HELP", f"SM{number}")) == [204] * 10
    assert (InboundMessage.objects.count(), Campaign.objects.count()) == (10, 1)


def together(verb: Callable[[int], Any]) -> list[int]:
    """The answers to ten requests that are made at once."""
    answers: list[int] = []
    ready = threading.Barrier(10)

    def ask(number: int) -> None:
        ready.wait()
        try:
            answers.append(verb(number).status_code)
        finally:
            connection.close()

    all_of_them = [threading.Thread(target=ask, args=[number]) for number in range(10)]
    [one.start() for one in all_of_them]
    [one.join() for one in all_of_them]
    return answers


class TestShown:
    def test_to_its_own_sponsor_page_by_page_with_the_number_masked(self, twilio: Any, velma: Identity) -> None:
        for number in range(3):
            post(twilio, f"text {number}", f"SM{number}")
        mine = Program(velma.sponsor)
        first = mine.get("inbound?limit=2").json()
        second = mine.get(first["links"]["next"]).json()
        assert [one["text"] for one in first["data"] + second["data"]] == ["text 2", "text 1", "text 0"]
        assert first["data"][0]["sender"] == "+…" and second["links"]["next"] is None
        assert Program().get("inbound").json()["data"] == []
        problem(Program(velma.sponsor, "test").get("inbound"), "forbidden", 403)

    def test_by_the_command(self, twilio: Any, velma: Identity) -> None:
        post(twilio, "STOP", "SM1"), post(twilio, "Hello", "SM2")
        out = io.StringIO()
        call_command("inbound", sponsor="Velma", does="stop", json=True, stdout=out)
        [row] = [json.loads(line) for line in out.getvalue().splitlines()]
        assert (row["from"], row["to"], row["does"], row["identity"]) == (THEIRS, OURS, "stop", "pool")

    def test_on_the_page_without_number_and_text_for_who_may_not_see_recipients(
        self, twilio: Any, velma: Identity, client: Client
    ) -> None:
        post(twilio, "My address is 5 Elm Street")
        for role, sees in (("viewer", False), ("operator", True)):
            user = User.objects.create(username=role, is_staff=True)
            user.groups.set(Group.objects.filter(name=role))
            velma.sponsor.users.add(user)
            client.force_login(user)
            page = client.get("/admin/campaigns/inboundmessage/").content.decode()
            assert OURS in page
            assert (THEIRS in page, "Elm Street" in page) == (sees, sees)


def test_it_is_kept_for_event_days(twilio: Any, velma: Identity, settings: Any) -> None:
    post(twilio, "one", "SM1"), post(twilio, "two", "SM2")
    settings.EVENTS_KEPT = timedelta(days=100)
    InboundMessage.objects.filter(name="SM1").update(stored_at=timezone.now() - timedelta(days=101))
    assert inbound.delete_old_texts() == 1
    assert InboundMessage.objects.get().name == "SM2"


def test_what_an_identity_may_have_of_words_is_bounded(velma: Identity) -> None:
    for wrong in (["--help-answer", "{% endraw %}{{ 1 }}"], ["--stop-word", "x" * 41], ["--stop-word", "x"] * 51):
        with pytest.raises(CommandError):
            call_command("identity", "set", "Velma", "pool", *wrong, stdout=io.StringIO())


def test_an_identity_has_texts_of_its_own_by_the_command(velma: Identity) -> None:
    given = ["--stop-word", "Alto", "--stop-word", "Baja", "--help-word", "Hilfe", "--help-answer", "Velma, 0800 1"]
    call_command("identity", "set", "Velma", "pool", *given, stdout=io.StringIO())
    velma.refresh_from_db()
    assert (velma.stop_texts, velma.help_texts, velma.help_answer) == (["Alto", "Baja"], ["Hilfe"], "Velma, 0800 1")
    assert inbound.command_of("BAJA.", velma) == "stop" and inbound.command_of("hilfe", velma) == "help"
    assert inbound.command_of("schluss jetzt", None) == ""


def test_a_description_needs_the_proof_of_its_reports() -> None:
    more = '[inbound]\nid = "a"\nfrom = "b"\nto = "c"\ntext = "d"\n'
    assert "whose signature proves it" in faults(GOOD + more)["inbound"][1]
