"""Recipients unsubscribe: what links say, whom they suppress, and what letters carry."""

import base64
from datetime import timedelta
from io import StringIO
from typing import Any, get_args
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from campaigns import tasks
from campaigns.content import return_paths
from campaigns.doors import token_keys
from campaigns.engine.claiming import letters
from campaigns.engine.claiming.letters import ClaimedMessage, Lease
from campaigns.engine.suppressed import digests
from campaigns.engine.suppressed.recent import Asker, KeptSuppression
from campaigns.lists import intake
from campaigns.models import Campaign, Identity, Job, Message, Sponsor, Suppression, Topic
from campaigns.senders import entitlements
from campaigns.suppression import links, lists, unsubscribing
from campaigns.suppression.comparing import end_suppressed
from campaigns.suppression.lists import NewSuppression
from tests import factories
from vendors.adapters import mime
from vendors.models import Vendor

pytestmark = pytest.mark.django_db(transaction=True)
BASE = "https://mail.example.org"


@pytest.fixture(autouse=True)
def public(settings: Any) -> None:
    settings.PUBLIC_URL = BASE
    forget()


def forget() -> None:
    token_keys.known.forget_value()
    digests.known.forget_value()


def job(recipients: int = 2, sponsor: Sponsor | None = None, **fields: Any) -> Job:
    """A job over a relay, of a campaign with these fields."""
    relay = factories.vendor(adapter="smtp", channel="email", settings={"host": "127.0.0.1", "port": 9, "tls": "none"})
    made = factories.campaign_with_job(recipients, of=factories.credential(relay), by=sponsor)
    Campaign.objects.filter(pk=made.campaign_id).update(**fields)
    return Job.objects.select_related("campaign", "vendor").get(pk=made.pk)


def made(of: Job) -> letters.LeasedJob:
    return letters.load_leased_job(Lease(of.pk, of.fence))


def first_letter(of: Job) -> Any:
    message = Message.objects.get(pk=of.first_message)
    return made(of).letter(ClaimedMessage(message.pk, message.reference, message.recipient, message.params))


def token(of: Job) -> str:
    [address, *_] = [value for name, value in first_letter(of).headers if name == "List-Unsubscribe"]
    return address.removeprefix(f"<{BASE}/unsubscribe/").removesuffix(">")


def about(of: Job) -> links.Subscription:
    found = links.read_link(token(of))
    assert found
    return found


def topic(of: Sponsor, name: str = "offers") -> Topic:
    return Topic.objects.create(sponsor=of, name=name, title="Weekly offers")


def suppressed(of: Job) -> list[str | None]:
    """Ends of the job's messages, as the import decides."""
    Message.objects.filter(campaign=of.campaign_id).update(dequeued_at=None, error_code=None, error_sub_type=None)
    end_suppressed(of)
    return list(Message.objects.filter(campaign=of.campaign_id).order_by("id").values_list("error_code", flat=True))


