"""What a person typed is never translated: German pages show it as it was typed, within the program's sentences."""

import html
import io
import re

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.utils import translation

from campaigns.engine.failover.recovery import describe_losses
from campaigns.engine.pausing import pauses
from campaigns.engine.routes import entries
from campaigns.integrations.webhooks import events
from campaigns.models import Campaign, Suppression, Webhook
from campaigns.operations import pausing
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from tests import factories
from tests.owners.test_languages import GERMAN
from tests.owners.test_languages_of_histories import TYPED
from vendors import said
from vendors.history import Actor
from vendors.models import Credential, Vendor
from vendors.said import Said

pytestmark = pytest.mark.django_db


@pytest.fixture
def paused(owner, admin_client):
    """A function that pauses a campaign of Ann's for a reason, and returns it."""

    def pause(reason):
        campaign = factories.campaign_with_job(5).campaign
        campaign.sponsor.users.add(owner)
        pausing.pause_jobs([campaign.jobs.get().pk], Actor("ann", owner.pk), reason)
        return campaign

    return pause


@pytest.mark.parametrize("typed", TYPED)
def test_the_reason_of_a_campaigns_pause(typed, client, admin_client, paused):
    campaign = paused(typed)
    job = campaign.jobs.get()
    wanted = {
        "/": f"ist von ann pausiert: {typed}",
        f"/campaigns/{campaign.pk}/": f"Pausiert von ann: {typed}",
        f"/campaigns/{campaign.pk}/resume/": f"ann pausiert: {typed}",
    }
    for address, shown in wanted.items():
        assert shown in html.unescape(client.get(address, headers=GERMAN).text), address
    listed = html.unescape(admin_client.get("/admin/campaigns/job/", headers=GERMAN).text)
    assert f"pausiert von ann: {typed}" in listed
    asked = {"action": "resume", "_selected_action": job.pk}
    page = admin_client.post("/admin/campaigns/job/", asked, headers=GERMAN)
    assert f"ist pausiert von ann: {typed}" in html.unescape(page.text)
    again = {**asked, "action": "pause", "confirmed": "yes", "shown": f"{job.pk}:{job.revision}", "reason": "x"}
    said_then = html.unescape(admin_client.post("/admin/campaigns/job/", again, headers=GERMAN, follow=True).text)
    assert typed in said_then


@pytest.mark.parametrize("typed", TYPED)
def test_the_reason_why_a_vendor_or_a_credential_is_paused(typed, admin_client):
    login = factories.campaign_with_job(5).campaign.credential
    call_command("vendor", "pause", login.vendor.slug, f"--reason={typed}", stdout=io.StringIO())
    pages = ("/admin/", "/admin/vendors/vendor/")
    for address in pages:
        page = html.unescape(admin_client.get(address, headers=GERMAN).text)
        assert typed in page, address
    assert f"Anbieter pausiert: {typed}" in html.unescape(admin_client.get("/admin/", headers=GERMAN).text)
    with translation.override("de"):
        assert said.show(entries.closed_credentials([login.pk], 60)[login.pk]) == f"Anbieter pausiert: {typed}"
    Vendor.objects.update(paused=False)
    Credential.objects.filter(pk=login.pk).update(paused=True, paused_reason=typed)
    page = html.unescape(admin_client.get("/admin/", headers=GERMAN).text)
    assert f"Zugang {login.name} pausiert: {typed}" in page


@pytest.mark.parametrize("typed", TYPED)
def test_the_source_of_a_suppression(typed, client, admin_client, owner):
    sponsor = factories.sponsor()
    sponsor.users.add(owner)
    new = [NewSuppression("p@example.org", "by_hand", typed), NewSuppression("q@example.org", "by_hand", Said("link"))]
    lists.add_suppressions(sponsor.pk, "email", new)
    for page in (
        client.get("/suppressions/", headers=GERMAN),
        admin_client.get("/admin/campaigns/suppression/", headers=GERMAN),
    ):
        shown = html.unescape(page.text)
        assert typed in shown
        assert "Link" in shown
    assert set(Suppression.objects.values_list("source", flat=True)) == {typed, "link"}


@pytest.mark.parametrize("typed", TYPED)
def test_the_reason_why_a_webhook_is_off(typed, client, owner):
    sponsor = factories.sponsor()
    sponsor.users.add(owner)
    owner.groups.add(Group.objects.get(name="integrator"))
    hook = Webhook.objects.create(sponsor=sponsor, url="https://receiver.example/hook", secret={"key": "whsec_x"})
    events.disable_webhook(hook, typed)
    assert typed in html.unescape(client.get(f"/webhooks/{hook.pk}/", headers=GERMAN).text)
    events.disable_webhook(hook, Said("by hand"))
    assert "von Hand" in client.get(f"/webhooks/{hook.pk}/", headers=GERMAN).text


def test_a_campaign_that_paused_itself_says_why_in_the_language_of_the_page(client, admin_client, owner):
    campaign = factories.campaign_with_job(1995).campaign
    campaign.sponsor.users.add(owner)
    sums = pauses.join_counts(("accepted", "refused"), (1480, 20))
    called = Said("its first %(count)s of %(size)s are done; %(sums)s", count=1500, size=1995, sums=sums)
    assert pauses.pause_itself(campaign.pk, called)
    campaign.refresh_from_db()
    assert campaign.paused_reason == "its first 1,500 of 1,995 are done; 1,480 accepted, 20 refused"
    why = "die ersten 1.500 von 1.995 sind übergeben; 1.480 angenommen, 20 abgelehnt"
    assert f"Pausiert von mailhub: {why}" in client.get(f"/campaigns/{campaign.pk}/", headers=GERMAN).text
    assert client.get("/", headers=GERMAN).text.count(why) == 3  # what waits, the row, and its title if it is cut
    assert f"pausiert von mailhub: {why}" in admin_client.get("/admin/campaigns/job/", headers=GERMAN).text


def test_a_text_that_an_earlier_version_wrote_over_a_sentence_is_shown_as_it_is(client, owner, paused):
    campaign = paused("")
    assert Campaign.objects.get().paused_reason_said is not None
    Campaign.objects.filter(pk=campaign.pk).update(paused_reason="May")
    assert "Pausiert von ann: May" in client.get(f"/campaigns/{campaign.pk}/", headers=GERMAN).text
    with translation.override("de"):
        assert said.show(said.read("by an", Said("by %(name)s", name="ann").data)) == "by an"


def test_a_sentence_is_its_english_text_and_survives_an_exception_and_a_column():
    sentence = Said("%(count)s that %(source)s has not taken go by %(target)s: %(why)s", count=1200, source="one/a",
                    target="two/b", why=Said("vendor paused: %(why)s", why="off"))  # fmt: skip
    assert sentence == "1,200 that one/a has not taken go by two/b: vendor paused: off"
    assert said.read(str(ValueError(sentence)), sentence.data) == sentence
    with translation.override("de"):
        shown = "1.200, die one/a nicht angenommen hat, gehen über two/b: Anbieter pausiert: off"
        assert said.show(str(ValueError(sentence))) == shown
        assert said.show(said.read(str(sentence), sentence.data)) == shown
        assert said.show("vendor paused: off") == "vendor paused: off"
    assert said.show(describe_losses([])) == "no vendor has anything that may have been called"


@pytest.mark.django_db
def test_a_filter_shows_sponsors_by_their_own_names(admin_client):
    factories.sponsor("paused")
    page = admin_client.get("/admin/campaigns/campaign/", headers=GERMAN).text
    assert re.search(r'sponsor=\d+"[^>]*>paused<', page)
