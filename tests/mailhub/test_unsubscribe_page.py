"""The page on which recipients unsubscribe, and the one-click request of their provider (RFC 8058)."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from campaigns.doors import token_keys
from campaigns.doors.front import rate_limits
from campaigns.engine.suppressed import digests
from campaigns.models import Campaign, Message, Sponsor, Suppression, Topic
from campaigns.suppression import links
from campaigns.suppression.pages import unsubscribe
from campaigns.suppression.pages.phrases import LANGUAGES, choose_phrases
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)
ONE_CLICK = {"List-Unsubscribe": "One-Click"}


@pytest.fixture(autouse=True)
def public(settings: Any) -> None:
    settings.PUBLIC_URL = "https://testserver"
    settings.ALLOWED_HOSTS = ["testserver"]
    token_keys.known.forget_value()
    digests.known.forget_value()


@pytest.fixture
def web() -> Client:
    return Client(enforce_csrf_checks=True)


def path(topic: str = "", language: str = "", name: str = "") -> str:
    """The link of a stored message, as a path."""
    sponsor = Sponsor.objects.create(name=name or factories.unique("sponsor"), language=language)
    made = factories.campaign(1, of=factories.credential(factories.vendor(channel="email")), by=sponsor)
    if topic:
        made.topic = Topic.objects.create(sponsor=sponsor, name="offers", title=topic)
        made.save()
    message = Message.objects.get(campaign=made)
    known = links.links_of(Campaign.objects.get(pk=made.pk), "email", {"headers"}, links.link_keys())
    assert known
    return known.url(message.pk, message.recipient).removeprefix("https://testserver")


def held() -> list[tuple[str, str | None]]:
    rows = Suppression.objects.filter(until=None).order_by("id")
    return [(row.source.partition(",")[0], row.topic and row.topic.name) for row in rows]


def buttons(page: Any) -> list[str]:
    return re.findall(r'name="what" value="(\w+)"', page.content.decode())


def test_looking_changes_nothing_and_there_is_no_cookie(web: Client) -> None:
    where = path()
    for answer in (web.get(where), web.head(where)):
        assert answer.status_code == 200 and not answer.cookies and not held()
        assert answer.headers["Cache-Control"] == "no-store" and answer.headers["Referrer-Policy"] == "no-referrer"
        assert "Cookie" not in answer.headers["Vary"]
    assert web.put(where).status_code == 405


def test_one_click_unsubscribes_at_once_without_a_redirect_and_again_changes_nothing(web: Client) -> None:
    where = path()
    for form in (ONE_CLICK, ONE_CLICK, {}):
        answer = web.post(where, form)  # multipart/form-data
        assert (answer.status_code, held()) == (200, [("one-click", None)]) and not answer.cookies
    assert Suppression.objects.count() == 1
    encoded = web.post(path(), "List-Unsubscribe=One-Click", content_type="application/x-www-form-urlencoded")
    assert encoded.status_code == 200 and len(held()) == 2


def test_one_click_in_a_mail_about_a_topic_unsubscribes_from_the_topic_alone(web: Client) -> None:
    web.post(path("Weekly offers"), ONE_CLICK)
    assert held() == [("one-click", "offers")]


def test_the_page_offers_the_topic_or_everything_and_to_subscribe_again(web: Client) -> None:
    where = path("Weekly offers")
    assert buttons(web.get(where)) == ["topic", "all"]
    assert buttons(web.post(where, {"what": "topic"})) == ["all", "again"]
    assert held() == [("link", "offers")]
    assert buttons(web.post(where, {"what": "all"})) == ["again"]
    assert held() == [("link", "offers"), ("link", None)]
    assert buttons(web.post(where, {"what": "again"})) == ["topic", "all"]
    assert held() == []
    assert buttons(web.get(path())) == ["all"]
    assert web.post(where, {"what": "else"}).status_code == 400 and held() == []


@pytest.mark.parametrize("how", [ONE_CLICK, {"what": "topic"}])
def test_who_was_left_out_until_a_day_and_unsubscribes_is_so_for_good(web: Client, how: dict[str, str]) -> None:
    where = path("Weekly offers")
    web.post(where, {"what": "topic"})
    Suppression.objects.update(until=timezone.now() + timedelta(days=1))
    assert buttons(web.get(where)) == ["topic", "all", "again"]
    assert buttons(web.post(where, how)) == ["all", "again"]
    assert held() == [("link", "offers")]


def test_a_link_without_a_topic_leaves_what_was_decided_about_topics(web: Client) -> None:
    where = path("Weekly offers")
    web.post(where, {"what": "topic"})
    other = Campaign.objects.get()
    Campaign.objects.update(topic=None)
    keys = links.links_of(Campaign.objects.get(pk=other.pk), "email", {"headers"}, links.link_keys())
    assert keys
    message = Message.objects.get()
    plain = keys.url(message.pk, message.recipient).removeprefix("https://testserver")
    assert buttons(web.get(plain)) == ["all"]
    web.post(plain, {"what": "again"})
    assert held() == [("link", "offers")]
    assert buttons(web.post(plain, {"what": "all"})) == ["again"]
    assert buttons(web.post(plain, {"what": "again"})) == ["all"] and held() == [("link", "offers")]


def test_a_link_whose_topic_is_gone_is_about_everything_and_one_without_a_sponsor_is_wrong(web: Client) -> None:
    where = path("Weekly offers")
    Campaign.objects.update(topic=None)
    Topic.objects.all().delete()
    assert buttons(web.get(where)) == ["all"]
    assert web.post(where, ONE_CLICK).status_code == 200 and held() == [("one-click", None)]
    assert buttons(web.post(where, {"what": "again"})) == ["all"]
    message, sponsor = Message.objects.get(), Sponsor.objects.create(name="Gone")
    gone = links.links_of(Campaign(sponsor=sponsor), "email", {"headers"}, links.link_keys())
    assert gone
    sponsor.delete()
    where = gone.url(message.pk, message.recipient).removeprefix("https://testserver")
    assert web.get(where).status_code == 404 == web.post(where, ONE_CLICK).status_code and held() == []


def test_what_names_say_is_escaped(web: Client) -> None:
    text = web.get(path("<b>Offers</b>", name="<script>alert(1)</script>")).content.decode()
    assert "<script>" not in text and "<b>" not in text and "&lt;b&gt;Offers" in text


def test_the_language_is_the_sponsors_else_the_browsers_else_english(web: Client) -> None:
    chosen = web.get(path(language="de"), headers={"accept-language": "fr"})
    assert '<html lang="de">' in chosen.content.decode() and "Abmelden" in chosen.content.decode()
    assert chosen.headers["Content-Language"] == "de"
    where = path()
    for accepted, language in (("fr-CH, en;q=0.5", "fr"), ("xx, it;q=0.2", "it"), ("", "en"), ("*;q=x" * 500, "en")):
        assert web.get(where, headers={"accept-language": accepted}).headers["Content-Language"] == language


def test_each_language_that_a_sponsor_can_choose_has_all_phrases() -> None:
    assert sorted(LANGUAGES) == [name for name, _ in Sponsor.LANGUAGES]
    for language, said in LANGUAGES.items():
        for name in said.__slots__:
            assert getattr(said, name).format(sponsor="S", topic="T"), (language, name)
        assert choose_phrases(language, "") == (language, said)


def test_a_wrong_link_is_told_and_one_with_a_sign_behind_it_is_understood(web: Client) -> None:
    where = path()
    for wrong in ("/unsubscribe/x", where[:-1], where + "A"):
        assert web.get(wrong).status_code == 404 and web.post(wrong, ONE_CLICK).status_code == 404
    assert web.get("/unsubscribe/preview").status_code == 200 == web.post("/unsubscribe/preview", ONE_CLICK).status_code
    assert held() == []
    assert web.post(where + ").", ONE_CLICK).status_code == 200 and len(held()) == 1


def test_one_recipient_subscribes_again_only_so_often(web: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsubscribe, "UNDONE", 1)
    where = path()
    web.post(where, {"what": "all"})
    assert web.post(where, {"what": "again"}).status_code == 200 and not held()
    web.post(where, {"what": "all"})
    refused = web.post(where, {"what": "again"})
    assert (refused.status_code, refused.headers["Retry-After"], len(held())) == (503, "60", 1)


def test_without_redis_everybody_can_unsubscribe(web: Client, settings: Any) -> None:
    where = path()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    rate_limits._make_limiter.cache_clear()
    assert web.post(where, ONE_CLICK).status_code == 200 and len(held()) == 1
    rate_limits._make_limiter.cache_clear()