class TestTokens:
    def test_a_token_says_nothing_of_its_recipient_and_only_we_read_it(self) -> None:
        one = job()
        found, plain = about(one), Message.objects.get(pk=one.first_message)
        assert (found.message_id, found.sponsor_id, found.channel) == (plain.pk, one.sponsor_id, "email")
        sealed = base64.urlsafe_b64decode(token(one) + "==")
        assert plain.pk.to_bytes(8) not in sealed and found.digest.to_bytes(8, signed=True) not in sealed
        assert len(token(one)) == links.SIZE and token(one) == token(one)

    def test_each_channel_has_a_number_that_links_keep(self) -> None:
        assert {"print": 0, "email": 1, "sms": 2}.items() <= links.NUMBERS.items()
        assert set(links.NUMBERS) == set(Vendor.Channel.values)
        assert len(links.CHANNELS) == len(links.NUMBERS)

    def test_the_key_of_links_is_that_of_no_address(self) -> None:
        purposes = {links.PURPOSE, *get_args(return_paths.Purpose)}
        assert len({token_keys.keys_for_purpose(purpose)[0] for purpose in purposes}) == 3

    def test_a_changed_or_foreign_token_is_none(self) -> None:
        good = token(job())
        for place in (0, 30, 64):
            other = "A" if good[place] != "A" else "B"
            assert links.read_link(good[:place] + other + good[place + 1 :]) is None
        assert [links.read_link(one) for one in ("", good[:-1], good + "A", "é" * 66, "=" * 66, "/" * 66)] == [None] * 6

    def test_it_holds_after_a_new_key_and_after_a_change_of_the_secret_key(self, settings: Any) -> None:
        one = job()
        old = token(one)
        before = links.read_link(old)
        token_keys.add_key()
        forget()
        assert token(one) != old and links.read_link(old) == before
        settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another one", [settings.SECRET_KEY]
        call_command("rotate_keys")
        settings.SECRET_KEY_FALLBACKS = []
        forget()
        assert links.read_link(old) == before

    def test_it_holds_when_its_message_is_gone_and_its_address_erased(self) -> None:
        one = job()
        of = about(one)
        address = Message.objects.get(pk=of.message_id).recipient
        Message.objects.all().delete()
        assert unsubscribing.unsubscribe_link(of, "link")
        row = Suppression.objects.get()
        assert (row.address, row.source, row.reason) == (None, "link", "unsubscribed")
        assert lists.ids_of_addresses("email", [address.upper()], one.sponsor_id) == [row.pk]


class TestUnsubscribing:
    def test_who_unsubscribes_gets_nothing_more_of_the_sponsor_and_others_go_on(self) -> None:
        one = job()
        assert unsubscribing.unsubscribe_link(about(one), "one-click") is True
        assert unsubscribing.unsubscribe_link(about(one), "one-click") is False
        row = Suppression.objects.get()
        assert row.source == f"one-click, campaign {one.campaign_id}" and row.address
        assert suppressed(one) == ["suppressed", None]
        other = factories.campaign_with_job(1, of=one.credential)
        Message.objects.filter(campaign=other.campaign_id).update(recipient=row.address)
        assert suppressed(Job.objects.get(pk=other.pk)) == [None]

    def test_from_a_topic_only_its_campaigns_are_suppressed(self) -> None:
        one = job()
        offers, news = topic(one.sponsor), topic(one.sponsor, "news")
        Campaign.objects.update(topic=offers)
        one.refresh_from_db()
        unsubscribing.unsubscribe_link(about(one), "link")
        assert Suppression.objects.get().topic == offers
        assert suppressed(one) == ["suppressed", None]
        for other in (news, None):
            Campaign.objects.update(topic=other)
            assert suppressed(Job.objects.select_related("campaign", "vendor").get(pk=one.pk)) == [None, None]

    def test_from_everything_all_bulk_mail_is_suppressed_and_transactional_mail_is_not(self) -> None:
        one = job()
        Campaign.objects.update(topic=topic(one.sponsor))
        one.refresh_from_db()
        unsubscribing.unsubscribe_link(about(one), "link", everything=True)
        for fields in ({"topic": topic(one.sponsor, "news")}, {"topic": None}):
            Campaign.objects.update(**fields)
            assert suppressed(Job.objects.select_related("campaign", "vendor").get(pk=one.pk)) == ["suppressed", None]
        Campaign.objects.update(topic=None, transactional=True)
        assert suppressed(Job.objects.select_related("campaign", "vendor").get(pk=one.pk)) == [None, None]
        lists.add_suppressions(
            one.sponsor_id, "email", [NewSuppression(Message.objects.first().recipient, "complained")]
        )  # type: ignore[union-attr]
        assert suppressed(Job.objects.select_related("campaign", "vendor").get(pk=one.pk)) == ["suppressed", None]

    @pytest.mark.parametrize(
        ("topic_id", "transactional", "kept_topic", "reason", "heeds"),
        [
            (None, False, None, "unsubscribed", True),
            (7, False, None, "unsubscribed", True),
            (7, False, 7, "unsubscribed", True),
            (7, False, 8, "unsubscribed", False),
            (None, False, 8, "unsubscribed", False),
            (None, True, None, "unsubscribed", False),
            (None, True, None, "bounced", True),
            (None, True, None, "stop", True),
        ],
    )
    def test_a_sender_heeds_what_the_import_would(
        self, topic_id: int | None, transactional: bool, kept_topic: int | None, reason: str, heeds: bool
    ) -> None:
        asker = Asker(1, "email", 5, topic_id, transactional)
        kept = KeptSuppression(6, 1, kept_topic, reason, None)
        assert asker.is_suppressed_by(kept, timezone.now()) is heeds
        assert not asker.is_suppressed_by(kept._replace(position=5), timezone.now())
        assert not asker.is_suppressed_by(kept._replace(until=timezone.now() - timedelta(seconds=1)), timezone.now())

    def test_who_subscribes_again_is_written_to_again_but_not_after_a_bounce(self) -> None:
        one = job()
        unsubscribing.unsubscribe_link(about(one), "link")
        assert unsubscribing.subscribe_again(about(one)) == 1 and unsubscribing.subscribe_again(about(one)) == 0
        assert suppressed(one) == [None, None]
        assert unsubscribing.unsubscribe_link(about(one), "link") is True
        address = Message.objects.get(pk=one.first_message).recipient
        lists.add_suppressions(one.sponsor_id, "email", [NewSuppression(address, "bounced")])
        unsubscribing.subscribe_again(about(one))
        assert suppressed(one) == ["suppressed", None]

    def test_by_the_uuid_of_a_message(self) -> None:
        one = job()
        message = Message.objects.get(pk=one.first_message)
        assert unsubscribing.unsubscribe_message(message.uuid, "mail") and unsubscribing.unsubscribe_message(
            message.uuid, "mail"
        )
        assert Suppression.objects.get().source == f"mail, campaign {one.campaign_id}"
        assert not unsubscribing.unsubscribe_message(UUID(int=message.uuid.int ^ 1), "mail")
        assert not unsubscribing.unsubscribe_message(UUID(int=0), "mail")
        Campaign.objects.update(transactional=True)
        assert not unsubscribing.unsubscribe_message(message.uuid, "mail")


