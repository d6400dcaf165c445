"""Numbers with decimals are written as in the reader's language, in every sentence and with all their places."""

import ast
import json
import re
from decimal import Decimal
from typing import Any

import pytest
from django.utils import translation

from campaigns.engine.pausing import rates
from campaigns.models.complaints import ComplaintRate
from tests.owners.test_languages import catalogue
from tests.sources import PRODUCT, ROOT, find_modules, parse_those_with
from vendors.said import Said, columns, read, show

__all__ = ["catalogue"]
SPEC = re.compile(r"[,.0-9]*[efgn%]")


def in_german(text: str) -> str:
    with translation.override("de"):
        return show(text)


def test_a_rate_keeps_its_places_and_has_a_comma_in_german() -> None:
    figures = ComplaintRate(complaints=4, accepted=1000).figures
    assert figures.startswith("0.40% of 1,000")
    assert "0,40\u202f%" in in_german(figures)


@pytest.mark.parametrize(
    ("now", "limits", "english", "german"),
    [
        (rates.Figures(accepted=910, refused=90, bounced=35), (8.5, 0.3), ("12.5%", "8.5%"), ("12,5", "8,5")),
        (rates.Figures(accepted=2000, complained=8), (8, 0.3), ("0.40%", "0.3%"), ("0,40", "0,3")),
    ],
)
def test_the_reason_of_a_pause_says_its_rates(
    now: rates.Figures, limits: tuple[float, float], english: tuple[str, ...], german: tuple[str, ...]
) -> None:
    why = rates.pause_reason(now, rates.Judged(), *limits)
    assert all(one in why for one in english)
    stored = columns("reason", why)
    again = read(stored["reason"], json.loads(json.dumps(stored["reason_said"])))
    assert again == why and all(one in in_german(again) for one in german)


def test_a_decimal_within_a_sentence_within_a_sentence_is_kept_too() -> None:
    said = Said("%(a)s: %(why)s", a="0.40", why=Said("%(rate)s of it", rate=Decimal("1234.50")))
    again = read(str(said), json.loads(json.dumps(said.data)))
    assert again == "0.40: 1234.50 of it"
    assert in_german(again) == "0.40: 1234,50 of it", "a text that somebody typed stays as it is"


def test_no_value_of_a_sentence_is_a_number_made_a_text() -> None:
    """A text is shown as it is, in every language."""
    found = []
    for path, tree in parse_those_with(r"\bSaid\(", find_modules(migrations=True)):
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Said":
                found += [f"{path}:{call.lineno} {one.arg}" for one in call.keywords if is_number(one.value)]
    assert not found


def is_number(value: ast.expr) -> bool:
    specs = [part.format_spec for part in getattr(value, "values", ()) if isinstance(part, ast.FormattedValue)]
    return isinstance(value, ast.JoinedStr) and any(spec and SPEC.fullmatch(ast.unparse(spec)[2:-1]) for spec in specs)


def test_a_rate_stored_with_a_blank_is_written_as_those_of_today() -> None:
    form = "%(rate)s %% of %(count)s accepted complained (%(complained)s)"
    kept = {"form": form, "values": {"rate": {"decimal": "0.40"}, "count": 1000, "complained": 4}}
    again = read("0.40 % of 1,000 accepted complained (4)", kept)
    assert in_german(again) == "zu 0,40\u202f% von 1.000 angenommenen gab es Beschwerden (4)"
    assert show(again) == "0.40% of 1,000 accepted complained (4)"


BY_HAND = re.compile(r"\}\} ?%|:\.\d%\}|\} %[\"' <]")
"""A per cent sign beside a value in a template or an f-string."""


def test_a_per_cent_sign_is_written_by_the_language_alone() -> None:
    """English 8.9%, German 8,9 % with a narrow blank that does not break; commands and the API speak English."""
    pages = [path for root in PRODUCT for path in (ROOT / root).rglob("*.html")]
    modules = [
        path for path in find_modules() if not {"management", "api"} & set(path.parts) and path.name != "health.py"
    ]
    assert len(pages) > 100
    found = [
        (path.name, hit[0])
        for path in (*pages, *modules)
        for hit in BY_HAND.finditer(_without_styles(path.read_text()))
    ]
    assert found == []


def _without_styles(text: str) -> str:
    return re.sub(r'style="[^"]*"', "", text)


def test_each_german_sentence_has_the_same_blank_before_per_cent(catalogue: dict[str, Any]) -> None:
    texts = [(one.id, one.string) for one in catalogue.values() if isinstance(one.id, str)]
    rates = [(english, german) for english, german in texts if re.search(r"\)s ?%%(?!\})", english)]
    assert len(rates) > 5
    assert [english for english, german in rates if ")s %%" in english or re.search(r"\)s ?%%", german)] == []
