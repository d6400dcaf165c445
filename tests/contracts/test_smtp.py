"""The SMTP adapter's own words: commands, logins, TLS on the way, and where doubt begins."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

from tests.contracts.certificates import authority, server_tls
from tests.contracts.wild import LOOPS, PATIENCE, Wild, run
from tests.contracts.wild_smtp import WildSmtp, say
from vendors.adapters.base import Letter
from vendors.adapters.options import InvalidSettings
from vendors.adapters.smtp import Smtp
from vendors.outcomes import Accepted, NotSent, Refused

EACH_LOOP = pytest.mark.parametrize("loop", LOOPS)
TAKEN = [Accepted("EVIDENCE")]


def letter(reference: str, body: str = "Dear you,\n.\n..\nbye") -> Letter:
    return Letter(reference, f"{reference}@example.org", "Hello", body)


def settings(port: int, **more: Any) -> dict[str, Any]:
    plain = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "Us <us@example.org>"}
    return plain | {"timeout": PATIENCE, "connect_timeout": PATIENCE} | more


@asynccontextmanager
async def opened(known: dict[str, Any], secret: dict[str, str] | None = None) -> AsyncIterator[Smtp]:
    adapter = Smtp(known, secret or {})
    await adapter.open()
    try:
        yield adapter
    finally:
        await adapter.close()


@EACH_LOOP
@pytest.mark.parametrize("pipelining", [False, True])
def test_a_refused_recipient_does_not_cost_the_connection(loop: str, pipelining: bool) -> None:
    async def story() -> None:
        async with WildSmtp({"rcpt": say("550 5.1.1 no")}, pipelining=pipelining) as relay:
            async with opened(settings(relay.port)) as adapter:
                assert await adapter.send([letter("bad-1")]) == [Refused("550", "5.1.1")]
                assert await adapter.send([letter("bad-2")]) == [Refused("550", "5.1.1")]
                assert await adapter.send([letter("good-3")]) == TAKEN
                assert await adapter.send([letter("good-4")]) == TAKEN
            assert relay.connections == 1
            verbs = [line.partition(" ")[0] for line in relay.lines if not line.startswith(("DATA", "QUIT"))]
            assert verbs == ["EHLO", "MAIL", "RCPT", "RSET", "MAIL", "RCPT", "RSET", "MAIL", "RCPT", "MAIL", "RCPT"]
            assert dict(relay.taken) == {"good-3": 1, "good-4": 1}

    run(loop, story)


@EACH_LOOP
def test_the_relay_stores_the_mail_that_was_meant(loop: str) -> None:
    async def story() -> None:
        async with WildSmtp() as relay, opened(settings(relay.port)) as adapter:
            assert await adapter.send([letter("good-1")]) == TAKEN
            assert relay.mails[0].endswith(b"\r\n\r\nDear you,\r\n.\r\n..\r\nbye\r\n")
            assert "MAIL FROM:<us@example.org>" in relay.lines
            assert "RCPT TO:<good-1@example.org>" in relay.lines

    run(loop, story)


@EACH_LOOP
@pytest.mark.parametrize("size", [65_000, 70_000, 5_000_000])
def test_a_long_mail_arrives_whole(loop: str, size: int) -> None:
    async def story() -> None:
        async with WildSmtp(limit=2**24) as relay, opened(settings(relay.port)) as adapter:
            body = ("~" * 99 + "\n") * (size // 100)
            assert await adapter.send([letter("good-1", body)]) == TAKEN
            assert relay.mails[0].count(b"~") == 99 * (size // 100)

    run(loop, story)


class Deaf(Wild):
    """Says go on, and is gone before it has read the mail."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kernel = writer.get_extra_info("socket")
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for reply in (b"220 hi", b"250 hi", b"250 ok", b"250 ok", b"354 go on"):
            writer.write(reply + b"\r\n")
            await reader.readline()


@EACH_LOOP
@pytest.mark.parametrize("way", ["none", "implicit"])
def test_a_connection_lost_within_a_long_mail_leaves_no_doubt(loop: str, way: str) -> None:
    async def story() -> None:
        known = {"tls": way, "ca_file": str(authority())}
        async with (
            Deaf(server_tls() if way == "implicit" else None) as relay,
            opened(settings(relay.port, **known)) as adapter,
        ):
            [outcome] = await adapter.send([letter("wild", ("x" * 900 + "\n") * 30_000)])
            assert isinstance(outcome, NotSent)

    run(loop, story)


@EACH_LOOP
def test_a_connection_carries_no_more_mails_than_the_setting_says(loop: str) -> None:
    async def story() -> None:
        async with WildSmtp() as relay, opened(settings(relay.port, mails=2)) as adapter:
            for number in range(5):
                assert await adapter.send([letter(f"good-{number}")]) == TAKEN
            assert relay.connections == 3

    run(loop, story)