class TestLetters:
    def test_a_bulk_mail_has_the_lines_of_rfc_8058_and_its_signature_covers_them(self) -> None:
        from vendors.adapters import dkim
        from vendors.adapters.base import Origin

        letter = first_letter(job())
        assert [name for name, _ in letter.headers] == ["List-Unsubscribe", "List-Unsubscribe-Post"]
        key = dkim.DkimKey("example.org", "s1", dkim.new_private_key())
        pieces = mime.compose_mail(mime.parse_origin(Origin("a@example.org", dkim=key)), "you@example.com", letter)
        head = b"".join(pieces).partition(b"\r\n\r\n")[0].decode()
        assert f"List-Unsubscribe: <{BASE}/unsubscribe/" in head
        assert "List-Unsubscribe-Post: List-Unsubscribe=One-Click" in head
        signed = head.partition("h=")[2].partition("bh=")[0].replace("\r\n", "").replace(" ", "").split(":")
        assert {"list-unsubscribe", "list-unsubscribe-post"} <= {one.rstrip(";") for one in signed}

    def test_each_letter_has_a_link_of_its_own_and_the_body_may_show_it(self) -> None:
        one = job(html=True, body='<a href="{{ unsubscribe_url }}">x</a>', text="{{ unsubscribe_url }}")
        leased, urls = made(one), set()
        for message in Message.objects.order_by("id"):
            letter: Any = leased.letter(ClaimedMessage(message.pk, message.reference, message.recipient, {}))
            assert letter.body == f'<a href="{letter.text}">x</a>'
            assert letter.headers[0][1] == f"<{letter.text}>"
            urls.add(letter.text)
        assert len(urls) == 2

    def test_a_transactional_mail_and_one_without_public_url_have_none(self, settings: Any) -> None:
        one = job()
        Campaign.objects.update(transactional=True)
        assert first_letter(one).headers == ()
        Campaign.objects.update(transactional=False)
        settings.PUBLIC_URL = ""
        assert first_letter(one).headers == ()

    def test_a_worker_that_begins_without_public_url_says_so_once(self, settings: Any, caplog: Any) -> None:
        for url in (BASE, ""):
            settings.PUBLIC_URL = url
            tasks._say_what_is_missing(sender=None)
        assert caplog.text.count("PUBLIC_URL is not set") == 1

    def test_a_column_of_that_name_comes_first(self) -> None:
        one = job(body="{{ unsubscribe_url }}")
        Message.objects.update(params={"unsubscribe_url": "mine"})
        assert first_letter(one).body == "mine"

    def test_an_sms_may_show_it_too(self) -> None:
        one = job(body="{{ unsubscribe_url }}")
        Vendor.objects.update(channel="sms")
        letter = first_letter(one)
        found = links.read_link(letter.body.rpartition("/")[2])
        assert letter.headers == () and found and found.channel == "sms"


