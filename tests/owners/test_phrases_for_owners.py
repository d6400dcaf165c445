"""Owners read the words of their work: no job, unit or first call, and no UTC where the browser has told its zone."""

import ast
import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone, translation

from campaigns.doors.browser_zones import COOKIE
from campaigns.doors.owner_phrases import FORMS, tell_owner
from campaigns.models import Campaign, Draft, Entitlement
from tests import factories
from tests.browser import every_page
from tests.front.program import api_vendor, fresh
from tests.owners.test_languages import GERMAN
from tests.owners.test_languages_of_pages import Texts, parts
from vendors import history
from vendors.models import RateLimit
from vendors.said import Said

__all__ = ["fresh"]
ROOT = Path(__file__).parents[2]
TELLING = ("campaigns/operations/actions.py", "campaigns/operations/pausing.py", "campaigns/engine/decisions.py",
    "campaigns/engine/doubts/resolve.py", "campaigns/engine/pausing/pauses.py")  # fmt: skip
OPERATORS = re.compile(
    r"\b(jobs?|units?|credentials?|(first|last) call|UTC|mailcasters?|Redis|dispatch)\b", re.IGNORECASE
)
IN_GERMAN = re.compile(
    r"\b(Auftr[aä]ge?s?|Job|Einheit(en)?|Credentials?|Zug[aä]ng(e|s|en)?|(erste|letzte)r? Aufruf|UTC|"
    r"Mailcaster|Redis)\b"
)
HOUR = timedelta(hours=1)


def shut(**fields):
    return lambda login: type(login).objects.filter(pk=login.pk).update(**fields)


def limit_of_0(login):
    RateLimit.objects.create(vendor=login.vendor, credential=login, units=0, seconds=60)


MOODS = {
    "down": lambda login: factories.condition(login, failing=HOUR, answer="no connection: [Errno 111]"),
    "paused": shut(paused=True, paused_reason="http 401: login refused"),
    "paused without a word": shut(paused=True),
    "held": shut(braked_at=timezone.now(), brake_held_at=timezone.now()),
    "braked": shut(braked_at=timezone.now(), retry_after_until=timezone.now() + HOUR),
    "asked to wait": shut(retry_after_until=timezone.now() + HOUR, asked_wait=3600.0),
    "limit of 0": limit_of_0,
    "no caster": lambda login: login.vendor.mailcasters.update(enabled=False),
    "no sender": lambda login: type(login.vendor).objects.update(slug="elsewhere"),
    "without entitlement": None,
}
SENTENCES = {
    "paused": "account default paused: http 401: login refused",
    "held": "account default: held, because its vendor gave no clear answers",
    "limit of 0": "account default: its limit is 0",
}
# Pages about programs name the API's own words; headings of reports in UTC are data.
OF_PROGRAMS = {"webhook", "webhooks", "webhook-add", "key-make", "keys", "webhook-add-mistake", "webhook-remove"}
# What rows have said, and the choice of a zone.
DATA = re.compile(r"^(UTC|Etc/UTC)$|Appointmentreminder|^API |4711")


def forms():
    """The sentences of decisions that speak of a job."""
    for name in TELLING:
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("gettext_noop", "Said") and node.args:
                form = node.args[0]
                if isinstance(form, ast.Constant) and re.search(r"\bjob\b|resume_job", str(form.value)):
                    yield form.value


def test_each_decision_about_a_job_has_a_phrase_for_owners():
    found = set(forms())
    assert len(found) > 20
    assert found - set(FORMS) == set(), "campaigns/doors/owner_phrases.py lacks these"
    assert {form for form in FORMS if "job" in form} - found == set(), "nobody says these any more"
    assert not [form for form in FORMS.values() if OPERATORS.search(re.sub(r"%\(\w+\)s", "", form))]


def test_a_reason_within_a_decision_is_told_so_too_and_typed_words_stay():
    why = Said("job %(job)s is %(why)s", job="7", why=Said("held: its sender identity is disabled"))
    assert tell_owner(why) == "it is held: its sender identity is disabled"
    assert tell_owner("job 7 stopped: no new call starts") == "job 7 stopped: no new call starts", "somebody's words"


