"""What the DNS says about a sender identity is German for who reads German, every sentence of it."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest
from django.utils import translation

from campaigns import stored_texts
from campaigns.models import Identity
from campaigns.stored_findings import FINDINGS
from tests import factories
from tests.dns_server import dns_server
from tests.owners.test_languages import GERMAN
from tests.owners.test_languages_of_pages import english

ROOT = Path(__file__).parents[2]
SEVENS = defaultdict(lambda: "7")


def said():
    """What findings say, of several words, between what is filled in; no descriptions."""
    for path in sorted((ROOT / "campaigns/deliverability").glob("*.py")):
        tree = ast.parse(path.read_text())
        described = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
        texts = (one for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str))
        for text in (one.value for one in texts if id(one) not in described):
            if len(re.findall("[a-z]{2,}", text)) > 2 and " " in text.strip() and "[" not in text:
                yield text.strip(" ;:,.'")


def test_whatever_a_finding_says_is_in_a_sentence_that_has_a_german_one():
    found = set(said()) - {"manage.py identity dkim", "manage.py identity set"}
    assert len(found) > 35
    assert not {text for text in found if not any(text in one for one in FINDINGS)}
    with translation.override("de"):
        assert not {one for one in FINDINGS if stored_texts.of_finding(one % SEVENS) == one % SEVENS}


@pytest.mark.parametrize(
    ("english", "german"),
    [
        ("answers and bounces go to mx.one.example", "Antworten und Rückläufer gehen an mx.one.example"),
        (
            "answers go to a.example; but b.example and c.example have no address that is reached from outside",
            "Antworten gehen an a.example; aber b.example and c.example haben keine Adresse, die von außen",
        ),
        (
            "bounces arrive nowhere: one.example has no MX record, and no address",
            "Rückläufer kommen nirgends an: one.example hat keinen MX-Eintrag, und auch keine Adresse",
        ),
        (
            "m._domainkey.one.example has the key that mailhub signs with (2,048 bits)",
            "m._domainkey.one.example hat den Schlüssel, mit dem mailhub signiert (2,048 Bit)",
        ),
        (
            "m._domainkey.one.example: the key is revoked (p= is empty)",
            "m._domainkey.one.example: der Schlüssel ist widerrufen (p= ist leer)",
        ),
        (
            "one.example: it allows everybody (+all); 3 of its look-ups find nothing, and receivers allow 2",
            "one.example: er erlaubt alle (+all); 3 seiner Nachfragen finden nichts, und Empfänger erlauben 2",
        ),
        ("aligned with From's one.example: the DKIM's one.example", "stimmt mit one.example des Absenders"),
        ("SPF and relay", "SPF und Relay"),
    ],
)  # fmt: skip
def test_a_finding_is_german(english, german):
    with translation.override("de"):
        assert stored_texts.of_finding(english).startswith(german)


@pytest.mark.django_db
def test_a_sender_identitys_page_says_in_german_what_the_dns_says(client, owner, settings):
    row = Identity(sponsor=factories.sponsor(), name="news", channel="email", from_address="news@one.invalid")
    row.save()
    row.sponsor.users.add(owner)
    with dns_server(settings) as server:
        server.text("one.invalid", "v=spf1 -all")
        page = client.post(f"/senders/{row.pk}/", headers=GERMAN).text
    assert "one.invalid hat einen Eintrag, der 0 von 10 Nachfragen braucht" in page
    assert "mailhub hat keinen Schlüssel dafür und signiert also nichts: manage.py identity dkim" in page
    assert "SPF und Relay" in page
    assert ">fehlt</span>" in page
    assert not [text for text in english(page) if "manage.py" not in text and "--sends-from" not in text]
