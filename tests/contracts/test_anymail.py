"""E-mail services by django-anymail: requests as their documents want them, outcomes as strict as of any vendor."""

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from tests.contracts.services import KEY, SERVICES, Answer, Postmark, Service
from tests.waiting import eventually
from vendors.adapters import anymail, building
from vendors.adapters.anymail import SERVICES as ALL
from vendors.adapters.anymail import Anymail
from vendors.adapters.anymail_services import RequestsWriter
from vendors.adapters.base import Attachment, Letter, Origin
from vendors.adapters.options import InvalidSettings
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused
from vendors.testing import http_server
from vendors.testing.servers import closed_port

SES_SECRET = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "sesame"}
ORIGIN = Origin("news@example.org", "Zoë, of Example", "Help <help@example.org>")
PATHS = {"mailgun": "/v3", "sendgrid": "/v3", "brevo": "/v3"}
HEADERS = [
    ("List-Unsubscribe", "<https://mail.example.com/u/1>"),
    ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"),
]
LETTER = Letter(
    "ref-0", "ann@example.com", "Grüße", "<p>Hello</p>", html=True, text="Hello", headers=HEADERS, origin=ORIGIN
)

each = pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)


def answering(status: int, content: Any, *lines: str) -> http_server.Behaviour:
    body = b"" if content is None else content if isinstance(content, bytes) else json.dumps(content).encode()
    return http_server.answer(status, body, *lines)


