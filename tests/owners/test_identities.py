"""Pages of sender identities: of the user's sponsors alone, without keys, changed by whoever may."""

import re

import pytest
from django.contrib.admin.models import LogEntry

from campaigns.audience import inbound
from campaigns.models import Identity
from mailhub import installation
from tests import factories
from tests.dns_server import dns_server
from tests.owners.test_suppressions import sponsor, user

__all__ = ["sponsor"]
pytestmark = pytest.mark.django_db
MAY = ["add_identity", "change_identity"]
MAIL, SMS = "/senders/add/email/", "/senders/add/sms/"


def test_identities_without_secrets(client, sponsor):
    mine = Identity(sponsor=sponsor, name="news", channel="email", from_address="news@one.invalid")
    mine.dkim_domain, mine.dkim_selector, mine.secret = "one.invalid", "s1", {"private_key": "very secret"}
    mine.save()
    theirs = Identity.objects.create(
        sponsor=factories.sponsor(), name="other", channel="email", from_address="other@two.invalid"
    )
    page = client.get("/senders/").content.decode()
    assert "news@one.invalid" in page and "two.invalid" not in page
    page = client.get(f"/senders/{mine.pk}/").content.decode()
    assert "s1._domainkey.one.invalid" in page and "very secret" not in page
    assert client.get(f"/senders/{theirs.pk}/").status_code == client.post(f"/senders/{theirs.pk}/").status_code == 404


def test_whoever_may_changes_an_identity_that_is_as_it_was_shown(client, sponsor, settings):
    row = Identity(sponsor=sponsor, name="news", channel="email", from_address="news@one.invalid")
    row.save()
    page = f"/senders/{row.pk}/edit/"
    given = {"from_name": "News", "from_address": "hello@one.invalid", "reply_to": "", "return_path": ""}
    assert client.get(page).status_code == client.post(page, given).status_code == 403
    client.force_login(user("ida", sponsor, "viewer", may=["change_identity"]))
    seen = re.search(r'name="seen" value="([^"]+)"', client.get(page).content.decode())[1]
    assert client.post(page, given | {"seen": seen, "from_address": "no address"}).status_code == 422
    for _ in range(2):
        assert client.post(page, given | {"seen": seen}).status_code == 302
    row.refresh_from_db()
    assert row.shown == "News <hello@one.invalid>"
    assert "from address news@one.invalid → hello@one.invalid" in LogEntry.objects.get().change_message
    assert client.post(page, given | {"seen": seen, "from_name": "Old"}).status_code == 422
    theirs = Identity(sponsor=factories.sponsor(), name="news", channel="email", from_address="news@one.invalid")
    theirs.save()
    assert client.post(f"/senders/{theirs.pk}/edit/", given).status_code == 404
    with dns_server(settings) as server:
        server.text("one.invalid", "v=spf1 -all")
        asked = client.post(f"/senders/{row.pk}/").content.decode()
    assert "v=spf1" in asked or "SPF" in asked
    assert any(name == "one.invalid" for _, name, _ in server.asked)


def test_whoever_may_signs_mails_chooses_the_default_and_has_bounces_come_back(client, sponsor, settings):
    rows = [Identity(sponsor=sponsor, name=one, channel="email", from_address=f"{one}@one.invalid") for one in "ab"]
    rows[0].default = True
    for row in rows:
        row.save()
    first, second = rows
    sign, page = f"/senders/{second.pk}/sign/", f"/senders/{second.pk}/edit/"
    assert client.post(sign, {"selector": "m1"}).status_code == 403
    client.force_login(user("ida", sponsor, "viewer", may=["change_identity"]))
    assert 'name="default"' not in client.get(f"/senders/{first.pk}/edit/").content.decode()
    seen = re.search(r'name="seen" value="([^"]+)"', client.get(page).content.decode())[1]
    client.post(page, {"seen": seen, "from_address": "b@one.invalid", "verp": "on", "default": "on"})
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.default, second.default, second.verp) == (False, True, True)
    assert "Say under which name" in client.post(sign, {"selector": " "}, follow=True).content.decode()
    shown = [client.post(sign, {"selector": "m1"}, follow=True).content.decode() for _ in range(2)]
    records = {re.search(r"v=DKIM1; k=rsa; p=([\w+/=]+)", page)[1] for page in shown}
    second.refresh_from_db()
    assert len(records) == 1 and second.dkim_key.selector == "m1" and "m1._domainkey.one.invalid" in shown[1]
    assert second.dkim_key.private_key not in "".join(shown) and "PRIVATE KEY" not in "".join(shown)
    assert "secret replaced" in LogEntry.objects.first().change_message
    assert client.post(sign, {"selector": "not a name"}, follow=True).content.decode().count("DNS can have") == 1
    client.post(sign, {"off": "1"})
    second.refresh_from_db()
    assert second.dkim_key is None
    theirs = Identity.objects.create(sponsor=factories.sponsor(), name="n", channel="email", from_address="n@x.invalid")
    assert client.post(f"/senders/{theirs.pk}/sign/", {"selector": "m1"}).status_code == 404


