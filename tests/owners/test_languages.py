"""Pages are in the language that their user chooses; what programs read, and what is stored, stays English."""

import ast
import gettext
import io
import re
from types import SimpleNamespace

import pytest
from babel.messages.extract import extract
from babel.messages.pofile import read_po
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.test import RequestFactory
from django.utils import formats, timezone, translation
from django.utils.translation.template import templatize

from campaigns.doors import labels
from campaigns.engine.audit.questions import QUESTIONS
from campaigns.models import Message, Webhook
from mailhub import languages, model_texts
from tests import factories
from tests.sources import ROOT, find_modules, parse_those_with
from vendors import history
from vendors.models import RateLimit

OF_GERMAN = ROOT / "mailhub/locale/de/LC_MESSAGES"
PLACEHOLDER = re.compile(r"%\(\w+\)s|%s|\{\w+\}")
KEYWORDS = {
    **dict.fromkeys(("_", "gettext", "gettext_lazy", "gettext_noop", "Said"), None),
    **dict.fromkeys(("ngettext", "ngettext_lazy"), (1, 2)),
    "pgettext": ((1, "c"), 2),
}
GERMAN = {"Accept-Language": "de-DE,de;q=0.9,en;q=0.5"}


@pytest.fixture(scope="module")
def catalogue():
    with (OF_GERMAN / "django.po").open("rb") as file:
        return {one.id: one for one in read_po(file, locale="de") if one.id}


def marked():
    """The texts that code and templates of pages mark, with their files."""
    for path in find_modules(migrations=True):
        yield from ((text, path) for text in texts(path.read_bytes()))
    admin.autodiscover()
    with translation.override("en"):
        yield from ((text, model_texts.__file__) for text in model_texts.shown_texts())
    for path in (*(ROOT / "mailhub/templates").rglob("*.html"), *(ROOT / "campaigns").rglob("*.html")):
        yield from ((text, path) for text in texts(templatize(path.read_text()).encode()))


def texts(source):
    if b"_(" not in source and b"gettext" not in source and b"Said(" not in source:
        return
    for _line, found, _comments, _context in extract("python", io.BytesIO(source), KEYWORDS):
        yield found


def test_each_marked_text_has_a_german_one(catalogue):
    assert not [(text, path) for text, path in marked() if text not in catalogue]
    empty = [one.id for one in catalogue.values() if not all([one.string] if isinstance(one.id, str) else one.string)]
    assert not empty
    assert not [one.id for one in catalogue.values() if one.fuzzy]


def test_no_text_is_marked_inside_an_f_string():
    """Babel does not see it there with Python 3.11."""
    for path, tree in parse_those_with(rf"\b({'|'.join(KEYWORDS)})\(", find_modules(migrations=True)):
        for string in (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)):
            calls = [node for node in ast.walk(string) if isinstance(node, ast.Call)]
            texts_of = [call.args[0] for call in calls if ast.unparse(call.func) in KEYWORDS]
            assert not [text for text in texts_of if isinstance(text, ast.Constant)], (path, string.lineno)


def test_a_german_text_has_the_placeholders_of_the_english_one(catalogue):
    for one in catalogue.values():
        english, german = ([one.id], [one.string]) if isinstance(one.id, str) else (one.id, one.string)
        wanted = set(PLACEHOLDER.findall(english[-1]))
        assert set(PLACEHOLDER.findall(german[-1])) == wanted, one.id
        assert set(PLACEHOLDER.findall(german[0])) <= wanted, one.id


