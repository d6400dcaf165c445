"""What the DNS says about a sender identity is German for who reads German, every sentence of it."""

import ast
import re
from pathlib import Path

import pytest
from django.utils import translation

from campaigns.models import Identity
from campaigns.senders.deliverability import arrivals, dkim_records, dmarc, spf
from campaigns.senders.deliverability.dns_questions import DnsAnswer
from campaigns.senders.deliverability.findings import (
    WRONG,
    Finding,
    escape_for_terminal,
    faults_of_domain,
    join_with_and,
)
from tests import factories
from tests.dns_server import dns_server
from tests.owners.test_languages import GERMAN
from tests.owners.test_languages_of_pages import english
from vendors.said import Said, show

ROOT = Path(__file__).parents[2]


def unmarked():
    """Texts of several words, in findings, that no mark for translation is around; no descriptions."""
    for path in sorted((ROOT / "campaigns/senders/deliverability").glob("*.py")):
        tree = ast.parse(path.read_text())
        described = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
        calls = (one for one in ast.walk(tree) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name))
        marked = {id(arg) for one in calls if one.func.id == "gettext_noop" for arg in one.args}
        texts = (one for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str))
        for one in texts:
            several = len(re.findall("[a-z]{2,}", one.value)) > 2 and " " in one.value.strip() and "[" not in one.value
            if several and id(one) not in described | marked:
                yield one.value.strip(" ;:,.'")


def test_whatever_a_finding_says_is_marked_where_it_is_made():
    assert set(unmarked()) == {"manage.py identity dkim", "manage.py identity set"}


def german(sentence):
    with translation.override("de"):
        return show(sentence)


def test_a_finding_is_german_to_its_last_part():
    nothing = DnsAnswer("one.example").nothing_sentence("MX")
    nowhere = Said(arrivals.NOWHERE, mails=arrivals.BOUNCES, why=Said("%(why)s, and no address", why=nothing))
    assert nowhere == "bounces arrive nowhere: one.example has no MX record, and no address"
    assert german(nowhere) == "Rückläufer kommen nirgends an: one.example hat keinen MX-Eintrag, und auch keine Adresse"
    assert german(join_with_and(["b.example", "c.example", "d.example"])) == "b.example, c.example und d.example"
    assert german(arrivals.mx_title(arrivals.ANSWERS)) == "MX für Antworten"
    with pytest.raises(ValueError, match="revoked") as caught:
        dkim_records._read_dkim_record("v=DKIM1; p=")
    revoked = faults_of_domain("m._domainkey.one.example", [str(caught.value)])
    assert revoked == "m._domainkey.one.example: the key is revoked (p= is empty)"
    assert german(revoked) == "m._domainkey.one.example: der Schlüssel ist widerrufen (p= ist leer)"
    assert german(spf.AND_RELAY) == "SPF und Relay"
    assert german(Said("the DKIM's %(domain)s", domain="one.example")).endswith("one.example")
    assert dmarc.POLICIES == ("none", "quarantine", "reject")


def test_what_stands_in_the_dns_is_neither_translated_nor_obeyed():
    term = Said("%(domain)s is no term of SPF", domain="one.example: 'May\x1b'")
    found = Finding("SPF", WRONG, term)
    assert found.sentence == escape_for_terminal(term) == "one.example: 'May\\x1b' is no term of SPF"
    assert "'May\\x1b'" in german(found.sentence)
    assert german(found.sentence) != found.sentence


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