def test_numbers_of_sms_are_changed_line_by_line(client, sponsor):
    row = Identity(sponsor=sponsor, name="texts", channel="sms", numbers=["+447700900001"])
    row.save()
    client.force_login(user("ida", sponsor, "viewer", may=["change_identity"]))
    page = f"/senders/{row.pk}/edit/"
    shown = client.get(page).content.decode()
    seen = re.search(r'name="seen" value="([^"]+)"', shown)[1]
    assert "+447700900001" in shown and "from_address" not in shown
    assert client.post(page, {"seen": seen, "sender_id": "", "numbers": "x"}).status_code == 422
    assert client.post(page, {"seen": seen, "numbers": "+44 7700 900001\n+44 7700 900002\n"}).status_code == 302
    row.refresh_from_db()
    assert row.numbers == ["+447700900001", "+447700900002"]


def test_whoever_may_adds_one_once_and_the_first_of_a_channel_is_the_default(client, sponsor):
    given = {"sponsor": sponsor.pk, "name": "news", "from_name": "News", "from_address": "news@one.invalid"}
    assert client.get(MAIL).status_code == client.post(MAIL, given).status_code == 403
    assert MAIL not in (page := client.get("/senders/").content.decode()) and "vendor admin" in page
    client.force_login(user("ida", sponsor, "viewer", may=MAY))
    assert MAIL in (page := client.get("/senders/").content.decode()) and "vendor admin" not in page
    assert 'name="sender_id"' not in client.get(MAIL).content.decode()
    for _ in range(2):
        assert client.post(MAIL, given).status_code == 302
    row = Identity.objects.get()
    assert (row.sponsor, row.shown, row.default, row.enabled) == (sponsor, "News <news@one.invalid>", True, True)
    assert LogEntry.objects.get().change_message == "added" and LogEntry.objects.get().user.username == "ida"
    differs = client.post(MAIL, given | {"reply_to": "help@one.invalid"})
    assert differs.status_code == 422 and "of this name already" in differs.content.decode()
    assert client.post(MAIL, given | {"name": "no name"}).status_code == 422
    assert client.post(MAIL, given | {"name": "other", "from_address": "nowhere"}).status_code == 422
    theirs = factories.sponsor()
    refused = client.post(MAIL, given | {"sponsor": theirs.pk, "name": "other"})
    assert refused.status_code == 422 and theirs.name not in refused.content.decode()
    assert client.get("/senders/add/letters/").status_code == 404
    assert client.post(MAIL, given | {"name": "second"}).status_code == 302
    assert client.post(MAIL, given | {"name": "third", "default": "on"}).status_code == 302
    assert list(Identity.objects.filter(default=True).values_list("name", flat=True)) == ["third"]
    assert Identity.objects.count() == 3