class TestDoors:
    def test_only_a_sponsor_that_may_marks_campaigns_as_transactional(self) -> None:
        sponsor = factories.sponsor()
        with pytest.raises(entitlements.NotEntitled, match="may not mark campaigns as transactional"):
            entitlements.choose_topic(sponsor, transactional=True)
        call_command("sponsor", "set", sponsor.name, "--transactional", "yes", "--language", "de", stdout=StringIO())
        sponsor.refresh_from_db()
        assert entitlements.choose_topic(sponsor, transactional=True) is None and sponsor.language == "de"
        with pytest.raises(CommandError, match="language"):
            call_command("sponsor", "set", sponsor.name, "--language", "xx", stdout=StringIO())

    def test_a_campaign_names_a_topic_of_its_own_sponsor(self) -> None:
        one, other = factories.sponsor(), factories.sponsor()
        call_command("topic", "add", other.name, "offers", "Weekly offers", stdout=StringIO())
        with pytest.raises(entitlements.NotEntitled, match="has no topic 'offers'"):
            entitlements.choose_topic(one, "offers")
        found = entitlements.choose_topic(other, "offers")
        assert found and found.title == "Weekly offers"
        with pytest.raises(entitlements.NotEntitled, match="a transactional campaign has no topic"):
            entitlements.choose_topic(other, "offers", transactional=True)

    def test_no_new_campaign_names_an_archived_topic_and_older_ones_still_do(self, tmp_path: Any) -> None:
        older = job()
        offers, of, login = topic(older.sponsor), older.sponsor, older.credential
        Campaign.objects.update(topic=offers)
        older.refresh_from_db()
        said = StringIO()
        for verb in ("archive", "archive", "list"):
            call_command("topic", verb, of.name, *(["offers"] if verb == "archive" else ["--json"]), stdout=said)
        assert "archived\n" in said.getvalue() and "already so" in said.getvalue()
        assert '"archived":true' in said.getvalue()
        unsubscribing.unsubscribe_link(about(older), "link")
        assert suppressed(older) == ["suppressed", None] and Suppression.objects.get().topic == offers
        Identity.objects.create(sponsor=of, name="main", from_address="post@velma.example", default=True)
        facts = {"name": "May", "subject": "x", "body": "y", "html": False, "recipients": [("a@b.example", {})]}
        with pytest.raises(entitlements.NotEntitled, match="is archived: choose another one"):
            intake.store_campaign(sponsor=of, credential=login, topic="offers", **facts)
        for name, text in (("list.csv", "email\na@b.example\n"), ("body.txt", "Hello")):
            (tmp_path / name).write_text(text)
        send = [str(tmp_path / "list.csv"), "--sponsor", of.name, "--vendor", login.vendor.slug, "--subject", "x"]
        send += ["--body", str(tmp_path / "body.txt"), "--topic", "offers"]
        for more in ([], ["--preview", "1"], ["--test-to", "me@b.example"]):
            with pytest.raises(CommandError, match="is archived"):
                call_command("send_campaign", *send, *more, stdout=StringIO())
        assert Campaign.objects.count() == 1
        call_command("topic", "restore", of.name, "offers", stdout=said)
        intake.store_campaign(sponsor=of, credential=login, topic="offers", **facts)

    def test_the_command_about_topics(self) -> None:
        out, sponsor = StringIO(), factories.sponsor()
        for _ in range(2):
            call_command("topic", "add", sponsor.name, "offers", "Weekly offers", stdout=out)
        with pytest.raises(CommandError, match="its title is 'Weekly offers'"):
            call_command("topic", "add", sponsor.name, "offers", "Other", stdout=out)
        call_command("topic", "set", sponsor.name, "offers", "Offers of the week", stdout=out)
        call_command("topic", "list", "--json", stdout=out)
        assert '"title":"Offers of the week"' in out.getvalue()
        lists.add_suppressions(
            sponsor.pk, "email", [NewSuppression("a@b.example", "unsubscribed", topic_id=Topic.objects.get().pk)]
        )
        with pytest.raises(CommandError, match="stays"):
            call_command("topic", "remove", sponsor.name, "offers", stdout=out)
        call_command("topic", "archive", sponsor.name, "offers", stdout=out)
        with pytest.raises(CommandError, match="already there, and archived"):
            call_command("topic", "add", sponsor.name, "offers", "Offers of the week", stdout=out)
        Suppression.objects.all().delete()
        call_command("topic", "remove", sponsor.name, "offers", stdout=out)
        assert not Topic.objects.exists()

    def test_suppressions_of_a_topic_are_exported_and_imported(self, tmp_path: Any) -> None:
        sponsor, out = factories.sponsor(), StringIO()
        offers = topic(sponsor)
        lists.add_suppressions(sponsor.pk, "email", [NewSuppression("a@b.example", "unsubscribed", topic_id=offers.pk)])
        call_command("suppression", "export", "--sponsor", sponsor.name, stdout=out)
        Suppression.objects.all().delete()
        file = tmp_path / "list.csv"
        file.write_text(out.getvalue())
        call_command("suppression", "import", "--sponsor", sponsor.name, str(file), stdout=StringIO())
        assert Suppression.objects.get().topic == offers
        file.write_text("address,reason,topic\na@b.example,bounced,offers\nc@b.example,unsubscribed,other\n")
        with pytest.raises(CommandError, match=r"(?s)row 2: a topic goes with.*row 3: there is no topic 'other'"):
            call_command("suppression", "import", "--sponsor", sponsor.name, str(file), stdout=StringIO())


