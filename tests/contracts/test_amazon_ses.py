"""Amazon SES: against moto, which nobody here wrote, and against a server of ours that misbehaves as SES may."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from email import message_from_string, policy
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.services import KEY, AmazonSes
from tests.contracts.test_anymail import (
    HEADERS,
    LETTER,
    ORIGIN,
    Server,
    adapter_at,
    answering,
    called,
    until_it_arrives,
)
from vendors.adapters.anymail import Anymail
from vendors.adapters.base import Attachment, Letter
from vendors.adapters.options import InvalidSettings
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused
from vendors.testing import http_server

SES = AmazonSes()
ACCOUNT = "123456789012"  # of moto


@pytest.fixture
def moto() -> Iterator[int]:
    """The port of a server that knows the sender of LETTER. One process of a run imports what it is made of."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": "eu-west-1"}
        client = boto3.client("sesv2", endpoint_url=f"http://{host}:{port}", **keys)
        client.create_email_identity(EmailIdentity=ORIGIN.address)
        client.create_configuration_set(ConfigurationSetName="news")
        yield port
    finally:
        backend().reset()
        server.stop()


def backend() -> Any:
    """What the server knows."""
    from moto.ses.models import ses_backends

    return ses_backends[ACCOUNT]["eu-west-1"]


def sent_by(port: int, letters: Sequence[Letter], **more: str) -> list[Outcome]:
    async def story() -> list[Outcome]:
        async with adapter_at(SES, port, **more) as adapter:
            return await adapter.send(letters)

    return asyncio.run(story())


def test_mails_come_to_moto_as_they_were_written_each_once(moto: int) -> None:
    files = (Attachment("a.pdf", "application/pdf", b"%PDF-"), Attachment("b.png", "image/png", b"png", cid="b"))
    fair = LETTER._replace(attachments=files, body="<p>Grüße</p>", text="Grüße")
    outcomes = sent_by(moto, [fair._replace(reference=f"ref-{number}") for number in range(20)])
    kept = backend().sent_messages
    assert [one.vendor_id for one in outcomes if isinstance(one, Accepted)] == [one.id for one in kept]
    assert len({one.id for one in kept}) == 20
    mail = message_from_string(kept[7].raw_data, policy=policy.default)
    assert (mail["To"], mail["Subject"], mail["X-Metadata"]) == ("ann@example.com", "Grüße", '{"reference": "ref-7"}')
    assert {name: mail[name] for name, _ in HEADERS} == dict(HEADERS)
    assert {part.get_filename() for part in mail.walk()} == {None, "a.pdf", "b.png"}
    assert kept[7].raw_data.isascii() and "Transfer-Encoding: 8bit" not in kept[7].raw_data, "SES wants seven bits"
    html = mail.get_body(("html",))
    assert html is not None and html.get_content().strip() == "<p>Grüße</p>"


def test_moto_refuses_a_sender_that_it_does_not_know_and_nobody_is_refused_for_it(moto: int) -> None:
    (outcome,) = sent_by(moto, [LETTER._replace(origin=replace(ORIGIN, address="news@elsewhere.example"))])
    assert isinstance(outcome, NotSent) and outcome.pause and outcome.scope == "credential"
    assert "news@" not in outcome.reason, "addresses are in no log"


def error(status: int, code: str, text: str, *lines: str) -> http_server.Behaviour:
    return answering(status, {"message": text}, f"x-amzn-ErrorType: {code}", *lines)


def waits(outcome: Outcome) -> float | None:
    return outcome.retry_after if isinstance(outcome, NotSent) and not outcome.pause else None


THROTTLED = [
    (error(429, "TooManyRequestsException", "Maximum sending rate exceeded."), 30.0),
    (error(400, "ThrottlingException", "Rate exceeded", "Retry-After: 3"), 3.0),
    (error(400, "Throttling", "Maximum sending rate exceeded."), 30.0),
    (error(429, "TooManyRequestsException", "Daily message quota exceeded."), 3600.0),
    (answering(400, {"__type": "com.amazonaws.ses#ThrottlingException", "message": "Rate exceeded"}), 30.0),
]


@pytest.mark.parametrize(("behaviour", "seconds"), THROTTLED)
def test_who_is_too_fast_waits_whatever_the_status_is(behaviour: http_server.Behaviour, seconds: float) -> None:
    outcome, got = called(SES, behaviour)
    assert waits(outcome) == seconds and isinstance(outcome, NotSent) and outcome.scope == "credential"
    assert len(got) == 1, "boto3 repeats nothing"


PAUSES = [
    error(400, "AccountSuspendedException", "The account's ability to send email has been permanently restricted."),
    error(400, "SendingPausedException", "Email sending is paused."),
    error(400, "MailFromDomainNotVerifiedException", "The MAIL FROM domain is not verified."),
    error(404, "NotFoundException", "Configuration set news does not exist."),
    error(403, "ExpiredTokenException", "The security token included in the request is expired"),
    error(403, "SignatureDoesNotMatch", "Signature expired: 20260301T120000Z is now earlier than 20260301T121000Z"),
    error(403, "UnrecognizedClientException", "The security token included in the request is invalid."),
    error(400, "LimitExceededException", "Too many of something"),
]


