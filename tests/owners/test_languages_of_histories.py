"""A history is stored in English and as data: pages show the program's words in German, and a person's as typed."""

import re
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.utils import timezone, translation

from campaigns.doors.front import keys
from campaigns.engine import audit
from campaigns.engine.audit.questions import QUESTIONS
from campaigns.engine.failover import recovery
from campaigns.engine.failover.recovery import Loss
from campaigns.models import Audited, Campaign, Identity, Job, Store, Topic
from campaigns.operations import actions, pausing
from campaigns.senders import sender_changes
from campaigns.suppression import suppressing
from campaigns.suppression.lists import NewSuppression
from tests import factories
from tests.owners.test_languages import GERMAN
from vendors import configuration, history, prices
from vendors.history import Actor
from vendors.management import facts
from vendors.models import Credential, HistorySentence, Price, Vendor
from vendors.said import Said, show

# Words that people type, each of which is one of the program's sentences, or reads like one.
TYPED = (
    "row 7: Ann asked for it",
    "there is no place for them",
    "two files are called A and B",
    "May",
    "Date",
    "off",
    "no",
    "paused by bob. Reason: none",
)
ANN = Actor("ann")

pytestmark = pytest.mark.django_db


def newest():
    """The newest entry of any history as stored, and as a German page shows it."""
    entries = list(LogEntry.objects.order_by("-pk")[:1])
    with translation.override("de"):
        ((entry, german),) = history.entry_sentences(entries)
    return entry.change_message, german


@pytest.mark.parametrize("typed", TYPED)
def test_a_reason_is_shown_as_it_was_typed(typed):
    job = factories.campaign_with_job(5).campaign.jobs.get()
    pausing.pause_jobs([job.pk], ANN, typed)
    english, german = newest()
    assert english == f"job {job.pk}'s campaign paused: no new call starts until it is resumed by ann. Reason: {typed}"
    assert german.startswith(f"Kampagne von Auftrag {job.pk} pausiert: ")
    assert german.endswith(f" durch ann. Grund: {typed}")


@pytest.mark.parametrize("typed", TYPED)
def test_old_and_new_values_are_shown_as_they_were_typed(typed):
    vendor = factories.vendor()
    with facts.log_changes(vendor, facts.vendor_facts):
        Vendor.objects.filter(pk=vendor.pk).update(name=typed, paused=True, paused_reason=typed)
    english, german = newest()
    assert f"paused none → {typed}" in english
    assert f"→ {typed}" in german
    assert f"pausiert keines → {typed}" in german


def test_what_was_decided_about_jobs_is_german():
    job = factories.campaign_with_job(1200).campaign.jobs.get()
    pausing.set_limits([job.pk], {"bounce_limit": 8.0, "complaint_limit": 0.0}, ANN)
    assert newest()[1].startswith(
        f"Kampagne von Auftrag {job.pk}: Grenze für Rückläufer wie die Installation → 8\u202f%, Grenze für Beschwerden "
    )
    actions.stop_jobs([job.pk], ANN, "wrong text")
    english, german = newest()
    assert english == f"job {job.pk} stopped: no new call starts by ann. Reason: wrong text"
    assert german == f"Auftrag {job.pk} gestoppt: Es beginnt keine neue Übergabe durch ann. Grund: wrong text"


def test_changes_of_senders_vendors_keys_and_suppressions_are_german():
    sponsor, vendor = factories.sponsor(), factories.vendor()
    topic = Topic.objects.create(sponsor=sponsor, name="offers", title="off")
    assert sender_changes.rename_topic(topic.pk, "May", ANN)
    assert newest() == ("title off → May by ann", "Titel off → May durch ann")
    assert sender_changes.archive_topic(topic.pk, True, ANN)
    assert newest()[1] == "archiviert durch ann"
    assert sender_changes.remove_topic(topic, ANN)
    assert newest()[1].startswith("entfernt: ")
    identity = Identity(sponsor=sponsor, name="shop", from_address="shop@sender.example")
    assert sender_changes.add_identity(identity, ANN)
    assert newest() == ("added by ann", "hinzugefügt durch ann")
    assert sender_changes.change_identity(identity.pk, {"from_name": "no"}, ANN)
    assert newest()[1].endswith(" → no durch ann")
    key, _ = keys.create_key(sponsor, "live", ["send", "read"], by=ANN)
    assert newest()[1].endswith(", read durch ann")
    assert newest()[1].startswith(f"Schlüssel {key.prefix} angelegt (live) für send")
    keys.extend_key(key, None, ANN)
    assert newest()[1] == f"Schlüssel {key.prefix} läuft nie ab durch ann"
    suppressing.add_and_record(sponsor.pk, "email", [NewSuppression("p@example.org", "by_hand", "Date")], ANN)
    assert newest()[1] == f"1 (email) für Mandant {sponsor.pk} hinzugefügt durch ann"
    price = Price(vendor=vendor, currency="EUR", per_unit=Decimal("0.07"), since=date(2036, 5, 3), reason="off")
    assert prices.add_price(price, ANN)
    assert newest()[1] == "Preis hinzugefügt: 0.07 EUR ab 2036-05-03 durch ann. Grund: off"