@EACH_LOOP
def test_starttls_comes_before_login_and_mail(loop: str) -> None:
    async def story() -> None:
        async with WildSmtp(upgrade=server_tls(), extensions=("STARTTLS", "AUTH LOGIN PLAIN")) as relay:
            known = settings(relay.port, tls="starttls", ca_file=str(authority()))
            async with opened(known, {"user": "us", "password": "s3cret"}) as adapter:
                assert await adapter.send([letter("good-1")]) == TAKEN
                assert await adapter.send([letter("good-2")]) == TAKEN
            login = "AUTH PLAIN " + base64.b64encode(b"\0us\0s3cret").decode()
            assert relay.lines[:5] == [*("EHLO example.org", "STARTTLS", "EHLO example.org"), login, relay.lines[4]]
            assert relay.connections == 1

    run(loop, story)


@EACH_LOOP
def test_a_relay_without_starttls_gets_neither_login_nor_mail(loop: str) -> None:
    async def story() -> None:
        async with WildSmtp() as relay:
            known = settings(relay.port, tls="starttls", ca_file=str(authority()))
            async with opened(known, {"user": "us", "password": "s3cret"}) as adapter:
                [outcome] = await adapter.send([letter("good-1")])
            assert outcome == NotSent("smtp 502 at tls: 5.5.2 what", scope="credential", pause=True)
            assert relay.lines == ["EHLO example.org", "STARTTLS"]

    run(loop, story)


@EACH_LOOP
def test_a_relay_that_slips_a_reply_in_before_tls_is_left(loop: str) -> None:
    async def story() -> None:
        async with WildSmtp({"other": say("220 go", "250-slipped", "250 in")}) as relay:
            async with opened(settings(relay.port, tls="starttls", ca_file=str(authority()))) as adapter:
                [outcome] = await adapter.send([letter("good-1")])
            assert outcome == NotSent("the relay spoke before TLS began")

    run(loop, story)


@EACH_LOOP
def test_a_refused_login_pauses_and_refuses_nothing(loop: str) -> None:
    async def story() -> None:
        async with WildSmtp({"auth": say("535 5.7.8 wrong")}) as relay:
            async with opened(settings(relay.port, plain_login=True), {"user": "us", "password": "s3cret"}) as adapter:
                [outcome] = await adapter.send([letter("wild")])
            assert outcome == NotSent("smtp 535 at login: 5.7.8 wrong", scope="credential", pause=True)

    run(loop, story)


def test_settings_and_secret_are_checked_in_sentences() -> None:
    known = Smtp.validate({"host": "relay.example", "sender": "Us <us@example.org>"})
    assert (known["port"], known["tls"], known["timeout"]) == (587, "starttls", 600.0)
    assert Smtp.validate(known) == known
    assert Smtp(known, {}).deadline == 661.0
    with pytest.raises(InvalidSettings) as caught:
        Smtp.validate({"port": "70000", "sender": "Us", "tls": "ssl", "hots": "x"})
    assert [error.split()[0] for error in caught.value.errors] == ["hots", "host", "port", "tls", "sender"]
    with pytest.raises(InvalidSettings, match="must hold user and password"):
        Smtp(known, {"user": "us"})
    with pytest.raises(InvalidSettings, match="must not hold token"):
        Smtp(known, {"token": "s3cret"})


class Box:
    """What a relay that others wrote hands to its owner."""

    def __init__(self) -> None:
        self.envelopes: list[Any] = []

    async def handle_DATA(self, server: object, session: object, envelope: Any) -> str:
        self.envelopes.append(envelope)
        return "250 2.0.0 Ok: queued as EVIDENCE"


@EACH_LOOP
def test_a_relay_that_others_wrote_understands_us(loop: str) -> None:
    async def story() -> None:
        box = Box()
        running = asyncio.get_running_loop()
        server = await running.create_server(lambda: SMTP(box, loop=running, hostname="relay"), "127.0.0.1", 0)
        async with opened(settings(server.sockets[0].getsockname()[1])) as adapter:
            answers = [await adapter.send([letter(f"good-{number}")]) for number in range(3)]
        server.close()
        await server.wait_closed()
        assert answers == [TAKEN] * 3
        assert [envelope.rcpt_tos for envelope in box.envelopes] == [[f"good-{n}@example.org"] for n in range(3)]
        assert box.envelopes[0].mail_from == "us@example.org"
        assert box.envelopes[0].content.endswith(b"\r\n\r\nDear you,\r\n.\r\n..\r\nbye\r\n")

    run(loop, story)