def said_on(client, path, language, fields=None):
    headers = GERMAN if language == "de" else {}
    answer = client.get(path, headers=headers) if fields is None else client.post(path, fields, headers=headers)
    with translation.override(language):
        return Texts(answer.text).found


@pytest.mark.slow("many")
@pytest.mark.django_db
@pytest.mark.parametrize(("language", "foreign"), [("en", OPERATORS), ("de", IN_GERMAN)])
def test_no_page_of_owners_speaks_as_operators_do(fresh, admin_client, language, foreign):
    rows = every_page.rows(admin_client)
    admin_client.cookies[COOKIE] = "Europe/Berlin"
    found = {}

    def look(name, texts):
        for text in texts:
            if foreign.search(text) and not DATA.search(text):
                found.setdefault(text, []).append(name)

    pages = {name: path for name, path in every_page.owners(rows).items() if name not in OF_PROGRAMS}
    for name, path in pages.items():
        look(name, said_on(admin_client, path, language))
    for name, path in parts(rows):
        if not path.startswith("/admin/"):
            look(name, said_on(admin_client, path, language))
    for name, (path, fields) in every_page.pressed(rows).items():
        if not path.startswith("/admin/") and name not in OF_PROGRAMS:
            look(name, said_on(admin_client, path, language, fields))
    assert not found, "\n".join(f"{text!r}: {', '.join(names[:3])}" for text, names in found.items())


@pytest.mark.django_db
@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("mood", MOODS)
def test_a_vendor_in_trouble_is_told_in_owners_words(fresh, admin_client, mood, language):
    vendor = factories.at_work(api_vendor(slug="good", limits=[(5, 60)]))
    login = vendor.credentials.get()
    job = factories.campaign_with_job(30, of=login, status="DISPATCHED")
    if mood == "without entitlement":
        Entitlement.objects.filter(sponsor=job.sponsor_id).delete()
        type(job).objects.filter(pk=job.pk).update(status="READY")
    else:
        MOODS[mood](login)
    draft = Draft.objects.create(sponsor=job.sponsor, name="May", credential=login)
    admin_client.cookies[COOKIE] = "Europe/Berlin"
    seen = []
    for path in (
        "/",
        f"/campaigns/{job.campaign_id}/",
        f"/campaigns/{job.campaign_id}/report/",
        f"/drafts/{draft.pk}/",
    ):
        seen += said_on(admin_client, path, language)
    foreign = OPERATORS if language == "en" else IN_GERMAN
    assert [text for text in seen if foreign.search(text) and not DATA.search(text)] == []
    if mood in SENTENCES and language == "en":
        assert any(SENTENCES[mood] in text for text in seen), seen


@pytest.mark.django_db
def test_a_stored_history_is_read_in_owners_words_by_owners_and_in_ours_by_operators(fresh, admin_client):
    job = factories.campaign_with_job(3, status="DISPATCHED")
    why = Said("credential %(name)s paused: %(why)s", name="acc-7", why="invoice 4711")
    history.record_changes(history.Actor("Ann"), Campaign, [(job.campaign_id, Said("paused: %(why)s", why=why))])
    assert any(
        "account acc-7 paused: invoice 4711" in one
        for one in said_on(admin_client, f"/campaigns/{job.campaign_id}/", "en")
    )
    page = f"/admin/campaigns/campaign/{job.campaign_id}/history/"
    assert any("credential acc-7 paused: invoice 4711" in one for one in said_on(admin_client, page, "en"))


@pytest.mark.django_db
def test_times_are_those_of_the_browser_that_has_told_its_zone(client, owner):
    job = factories.campaign_with_job(3, status="DISPATCHED")
    job.campaign.sponsor.users.add(owner)
    type(job.campaign).objects.filter(pk=job.campaign_id).update(created_at="2026-01-15T12:00:00Z")
    path = f"/campaigns/{job.campaign_id}/"
    assert "15 Jan 2026, 12:00 UTC" in client.get(path).text
    for zone, shown in (("Asia/Kolkata", "17:30 IST"), ("Europe/Berlin", "13:00 CET"), ("nowhere/land", "12:00 UTC")):
        client.cookies[COOKIE] = zone
        assert f"15 Jan 2026, {shown}" in client.get(path).text
    assert timezone.get_current_timezone_name() == "UTC", "only for that request"
