"""Sandbox vendors that look like Twilio, Lob, Amazon SES and Mailgun: by our adapters, and by others' clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import lob_python
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from lob_python.api.letters_api import LettersApi
from lob_python.model.address_editable import AddressEditable
from lob_python.model.letter_editable import LetterEditable
from lob_python.model.ltr_use_type import LtrUseType
from twilio.base.exceptions import TwilioRestException
from twilio.request_validator import RequestValidator

from tests.described.calling import twilio_client
from tests.programs import wait_until
from tests.sandbox import Sandbox, running
from vendors import adapters
from vendors.adapters.base import Adapter, Letter, Origin
from vendors.adapters.reports import NotTheVendor, Reported, ReportRequest, ReportSource
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

pytestmark = pytest.mark.slow("processes")

ACCOUNT = "AC" + "0" * 31 + "7"
TO = {"name": "Ann", "address_line1": "1 High Street", "address_city": "Exeter", "address_country": "GB"}
MAIL = Letter("0190-1", "ann@example.com", "Hi", "Hello", origin=Origin("news@example.org", "Velma"))


@dataclass(frozen=True)
class Likeness:
    """How mailhub is set up for one. odd: a letter that it refuses, or reports as returned; signing: of its reports."""

    looks_like: str
    login: str
    adapter: str
    settings: Mapping[str, Any]
    secret: Mapping[str, str]
    letter: Letter
    odd: Letter
    signing: str = ""
    refuses: bool = True

    def set_up(self, url: str, **more: Any) -> dict[str, Any]:
        return {**self.settings, "url" if self.adapter == "anymail" else "server": url, "timeout": 20.0, **more}


TWILIO = Likeness(
    "twilio", f"{ACCOUNT}:token", "described",
    {"description": "twilio", "account": ACCOUNT, "from": "+15005550006", "reports_to": "http://127.0.0.1:9/"},
    {"auth_token": "token"}, Letter("0190-1", "+447700900001", "", "Hello & bye"),
    Letter("0190-2", "+15005550004", "", "Hello"),
)  # fmt: skip
LOB = Likeness(
    "lob", "test_key:", "described",
    {"description": "lob", "return_address": "adr_1", "use_type": "operational"}, {"api_key": "test_key"},
    Letter("0190-1", "Ann, 1 High Street", "Hi", "<p>Hello</p>", TO, html=True),
    Letter("0190-2", "Ann, Nowhere", "Hi", "<p>", TO | {"address_line1": "Undeliverable House"}, html=True),
    "hush",
)  # fmt: skip
SES = Likeness(
    "ses", "AKID:a-secret", "anymail", {"service": "amazon_ses", "more": {"region": "eu-west-1"}},
    {"aws_access_key_id": "AKID", "aws_secret_access_key": "a-secret"}, MAIL,
    MAIL._replace(reference="0190-2", recipient="bounce@sandbox.example"), "user:password", refuses=False,
)  # fmt: skip
MAILGUN = Likeness(
    "mailgun", "api:a-key", "described", {"description": "mailgun", "domain": "mg.example.com"}, {"api_key": "a-key"},
    MAIL, MAIL._replace(reference="0190-2", recipient="bounce@sandbox.example"), "hush", refuses=False,
)  # fmt: skip
ALL = pytest.mark.parametrize("of", [TWILIO, LOB, SES, MAILGUN], ids=lambda of: of.looks_like)


@contextmanager
def vendor_like(of: Likeness, **options: Any) -> Iterator[Sandbox]:
    with running(looks_like=of.looks_like, login=of.login, **options) as vendor:
        yield vendor


async def with_adapter(of: Likeness, settings: Mapping[str, Any], secret: Mapping[str, str], story: Any) -> Any:
    adapter = adapters.load(of.adapter)(settings, secret)
    await adapter.open()
    try:
        return await story(adapter)
    finally:
        await adapter.close()


def sent(of: Likeness, vendor: Sandbox, *letters: Letter, secret: Any = None, **more: Any) -> list[Outcome]:
    async def story(adapter: Adapter) -> list[Outcome]:
        return [outcome for one in letters for outcome in await adapter.send([one])]

    outcomes: list[Outcome] = asyncio.run(with_adapter(of, of.set_up(vendor.url, **more), secret or of.secret, story))
    return outcomes


@ALL
def test_what_mailhub_sends_is_taken_once_and_what_is_odd_is_refused_or_comes_back(of: Likeness) -> None:
    with vendor_like(of) as vendor:
        good, odd = sent(of, vendor, of.letter, of.odd)
        assert isinstance(good, Accepted)
        assert isinstance(odd, Refused) is of.refuses and isinstance(odd, Accepted) is not of.refuses
        books = vendor.books()
        assert good.vendor_id.partition(" ")[0] == books.accepted["0190-1"].id.strip("<>")
        assert books.accepted.keys() == ({"0190-1"} if of.refuses else {"0190-1", "0190-2"})


@ALL
def test_a_wrong_login_is_refused_and_nobody_is_to_blame_for_it(of: Likeness) -> None:
    wrong = {name: text if name == "aws_access_key_id" else "wrong" for name, text in of.secret.items()}
    with vendor_like(of) as vendor:
        [outcome] = sent(of, vendor, of.letter, secret=wrong)
        assert isinstance(outcome, NotSent) and outcome.pause
        assert vendor.books().verdicts == {"unauthorized": 1}


@ALL
def test_who_is_too_fast_waits_and_faults_are_those_of_any_sandbox(of: Likeness) -> None:
    with vendor_like(of, throttle="1/60") as vendor:
        first, second = sent(of, vendor, of.letter, of.letter._replace(reference="0190-3"))
        assert isinstance(first, Accepted)
        assert isinstance(second, NotSent) and second.retry_after and not second.pause
        for fault, more in (("reset_rate", {}), ("error_after_rate", {}), ("lost_rate", {"timeout": 3.0})):
            vendor.settings(throttle="", **dict.fromkeys(("reset_rate", "error_after_rate"), 0.0) | {fault: 1.0})
            [doubt] = sent(of, vendor, of.letter._replace(reference=f"0190-{fault}"), **more)
            assert isinstance(doubt, InDoubt), fault
        assert vendor.books().verdicts == {"accepted": 4, "throttled": 1}


def test_a_batch_has_a_book_entry_for_each_letter_and_one_id() -> None:
    letters = [MAIL._replace(reference=f"0190-{n}", recipient=f"r{n}@example.com") for n in range(5)]

    async def story(adapter: Adapter) -> list[Outcome]:
        return await adapter.send(letters)

    with vendor_like(MAILGUN, throttle="5/60") as vendor:
        outcomes = asyncio.run(with_adapter(MAILGUN, MAILGUN.set_up(vendor.url), MAILGUN.secret, story))
        assert len({one.vendor_id for one in outcomes}) == 5
        entries = vendor.books().accepted
        assert [one.recipient for one in entries.values()] == [one.recipient for one in letters]
        assert len({one.id for one in entries.values()}) == 1
        again = asyncio.run(with_adapter(MAILGUN, MAILGUN.set_up(vendor.url), MAILGUN.secret, story))
        assert all(isinstance(one, NotSent) for one in again) and vendor.books().verdicts["throttled"] == 5


def test_lob_finds_a_letter_again_and_takes_a_key_once() -> None:
    async def story(adapter: Adapter) -> tuple[list[Outcome], Any, Any]:
        outcomes = [(await adapter.send([LOB.letter]))[0] for _ in range(2)]
        return outcomes, await adapter.look_up("0190-1"), await adapter.look_up("0190-2")

    with vendor_like(LOB) as vendor:
        (first, second), found, absent = asyncio.run(with_adapter(LOB, LOB.set_up(vendor.url), LOB.secret, story))
        assert first == second == found and isinstance(found, Accepted) and absent is None
        assert not vendor.books().duplicates()


class Receiver:
    """Where reports go."""

    def __init__(self) -> None:
        self.requests: list[ReportRequest] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                url = f"http://{self.headers['Host']}{self.path}"
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.requests.append(ReportRequest("POST", url, headers, body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/api/v1/receipts/x"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    with made.server:
        thread = threading.Thread(target=made.server.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.server.shutdown()
        thread.join()


@ALL
def test_its_reports_are_what_mailhub_reads_and_nobody_elses(of: Likeness, receiver: Receiver) -> None:
    gone = of.odd
    if of is TWILIO:
        gone = of.odd._replace(recipient="+15005550030")
    if of is LOB:
        gone = of.odd._replace(params=TO | {"address_line1": "Returned Street 1"})
    letters, more = [of.letter, gone], {"reports_to": receiver.url} if of is TWILIO else {}
    if of.letter is MAIL:
        letters.append(MAIL._replace(reference="0190-3", recipient="complains@sandbox.example"))
    reporting = {"receipts_to": receiver.url, "receipts_secret": of.signing} if of.signing else {}
    settings = of.set_up("http://127.0.0.1:9", **more)
    adapter = adapters.load(of.adapter)

    def read(requests: Sequence[ReportRequest], signing: str, secret: Mapping[str, str]) -> list[Reported]:
        source = ReportSource(settings, [signing] if signing else [], [secret])
        return [one for request in requests for one in adapter.read_report(request, source)]

    with vendor_like(of, **reporting) as vendor:
        outcomes = sent(of, vendor, *letters, **more)
        wait_until(lambda: len(receiver.requests) == (4 if len(letters) == 3 else 2), "all are reported")
    said = read(receiver.requests, of.signing, of.secret)
    known = [("0190-1", "delivered"), ("0190-2", "bounced"), ("0190-3", "delivered"), ("0190-3", "complained")]
    assert sorted((one.reference, one.kind) for one in said) == sorted(known[: len(said)]) and len(said) >= 2
    ids = {one.reference: outcome.vendor_id for one, outcome in zip(letters, outcomes, strict=True)}
    assert all(one.vendor_id == ids[one.reference] for one in said)
    assert {one.bounce for one in said if one.kind == "bounced"} == {"hard" if of.letter is MAIL else "soft"}
    for request in receiver.requests:
        others = ("user:other", {"auth_token": "other"}) if of is not MAILGUN else ("other", {})
        for signing, secret in (others, ("", {})):
            with pytest.raises(NotTheVendor):
                read([request], signing, secret)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"looks_like": "twilio"}, "give login"),
        ({"looks_like": "ses", "login": "a:b", "receipts_to": "http://127.0.0.1:9/", "receipts_secret": "x"}, "login"),
        ({"looks_like": "lob", "login": "k:", "receipts_to": "http://127.0.0.1:9/"}, "receipts_secret"),
    ],
)
def test_what_it_lacks_to_look_like_a_vendor_is_told(sandbox: Sandbox, settings: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        sandbox.settings(**settings)
    assert sandbox.settings()["looks_like"] == "json"


def test_twilios_own_client_sends_and_its_validator_knows_the_report(receiver: Receiver) -> None:
    with vendor_like(TWILIO) as vendor, twilio_client(vendor.url, ACCOUNT, "token") as client:
        known = {"from_": "+15005550006", "body": "Hello", "status_callback": receiver.url}
        sms = client.messages.create(to="+447700900001", **known)
        assert sms.sid.startswith("SM") and (sms.status, sms.to) == ("queued", "+447700900001")
        with pytest.raises(TwilioRestException) as refused:
            client.messages.create(to="+15005550001", **known)
        assert (refused.value.status, refused.value.code) == (400, 21211)
        wait_until(lambda: len(receiver.requests) == 1, "the report")
    [request] = receiver.requests
    signature = request.headers["x-twilio-signature"]
    assert RequestValidator("token").validate(request.url, dict(request.form()), signature)


def test_lobs_own_client_sends() -> None:
    with vendor_like(LOB) as vendor:
        configuration = lob_python.Configuration(username="test_key", host=f"{vendor.url}/v1")
        fixed = {"_from": "adr_1", "file": "<html></html>", "color": False, "use_type": LtrUseType("marketing")}
        to = {name: text for name, text in TO.items() if name != "address_country"}
        address = AddressEditable(**to, address_state="ME", address_zip="04101")
        with lob_python.ApiClient(configuration) as client:
            sent = [LettersApi(client).create(LetterEditable(to=address, **fixed), idempotency_key="k") for _ in "ab"]
        assert sent[0].id == sent[1].id == vendor.books().accepted["k"].id


def test_boto3_sends_and_knows_the_errors() -> None:
    keys = {"aws_access_key_id": "AKID", "aws_secret_access_key": "a-secret", "region_name": "eu-west-1"}
    with vendor_like(SES) as vendor:
        once = Config(retries={"total_max_attempts": 1})
        client = boto3.client("sesv2", endpoint_url=vendor.url, config=once, **keys)
        mail = {"Raw": {"Data": b"To: ann@example.com\r\n\r\nHello"}}
        answer = client.send_email(Content=mail, Destination={"ToAddresses": ["ann@example.com"]})
        assert answer["MessageId"] == "0000000000000001-sandbox-000000"
        vendor.settings(throttle="0/1")
        with pytest.raises(ClientError) as refused:
            client.send_email(Content=mail, Destination={"ToAddresses": ["ann@example.com"]})
        assert refused.value.response["Error"]["Code"] == "TooManyRequestsException"
        client.close()
