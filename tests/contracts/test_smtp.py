"""The SMTP adapter's own words: commands, logins, TLS on the way, and where doubt begins."""

from __future__ import annotations

import asyncio
import base64
import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

from vendors.adapters.base import Letter
from vendors.adapters.options import InvalidSettings
from vendors.adapters.smtp import Smtp
from vendors.outcomes import Accepted, NotSent, Outcome, Refused
from vendors.testing.certificates import authority, server_tls
from vendors.testing.servers import MisbehavingServer
from vendors.testing.smtp_relay import MisbehavingSmtp, hang, say
from vendors.testing.subject import LOOPS, run

PATIENCE = 60.0
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
        async with MisbehavingSmtp({"rcpt": say("550 5.1.1 no")}, pipelining=pipelining) as relay:
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
@pytest.mark.parametrize(("quoted", "is_refused"), [("us@example.org", False), ("bad-1@example.org", True)])
def test_a_relay_that_quotes_the_sender_speaks_of_the_sender(loop: str, quoted: str, is_refused: bool) -> None:
    async def story() -> None:
        says = {"rcpt": say(f"550 5.1.1 <{quoted}>: no such user")}
        async with MisbehavingSmtp(says) as relay, opened(settings(relay.port)) as adapter:
            [outcome] = await adapter.send([letter("bad-1")])
        assert isinstance(outcome, Refused if is_refused else NotSent)
        assert outcome.cause == ("recipient" if is_refused else "us")

    run(loop, story)


@EACH_LOOP
def test_the_relay_stores_the_mail_that_was_meant(loop: str) -> None:
    async def story() -> None:
        async with MisbehavingSmtp() as relay, opened(settings(relay.port)) as adapter:
            assert await adapter.send([letter("good-1")]) == TAKEN
            assert relay.mails[0].endswith(b"\r\n\r\nDear you,\r\n.\r\n..\r\nbye\r\n")
            assert "MAIL FROM:<us@example.org>" in relay.lines
            assert "RCPT TO:<good-1@example.org>" in relay.lines

    run(loop, story)


