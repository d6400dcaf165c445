"""The shipped descriptions of Lob, against a server that keeps to Lob's own document."""

from __future__ import annotations

import json
import time
from typing import Any

import lob_python
import pytest
from lob_python.api.letters_api import LettersApi
from lob_python.api.postcards_api import PostcardsApi
from lob_python.exceptions import ApiException
from lob_python.model.address_editable import AddressEditable
from lob_python.model.letter_editable import LetterEditable
from lob_python.model.ltr_use_type import LtrUseType
from lob_python.model.postcard_editable import PostcardEditable
from lob_python.model.psc_use_type import PscUseType

from tests.described.calling import send, with_adapter
from tests.described.servers import KEY, Answer, Lob
from vendors.adapters.base import Letter
from vendors.adapters.options import InvalidSettings
from vendors.described.adapter import Described
from vendors.outcomes import Accepted, InDoubt, NotSent, Refused

SECRET = {"api_key": KEY}
TO = {
    "name": "Harry Zhang",
    "address_line1": "210 King St",
    "address_city": "San Francisco",
    "address_state": "CA",
    "address_zip": "94107",
}
LETTER = Letter("0190-1", "harry@example.com", "An offer", "<html>Dear “Harry”</html>", TO, html=True)


def settings(vendor: Lob, **more: Any) -> dict[str, Any]:
    own = {"return_address": "adr_210a8d4b0b76d77b", "use_type": "marketing"}
    return {"description": "lob", "server": vendor.url, **own, **more}


def test_a_letter_is_sent_as_lob_documents_it_and_comes_to_its_id() -> None:
    with Lob() as vendor:
        beside = LETTER._replace(reference="0190-2", params=TO | {"address_line2": "# 6100", "company": "Lob"})
        outcomes = send(settings(vendor, color="true"), SECRET, LETTER, beside)
        assert [type(outcome) for outcome in outcomes] == [Accepted, Accepted]
        first, second = (json.loads(call.body) for call in vendor.calls)
        assert first == {
            "description": "An offer",
            "from": "adr_210a8d4b0b76d77b",
            "file": LETTER.body,
            "color": True,
            "double_sided": True,
            "address_placement": "top_first_page",
            "mail_type": "usps_first_class",
            "use_type": "marketing",
            "to": TO,
            "metadata": {"reference": "0190-1"},
        }
        assert second["to"] == TO | {"address_line2": "# 6100", "company": "Lob"}
        assert vendor.calls[0].headers["idempotency-key"] == "0190-1"


def test_a_letter_without_an_address_or_html_never_leaves() -> None:
    with Lob() as vendor:
        nowhere = LETTER._replace(params={"name": "Harry"})
        plain = LETTER._replace(html=False, body="Dear Harry")
        assert send(settings(vendor), SECRET, nowhere, plain) == [
            Refused("unsendable", "field: the field address_line1 is missing"),
            Refused("unsendable", "text: its body is not HTML"),
        ]
        assert not vendor.calls


def test_what_lob_says_of_a_letter_refuses_it_and_what_it_says_of_the_account_pauses() -> None:
    with Lob() as vendor:
        undeliverable = LETTER._replace(params=TO | {"address_line1": "1 Nowhere"})
        long = LETTER._replace(params=TO | {"name": "H" * 41})
        assert send(settings(vendor), SECRET, undeliverable, long) == [
            Refused("failed_deliverability_strictness"),
            Refused("invalid"),
        ]
        vendor.next_answer = vendor.wrong(422, "payment_method_unverified", "Enter a card.")
        [outcome] = send(settings(vendor), SECRET, LETTER)
        assert outcome == NotSent("http 422: payment_method_unverified", scope="credential", pause=True)


def test_too_fast_waits_until_the_time_that_lob_names() -> None:
    with Lob() as vendor:
        reset = str(int(time.time()) + 50)
        vendor.next_answer = vendor.wrong(429, "rate_limit_exceeded", "Slower.", {"ratelimit-reset": reset})
        [outcome] = send(settings(vendor), SECRET, LETTER)
        assert isinstance(outcome, NotSent) and outcome.scope == "credential" and outcome.retry_after is not None
        assert 5 < outcome.retry_after <= 50


