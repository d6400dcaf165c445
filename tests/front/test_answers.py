"""Recipients' answers by SMS at every door: the API, the owners' page and the admin, each for its sponsor alone."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from campaigns.integrations.webhooks import events
from campaigns.models import Identity, RecipientAnswer, Suppression, WebhookCall
from tests import factories
from tests.front.program import Program, fresh, problem
from tests.front.test_inbound import THEIRS, held, post, twilio, velma

__all__ = ["fresh", "twilio", "velma"]
pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("text", ["stop please", "remove me", "unsub", "alto", "STOP\nSent from my iPhone"])
def test_a_sure_one_acts_at_once(twilio: Any, velma: Identity, text: str) -> None:
    assert post(twilio, text).status_code == 204
    assert held() == [("Velma", THEIRS)] and not RecipientAnswer.objects.exists()


def test_a_near_one_and_an_unknown_one_stand_in_the_inbox_and_stop_nobody(twilio: Any, velma: Identity) -> None:
    post(twilio, "I said stop it!!", "SM1"), post(twilio, "See you at five", "SM2"), post(twilio, "HELP", "SM3")
    post(twilio, "I said stop it!!", "SM1")
    rows = list(
        RecipientAnswer.objects.order_by("pk").values_list("text", "near", "sender", "sponsor__name", "outcome")
    )
    assert rows == [("I said stop it!!", True, THEIRS, "Velma", ""), ("See you at five", False, THEIRS, "Velma", "")]
    assert held() == []


def test_a_word_of_the_identity_counts_before_ours(twilio: Any, velma: Identity) -> None:
    Identity.objects.filter(pk=velma.pk).update(start_texts=["alto"])
    post(twilio, "Alto!")
    assert held() == [] and not RecipientAnswer.objects.exists()


def test_an_answer_to_a_number_of_nobody_is_for_those_who_see_all(twilio: Any, velma: Identity) -> None:
    other = factories.sponsor("Bob")
    factories.entitle([other], [twilio])
    post(twilio, "I said stop it", to="+15005559999")
    row = RecipientAnswer.objects.get()
    assert row.sponsor is None and sorted(row.concerned) == sorted([velma.sponsor_id, other.pk])


def test_a_program_hears_of_it(twilio: Any, velma: Identity) -> None:
    events.create_webhook(velma.sponsor, "https://receiver.example/", ["answer.received"], test=False)
    post(twilio, "STOP", "SM1"), post(twilio, "Hello", "SM2")
    assert [call.kind for call in WebhookCall.objects.all()] == ["answer.received"] * 2


class TestApi:
    def test_a_program_reads_and_decides_what_its_sponsor_got(self, twilio: Any, velma: Identity) -> None:
        for number in range(3):
            post(twilio, f"Why? {number}", f"SM{number}")
        mine, other = Program(velma.sponsor), Program()
        page = mine.get("answers?limit=2").json()
        assert [row["text"] for row in page["data"]] == ["Why? 0", "Why? 1"]
        assert [row["text"] for row in mine.get(page["links"]["next"]).json()["data"]] == ["Why? 2"]
        first, second = page["data"]
        assert (first["sender"], first["outcome"], first["near"], first["message_id"]) == ("+…", "unread", False, None)
        assert other.get("answers").json()["data"] == []
        problem(other.post(f"answers/{first['id']}/stop"), "not-found", 404)
        assert mine.post(f"answers/{first['id']}/stop").json() == {"changed": True, "outcome": "stop"}
        assert mine.post(f"answers/{first['id']}/stop").json() == {"changed": False, "outcome": "stop"}
        assert mine.post(f"answers/{second['id']}/read").json() == {"changed": True, "outcome": "read"}
        assert held() == [("Velma", THEIRS)]
        assert [row["text"] for row in mine.get("answers").json()["data"]] == ["Why? 2"]
        assert len(mine.get("answers?outcome=all").json()["data"]) == 3
        assert Suppression.objects.get().source.endswith(f"by {mine.key.prefix}")

    def test_after_start_it_is_no_stop_any_more(self, twilio: Any, velma: Identity) -> None:
        post(twilio, "I said stop it", "SM1"), post(twilio, "START", "SM2")
        mine = Program(velma.sponsor)
        [row] = mine.get("answers").json()["data"]
        problem(mine.post(f"answers/{row['id']}/stop"), "state-conflict", 409)
        assert held() == []

    def test_a_test_key_and_a_key_without_the_scope_are_refused(self, twilio: Any, velma: Identity) -> None:
        post(twilio, "Why?")
        problem(Program(velma.sponsor, kind="test").get("answers"), "forbidden", 403)
        [row] = Program(velma.sponsor).get("answers").json()["data"]
        problem(Program(velma.sponsor, scopes=("read",)).post(f"answers/{row['id']}/stop"), "forbidden", 403)


def somebody(name: str, sponsor: Any, *groups: str, staff: bool = False) -> User:
    user = User.objects.create(username=name, is_staff=staff)
    user.groups.set(Group.objects.filter(name__in=groups))
    sponsor.users.add(user)
    return user


class TestPages:
    def test_an_owner_treats_one_as_a_stop_and_the_second_press_is_told(
        self, twilio: Any, velma: Identity, client: Client
    ) -> None:
        post(twilio, "I said stop it", "SM1"), post(twilio, "See you at five", "SM2")
        first, second = RecipientAnswer.objects.order_by("pk")
        client.force_login(somebody("ann", velma.sponsor, "campaign owner"))
        assert 'Answers <b class="count">2</b>' in client.get("/").content.decode()
        page = client.get("/answers/").content.decode()
        assert page.index("I said stop it") < page.index("See you at five") and "Perhaps a stop" in page
        assert "Nothing more is sent there." in client.post(f"/answers/{first.pk}/stop/", follow=True).content.decode()
        assert "ann has decided" in client.post(f"/answers/{first.pk}/stop/", follow=True).content.decode()
        client.post(f"/answers/{second.pk}/read/")
        assert held() == [("Velma", THEIRS)]
        assert "Nothing is unread" in client.get("/answers/").content.decode()
        assert "I said stop it" in client.get("/answers/?state=stop").content.decode()
        assert client.post(f"/answers/{first.pk}/burn/").status_code == 404

    def test_another_sponsors_owner_sees_and_decides_nothing(
        self, twilio: Any, velma: Identity, client: Client
    ) -> None:
        post(twilio, "I said stop it")
        client.force_login(somebody("bob", factories.sponsor(), "campaign owner"))
        assert "stop it" not in client.get("/answers/").content.decode()
        assert client.post(f"/answers/{RecipientAnswer.objects.get().pk}/stop/").status_code == 404
        assert held() == []

    def test_who_may_not_see_recipients_sees_neither_number_nor_text(
        self, twilio: Any, velma: Identity, client: Client
    ) -> None:
        post(twilio, "I said stop it")
        user = somebody("vera", velma.sponsor, "viewer", staff=True)
        client.force_login(user)
        for path in ("/answers/", "/admin/campaigns/recipientanswer/"):
            page = client.get(path).content.decode()
            assert THEIRS not in page and "stop it" not in page
        assert client.post(f"/answers/{RecipientAnswer.objects.get().pk}/stop/").status_code == 403

    def test_an_operator_decides_in_the_admin(self, twilio: Any, velma: Identity, client: Client) -> None:
        post(twilio, "I said stop it", "SM1"), post(twilio, "Hello", "SM2")
        first, second = RecipientAnswer.objects.order_by("pk")
        client.force_login(somebody("olga", velma.sponsor, "operator", staff=True))
        where = "/admin/campaigns/recipientanswer/"
        assert THEIRS in client.get(where).content.decode()
        for action, row in (("treat_as_stop", first), ("mark_read", second)):
            page = client.post(where, {"action": action, "_selected_action": row.pk}, follow=True).content.decode()
            assert "1 decided." in page
        assert held() == [("Velma", THEIRS)]
        assert set(RecipientAnswer.objects.values_list("outcome", flat=True)) == {"stop", "read"}
