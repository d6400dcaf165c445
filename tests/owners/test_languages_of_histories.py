"""A history is stored in English, and German pages show it in German: what was decided, what was changed from what."""

import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.utils import timezone, translation

from campaigns import stored_texts
from campaigns.engine.audit.questions import QUESTIONS
from campaigns.models import Campaign, Job, Store, Topic
from campaigns.operators import actions, pausing
from tests import factories
from tests.owners.test_languages import GERMAN
from vendors import history
from vendors.history import Actor
from vendors.models import Vendor

SECRET = "its secret is forgotten, for its vendor's url changed: enter it again"


@pytest.mark.parametrize(
    ("stored", "german"),
    [
        ("added", "hinzugefügt"),
        ("added by ann", "hinzugefügt durch ann"),
        ("removed: Library/offers", "entfernt: Library/offers"),
        ("archived", "archiviert"),
        ("restored", "wiederhergestellt"),
        ("switched off", "ausgeschaltet"),
        ("secret replaced", "Geheimnis ersetzt"),
        ("secret replaced; resumed by ann", "Geheimnis ersetzt; fortgesetzt durch ann"),
        ("title Offers → Weekly offers", "Titel Offers → Weekly offers"),
        ("paused reason  → no money; paused False → True", "Grund der Pause  → no money; pausiert nein → ja"),
        ("quiet from none → 20:00", "Ruhezeit ab keine → 20:00"),
        ("rate limit 5/60 s added; slug a → b", "Grenze 5/60 s hinzugefügt; Kürzel a → b"),
        ("rate limit 5/60 s: units 5 → 6, seconds 60 → 30", "Grenze 5/60 s: Einheiten 5 → 6, Sekunden 60 → 30"),
        ("mailcaster a/MC1 deleted", "Mailcaster a/MC1 gelöscht"),
        ("paused. Reason: by the bank. Reason: no", "pausiert. Grund: by the bank. Reason: no"),
        ("resumed. Reason: paid", "fortgesetzt. Grund: paid"),
        (f"paused: {SECRET}", "pausiert: sein Geheimnis ist vergessen, denn bei seinem"),
        ("version 2 added. Reason: opens at ten", "Version 2 hinzugefügt. Grund: opens at ten"),
        ("settled as Sent. Reason: on their list", "geklärt als Versandt. Grund: on their list"),
        ("settled as send again by ann", "geklärt als noch einmal senden durch ann"),
        ("1,200 of sms added for all sponsors", "1.200 (sms) für alle Mandanten hinzugefügt"),
        ("2 of email added for sponsor 4 by ann", "2 (email) für Mandant 4 hinzugefügt durch ann"),
        ("lifted. Reason: he asked", "aufgehoben. Grund: he asked"),
        ("1,200 lifted", "1.200 aufgehoben"),
        ("1,200 address erased", "1.200 Adressen gelöscht"),
        ("key mh_live_1 made, live, for send, read", "Schlüssel mh_live_1 angelegt (live) für send, read"),
        ("key mh_live_1 revoked by ann", "Schlüssel mh_live_1 widerrufen durch ann"),
        ("key mh_live_1 expires never", "Schlüssel mh_live_1 läuft nie ab"),
        ("key mh_live_1 expires 2026-05-03T00:00", "Schlüssel mh_live_1 läuft ab: 2026-05-03T00:00"),
        ("call 7 is posted again", "Aufruf 7 wird noch einmal gesendet"),
        ("price added: 0.07 EUR from 2026-05-03", "Preis hinzugefügt: 0.07 EUR ab 2026-05-03"),
        (
            "price of api added: 0.07 + 0.1 a message EUR from 2026-05-03. Reason: typing error",
            "Preis für api hinzugefügt: 0.07 + 0.1 je Nachricht EUR ab 2026-05-03. Grund: typing error",
        ),
        ("job 7 stopped: no new call starts", "Auftrag 7 gestoppt: Es beginnt keine neue Übergabe"),
        (
            "job 7 and 3 child jobs stopped: no new call starts by ann",
            "Auftrag 7 und 3 Teile gestoppt: Es beginnt keine neue Übergabe durch ann",
        ),
        ("job 7 and 1 child job stopped: no new call starts", "Auftrag 7 und 1 Teil gestoppt: Es beginnt keine neue"),
        ("job 7 sends 1,200 messages by ann", "Auftrag 7 sendet 1.200 Nachrichten durch ann"),
        (
            "job 7 sends 1 message, and waits after its first 500",
            "Auftrag 7 sendet 1 Nachricht und wartet nach den ersten 500",
        ),
        (
            "job 7's campaign: bounce limit as the installation → 8 %, complaint limit none → 1 %",
            "Kampagne von Auftrag 7: Grenze für Rückläufer wie die Installation → 8 %, Grenze für Beschwerden keine → ",
        ),
        (
            "1,200 that one/a has not taken go by two/b: closed for 60 s",
            "1.200, die one/a nicht angenommen hat, gehen über two/b: closed for 60 s",
        ),
        ("its answers are forgotten by ann", "seine Antworten sind vergessen durch ann"),
        ("a new secret for receipts of api", "ein neues Geheimnis für Meldungen von api"),
        ("mailcaster one/MC1 added", "Mailcaster one/MC1 hinzugefügt"),
        (
            "recovered: one: 1,200 calls that the rows do not know; in doubt: 3 messages",
            "wiederhergestellt: one: 1.200 Übergaben, die den Zeilen unbekannt sind; in Klärung: 3 Nachrichten",
        ),
        ("Something typed → by nobody", "Something typed → by nobody"),
    ],
)  # fmt: skip
def test_what_was_decided_is_german(stored, german):
    with translation.override("de"):
        assert stored_texts.of_history(stored).startswith(german)
    assert stored_texts.of_history(stored) == stored


