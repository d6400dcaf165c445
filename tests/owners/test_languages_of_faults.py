"""What is wrong with what was typed or uploaded is said in the language of the page, whatever says it."""

import ast
import importlib
import re
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission
from django.urls import reverse
from django.utils import timezone, translation

from campaigns import stored_texts
from campaigns.intake import BadInput, RowError
from campaigns.intake.storage import check_times
from campaigns.models import Topic
from tests import factories
from tests.owners.test_languages import GERMAN
from tests.owners.test_wizard import SOON, press, ready
from vendors import prices
from vendors.history import Actor
from vendors.models import Price

ROOT = Path(__file__).parents[2]
NOT_ON_PAGES = {  # what is only said at a shell, or by the API; a page says the first ones of a time that it names
    "7; 7",
    "7 7 has no time zone; add one, like 7+00:00",
    "7 7 is not a time; write it like 2030-01-31T18:00:00+00:00",
    "7 7 is not a time with its zone; write it like 2030-01-31T18:00:00+00:00",
    "7 7 is past",
    "7 7 is more than ten years ahead",
    "the 7 limit is a percentage from 0 to 100; 0 means none",
    "there is no folder or archive 7",
    "the archive cannot be read: 7",
    "7: 7",  # a recipient, and what an adapter says of its letter
    "7",
    "job 7's campaign goes on7",  # "" or after how many it waits; both are tried with the histories
    "the 7: 7",  # the body, the subject or the text, each listed
    "the 7, line 7: 7",
    "the 7 is nested too deeply",
    "the 7 is longer than 1,000,000 characters",
}


SAYING = {  # which argument of each is what a page says
    "BadInput": 0,
    "RowError": 1,
    "ValidationError": 0,
    "NotAPrice": 0,
    "InvalidSettings": 0,
    "NoSecret": 0,
    "TemplateError": 0,
    "TooManySteps": 0,
    "CannotResolve": 0,
    "CannotDecide": 0,
    "TemplateRefused": 0,
    "NotEntitled": 0,
    "Forbidden": 0,
    "JobDecision": 2,
    "add_error": 1,
}


def sentences():
    """Each text with which a fault of a list or a form is made, with 7 for what is not known before it is."""
    for path in sorted(path for name in ("campaigns", "vendors", "mailhub") for path in (ROOT / name).rglob("*.py")):
        source = path.read_text()
        if "migrations" in path.parts or not any(f"{name}(" in source for name in SAYING):
            continue
        known = vars(importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)))
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call):
                given = SAYING.get(getattr(call.func, "id", None) or getattr(call.func, "attr", ""))
                if given is not None and len(call.args) > given:
                    yield from ((text, path.name) for text in texts(call.args[given], known))


def texts(node, known):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body, known)
        yield from texts(node.orelse, known)
    elif isinstance(node, ast.List | ast.Dict):
        for one in node.elts if isinstance(node, ast.List) else node.values:
            yield from texts(one, known)
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else filled(part, known) for part in node.values)


def filled(part, known):
    """A constant of the module, as it is; else a 7."""
    if isinstance(part.value, ast.Name) and part.value.id.isupper():
        form = part.format_spec.values[0].value if part.format_spec else ""
        return format(known[part.value.id], form)
    return "7"


def test_each_sentence_about_a_fault_has_a_german_one():
    found = {text: file for text, file in sentences() if text not in NOT_ON_PAGES}
    assert len(found) > 100
    with translation.override("de"):
        english = {text: file for text, file in found.items() if english_parts(text)}
    assert not english


def english_parts(text):
    """Those that a German page would show as they are."""
    german = stored_texts.in_language(text)
    parts = (
        part for part in re.split("[:;] ", text) if part not in ("more", "bulk'") and not part.startswith("manage.py")
    )
    return [part for part in parts if re.search(r"[a-z]{3}", part) and part in german]


def test_times_that_are_named_and_rows_are_said_in_german_too():
    now = timezone.now()
    with translation.override("de"):
        for at in (now - timedelta(hours=1), now + timedelta(days=5000)):
            with pytest.raises(BadInput) as said:
                check_times(at, None, now)
            assert stored_texts.in_language(str(said.value)).startswith("Der Zeitpunkt des Versands")
        bad = BadInput([RowError(2, "there is no recipient"), RowError(7, "'A' should be a number")], 60)
        first, second, more = stored_texts.in_language(str(bad)).splitlines()
        assert first.startswith("Zeile 2: ") and second.startswith("Zeile 7: 'A' ") and "60" in more
        assert not english_parts(str(bad))
    assert stored_texts.in_language(str(bad)) == str(bad)


@pytest.mark.django_db
def test_a_page_says_in_german_what_is_wrong_with_the_hours(client, owner):
    """As an example of all: the message for the next page is made in its reader's language."""
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "de"
    sponsor = factories.sponsor()
    sponsor.users.add(owner)
    login = factories.credential(factories.vendor(settings={"url": "http://127.0.0.1:9/"}))
    factories.entitle([sponsor], [login.vendor])
    draft = ready(client, login)
    hours = {"hours_from": "09:00", "hours_to": "18:00", "hours_of_each": "on"}
    page = press(client, draft, "send", **SOON | hours).headers["Location"]
    assert "brauchen eine Spalte time_zone" in client.get(page).content.decode()


