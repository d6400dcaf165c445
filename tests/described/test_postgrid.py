"""The shipped description of PostGrid, against a server with the members and answers of PostGrid's own client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.described.calling import send
from tests.described.servers import POSTGRID_KEY, Answer, PostGrid
from vendors.adapters.base import InvalidSettings, Letter
from vendors.described.adapter import Described
from vendors.outcomes import Accepted, InDoubt, NotSent, Refused

SECRET = {"api_key": POSTGRID_KEY}
TO = {"first_name": "Ann", "address_line1": "1 Main St", "city": "Austin", "state": "TX", "zip": 78701, "country": "US"}
LETTER = Letter("0190-1", "ann@example.com", "An offer", "<html>Dear Ann</html>", TO, html=True)


def settings(vendor: PostGrid, **more: Any) -> dict[str, Any]:
    return {"description": "postgrid", "server": vendor.url, "sender": "contact_7", **more}


def test_a_letter_is_sent_as_postgrid_documents_it_and_comes_to_its_id() -> None:
    company = LETTER._replace(reference="0190-2", params={"company": "Lob", "address_line1": "1", "country": "CA"})
    with PostGrid() as vendor:
        assert send(settings(vendor), SECRET, LETTER, company) == [Accepted("letter_1"), Accepted("letter_2")]
        first, second = (json.loads(call.body) for call in vendor.calls)
        assert vendor.books == {"0190-1": 1, "0190-2": 1}
    assert first == {
        "from": "contact_7",
        "html": LETTER.body,
        "description": "An offer",
        "color": False,
        "doubleSided": True,
        "addressPlacement": "top_first_page",
        "size": "us_letter",
        "metadata": {"reference": "0190-1"},
        "to": {
            "firstName": "Ann",
            "addressLine1": "1 Main St",
            "city": "Austin",
            "provinceOrState": "TX",
            "postalOrZip": "78701",
            "countryCode": "US",
        },
    }
    assert second["to"] == {"companyName": "Lob", "addressLine1": "1", "countryCode": "CA"}


def test_what_is_wrong_with_a_letter_refuses_it_and_a_wrong_key_pauses() -> None:
    with PostGrid() as vendor:
        nameless = LETTER._replace(params=TO | {"first_name": ""})
        homeless = LETTER._replace(params={"first_name": "Ann", "country": "US"})
        assert send(settings(vendor), SECRET, nameless, homeless) == [
            Refused("validation_error"),
            Refused("unsendable", "the field address_line1 is missing"),
        ]
        assert send(settings(vendor, size="a4"), SECRET, LETTER) == [Refused("unprocessable_error")]
        [outcome] = send(settings(vendor), {"api_key": "other"}, LETTER)
        assert isinstance(outcome, NotSent) and outcome.pause
        vendor.next_answer = Answer(429, {"error": {"type": "rate"}}, {"Retry-After": "3"})
        assert send(settings(vendor), SECRET, LETTER) == [
            NotSent("http 429: too fast for the vendor", 3.0, "credential")
        ]
        for answer in (Answer(500), Answer(201, {"object": "letter"}), Answer(201, {"id": "letter_9"}, cut=True)):
            vendor.next_answer, vendor.accepts_before = answer, True
            [outcome] = send(settings(vendor), SECRET, LETTER)
            assert isinstance(outcome, InDoubt), outcome
    can = Described({"description": "postgrid", "sender": "contact_7"}, SECRET).capabilities
    assert (can.dedupe, can.lookup) == (False, "none")
    with pytest.raises(InvalidSettings, match="sender has not the form"):
        Described.validate({"description": "postgrid", "sender": "me"})
