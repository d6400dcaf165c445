"""What is wrong with what was typed or uploaded is said in the language of the page, whatever says it."""

import ast
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission
from django.urls import reverse
from django.utils import timezone, translation

from campaigns.lists.intake import BadInput, RowError
from campaigns.lists.intake.checking import normal_email
from campaigns.lists.intake.storage import check_times
from campaigns.models import Topic
from campaigns.texts.render_pool import RenderPool, RequestRenderer
from campaigns.texts.templates import Source, TemplateError
from tests import factories
from tests.owners.test_languages import GERMAN
from tests.owners.test_wizard import SOON, press, ready
from tests.sources import find_modules, parse_those_with
from vendors import prices
from vendors.history import Actor
from vendors.models import Price
from vendors.said import Said, show

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


def said_plainly():
    """Yield each call that gives a page a finished English text in place of a form with its values."""
    for path, tree in parse_those_with(rf"\b({'|'.join(SAYING)})\(", find_modules()):
        for call in ast.walk(tree):
            if isinstance(call, ast.Call):
                given = SAYING.get(getattr(call.func, "id", None) or getattr(call.func, "attr", ""))
                if given is not None and len(call.args) > given and list(plain(call.args[given])):
                    yield path, ast.unparse(call)


def plain(node):
    if isinstance(node, ast.Constant | ast.JoinedStr):
        yield node
    for one in (
        *(getattr(node, name) for name in ("body", "orelse") if isinstance(node, ast.IfExp)),
        *getattr(node, "elts", ()),
        *(getattr(node, "values", ()) if isinstance(node, ast.Dict) else ()),
    ):
        yield from plain(one)


def test_a_fault_carries_its_form_and_values():
    assert not list(said_plainly())


def test_times_that_are_named_and_rows_are_said_in_german_too():
    now = timezone.now()
    with translation.override("de"):
        for at in (now - timedelta(hours=1), now + timedelta(days=5000)):
            with pytest.raises(BadInput) as said:
                check_times(at, None, now)
            assert show(str(said.value)).startswith("Der Zeitpunkt des Versands")
        errors = [RowError(2, Said("there is no recipient")), RowError(7, Said("the file is empty"))]
        bad = BadInput(errors, 1060)
        first, second, more = show(str(bad)).splitlines()
        assert first == "Zeile 2: Es gibt keinen Empfänger"
        assert second.startswith("Zeile 7: ") and "1.058" in more
    assert (
        str(bad) == "row 2: there is no recipient\nrow 7: the file is empty\n... and 1,058 more; 1,060 problems in all"
    )
    assert show(str(bad)) == str(bad)


def test_what_somebody_has_typed_is_never_translated():
    """A person's words may be those of a sentence of ours, or begin as one does."""
    with translation.override("de"):
        for typed in ("row 7: Ann asked for it", "May", "the file is empty", "paused"):
            assert show(typed) == typed
            assert show(str(BadInput(typed))) == typed
            assert show(Said("there is no column %(name)s", name=typed)) == f"Es gibt keine Spalte {typed}"


def test_an_address_that_nobody_can_have_is_explained_in_german():
    for typed, why in (("ann", "In einer E-Mail-Adresse muss ein @ stehen."), ("a n@b.de", "unzulässige Zeichen: ")):
        with pytest.raises(ValueError) as said:
            normal_email(typed)
        with translation.override("de"):
            assert why in show(str(said.value))
            assert "address" not in show(str(said.value))


def test_a_letter_that_another_process_renders_is_faulted_in_german_too():
    pool = RenderPool(1)
    renderer = RequestRenderer(pool)
    broken = Source(
        "Hi", "{% for a in b %}" + "{{ a|default('x') }}" * 60 + "{{ a.__class__ }}{% endfor %}", False, "", ()
    )
    try:
        with pytest.raises(TemplateError) as said:
            renderer.compile_content(broken, None)
    finally:
        renderer.close()
        pool.take_process().end()
    assert str(said.value) == "the body: the name '__class__' is not for templates (line 1)"
    with translation.override("de"):
        assert show(str(said.value)).startswith("Text: ") and "Vorlagen" in show(str(said.value))


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
    prices.add_price(
        Price(vendor=vendor, per_unit=Decimal(1), currency="EUR", since=prices.pricing_day()), Actor("ann")
    )
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
            {"vendor": vendor.pk, "currency": "EUR", "per_unit": 2, "per_message": 0, "since": prices.pricing_day()},
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