@EACH_LOOP
@pytest.mark.parametrize("size", [65_000, 70_000, 5_000_000])
def test_a_long_mail_arrives_whole(loop: str, size: int) -> None:
    async def story() -> None:
        async with MisbehavingSmtp(limit=2**24) as relay, opened(settings(relay.port)) as adapter:
            body = ("~" * 99 + "\n") * (size // 100)
            assert await adapter.send([letter("good-1", body)]) == TAKEN
            assert relay.mails[0].count(b"~") == 99 * (size // 100)

    run(loop, story)


class Deaf(MisbehavingServer):
    """Says go on, and is gone before it has read the mail."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kernel = writer.get_extra_info("socket")
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for reply in (b"220 hi", b"250 hi", b"250 ok", b"250 ok", b"354 go on"):
            writer.write(reply + b"\r\n")
            await reader.readline()


@EACH_LOOP
@pytest.mark.parametrize("tls", ["none", "implicit"])
def test_a_connection_lost_within_a_long_mail_leaves_no_doubt(loop: str, tls: str) -> None:
    async def story() -> None:
        known = {"tls": tls, "ca_file": str(authority())}
        async with (
            Deaf(server_tls() if tls == "implicit" else None) as relay,
            opened(settings(relay.port, **known)) as adapter,
        ):
            [outcome] = await adapter.send([letter("wild", ("x" * 900 + "\n") * 30_000)])
            assert isinstance(outcome, NotSent)

    run(loop, story)


@EACH_LOOP
def test_a_connection_carries_no_more_mails_than_the_setting_says(loop: str) -> None:
    async def story() -> None:
        async with MisbehavingSmtp() as relay, opened(settings(relay.port, mails=2)) as adapter:
            for number in range(5):
                assert await adapter.send([letter(f"good-{number}")]) == TAKEN
            assert relay.connections == 3

    run(loop, story)


@EACH_LOOP
def test_starttls_comes_before_login_and_mail(loop: str) -> None:
    async def story() -> None:
        async with MisbehavingSmtp(upgrade=server_tls(), extensions=("STARTTLS", "AUTH LOGIN PLAIN")) as relay:
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
        async with MisbehavingSmtp() as relay:
            known = settings(relay.port, tls="starttls", ca_file=str(authority()))
            async with opened(known, {"user": "us", "password": "s3cret"}) as adapter:
                [outcome] = await adapter.send([letter("good-1")])
            assert outcome == NotSent("smtp 502 at tls: 5.5.2 what", scope="credential", pause=True)
            assert relay.lines == ["EHLO example.org", "STARTTLS"]

    run(loop, story)


@EACH_LOOP
def test_a_relay_that_slips_a_reply_in_before_tls_is_left(loop: str) -> None:
    async def story() -> None:
        async with MisbehavingSmtp({"other": say("220 go", "250-slipped", "250 in")}) as relay:
            async with opened(settings(relay.port, tls="starttls", ca_file=str(authority()))) as adapter:
                [outcome] = await adapter.send([letter("good-1")])
            assert outcome == NotSent("the relay spoke before TLS began")

    run(loop, story)


@EACH_LOOP
def test_a_refused_login_pauses_and_refuses_nothing(loop: str) -> None:
    async def story() -> None:
        async with MisbehavingSmtp({"auth": say("535 5.7.8 wrong")}) as relay:
            async with opened(settings(relay.port, plain_login=True), {"user": "us", "password": "s3cret"}) as adapter:
                [outcome] = await adapter.send([letter("wild")])
            assert outcome == NotSent("smtp 535 at login: 5.7.8 wrong", scope="credential", pause=True)

    run(loop, story)


NOT_ASCII = Letter("wild-utf8", "jörg@example.org", "Hello", "Dear you")


@EACH_LOOP
@pytest.mark.parametrize("pipelining", [False, True])
def test_an_address_with_other_letters_goes_where_the_relay_takes_it(loop: str, pipelining: bool) -> None:
    async def story() -> None:
        relay = MisbehavingSmtp(pipelining=pipelining, extensions=("8BITMIME", "SMTPUTF8"))
        async with relay, opened(settings(relay.port, batch=3)) as adapter:
            assert await adapter.send([letter("good-1"), NOT_ASCII, letter("good-3")]) == TAKEN * 3
            assert [line for line in relay.lines if line.startswith(("MAIL", "RCPT"))] == [
                *("MAIL FROM:<us@example.org>", "RCPT TO:<good-1@example.org>"),
                *("MAIL FROM:<us@example.org> SMTPUTF8", "RCPT TO:<jörg@example.org>"),
                *("MAIL FROM:<us@example.org>", "RCPT TO:<good-3@example.org>"),
            ]
            assert "\r\nTo: jörg@example.org\r\n" in relay.mails[1].decode()

    run(loop, story)


@EACH_LOOP
@pytest.mark.parametrize("pipelining", [False, True])
def test_an_address_with_other_letters_is_refused_where_the_relay_does_not_take_it(loop: str, pipelining: bool) -> None:
    async def story() -> None:
        relay = MisbehavingSmtp(pipelining=pipelining, extensions=("8BITMIME",))
        async with relay, opened(settings(relay.port, batch=3)) as adapter:
            for _ in range(2):  # over a new connection, and over a kept one
                first, refused, last = await adapter.send([letter("good-1"), NOT_ASCII, letter("good-3")])
                assert [first, last] == TAKEN * 2 and refused.code == "unsendable"  # type: ignore[union-attr]
            assert await adapter.send([NOT_ASCII]) == [refused]
            assert relay.connections == 1 and sum(relay.taken.values()) == 4
            assert all(line.isascii() for line in relay.lines)

    run(loop, story)


async def found_out(relay: MisbehavingSmtp, **more: Any) -> list[Outcome]:
    """Mails are sent until the adapter knows that the relay loses commands; what came of the last round."""
    async with opened(settings(relay.port, connect_timeout="1", **more)) as adapter:
        for number in itertools.count():
            round_ = [letter(f"good-{number}-{n}") for n in range(adapter.capabilities.batch_max)]
            outcomes = await adapter.send(round_)
            if ("127.0.0.1", relay.port) in Smtp.discarding:
                return outcomes
            assert all(isinstance(outcome, NotSent) for outcome in outcomes), "a slow machine, and nothing else"
    raise AssertionError


@EACH_LOOP
@pytest.mark.parametrize("batch", [1, 3])
def test_a_relay_that_loses_what_is_written_ahead_is_found_out_once(loop: str, batch: int) -> None:
    """It offers PIPELINING and reads one command of a packet."""

    async def story() -> None:
        async with MisbehavingSmtp(pipelining=True, forgetful=True) as relay:
            lost = await found_out(relay, batch=batch)
            assert all(isinstance(outcome, NotSent) for outcome in lost) and not relay.taken
            for first in (0, batch):  # whoever comes next in this process knows it
                async with opened(settings(relay.port, batch=batch)) as adapter:
                    assert await adapter.send([letter(f"good-{first + n}") for n in range(batch)]) == TAKEN * batch
            assert dict(relay.taken) == {f"good-{n}": 1 for n in range(2 * batch)}
            Smtp.discarding.clear()  # the next relay at this port is another one

    run(loop, story)


@EACH_LOOP
def test_a_relay_that_loses_the_envelope_behind_a_mail_is_found_out_once(loop: str) -> None:
    """It reads several commands of a packet, but drops what stands behind the end of a mail."""

    async def story() -> None:
        async with MisbehavingSmtp(pipelining=True, forgetful="dot") as relay:
            first, *others = await found_out(relay, batch=3)
            assert [first] == TAKEN and all(isinstance(outcome, NotSent) for outcome in others)
            async with opened(settings(relay.port, batch=3)) as adapter:
                assert await adapter.send([letter(f"good-{n}") for n in range(3)]) == TAKEN * 3
            assert sum(relay.taken.values()) == 4
            Smtp.discarding.clear()

    run(loop, story)


@EACH_LOOP
@pytest.mark.parametrize("batch", [1, 2])
def test_a_relay_that_owes_a_reply_gets_no_content_for_the_next_one(loop: str, batch: int) -> None:
    """It answers MAIL and DATA of three commands in a packet: its go-ahead stands where that of RCPT should."""

    async def story() -> None:
        relay = MisbehavingSmtp({"rcpt": say(), "data": say("354 go on")}, pipelining=True)
        async with relay, opened(settings(relay.port, batch=batch, connect_timeout="1")) as adapter:
            outcomes = await adapter.send([letter(f"wild-{n}") for n in range(batch)])
            assert all(isinstance(outcome, NotSent) for outcome in outcomes) and not relay.taken
        Smtp.discarding.clear()

    run(loop, story)


@EACH_LOOP
def test_a_relay_that_is_only_silent_is_not_taken_for_one_that_loses_commands(loop: str) -> None:
    async def story() -> None:
        async with MisbehavingSmtp({"mail": hang}, pipelining=True) as relay:
            async with opened(settings(relay.port)) as adapter:
                assert await adapter.send([letter("good-1")]) == TAKEN
            async with opened(settings(relay.port, connect_timeout="0.3")) as adapter:
                [outcome] = await adapter.send([letter("wild")])
                assert isinstance(outcome, NotSent)
            assert not Smtp.discarding

    run(loop, story)


def test_settings_and_secret_are_checked_in_sentences() -> None:
    known = Smtp.validate({"host": "relay.example", "sender": "Us <us@example.org>"})
    assert (known["port"], known["tls"], known["timeout"]) == (587, "starttls", 600.0)
    assert Smtp.validate(known) == known
    assert Smtp(known, {}).deadline == 661.0
    with pytest.raises(InvalidSettings) as caught:
        Smtp.validate({"port": "70000", "sender": "Us", "tls": "ssl", "hots": "x", "recipient_codes": "450"})
    names = [error.split()[0] for error in caught.value.errors]
    assert names == ["hots", "host", "port", "tls", "sender", "recipient_codes"]
    codes = Smtp.validate(known | {"recipient_codes": "5.7.1, 550"})["recipient_codes"]
    assert codes == ("5.7.1", "550") == Smtp.validate(known | {"recipient_codes": list(codes)})["recipient_codes"]
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
