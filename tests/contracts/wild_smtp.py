"""An SMTP relay that misbehaves, and the table of its misbehaviours."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from tests.contracts.wild import Case, Wild, reset
from vendors.adapters.smtp_conversation import REPLY_MAX
from vendors.outcomes import Accepted, InDoubt, NotSent, Refused

Act = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
EARLY = {"connect_timeout": "0.3"}
LATE = {"timeout": "0.3"}
"""For calls that only a deadline ends: before and after the end of the mail."""
TOO_MUCH = f"replies of more than {REPLY_MAX} bytes"
ON_CONNECTING = ("greeting", "ehlo")


def say(*lines: str, close: bool = False) -> Act:
    """A reply."""

    async def act(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write("".join(f"{line}\r\n" for line in lines).encode())
        await writer.drain()
        if close:
            writer.close()

    return act


async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    while await reader.read(65536):
        pass  # until the other side gives up


async def lose(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    reset(writer)


def endless(drop: bytes, pause: float = 0) -> Act:
    async def act(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(pause)

    return act


class WildSmtp(Wild):
    """`forgetful`: of what came in one packet it reads one command; "dot": only what came behind a mail is lost.

    Acts by phase: rcpt, data and dot for every letter whose reference (the local part of its recipient) does not
    begin with "good"; greeting, ehlo and mail, where the letter is not known yet, once after the first mail.
    """

    def __init__(
        self,
        acts: Mapping[str, Act] | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        pipelining: bool = False,
        extensions: tuple[str, ...] = (),
        upgrade: ssl.SSLContext | None = None,
        limit: int = 2**16,
        forgetful: Literal[False, True, "dot"] = False,
    ) -> None:
        super().__init__(tls, limit)
        self.forgetful = forgetful
        self.acts = acts or {}
        self.mails: list[bytes] = []
        self.lines: list[str] = []
        self.extensions = ("PIPELINING", *extensions) if pipelining else extensions
        self.upgrade = upgrade
        self.fussy = any(phase in self.acts for phase in ON_CONNECTING)
        self._struck = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Session(self, reader, writer, self.fussy and self.strikes()).run()

    def strikes(self) -> bool:
        """True once, after the first mail."""
        if self._struck or not self.taken:
            return False
        self._struck = True
        return True

    def act(self, phase: str, reference: str, wild: bool) -> Act | None:
        if phase in ON_CONNECTING:
            return self.acts.get(phase) if wild else None
        return None if reference.startswith("good") else self.acts.get(phase)


class Session:
    """One connection to the relay."""

    def __init__(self, relay: WildSmtp, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wild: bool) -> None:
        self.relay, self.reader, self.writer, self.wild = relay, reader, writer, wild
        self.recipient = ""
        self.refused = False

    async def run(self) -> None:
        await self.step("greeting", "220 relay.example ESMTP")
        while not self.writer.is_closing() and (line := await self.command()):
            command = line.decode().rstrip("\r\n")
            self.relay.lines.append(command)
            await self.obey(command.partition(" ")[0].upper(), command)

    async def command(self) -> bytes:
        if self.relay.forgetful is not True:
            return await self.reader.readline()
        return (await self.reader.read(2**16)).partition(b"\n")[0]

    async def step(self, phase: str, usual: str) -> None:
        reference = self.recipient.partition("@")[0]
        act = self.relay.act(phase, reference, self.wild) or say(*usual.split("\n"))
        await act(self.reader, self.writer)

    async def obey(self, verb: str, line: str) -> None:
        match verb:
            case "EHLO":
                lines = ["relay.example", *self.relay.extensions]
                marks = ["-"] * (len(lines) - 1) + [" "]
                await self.step("ehlo", "\n".join(f"250{mark}{text}" for mark, text in zip(marks, lines, strict=True)))
            case "MAIL":
                await self.mail()
            case "RCPT":
                self.recipient = line.partition("<")[2].partition(">")[0]
                await self.step("rcpt", "250 2.1.5 Ok")
                self.refused = "rcpt" in self.relay.acts and not self.recipient.startswith("good")
            case "DATA":
                await self.data()
            case "STARTTLS" if self.relay.upgrade:
                await say("220 go")(self.reader, self.writer)
                await self.writer.start_tls(self.relay.upgrade)
            case "AUTH" | "RSET":
                await self.step(verb.lower(), "235 welcome" if verb == "AUTH" else "250 Ok")
            case "QUIT":
                await say("221 bye", close=True)(self.reader, self.writer)
            case _:
                await self.step("other", "502 5.5.2 what")

    async def mail(self) -> None:
        self.recipient = "wild" if "mail" in self.relay.acts and self.relay.strikes() else "good"
        await self.step("mail", "250 2.1.0 Ok")

    async def data(self) -> None:
        usual = "554 5.5.1 no valid recipients" if self.refused else "354 go on"
        await self.step("data", usual)
        acted = "data" in self.relay.acts and not self.recipient.startswith("good")
        if self.refused != acted:  # the usual refusal, or an act that refuses
            return
        content = await self.reader.readuntil(b"\r\n.\r\n")
        if self.relay.forgetful:
            self.reader._buffer.clear()  # type: ignore[attr-defined]  # what came in the same packet
        self.relay.mails.append((b"\r\n" + content[:-3]).replace(b"\r\n.", b"\r\n")[2:])
        found = re.search(rb"^Message-ID: <([^@>]+)@", content, re.MULTILINE)
        assert found is not None
        self.relay.taken[found[1].decode()] += 1
        await self.step("dot", "250 2.0.0 Ok: queued as EVIDENCE")
        if self.relay.fussy and self.recipient.startswith("good"):
            self.writer.close()


def paused(reason: str) -> NotSent:
    return NotSent(reason, scope="credential", pause=True)


def waits(reason: str, scope: str = "credential") -> NotSent:
    return NotSent(reason, retry_after=30.0, scope=scope)  # type: ignore[arg-type]


UNSENT = (NotSent,)
DOUBT = (InDoubt,)
CASES = [
    Case("a 554 as greeting", {"greeting": say("554 5.7.1 go away")}, paused("smtp 554 at connect: 5.7.1 go away"),
         fresh=True),
    Case("a 421 as greeting", {"greeting": say("421 4.3.2 full", close=True)}, waits("smtp 421 at connect: 4.3.2 full"),
         fresh=True),
    Case("no greeting", {"greeting": hang}, UNSENT, EARLY, fresh=True),
    Case("an end as greeting", {"greeting": lose}, UNSENT, fresh=True),
    Case("a reset as greeting", {"greeting": cut}, UNSENT, fresh=True),
    Case("HTTP as greeting", {"greeting": say("HTTP/1.1 400 Bad Request")}, UNSENT, fresh=True),
    Case("an endless greeting", {"greeting": endless(b"220-hello\r\n" * 500)}, NotSent(TOO_MUCH), fresh=True),
    Case("an endless empty greeting", {"greeting": endless(b"220-\r\n" * 500)}, NotSent(TOO_MUCH), fresh=True),
    Case("an endless line as greeting", {"greeting": endless(b"220 hello" * 500)}, NotSent(TOO_MUCH), fresh=True),
    Case("a slow greeting", {"greeting": endless(b"220-hello\r\n", 0.02)}, UNSENT, EARLY, fresh=True),
    Case("a 550 to EHLO", {"ehlo": say("550 no")}, paused("smtp 550 at hello: no"), fresh=True),
    Case("an end at EHLO", {"ehlo": lose}, UNSENT, fresh=True),
    Case("a 550 to MAIL", {"mail": say("550 5.7.1 not you")}, paused("smtp 550 at mail: 5.7.1 not you")),
    Case("a 451 to MAIL", {"mail": say("451 later")}, waits("smtp 451 at mail: later")),
    Case("an end at MAIL", {"mail": lose}, UNSENT),
    Case("a reset at MAIL", {"mail": cut}, UNSENT),
    Case("a 550 to RCPT", {"rcpt": say("550 5.1.1 unknown")}, Refused("550", "5.1.1")),
    Case("a 550 in lines to RCPT", {"rcpt": say("550-5.1.1 un", "550 5.1.1 known")}, Refused("550", "5.1.1")),
    Case("a 550 to RCPT and a 354 to DATA", {"rcpt": say("550 no"), "data": say("354 go on")}, Refused("550")),
    Case("a 450 to RCPT", {"rcpt": say("450 4.2.0 grey")}, waits("smtp 450 at rcpt: 4.2.0 grey", "message")),
    Case("a 421 to RCPT", {"rcpt": say("421 bye", close=True)}, waits("smtp 421 at rcpt: bye")),
    Case("a 530 to RCPT", {"rcpt": say("530 login")}, paused("smtp 530 at rcpt: login")),
    Case("an end at RCPT", {"rcpt": lose}, UNSENT),
    Case("no reply to RCPT", {"rcpt": hang}, UNSENT, EARLY),
    Case("garbage at RCPT", {"rcpt": say("hm")}, UNSENT),
    Case("a 554 to DATA", {"data": say("554 5.5.1 no")}, Refused("554", "5.5.1")),
    Case("a 451 to DATA", {"data": say("451 later")}, waits("smtp 451 at data: later", "message")),
    Case("a 250 to DATA", {"data": say("250 what")}, UNSENT),
    Case("an end at DATA", {"data": lose}, UNSENT),
    Case("a 354 and a 552", {"data": say("354 go on", "552 5.3.4 too big", close=True)}, Refused("552", "5.3.4")),
    Case("a 354 and a 421", {"data": say("354 go on", "421 bye", close=True)}, (NotSent,)),
    Case("a 354 and an end", {"data": say("354 go on", close=True)}, (NotSent, InDoubt)),
    Case("a 250 to the mail", {"dot": say("250 Ok: queued as A1B2")}, Accepted("A1B2")),
    Case("a 250 in lines to the mail", {"dot": say("250-2.0.0 fine", "250 2.0.0 thanks")},
         Accepted("250 2.0.0 fine 2.0.0 thanks")),
    Case("a 250 and an end", {"dot": say("250 Ok: queued as A1B2", close=True)}, Accepted("A1B2")),
    Case("control signs in a 250", {"dot": say("250 a\0b\x1b[0m")}, Accepted("250 a?b?[0m")),
    Case("a 552 to the mail", {"dot": say("552 5.3.4 too big")}, Refused("552", "5.3.4")),
    Case("a 451 to the mail", {"dot": say("451 4.3.0 later")}, waits("smtp 451 at dot: 4.3.0 later", "message")),
    Case("a 454 to the mail", {"dot": say("454 rate exceeded")}, waits("smtp 454 at dot: rate exceeded")),
    Case("a 421 to the mail", {"dot": say("421 bye", close=True)}, waits("smtp 421 at dot: bye")),
    Case("a 354 to the mail", {"dot": say("354 more")}, DOUBT),
    Case("an end after the mail", {"dot": lose}, DOUBT),
    Case("a reset after the mail", {"dot": cut}, DOUBT),
    Case("no reply to the mail", {"dot": hang}, DOUBT, LATE),
    Case("a slow reply to the mail", {"dot": endless(b"250-slow\r\n", 0.02)}, DOUBT, LATE),
    Case("an endless reply to the mail", {"dot": endless(b"250-and more\r\n" * 500)}, InDoubt(TOO_MUCH)),
    Case("garbage after the mail", {"dot": say("thanks")}, DOUBT),
    Case("an unfinished reply to the mail", {"dot": say("250-half", close=True)}, DOUBT),
]  # fmt: skip