@pytest.mark.parametrize("answer", [Answer(500), Answer(200, {"id": "ltr_1"}, cut=True), Answer(200, {"url": "x"})])
def test_a_doubt_is_settled_by_a_repeat_and_by_a_look_up(answer: Answer) -> None:
    async def story(adapter: Described) -> None:
        vendor.next_answer, vendor.accepts_before = answer, True
        [doubt] = await adapter.send([LETTER])
        assert isinstance(doubt, InDoubt)
        vendor.accepts_before = False
        found = await adapter.look_up("0190-1")
        assert isinstance(found, Accepted)
        assert await adapter.send([LETTER]) == [found]
        assert vendor.books == {"0190-1": 1}
        assert await adapter.look_up("0190-2") is None
        vendor.next_answer = Answer(200, {"data": [vendor.letters[0]]})
        assert await adapter.look_up("0190-3") == NotSent("the look-up found other letters than the one asked for")
        vendor.next_answer = Answer(500)
        assert await adapter.look_up("0190-1") == NotSent("http 500")

    with Lob() as vendor:
        with_adapter(settings(vendor), SECRET, story)
        can = Described(settings(vendor), SECRET).capabilities
        assert (can.dedupe, can.dedupe_ttl, can.lookup) == (True, 86400, "weak")


def test_a_secret_goes_over_https_alone() -> None:
    with pytest.raises(InvalidSettings, match="https alone"):
        Described({"description": "lob", "server": "http://lob.example.com", "return_address": "adr_1",
                   "use_type": "operational"}, SECRET)  # fmt: skip


def test_lobs_own_client_works_with_the_same_server() -> None:
    """So that the server is not only as strict as we are."""
    with Lob() as vendor:
        configuration = lob_python.Configuration(username=KEY, host=f"{vendor.url}/v1")
        fixed = {"_from": "adr_210a8d4b0b76d77b", "file": "<html></html>", "color": False}
        fixed["use_type"] = LtrUseType("marketing")
        with lob_python.ApiClient(configuration) as client:
            sent = LettersApi(client).create(LetterEditable(to=AddressEditable(**TO), **fixed), idempotency_key="key-1")
            assert sent.id == vendor.letters[0]["id"]
            elsewhere = AddressEditable(**TO | {"address_state": "California"})
            with pytest.raises(ApiException) as refused:
                LettersApi(client).create(LetterEditable(to=elsewhere, **fixed))
            assert refused.value.status == 422


CARD = {"description": "lob-postcards", "return_address": "adr_210a8d4b0b76d77b", "use_type": "marketing"}


def test_a_postcard_has_its_letter_on_the_back() -> None:
    with Lob() as vendor:
        card = CARD | {"server": vendor.url, "front": "tmpl_c94e83ca2cd5121", "size": "6x9"}
        plain = LETTER._replace(reference="0190-2", html=False)
        assert send(card, SECRET, LETTER, plain) == [
            Accepted("psc_0000000000000000"),
            Refused("unsendable", "text: its body is not HTML"),
        ]
        assert json.loads(vendor.calls[0].body) == {
            "description": "An offer",
            "from": "adr_210a8d4b0b76d77b",
            "front": "tmpl_c94e83ca2cd5121",
            "back": LETTER.body,
            "size": "6x9",
            "mail_type": "usps_first_class",
            "use_type": "marketing",
            "to": TO,
            "metadata": {"reference": "0190-1"},
        }
        assert (vendor.calls[0].path, vendor.calls[0].headers["idempotency-key"]) == ("/v1/postcards", "0190-1")
        vendor.next_answer, vendor.accepts_before = Answer(500), False
        assert isinstance(send(card, SECRET, LETTER)[0], InDoubt)
    with pytest.raises(InvalidSettings, match="front has not the form"):
        Described.validate(CARD | {"front": "<p>front</p>"})
    with pytest.raises(InvalidSettings, match="front is missing"):
        Described.validate(CARD)


def test_a_postcard_is_looked_up_among_postcards() -> None:
    async def story(adapter: Described) -> None:
        vendor.next_answer, vendor.accepts_before = Answer(502), True
        assert isinstance((await adapter.send([LETTER]))[0], InDoubt)
        vendor.accepts_before = False
        assert await adapter.look_up("0190-1") == Accepted("psc_0000000000000000")
        assert vendor.calls[-1].path == "/v1/postcards" and vendor.books == {"0190-1": 1}

    with Lob() as vendor:
        with_adapter(CARD | {"server": vendor.url, "front": "https://art.example.com/front.pdf"}, SECRET, story)


def test_lobs_own_client_sends_postcards_to_the_same_server() -> None:
    with Lob() as vendor:
        configuration = lob_python.Configuration(username=KEY, host=f"{vendor.url}/v1")
        fixed = {"_from": "adr_210a8d4b0b76d77b", "back": "<html></html>", "use_type": PscUseType("marketing")}
        with lob_python.ApiClient(configuration) as client:
            sent = PostcardsApi(client).create(PostcardEditable(to=AddressEditable(**TO), front="tmpl_1", **fixed))
            assert sent.id == vendor.letters[0]["id"] == "psc_0000000000000000"
            with pytest.raises(ApiException) as refused:
                PostcardsApi(client).create(PostcardEditable(to=AddressEditable(**TO), front="front.pdf", **fixed))
            assert refused.value.status == 422