def test_a_forgotten_secret_says_in_german_why_and_what_a_person_had_typed_before():
    vendor = factories.vendor(adapter="http", settings={"url": "https://one.example/"})
    login = vendor.credentials.first() or factories.credential(vendor)
    Credential.objects.filter(pk=login.pk).update(secret={"X-Key": "k"}, paused=True, paused_reason="May")
    vendor.settings = {"url": "https://two.example/"}
    configuration.save_vendor(vendor, ["settings"], ANN)
    login.refresh_from_db()
    with translation.override("de"):
        (_, german) = newest()
        assert german.startswith(
            "pausiert: sein Geheimnis ist vergessen, denn bei seinem Anbieter hat sich url geändert"
        )
        (shown,) = [configuration.said.show(login.why_paused)]
    assert shown.startswith("sein Geheimnis ist vergessen")
    assert shown.endswith("(war pausiert: May)")


def test_each_loss_of_a_recovery_is_german():
    losses = [
        Loss(vendor="one", calls=1200, messages=1200, witnessed=True),
        Loss(vendor="two", calls=0, messages=7, witnessed=False),
    ]
    with translation.override("de"):
        assert configuration.said.show(recovery.describe_losses(losses)) == (
            "one: 1.200 Übergaben, die den Zeilen unbekannt sind; in Klärung: 1.200 Nachrichten; "
            "two: Niemand weiß, was übergeben wurde, alles Wartende ist in Klärung: 7 Nachrichten"
        )


def test_pages_with_a_history_show_it_in_german(admin_client):
    job = factories.campaign_with_job(1200).campaign.jobs.get()
    ann = Actor("ann", admin_client.get("/").wsgi_request.user.pk)
    assert pausing.pause_jobs([job.pk], ann, "no money")
    assert actions.stop_jobs([job.pk], Actor("bob"), "wrong text")
    topic = Topic.objects.create(sponsor=job.sponsor, name="offers", title="Offers")
    goes_on = Said("approved (%(count)s recipients): %(why)s", count=1200, why=Said("it goes on"))
    for model, pk, what in (
        (Campaign, job.campaign_id, goes_on),
        (Vendor, job.vendor_id, history.change_sentence("paused_reason", "", "no money")),
        (Topic, topic.pk, Said("archived")),
        (Store, 1, Said("recovered: %(losses)s", losses=recovery.describe_losses([]))),
    ):
        history.record_changes(ann, model, [(pk, what)], "as it must be")
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


def test_an_entry_of_before_is_shown_as_it_is_stored(admin_client):
    job = factories.campaign_with_job(5).campaign.jobs.get()
    history.record_changes(ANN, Job, [(job.pk, Said("archived"))], "row 7: Ann asked for it")
    HistorySentence.objects.all().delete()
    page = admin_client.get(f"/admin/campaigns/job/{job.pk}/history/", headers=GERMAN).text
    assert "archived by ann. Reason: row 7: Ann asked for it" in page


def test_a_history_of_any_length_is_read_with_one_statement(admin_client, django_assert_num_queries):
    job = factories.campaign_with_job(5).campaign.jobs.get()
    for number in range(30):
        history.record_changes(ANN, Job, [(job.pk, Said("removed: %(name)s", name=str(number)))])
    entries = list(LogEntry.objects.all())
    with django_assert_num_queries(1):
        assert len(history.entry_sentences(entries)) == 30


def test_a_jobs_history_has_all_its_entries_however_few_jobs_the_list_has(admin_client):
    job = factories.campaign_with_job(5).campaign.jobs.get()
    Job.objects.filter(pk=job.pk).update(created_at=timezone.now() - timedelta(days=30))
    history.record_changes(Actor("ann"), Job, [(job.pk, f"decision {number}") for number in range(3)])
    page = admin_client.get(f"/admin/campaigns/job/{job.pk}/history/").text
    assert [number for number in range(3) if f"<td>decision {number} by ann</td>" in page] == [0, 1, 2]
    assert "3 entries" in page


class OneOfAll(dict):
    """A row with every column that a sentence may ask for."""

    def __missing__(self, name):
        return self.setdefault(name, "fsync" if name == "loses" else "7")

    def items(self):
        return dict.fromkeys(COLUMNS, "7").items()


COLUMNS = {
    name for path in Path(audit.__file__).parent.glob("*.py") for name in re.findall(r"%\((\w+)\)s", path.read_text())
}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.text)
def test_a_question_of_the_audit_and_what_breaks_it_are_german(question):
    said = question.example(OneOfAll())
    with translation.override("de"):
        assert show(question.text) != question.text
        assert show(said) != said or said == "7"


def test_an_audit_is_kept_with_its_sentences_as_data():
    """A row of a version without them is shown in English."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE campaigns_store SET system = 'job 7'")  # a name that reads like a sentence
    (broken,) = [one for one in audit.run_and_keep() if one.question.startswith("the rows are in the PostgreSQL")]
    assert broken.examples == ("the store was taken over: job 7",)
    _, checks = audit.read_last_audit()
    (kept,) = [one for one in checks if one.question == broken.question]
    with translation.override("de"):
        assert show(kept.examples[0]) == "der Datenspeicher wurde übernommen: job 7"
        assert show(kept.question) != kept.question
    Audited.objects.update(said=None)
    _, checks = audit.read_last_audit()
    with translation.override("de"):
        assert [show(one.question) for one in checks] == [one.question for one in audit.ask_all_questions()]