async def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{")
    writer.close()


class Server(http_server.MisbehavingHttp):
    """The service: it takes what its documents allow, then answers, or misbehaves."""

    def __init__(self, service: Service, behaviour: http_server.Behaviour | None) -> None:
        super().__init__(None)
        self._service, self._misbehaves, self.got = service, behaviour, list[dict[str, Any]]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            line, headers, body = await http_server.read_request(reader)
            facts, answer = self._service.take(line, headers, body)
            self.got.append(facts)
            await (self._misbehaves or answering(*answer))(reader, writer)


@asynccontextmanager
async def adapter_at(service: Service, port: int, **more: str) -> AsyncIterator[Anymail]:
    settings = {
        "service": service.name,
        "url": f"http://127.0.0.1:{port}{PATHS.get(service.name, '')}",
        "timeout": "60",
    }
    adapter = Anymail(settings | {"more": service.more} | more, service.secret)
    await adapter.open()
    try:
        yield adapter
    finally:
        await adapter.close()


def called(
    service: Service, behaviour: http_server.Behaviour | None, letter: Letter = LETTER
) -> tuple[Outcome, list[Any]]:
    async def story() -> tuple[Outcome, list[Any]]:
        async with Server(service, behaviour) as server, adapter_at(service, server.port) as adapter:
            (outcome,) = await adapter.send([letter])
            return outcome, server.got

    return asyncio.run(story())


@each
def test_a_mail_arrives_as_it_was_written_and_its_id_is_kept(service: Service) -> None:
    outcome, (got,) = called(service, None)
    assert isinstance(outcome, Accepted) and len(outcome.vendor_id) > 8
    assert (got["to"], got["subject"], got["reference"]) == ("ann@example.com", "Grüße", "ref-0")
    assert "news@example.org" in got["sender"] and (got["html"], got["text"]) == ("<p>Hello</p>", "Hello")
    assert {name: got["headers"][name] for name, _ in HEADERS} == dict(HEADERS)


@each
@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_failure_after_the_mail_was_taken_is_a_doubt(service: Service, status: int) -> None:
    assert isinstance(called(service, answering(status, {"message": "Internal error"}))[0], InDoubt)


GARBAGE = [cut, http_server.reset_at_once, answering(200, b"<html>Hi</html>"), answering(200, [])]


async def until_it_arrives(adapter: Anymail, server: Server) -> Outcome:
    """The outcome of the call that has reached the service; a slow machine may have no connection in time."""

    async def called() -> list[Outcome]:
        found = await adapter.send([LETTER])
        return found if server.got else []

    (outcome,) = await eventually(called, "the service has the request")
    return outcome


@each
@pytest.mark.parametrize("behaviour", GARBAGE)
def test_what_is_cut_off_or_makes_no_sense_is_a_doubt(service: Service, behaviour: http_server.Behaviour) -> None:
    outcome, got = called(service, behaviour)
    assert isinstance(outcome, InDoubt) and len(got) == 1


@each
def test_a_service_that_takes_the_mail_and_says_nothing_in_time_is_a_doubt(service: Service) -> None:
    async def story() -> tuple[Outcome, int]:
        async with (
            Server(service, http_server.hang) as server,
            adapter_at(service, server.port, timeout="0.5") as adapter,
        ):
            return await until_it_arrives(adapter, server), len(server.got)

    outcome, calls = asyncio.run(story())
    assert isinstance(outcome, InDoubt) and calls == 1


@each
def test_throttling_waits_as_long_as_the_service_asks(service: Service) -> None:
    outcome, _ = called(service, answering(429, {"message": "Too many requests"}, "Retry-After: 17"))
    assert outcome == NotSent("http 429: too fast for the vendor", retry_after=17.0, scope="credential")


@each
@pytest.mark.parametrize("what", ["wrong_key", "foreign"])
def test_a_wrong_key_or_a_sender_that_is_not_ours_refuses_nobody_and_pauses(service: Service, what: str) -> None:
    answer: Answer = getattr(service, what)
    outcome, _ = called(service, answering(*answer))
    assert isinstance(outcome, NotSent) and outcome.pause and outcome.scope == "credential"
    assert KEY not in outcome.reason


@each
def test_an_address_that_the_service_does_not_take_is_refused(service: Service) -> None:
    assert isinstance(called(service, answering(*service.refused))[0], Refused)


@each
def test_where_nobody_listens_nothing_was_sent(service: Service) -> None:
    async def story() -> Sequence[Outcome]:
        async with adapter_at(service, closed_port()) as adapter:
            return await adapter.send([LETTER])

    (outcome,) = asyncio.run(story())
    assert isinstance(outcome, NotSent) and not outcome.pause


def test_a_recipient_whom_postmark_has_deactivated_is_refused() -> None:
    text = "You tried to send to a recipient that has been marked as inactive.\n"
    text += (
        "Found inactive addresses: ann@example.com.\nInactive recipients are ones that have generated a hard bounce."
    )
    said = {"ErrorCode": 406, "Message": text}
    outcome, _ = called(Postmark(), answering(422, said))
    assert isinstance(outcome, Refused) and outcome.code == "rejected"
    assert "ann@" not in outcome.sub_type and "inactive" in outcome.sub_type


@each
def test_files_go_along(service: Service) -> None:
    files = [Attachment("a.pdf", "application/pdf", b"%PDF-"), Attachment("b.csv", "text/csv", b"Gr\xfc\xdfe")]
    if service.name != "brevo":  # it takes no images within the HTML
        files.append(Attachment("b.png", "image/png", b"png", cid="b"))
    taken: list[bytes] = []

    class Keeping(Server):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            _, _, body = await http_server.read_request(reader)
            taken.append(body)
            await cut(reader, writer)

    async def story() -> None:
        async with Keeping(service, None) as server, adapter_at(service, server.port) as adapter:
            await adapter.send([LETTER._replace(attachments=tuple(files))])

    asyncio.run(story())
    if service.name == "amazon_ses":
        taken[0] = base64.b64decode(json.loads(taken[0])["Content"]["Raw"]["Data"])
    assert b"a.pdf" in taken[0] and (b"JVBERi0" in taken[0] or b"%PDF-" in taken[0])


def test_what_a_service_cannot_take_refuses_that_letter_and_pauses_nothing() -> None:
    brevo = next(service for service in SERVICES if service.name == "brevo")
    image = Attachment("b.png", "image/png", b"png", cid="b")
    outcome, got = called(brevo, None, LETTER._replace(attachments=(image,)))
    assert isinstance(outcome, Refused) and not outcome.may_be_ours
    assert "inline" in outcome.sub_type and not got


@pytest.mark.parametrize(
    ("settings", "secret", "word"),
    [
        ({"service": "pigeon"}, {}, "service must be one of"),
        ({"service": "amazon_ses"}, {}, "more must have region"),
        ({"service": "amazon_ses", "more": "region:eu-west-1"}, {}, "the secret must have aws_access_key_id"),
        ({"service": "amazon_ses", "more": "region:-"}, SES_SECRET, "boto3 makes no client of these settings"),
        ({"service": "amazon_ses", "more": "region:eu-west-1"}, {"api_key": "sesame"}, "the secret has api_key"),
        ({"service": "resend"}, SES_SECRET, "the secret has aws_access_key_id"),
        ({"service": "postmark"}, {}, "the secret must have server_token"),
        ({"service": "postmark"}, {"password": "sesame"}, "the secret has password"),
        ({"service": "postmark", "more": "message_strem:x"}, {"server_token": "sesame"}, "no setting message_strem"),
        (
            {"service": "resend", "more": "api_url:https://elsewhere"},
            {"api_key": "sesame"},
            "resend has no setting api_url",
        ),
        (
            {"service": "resend", "more": "idna_encoder:subprocess.getoutput"},
            {"api_key": "sesame"},
            "resend has no setting idna_encoder",
        ),
        (
            {"service": "postmark", "more": {"ignore_unsupported_features": "false"}},
            {"server_token": "sesame"},
            "postmark has no setting ignore_unsupported_features",
        ),
        ({"service": "postmark", "more": "use_bulk_api:false"}, {"server_token": "sesame"}, "no setting use_bulk_api"),
        ({"service": "postmark", "more": "send_defaults:x"}, {"server_token": "sesame"}, "no setting send_defaults"),
        ({"service": "postmark", "more": {"message_stream": ["x"]}}, {"server_token": "sesame"}, "must be a text"),
        ({"service": "mailgun", "more": "sender_domain:a/b"}, {"api_key": "sesame"}, "must be a text"),
        ({"service": "scaleway", "more": "project_id:p", "url": "https://a.example/{x}"}, {"secret_key": "s"}, "url"),
        ({"service": "mailersend"}, {"api_token": "sesame"}, "reference must be tag or none"),
        ({"service": "resend"}, {"api_key": "sesame\n"}, "the secret's api_key must be one line"),
        ({"service": "resend"}, {"api_key": " sesame"}, "the secret's api_key must be one line"),
        ({"service": "resend"}, {"api_key": "sesame\u20ac"}, "the secret's api_key must be one line"),
        ({"service": "mailgun"}, {"api_key": ""}, "the secret's api_key must be one line"),
        (
            {"service": "resend", "url": "http://vendor.example"},
            {"api_key": "sesame"},
            "a secret goes over https alone",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_told_without_the_secret(settings: Any, secret: Any, word: str) -> None:
    with pytest.raises(InvalidSettings) as why:
        Anymail(settings, secret)
    assert word in str(why.value) and "sesame" not in str(why.value)


@pytest.mark.parametrize("text", ["idna_encoder:subprocess.getoutput", "api_key:x", "debug_api_requests:1"])
@pytest.mark.parametrize("service", ALL)
def test_more_is_checked_without_a_secret_and_has_no_setting_that_is_not_listed(service: str, text: str) -> None:
    with pytest.raises(InvalidSettings, match="has no setting"):
        Anymail.validate({"service": service, "more": text, "reference": "tag"})


def test_a_request_that_cannot_be_written_pauses_and_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> Outcome:
        async with adapter_at(Postmark(), closed_port()) as adapter:
            backend = cast(RequestsWriter, adapter._writer)._backend
            monkeypatch.setattr(backend, "server_token", "sesame\n")  # as if it had come past the check
            (outcome,) = await adapter.send([LETTER])
            return outcome

    outcome = asyncio.run(story())
    assert isinstance(outcome, NotSent) and outcome.pause and "sesame" not in outcome.reason


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (412, "While your account is pending approval, all recipient addresses must share the 'From' domain."),
        (1235, "The message stream for the 'To' address does not exist."),
        (300, "Invalid 'From' address: 'news@'."),
    ],
)
def test_what_postmark_says_of_our_account_refuses_nobody_although_it_speaks_of_recipients(
    code: int, text: str
) -> None:
    outcome, _ = called(Postmark(), answering(422, {"ErrorCode": code, "Message": text}))
    assert isinstance(outcome, NotSent) and outcome.pause


def answered(name: str, secret: dict[str, str], behaviour: http_server.Behaviour) -> Outcome:
    async def story() -> Outcome:
        async with http_server.MisbehavingHttp(behaviour) as server:
            settings = {"service": name, "url": f"http://127.0.0.1:{server.port}", "timeout": 60, "reference": "tag"}
            adapter = Anymail(settings, secret)
            await adapter.open()
            try:
                (outcome,) = await adapter.send([LETTER])
            finally:
                await adapter.close()
            return outcome

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("name", "names", "behaviour"),
    [
        ("mailersend", ["api_token"], answering(202, {}, "Content-Type: application/json")),
        ("mailjet", ["api_key", "secret_key"], answering(200, {"Messages": []})),
        ("sendgrid", ["api_key"], answering(202, None)),
        ("sendgrid", ["api_key"], answering(203, None, "X-Message-Id: filter-1")),
        ("sendgrid", ["api_key"], answering(200, None, "X-Message-Id: filter-1")),
    ],
)
def test_an_answer_of_success_that_names_no_mail_is_a_doubt(
    name: str, names: list[str], behaviour: http_server.Behaviour
) -> None:
    outcome = answered(name, dict.fromkeys(names, KEY), behaviour)
    assert isinstance(outcome, InDoubt)


def test_mailersend_names_who_is_suppressed() -> None:
    said = {"warnings": [{"type": "ALL_SUPPRESSED", "recipients": [{"email": "ann@example.com"}]}]}
    outcome = answered("mailersend", {"api_token": KEY}, answering(202, said, "Content-Type: application/json"))
    assert isinstance(outcome, Refused) and outcome.code == "rejected"


@each
def test_an_internationalised_domain_is_accepted_as_any_other(service: Service) -> None:
    outcome, (got,) = called(service, None, LETTER._replace(recipient="x@b\u00fccher.example"))
    assert isinstance(outcome, Accepted) and got["to"] == "x@xn--bcher-kva.example"


def test_mails_with_larger_files_all_go_out_however_many_at_once() -> None:
    files = (Attachment("a.pdf", "application/pdf", b"%PDF-" + bytes(5_000_000)),)
    letters = [LETTER._replace(reference=f"ref-{number}", attachments=files) for number in range(8)]

    async def story() -> list[Outcome]:
        accepting = answering(200, {"id": "evidence"})
        resend = next(service for service in SERVICES if service.name == "resend")
        async with http_server.MisbehavingHttp(accepting) as server, adapter_at(resend, server.port) as adapter:
            found = await asyncio.gather(*(adapter.send([letter]) for letter in letters))
            assert sum(len(body) for *_, body in server.requests) > 8 * 6_000_000
            return [outcome for (outcome,) in found]

    assert asyncio.run(story()) == [Accepted("evidence")] * 8


def test_a_request_that_waits_too_long_to_be_made_is_called_again_and_is_nothing_against_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(anymail, "BUILD_SECONDS", 0.0)

    async def story() -> None:
        async with adapter_at(Postmark(), closed_port()) as adapter:
            (outcome,) = await adapter.send([LETTER])
            assert isinstance(outcome, NotSent) and not outcome.pause and adapter.is_good(outcome) is None
            assert outcome.puts_off, "it would close the credential for the others, too"

    asyncio.run(story())


def test_a_mail_that_takes_longer_to_be_written_than_there_is_time_goes_out_with_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine so busy that no try has enough time: what one has begun the next one finds."""
    written, busy = [], threading.Event()
    build = Anymail._build_request

    def slow(self: Anymail, letter: Letter) -> Any:
        written.append(letter.reference)
        busy.wait()
        return build(self, letter)

    monkeypatch.setattr(Anymail, "_build_request", slow)

    async def story() -> None:
        accepting = answering(200, {"id": "evidence"})
        resend = next(service for service in SERVICES if service.name == "resend")
        async with http_server.MisbehavingHttp(accepting) as server, adapter_at(resend, server.port) as adapter:
            monkeypatch.setattr(anymail, "BUILD_SECONDS", 0.2)
            for _ in range(3):
                [late] = await adapter.send([LETTER])
                assert isinstance(late, NotSent) and late.puts_off
            while not written:
                await adapter.send([LETTER])  # no thread was free so far
            monkeypatch.setattr(anymail, "BUILD_SECONDS", 60.0)
            busy.set()
            assert await adapter.send([LETTER]) == [Accepted("evidence")]

    try:
        asyncio.run(story())
    finally:
        busy.set()
    assert written == [LETTER.reference], "it was begun anew, and would never have come to its end"


def test_a_mail_that_has_been_changed_since_it_was_written_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    files = (Attachment("a.txt", "text/plain", b"old"),)
    for changed in ({"body": "<p>new</p>"}, {"attachments": (Attachment("a.txt", "text/plain", b"new"),)}):
        made, busy = list[Letter](), threading.Event()

        def slow(letter: Letter, made: list[Letter] = made, busy: threading.Event = busy) -> Letter:
            made.append(letter)
            busy.wait()
            return letter

        async def story(changed: Any = changed, made: list[Letter] = made, busy: threading.Event = busy) -> None:
            builds, first = building.Builds(slow), LETTER._replace(attachments=files)
            while not made:
                with pytest.raises(TimeoutError):
                    await builds.build_letter(first, 0.2)
            busy.set()
            other = first._replace(**changed)
            assert await builds.build_letter(other, 60) is other

        asyncio.run(story())


def test_what_was_written_long_ago_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that has the request signed refuses an old one."""
    monkeypatch.setattr(building, "KEPT_SECONDS", -1.0)
    made, busy = list[Letter](), threading.Event()

    def slow(letter: Letter) -> int:
        made.append(letter)
        busy.wait()
        return len(made)

    async def story() -> None:
        builds = building.Builds(slow)
        while not made:
            with pytest.raises(TimeoutError):
                await builds.build_letter(LETTER, 0.2)
        busy.set()
        while builds._kept and not next(iter(builds._kept.values())).made.done():
            await asyncio.sleep(0.01)
        assert await builds.build_letter(LETTER, 60) == 2

    asyncio.run(story())


@pytest.mark.parametrize("service", ALL)
def test_each_service_demands_the_secret_that_it_needs_and_no_more(service: str) -> None:
    settings: dict[str, Any] = {"service": service, "reference": "tag", "url": "https://127.0.0.1:9"}
    settings["more"] = {"scaleway": {"project_id": "p"}, "amazon_ses": {"region": "eu-west-1"}}.get(service, {})
    wanted = Anymail.asks_secret(settings)
    Anymail(settings, dict.fromkeys(wanted, KEY))
    for name in wanted:
        with pytest.raises(InvalidSettings, match=name):
            Anymail(settings, {other: KEY for other in wanted if other != name})


def test_a_key_that_a_service_gives_back_is_not_shown() -> None:
    outcome, _ = called(Postmark(), answering(422, {"ErrorCode": 10, "Message": f"No server has the token {KEY}"}))
    assert isinstance(outcome, NotSent) and KEY not in outcome.reason and "***" in outcome.reason