class TestAdmin:
    def test_topics_are_made_on_a_page_and_only_who_sees_all_sponsors_allows_transactional_mail(self) -> None:
        sponsor, users = factories.sponsor(), {}
        for name, codes in {"own": [], "all": ["all_sponsors"]}.items():
            users[name] = User.objects.create_user(factories.unique(name), is_staff=True)
            wanted = ["add_topic", "view_topic", "view_sponsor", "change_sponsor", *codes]
            users[name].user_permissions.set(Permission.objects.filter(codename__in=wanted))
        sponsor.users.add(users["own"])
        form = {"name": sponsor.name, "language": "de", "users": [users["own"].pk]}
        page = f"/admin/campaigns/sponsor/{sponsor.pk}/change/"
        for name, allowed in (("own", False), ("all", True)):
            client = Client()
            client.force_login(users[name])
            assert client.post(page, {**form, "may_be_transactional": "on"}).status_code == 302
            sponsor.refresh_from_db()
            assert (sponsor.may_be_transactional, sponsor.language) == (allowed, "de")
            made = client.post(
                "/admin/campaigns/topic/add/", {"sponsor": sponsor.pk, "name": name, "title": "Weekly offers"}
            )
            assert made.status_code == 302 and client.get("/admin/campaigns/topic/").status_code == 200
        assert sorted(Topic.objects.values_list("name", flat=True)) == ["all", "own"]