@pytest.mark.django_db
def test_pages_with_a_history_show_it_in_german(admin_client):
    job = factories.campaign_with_job(1200).campaign.jobs.get()
    ann = Actor("ann", admin_client.get("/").wsgi_request.user.pk)
    assert pausing.pause([job.pk], ann, "no money")
    assert actions.stop([job.pk], Actor("bob"), "wrong text")
    topic = Topic.objects.create(sponsor=job.sponsor, name="offers", title="Offers")
    for model, pk, what in (
        (Campaign, job.campaign_id, "approved (1,200 recipients): it goes on"),
        (Vendor, job.vendor_id, "paused reason  → no money"),
        (Topic, topic.pk, "archived"),
        (Store, 1, "recovered: no vendor has anything that may have been called"),
    ):
        history.record(ann, model, [(pk, what)], "as it must be")
    wanted = {
        f"/admin/campaigns/job/{job.pk}/history/": "Es beginnt keine neue Übergabe durch bob. Grund: wrong text",
        f"/admin/campaigns/campaign/{job.campaign_id}/history/": "freigegeben (1.200 Empfänger): sie geht weiter. G",
        f"/admin/vendors/vendor/{job.vendor_id}/change/": "<td>Grund der Pause  → no money. Grund: as it must be",
        f"/admin/vendors/vendor/{job.vendor_id}/history/": "<td>Grund der Pause  → no money. Grund: as it must be",
        f"/admin/campaigns/topic/{topic.pk}/history/": "<td>archiviert. Grund: as it must be",
        "/admin/operations/recover/": "wiederhergestellt: bei keinem Anbieter gibt es etwas, das übergeben worden sein",
    }
    for address, said in wanted.items():
        assert said in admin_client.get(address, headers=GERMAN).text.replace("&gt;", ">"), address
    assert LogEntry.objects.filter(change_message__contains="Reason").count() >= 6
    assert "no new call starts" in admin_client.get(f"/admin/campaigns/job/{job.pk}/history/").text


@pytest.mark.django_db
def test_a_jobs_history_has_all_its_entries_however_few_jobs_the_list_has(admin_client):
    job = factories.campaign_with_job(5).campaign.jobs.get()
    Job.objects.filter(pk=job.pk).update(created_at=timezone.now() - timedelta(days=30))
    history.record(Actor("ann"), Job, [(job.pk, f"decision {number}") for number in range(3)])
    page = admin_client.get(f"/admin/campaigns/job/{job.pk}/history/").text
    assert [number for number in range(3) if f"<td>decision {number} by ann</td>" in page] == [0, 1, 2]
    assert "3 entries" in page


def test_what_a_broken_promise_names_is_german():
    named = {form for question in QUESTIONS for form in re.findall(r"format\('([^']*)'", question.breaches)}
    assert len(named) > 20
    with translation.override("de"):
        assert not [form for form in named if stored_texts.in_language(filled := form.replace("%%s", "7")) == filled]
        assert stored_texts.in_language("job fair in May") == "job fair in May"
