"""The HTTP adapter's own words: what it writes, what it looks up, which settings it takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vendors.adapters import list_names, load
from vendors.adapters.base import Adapter, Letter, Origin
from vendors.adapters.http import Http
from vendors.adapters.http_client import header
from vendors.adapters.options import InvalidSettings
from vendors.outcomes import Accepted, NotSent
from vendors.testing.http_cases import VendorAnswer, http_cases
from vendors.testing.http_server import MisbehavingHttp, answer, raw
from vendors.testing.subject import LOOPS, run

LETTER = Letter("ref-0", "zoë@example.org", "Grüße", "Dear Zoë,\nbye", {"page": 2})


def settings(port: int, **more: str) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{port}/v1/letters"} | more


@pytest.mark.parametrize("loop", LOOPS)
def test_a_letter_goes_out_as_json_with_its_reference_as_key_and_the_credentials_headers(loop: str) -> None:
    async def story() -> None:
        async with MisbehavingHttp() as vendor:
            adapter = Http(settings(vendor.port), {"Authorization": "Bearer s3cret", "X-Team": "north"})
            await adapter.open()
            branded = LETTER._replace(origin=Origin("ann@example.com", "Ann", "help@example.com"))
            assert await adapter.send([LETTER, branded]) == [Accepted("evidence")] * 2
            await adapter.close()
            line, headers, body = vendor.requests[0]
            assert line == "POST /v1/letters HTTP/1.1"
            assert headers["host"] == f"127.0.0.1:{vendor.port}"
            assert headers["idempotency-key"] == "ref-0"
            assert headers["authorization"] == "Bearer s3cret"
            assert headers["x-team"] == "north"
            assert headers["content-type"] == "application/json"
            assert json.loads(body) == {
                "reference": "ref-0",
                "recipient": "zoë@example.org",
                "subject": "Grüße",
                "body": "Dear Zoë,\nbye",
                "params": {"page": 2},
            }
            more = {"from": {"name": "Ann", "address": "ann@example.com"}, "reply_to": "help@example.com"}
            assert json.loads(vendor.requests[1][2]) == json.loads(body) | more

    run(loop, story)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_redirect_leads_nowhere(loop: str) -> None:
    async def story() -> None:
        async with MisbehavingHttp() as trap:
            moved = answer(307, b"", f"Location: http://127.0.0.1:{trap.port}/v1/letters")
            async with MisbehavingHttp(moved) as vendor:
                adapter = Http(settings(vendor.port), {})
                await adapter.open()
                [outcome] = await adapter.send([LETTER])
                await adapter.close()
                assert isinstance(outcome, NotSent) and outcome.pause
            assert trap.connections == 0

    run(loop, story)


LOOK_UPS = [
    (200, '{"id": "v-9"}', Accepted("v-9")),
    (404, "", None),
    (409, '{"id": "v-9"}', NotSent("http 409")),
    (405, "", NotSent("http 405")),
    (303, "", NotSent("http 303: redirects are not followed", scope="credential", pause=True)),
    (200, "<html>", NotSent("http 200 without an id")),
    (500, "", NotSent("http 500")),
    (400, "", NotSent("http 400")),
    (429, "", NotSent("http 429: too fast for the vendor", retry_after=30.0, scope="credential")),
    (401, "", NotSent("http 401: login or account refused", scope="credential", pause=True)),
]


@pytest.mark.parametrize(("status", "body", "expected"), LOOK_UPS, ids=[str(row[:2]) for row in LOOK_UPS])
def test_a_look_up_finds_or_does_not_find_or_gets_no_answer(
    status: int, body: str, expected: Accepted | NotSent | None
) -> None:
    async def story() -> None:
        async with MisbehavingHttp(answer(status, body)) as vendor:
            adapter = Http(settings(vendor.port, lookup="weak"), {})
            await adapter.open()
            assert await adapter.look_up("ref/0 ä") == expected
            await adapter.close()
            assert [line for line, _, _ in vendor.requests] == ["GET /v1/letters/ref%2F0%20%C3%A4 HTTP/1.1"]

    run("asyncio", story)


WAIT = NotSent("http 503", retry_after=7.0, scope="credential")
TOO_FAST = NotSent("http 429: too fast for the vendor", retry_after=7.0, scope="credential")


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (answer(503, b"", "Retry-After: 7"), WAIT),
        (raw(b"HTTP/1.1 429 Slow Down\r\nRetry-After: 7\r\nContent-Length: 9\r\n\r\ncut", close=True), TOO_FAST),
        (raw(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\ncut", close=True), NotSent("http 404")),
    ],
    ids=["503", "429 cut off", "404 cut off"],
)
def test_a_look_up_hears_who_asks_to_wait_even_where_the_answer_is_cut_off(behaviour: Any, expected: NotSent) -> None:
    async def story() -> None:
        async with MisbehavingHttp(behaviour) as vendor:
            adapter = Http(settings(vendor.port, lookup="strong"), {})
            await adapter.open()
            assert await adapter.look_up("ref-0") == expected
            await adapter.close()

    run("asyncio", story)


def test_each_misbehaviour_has_a_name_of_its_own() -> None:
    cases = list(http_cases(lambda vendor_id: VendorAnswer(200, {"id": vendor_id}), VendorAnswer(400), {}))
    assert len({case.name for case in cases}) == len(cases) > 80


def test_without_look_up_nobody_is_asked() -> None:
    async def story() -> None:
        async with MisbehavingHttp() as vendor:
            adapter = Http(settings(vendor.port), {})
            await adapter.open()
            assert isinstance(await adapter.look_up("ref-0"), NotSent)
            await adapter.close()
            assert vendor.connections == 0

    run("asyncio", story)


def test_typed_settings_become_capabilities_and_pass_a_second_time() -> None:
    typed = {"url": "https://vendor.example/v1/", "dedupe": "yes", "dedupe_ttl": "600", "lookup": "true"}
    known = Http.validate(typed | {"timeout": "2.5", "concurrency": "7", "safe_statuses": "503, 502"})
    assert Http.validate(known) == known
    adapter = Http(known, {})
    assert (adapter.deadline, adapter.concurrency) == (3.5, 7)
    assert (adapter.capabilities.dedupe, adapter.capabilities.dedupe_ttl) == (True, 600.0)
    assert adapter.capabilities.lookup == "weak"
    assert known["safe_statuses"] == (502, 503)


def test_the_defaults_promise_nothing() -> None:
    capabilities = Http({"url": "http://vendor.example"}, {}).capabilities
    assert not capabilities.dedupe and capabilities.dedupe_ttl is None
    assert capabilities.lookup == "none" and not Http.sends_reports({})
    assert capabilities.batch_max == 1 and capabilities.cost(LETTER) == 1


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        ({}, "url is missing"),
        ({"url": "ftp://vendor.example"}, "must be an http or https URL"),
        ({"url": "http://"}, "must be an http or https URL"),
        ({"url": "http://user:pass@vendor.example"}, "must not hold a login"),
        ({"url": "http://vendor.example/?key=1"}, "must not have a query"),
        ({"url": "http://vendor.example:99999"}, "is not a URL"),
        ({"url": f"http://{'a' * 70}.example"}, "is not a URL"),
        ({"url": "http://vendor.example/a\r\nX: y"}, "must be an ASCII http or https URL"),
        ({"timeout": "0"}, "timeout must be a number of seconds above 0"),
        ({"timeout": "nan"}, "timeout must be"),
        ({"concurrency": "0"}, "concurrency must be a whole number from 1 to 1000"),
        ({"concurrency": "many"}, "concurrency must be"),
        ({"dedupe": "perhaps"}, "dedupe must be true or false"),
        ({"lookup": "sometimes"}, "lookup must be one of none, weak, strong"),
        ({"safe_statuses": "200"}, "safe_statuses must be statuses from 500 to 599"),
        ({"ca_file": "/nowhere/at/all.pem"}, "ca_file must be a file with certificates"),
        ({"adress": "x"}, "adress is not a setting; the settings are url, timeout"),
    ],
)
def test_a_wrong_setting_is_named_in_a_sentence(typed: dict[str, str], word: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        Http.validate(typed)
    assert any(word in error for error in caught.value.errors)


@pytest.mark.parametrize(
    "secret",
    [{"X-Key": "s3cret\r\nHost: elsewhere"}, {"X Key": "s3cret"}, {"Host": "s3cret"}, {"X-Key": "s3cret\u20ac"}],
)
def test_a_secret_that_is_no_header_is_refused_without_being_shown(secret: dict[str, str]) -> None:
    with pytest.raises(InvalidSettings) as caught:
        Http({"url": "http://vendor.example"}, secret)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\rb", "a\0b", "a\u20acb"])
def test_a_header_is_one_line(value: str) -> None:
    with pytest.raises(ValueError, match="one line"):
        header("X-Name", value)


def test_adapters_are_found_by_name() -> None:
    assert "http" in list_names()
    assert issubclass(load("http"), Adapter)
    with pytest.raises(LookupError, match=r"there are .*http"):
        load("pigeon")