def test_the_compiled_catalogue_says_what_its_source_says(catalogue):
    with (OF_GERMAN / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for one in catalogue.values():
        if isinstance(one.id, str):
            assert compiled.gettext(one.id) == one.string
        else:
            assert tuple(compiled.ngettext(*one.id, n) for n in (1, 2)) == one.string
    known = {key[0] if isinstance(key, tuple) else key for key in compiled._catalog}
    assert known - {""} == {one if isinstance(one, str) else one[0] for one in catalogue}


def test_each_choice_of_a_field_has_a_german_name(catalogue):
    models = [one for name in ("campaigns", "vendors", "mailhub") for one in apps.get_app_config(name).get_models()]
    fields = [getattr(field, "base_field", field) for model in models for field in model._meta.local_fields]
    names = {str(name) for field in fields for _value, name in field.flatchoices if field.name != "language"}
    assert len(names) > 40
    assert not names - set(catalogue)


def test_each_question_of_the_audit_and_each_text_below_a_field_of_a_form_is_named_for_the_catalogue(catalogue):
    assert {question.text for question in QUESTIONS} <= set(catalogue)
    request = RequestFactory().get("/")
    request.user = User(is_superuser=True)
    ours = ("campaigns", "vendors", "mailhub", "waiter")
    models = [one for model, one in admin.site._registry.items() if model._meta.app_label in ours]
    assert len(models) > 20
    with translation.override("en"):
        fields = [field for one in models for field in one.get_form(request).base_fields.values()]
    assert {str(field.help_text) for field in fields} - {""} <= set(catalogue)


def test_the_history_is_english():
    form = SimpleNamespace(changed_data=[], initial={}, cleaned_data={})
    limits = SimpleNamespace(
        model=RateLimit, new_objects=["5 / 60 s"], deleted_objects=[], changed_objects=[], forms=[]
    )
    with translation.override("de"):
        assert str(RateLimit._meta.verbose_name) == "Grenze"
        assert history.describe_forms(form, [limits]) == "rate limit 5 / 60 s added"


def test_what_scripts_say_is_known():
    scripts = "".join(path.read_text() for path in (ROOT / "mailhub/static/mailhub").glob("*.js"))
    assert set(re.findall(r'\bsay\("([^"]+)"', scripts)) == set(languages.OF_SCRIPTS)


def test_german_forms_of_numbers_and_times():
    at = timezone.now().replace(year=2026, month=5, day=3, hour=14, minute=5)
    with translation.override("de"):
        assert formats.number_format(1234567, force_grouping=True) == "1.234.567"
        assert formats.date_format(at, "j M Y, H:i T") == "3. Mai 2026, 14:05 UTC"
    with translation.override("en"):
        assert formats.date_format(at, "j M Y, H:i T") == "3 May 2026, 14:05 UTC"


@pytest.mark.django_db
def test_the_browser_asks_for_german_and_the_user_chooses_english(client):
    page = client.get("/login/", headers=GERMAN)
    assert '<html lang="de">' in page.text
    assert "Benutzername" in page.text
    assert {"Accept-Language", "Cookie"} <= {one.strip() for one in page.headers["Vary"].split(",")}
    chosen = client.post("/language/", {"language": "en", "next": "/login/"})
    assert chosen.headers["Location"] == "/login/"
    assert "User name" in client.get("/login/", headers=GERMAN).text
    assert "User name" in client.get("/login/", headers={"Accept-Language": "fi"}).text


@pytest.mark.django_db
def test_nobody_is_led_elsewhere_by_choosing_a_language(client):
    chosen = client.post("/language/", {"language": "de", "next": "https://elsewhere.example/"})
    assert "elsewhere" not in chosen.headers["Location"]


@pytest.mark.django_db
def test_owners_pages_are_german_and_what_a_thread_does_then_is_english(client, owner):
    campaign = factories.campaign_with_job(1200).campaign
    campaign.sponsor.users.add(owner)
    home = client.get("/", headers=GERMAN).text
    assert "Kampagnen" in home
    assert "1.200" in home
    assert "Über diese Kampagne" in client.get(f"/campaigns/{campaign.pk}/", headers=GERMAN).text
    assert translation.get_language() == "en"
    assert "Campaigns" in client.get("/").text


@pytest.mark.django_db
def test_a_poll_in_another_language_is_answered_anew(admin_client):
    poll = {"HX-Request": "true", **GERMAN}
    german = admin_client.get("/admin/operations/pulse/", headers=poll)
    tag = german.headers["ETag"]
    assert admin_client.get("/admin/operations/pulse/", headers={**poll, "If-None-Match": tag}).status_code == 304
    english = admin_client.get("/admin/operations/pulse/", headers={"HX-Request": "true", "If-None-Match": tag})
    assert english.status_code == 200
    assert "Needs attention" in english.text


@pytest.mark.django_db
def test_programs_get_english_whatever_they_ask_for(client):
    answer = client.get("/api/v1/nothing", headers=GERMAN)
    assert answer.json()["title"] == "There is nothing here"
    assert "Content-Language" not in answer.headers


@pytest.mark.django_db
def test_files_are_english(client, owner):
    campaign = factories.campaign_with_job(2).campaign
    campaign.sponsor.users.add(owner)
    file = client.get(f"/campaigns/{campaign.pk}/report.csv", headers=GERMAN)
    assert "Waiting" in file.getvalue().decode()
    assert "Wartet" in client.get(f"/campaigns/{campaign.pk}/recipients/", headers=GERMAN).text


@pytest.mark.django_db
def test_what_a_german_page_stores_is_english(client, owner):
    hook = Webhook.objects.create(sponsor=factories.sponsor(), url="https://receiver.example/hook")
    hook.sponsor.users.add(owner)
    owner.groups.add(Group.objects.get(name="integrator"))
    client.post(f"/webhooks/{hook.pk}/switch/", {"enabled": "on"}, headers=GERMAN)
    hook.refresh_from_db()
    assert hook.disabled_reason == "by hand"
    assert "von Hand" in client.get(f"/webhooks/{hook.pk}/", headers=GERMAN).text


@pytest.mark.django_db
def test_the_desk_names_rows_fields_limits_and_shares_in_german(admin_client):
    job = factories.campaign_with_job(2).campaign.jobs.get()
    RateLimit.objects.create(vendor=job.vendor, units=1200, seconds=1)
    page = admin_client.get(f"/admin/campaigns/job/{job.pk}/change/", headers=GERMAN).text
    assert f"<h1>Auftrag {job.pk}</h1>" in page
    message = Message.objects.order_by("pk")[0]
    page = admin_client.get(f"/admin/campaigns/message/{message.pk}/change/", headers=GERMAN).text
    assert f"<h1>Nachricht {message.pk}</h1>" in page
    assert {"Stand:", "Kosten:"} <= set(re.findall("<label>([^<]+)</label>", page))
    assert "1.200 je Sekunde" in admin_client.get("/admin/", headers=GERMAN).text
    with translation.override("de"):
        assert labels.format_share(0.2506) == "25,1\u202f%"
    assert labels.format_share(0.2506) == "25.1%"