@pytest.mark.parametrize("behaviour", PAUSES)
def test_what_speaks_of_our_account_pauses_and_refuses_nobody(behaviour: http_server.Behaviour) -> None:
    outcome, got = called(SES, behaviour)
    assert isinstance(outcome, NotSent) and outcome.pause and len(got) == 1


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("MessageRejected", "Email contains a virus."),
        ("BadRequestException", "Local address contains control or whitespace"),
        ("BadRequestException", "Domain contains illegal character"),
    ],
)
def test_what_speaks_of_the_mail_refuses_it(code: str, text: str) -> None:
    outcome, _ = called(SES, error(400, code, text))
    assert outcome == Refused(code, text)


async def says_the_half(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + b'{"MessageId": "0102')
    writer.close()


DOUBTS = [
    http_server.hang,
    http_server.reset_at_once,
    says_the_half,
    answering(200, {}),
    answering(200, {"MessageId": ["x"]}),
    answering(200, {"MessageId": ""}),
    answering(200, None),
    answering(200, b"\xff\xfe<html>"),
    error(500, "InternalFailure", "An internal error"),
    error(503, "ThrottlingException", "Rate exceeded"),
    error(409, "ConflictException", "Somebody else"),
    error(408, "RequestTimeout", "Too late"),
]


@pytest.mark.parametrize("behaviour", DOUBTS)
def test_what_may_have_been_taken_is_a_doubt_and_is_called_once(behaviour: http_server.Behaviour) -> None:
    async def story() -> tuple[Outcome, int]:
        async with Server(SES, behaviour) as server, adapter_at(SES, server.port, timeout="0.5") as adapter:
            return await until_it_arrives(adapter, server), len(server.got)

    outcome, calls = asyncio.run(story())
    assert isinstance(outcome, InDoubt) and calls == 1


def test_another_credentials_client_reads_no_description_of_the_service_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.loaders import JSONFileLoader

    called(SES, None)
    read: list[str] = []
    load = JSONFileLoader.load_file

    def noted(loader: JSONFileLoader, path: str) -> Any:
        read.append(path)
        return load(loader, path)

    monkeypatch.setattr(JSONFileLoader, "load_file", noted)
    outcome, _ = called(SES, None)  # at another port: a client of its own
    assert isinstance(outcome, Accepted) and read == []


def test_nothing_of_the_machines_own_aws_configuration_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[default]\nregion = us-east-2\nendpoint_url = http://127.0.0.1:1\n")
    strange = {"PROFILE": "nobody", "ENDPOINT_URL": "http://127.0.0.1:2", "ENDPOINT_URL_SESV2": "http://127.0.0.1:2"}
    strange |= {"CONFIG_FILE": str(tmp_path / "config"), "ACCESS_KEY_ID": "other", "SESSION_TOKEN": "other"}
    strange |= {"USE_FIPS_ENDPOINT": "true", "RETRY_MODE": "adaptive", "REGION": "us-east-1"}
    for name, value in strange.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    known = Anymail.validate({"service": "amazon_ses", "more": "region:eu-west-1"})
    assert Anymail(known, SES.secret)._url == "https://email.eu-west-1.amazonaws.com"
    outcome, (got,) = called(SES, None)  # which checks the signature
    assert isinstance(outcome, Accepted) and got["reference"] == "ref-0"


def test_a_session_token_goes_along() -> None:
    async def story() -> dict[str, str]:
        async with http_server.MisbehavingHttp(answering(200, {"MessageId": "0102"})) as server:
            settings = {"service": "amazon_ses", "url": f"http://127.0.0.1:{server.port}", "more": SES.more}
            adapter = Anymail(settings, dict(SES.secret) | {"aws_session_token": "a-token"})
            await adapter.open()
            assert await adapter.send([LETTER]) == [Accepted("0102")]
            await adapter.close()
            return server.requests[0][1]

    headers = asyncio.run(story())
    assert headers["x-amz-security-token"] == "a-token" and KEY not in str(headers)


def test_without_boto3_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(InvalidSettings, match=r"amazon_ses needs boto3: install requirements-extras\.txt"):
        Anymail.validate({"service": "amazon_ses", "more": "region:eu-west-1"})
    Anymail({"service": "resend"}, {"api_key": KEY})


def test_hundreds_of_mails_at_once_are_signed_one_by_one_and_none_twice() -> None:
    async def story() -> list[Any]:
        async with Server(SES, None) as server, adapter_at(SES, server.port, concurrency="50") as adapter:
            letters = [LETTER._replace(reference=f"ref-{number}") for number in range(300)]
            outcomes = await asyncio.gather(*(adapter.send([one]) for one in letters))
            assert all(isinstance(outcome, Accepted) for (outcome,) in outcomes)
            return server.got

    assert sorted(one["reference"] for one in asyncio.run(story())) == sorted(f"ref-{number}" for number in range(300))