def test_one_of_sms_has_a_sender_or_numbers_which_are_its_own(client, sponsor):
    client.force_login(user("ida", sponsor, "viewer", may=MAY))
    given = {"sponsor": sponsor.pk, "name": "texts", "numbers": "+44 7700 900001\n\n+44 7700 900002"}
    for _ in range(2):
        assert client.post(SMS, given).status_code == 302
    row = Identity.objects.get()
    assert row.numbers == ["+447700900001", "+447700900002"] and (row.channel, row.default) == ("sms", True)
    for wrong in ({"numbers": ""}, {"sender_id": "Acme"}, {"numbers": "+44 7700 900001"}):
        assert client.post(SMS, given | {"name": "more"} | wrong).status_code == 422, wrong
    assert client.post(SMS, {"sponsor": sponsor.pk, "name": "more", "sender_id": "Acme"}).status_code == 302


def test_whoever_may_disables_and_enables_one_once(client, sponsor):
    row = Identity.objects.create(sponsor=sponsor, name="news", channel="email", from_address="news@one.invalid")
    page, switch = f"/senders/{row.pk}/", f"/senders/{row.pk}/switch/"
    assert client.post(switch, {"to": "off"}).status_code == 403
    assert switch not in client.get(page).content.decode()
    client.force_login(user("ida", sponsor, "viewer", may=["change_identity"]))
    assert switch in client.get(page).content.decode() and client.get(switch).status_code == 405
    for to, said, enabled in (
        ("off", "It is disabled: nothing new goes out as it.<", False),
        ("on", "what was held goes on", True),
    ):
        shown = [client.post(switch, {"to": to}, follow=True).content.decode() for _ in range(2)]
        assert [said in one for one in shown] == [True, False]
        row.refresh_from_db()
        assert row.enabled is enabled
    kept = list(LogEntry.objects.order_by("pk").values_list("change_message", flat=True))
    assert kept == ["enabled yes → no", "enabled no → yes"]
    theirs = Identity.objects.create(sponsor=factories.sponsor(), name="n", channel="email", from_address="n@x.invalid")
    assert client.post(f"/senders/{theirs.pk}/switch/", {"to": "off"}).status_code == 404
    theirs.refresh_from_db()
    assert theirs.enabled


def test_further_words_and_the_answer_to_help_are_changed_and_hold(client, sponsor):
    row = Identity.objects.create(sponsor=sponsor, name="texts", channel="sms", numbers=["+447700900001"])
    client.force_login(user("ida", sponsor, "viewer", may=["change_identity"]))
    page = f"/senders/{row.pk}/edit/"
    given = {"numbers": "+447700900001", "stop_texts": "Schluss\n bitte nicht \n", "help_answer": "Call 0800 1"}
    old = re.search(r'name="seen" value="([^"]+)"', client.get(page).content.decode())[1]
    assert client.post(page, given | {"seen": old}).status_code == 302
    row.refresh_from_db()
    assert row.stop_texts == ["Schluss", "bitte nicht"] and row.help_answer == "Call 0800 1"
    asked = [inbound.command_of(one, row).value for one in ("SCHLUSS!", "bitte  nicht", "no idea")]
    assert asked == ["stop", "stop", ""]
    assert "stop texts none → Schluss, bitte nicht" in LogEntry.objects.get().change_message
    shown = client.get(f"/senders/{row.pk}/").content.decode()
    assert "Schluss, bitte nicht" in shown and "Call 0800 1" in shown
    stale = client.post(page, given | {"seen": old, "stop_texts": ""})
    assert stale.status_code == 422 and "Somebody else has changed it" in stale.content.decode()
    seen = re.search(r'name="seen" value="([^"]+)"', client.get(page).content.decode())[1]
    for wrong in ({"help_answer": "{% if %}"}, {"start_texts": "x" * 41}, {"help_texts": "\n".join("abc" * 17)}):
        assert client.post(page, given | {"seen": seen} | wrong).status_code == 422, wrong


def test_the_group_that_may_is_the_one_that_the_page_names(client, sponsor):
    client.force_login(user("vera", sponsor, "vendor admin"))
    assert installation.ROLES["vendor admin"] and client.get(MAIL).status_code == client.get(SMS).status_code == 200
    client.force_login(user("olga", sponsor, "campaign owner", "integrator", "operator", "auditor"))
    assert client.get(MAIL).status_code == 403
