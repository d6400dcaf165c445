"""Addresses of columns are checked at every door, and previews show them where the envelope's window is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pypdf
import pytest
from django.core.management import CommandError, call_command

from campaigns.models import Campaign
from tests import factories
from vendors.adapters.addresses import AddressRules
from vendors.adapters.base import InvalidSettings
from vendors.printing import pages
from vendors.printing.adapter import PrintFile

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(bool(pages.missing()), reason=pages.missing()),
]
ADDRESS = {
    "address": "name; street; postcode city", "address_required": "name street city", "address_width": "20",
    "address_alphabet": "latin1", "country": "country", "countries": "de AT",
}  # fmt: skip


def rules(**more: str) -> AddressRules:
    made = PrintFile.address_rules({"folder": "x", "accepted": "uploaded", **ADDRESS, **more})
    assert made is not None
    return made


def ann(**more: Any) -> dict[str, Any]:
    return {"name": "Ann", "street": "Main Street 1", "postcode": "12345", "city": "Town", "country": "at", **more}


def test_an_address_is_the_lines_that_say_something() -> None:
    assert rules().of("k-1", ann()) == ["Ann", "Main Street 1", "12345 Town"]
    assert rules().of("k-1", ann(street=None, postcode="  ")) == ["Ann", "Town"]
    assert rules().columns == {"name", "street", "postcode", "city", "country"}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (ann(), None),
        (ann(name=" "), "'name' is empty"),
        (ann(street="Main Street " + "x" * 20), "has 32 characters, more than 20"),
        (ann(city="Łódź"), "'Ł', which the vendor cannot print"),
        (ann(name="Ann\u202eevil"), "cannot print"),
        (ann(country="FR"), "the vendor delivers to AT, DE"),
        (ann(country=""), "'country' is ''"),
    ],
)
def test_what_the_vendor_demands_is_asked_of_each_address(fields: dict[str, Any], says: str | None) -> None:
    found = list(rules().faults("k-1", fields))
    assert found == [] if says is None else len(found) == 1 and says in found[0], found


def test_no_more_lines_than_the_window_shows() -> None:
    many = rules(address="name; street; postcode; city; country; name; street", window="us10")
    assert any("lines, and the vendor prints 5" in fault for fault in many.faults("k-1", ann()))


def test_rules_that_lack_their_half_are_refused() -> None:
    for wrong in ({"country": ""}, {"address": ""}, {"address": "name;;"}, {"address": "a-b"}, {"countries": ""}):
        with pytest.raises(InvalidSettings):
            PrintFile.validate({"folder": "x", "accepted": "uploaded", **ADDRESS, **wrong})


def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "list.csv").write_text(
        "key,name,street,postcode,city,country\n"
        "k-1,Ann,Main Street 1,12345,Town,DE\nk-2,Bob,,12345,Town,DE\nk-3,Cid,Side Street 2,1,Town,FR\n"
    )
    (tmp_path / "letter.html").write_text("<p>Dear {{ name }}</p>")
    return str(tmp_path / "list.csv"), str(tmp_path / "letter.html")


def command(tmp_path: Path, *more: str) -> None:
    vendor = factories.vendor(
        slug="shop", adapter="print_file", channel="print",
        settings={"folder": "x", "accepted": "uploaded", "window": "din5008b", **ADDRESS},
    )  # fmt: skip
    factories.credential(vendor)
    table, body = files(tmp_path)
    call_command(
        "send_campaign",
        table,
        "--sponsor",
        "Velma",
        "--new-sponsor",
        "--vendor",
        "shop",
        "--html",
        "--body",
        body,
        *more,
    )


def test_bad_addresses_are_bad_rows_of_the_import(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as error:
        command(tmp_path)
    assert "row 3: 'street' is empty, and the address needs it" in str(error.value)
    assert "row 4: 'country' is 'FR'; the vendor delivers to AT, DE" in str(error.value)
    assert not Campaign.objects.exists()


def test_a_preview_is_the_letter_with_the_address_in_the_window(tmp_path: Path) -> None:
    left, look = tmp_path / "left-out.csv", tmp_path / "look.pdf"
    command(tmp_path, "--skip-bad-rows", str(left), "--preview-pdf", str(look))
    assert "k-2" in left.read_text() and not Campaign.objects.exists()
    [page] = pypdf.PdfReader(look).pages
    places: dict[str, tuple[float, float]] = {}

    def seen(text: str, matrix: Any, text_matrix: Any, *_: Any) -> None:
        if text.strip():
            x = text_matrix[4] * matrix[0] + matrix[4]
            y = text_matrix[5] * matrix[3] + matrix[5]
            places[text.strip()] = x / 72 * 25.4, 297 - y / 72 * 25.4

    page.extract_text(visitor_text=seen)
    assert {"Ann", "Main Street 1", "12345 Town", "Dear Ann"} <= set(places), places
    for line in ("Ann", "Main Street 1", "12345 Town"):
        x, y = places[line]
        assert 20 <= x <= 105 and 45 + 17.7 <= y <= 90, "within DIN 5008's field for the address"
    assert places["Dear Ann"][1] > 98
