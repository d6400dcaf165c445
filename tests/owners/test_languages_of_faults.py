"""What is wrong with what was typed or uploaded is said in the language of the page, by every BadInput there is."""

import ast
import importlib
import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone, translation

from campaigns.intake import BadInput, RowError
from campaigns.intake.storage import check_times
from mailhub import stored_texts
from tests import factories
from tests.owners.test_wizard import SOON, press, ready

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
}


def sentences():
    """Each text with which a BadInput or a RowError is made, with 7 for what is not known before it is."""
    for path in sorted((ROOT / "campaigns").rglob("*.py")):
        source = path.read_text()
        if "BadInput(" not in source and "RowError(" not in source:
            continue
        known = vars(importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)))
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                given = {"BadInput": 0, "RowError": 1}.get(call.func.id)
                if given is not None and len(call.args) > given:
                    yield from ((text, path.name) for text in texts(call.args[given], known))


def texts(node, known):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body, known)
        yield from texts(node.orelse, known)
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else filled(part, known) for part in node.values)


def filled(part, known):
    """A constant of the module, as it is; else a 7."""
    if isinstance(part.value, ast.Name) and part.value.id.isupper():
        form = part.format_spec.values[0].value if part.format_spec else ""
        return format(known[part.value.id], form)
    return "7"


def test_each_sentence_of_a_bad_input_has_a_german_one():
    found = {text: file for text, file in sentences() if text not in NOT_ON_PAGES}
    assert len(found) > 40
    with translation.override("de"):
        english = {text: file for text, file in found.items() if english_parts(text)}
    assert not english


def english_parts(text):
    """Those that a German page would show as they are."""
    german = stored_texts.in_language(text)
    return [part for part in re.split("[:;] ", text) if re.search(r"[a-z]{3}", part) and part in german]


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
    """As an example of all: the message stored for the next page is English, and the page is not."""
    sponsor = factories.sponsor()
    sponsor.users.add(owner)
    login = factories.credential(factories.vendor(settings={"url": "http://127.0.0.1:9/"}))
    factories.entitle([sponsor], [login.vendor])
    draft = ready(client, login)
    hours = {"hours_from": "09:00", "hours_to": "18:00", "hours_of_each": "on"}
    page = press(client, draft, "send", **SOON | hours).headers["Location"]
    assert "brauchen eine Spalte time_zone" in client.get(page, headers={"Accept-Language": "de"}).content.decode()