ROUTE = {
    f"entries-{name}": value for name, value in {"TOTAL_FORMS": "0", "INITIAL_FORMS": "0", "MIN_NUM_FORMS": "0"}.items()
}


@pytest.mark.django_db
def test_operators_forms_say_what_is_wrong_in_german(admin_client):
    vendor = factories.vendor("amazingmail", limits=[(5, 60)])
    sponsor = factories.sponsor()
    prices.add(Price(vendor=vendor, per_unit=Decimal(1), currency="EUR", since=prices.today()), Actor("ann"))
    offers = Topic.objects.create(sponsor=factories.sponsor("other"), name="offers", title="Offers")
    suppressed = {"sponsor": sponsor.pk, "channel": "email", "address": "nowhere", "reason": "by_hand"}
    past = {"until_0": "2001-01-01", "until_1": "10:00:00", "topic": offers.pk}
    wanted = {
        ("campaigns/suppression", "nowhere"): (suppressed, "In einer E-Mail-Adresse muss ein @ stehen."),
        ("campaigns/suppression", "past"): (suppressed | past, "Dieser Zeitpunkt ist vorbei."),
        ("campaigns/suppression", "topic"): (suppressed | past, "Ein Thema gehört nur zum Grund Abgemeldet."),
        ("campaigns/suppression", "other"): (
            suppressed | past | {"reason": "unsubscribed"},
            "Das Thema gehört einem anderen Mandanten.",
        ),
        ("vendors/price", "again"): (
            {"vendor": vendor.pk, "currency": "EUR", "per_unit": 2, "per_message": 0, "since": prices.today()},
            "Nicht hinzugefügt: damit werden Preise berichtigt, die schon gelten: bitte einen Grund angeben.",
        ),
        ("vendors/price", "currency"): (
            {"vendor": vendor.pk, "currency": "XYZ", "per_unit": 2, "per_message": 0, "since": "2099-01-01"},
            "&#x27;XYZ&#x27; ist keine Währung nach ISO 4217; zum Beispiel EUR",
        ),
        ("campaigns/sponsor", "quiet"): (
            {"name": "new", "quiet_from": "10:00:00", "phone_region": "xx"},
            "&#x27;xx&#x27; ist keine Region: zwei Großbuchstaben nach ISO 3166, wie GB",
        ),
        ("vendors/vendor", "settings"): (
            {"slug": "new", "name": "new", "channel": "email", "adapter": "http", "settings": '{"ur": "x"}'},
            "ur ist keine Einstellung; es gibt ",
        ),
        ("vendors/vendor", "missing"): (
            {"slug": "new", "name": "new", "channel": "email", "adapter": "http", "settings": '{"url": "ftp://x"}'},
            "url muss eine http- oder https-URL mit einem Host sein",
        ),
        ("campaigns/identity", "none"): (
            {"sponsor": sponsor.pk, "name": "a b", "channel": "sms", "from_name": "x"},
            "nur Buchstaben, Ziffern, Punkte, Binde- und Unterstriche, höchstens 50",
        ),
        ("campaigns/route", "none"): (ROUTE | {"name": "a", "channel": "email"}, "Eine Route hat mindestens einen"),
    }
    pages = {
        name: admin_client.post(f"/admin/{name[0]}/add/", sent, headers=GERMAN) for name, (sent, _) in wanted.items()
    }
    assert not [name for name, (_, said) in wanted.items() if said not in pages[name].text]


@pytest.mark.django_db
def test_owners_forms_say_in_german_what_a_model_finds_wrong(client, owner):
    sponsor = factories.sponsor()
    sponsor.users.add(owner)
    owner.user_permissions.add(*Permission.objects.filter(codename__in=["add_identity", "change_identity"]))
    typed = {"sponsor": sponsor.pk, "name": "a b", "sender_id": "12"}
    page = client.post("/senders/add/sms/", typed, headers=GERMAN).text
    assert "nur Buchstaben, Ziffern, Punkte, Binde- und Unterstriche" in page
    assert "1 bis 11 Zeichen des SMS-Alphabets" in page


@pytest.mark.parametrize(
    ("typed", "german"),
    [
        ({"subject": "{{"}, "Betreff, Zeile 1: "),
        ({"body": "{% for a in b %}{{ a }}"}, "Text, Zeile 1: "),
        ({"channel": "sms", "html": "on", "subject": ""}, "Text: eine SMS ist reiner Text, kein HTML"),
        ({"body": "{{ x.__class__ }}"}, "ist nichts für Vorlagen (Zeile 1)"),
    ],
)
@pytest.mark.django_db
def test_what_is_wrong_in_a_template_is_german(client, owner, typed, german):
    sponsor = factories.sponsor()
    sponsor.users.add(owner)
    given = {
        "sponsor": sponsor.pk,
        "name": "spring",
        "channel": "email",
        "subject": "Hi",
        "body": "Good day",
        "based_on": 0,
    }
    assert german in client.post(reverse("template-new"), given | typed, headers=GERMAN).text
