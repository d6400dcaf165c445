"""A misbehaving SMTP relay."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from vendors.testing.servers import MisbehavingServer, reset

Act = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ON_CONNECTING = ("greeting", "ehlo")


def say(*lines: str, close: bool = False) -> Act:
    """Send a reply."""

    async def act(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write("".join(f"{line}\r\n" for line in lines).encode())
        await writer.drain()
        if close:
            writer.close()

    return act


def drip(*lines: str) -> Act:
    """Send a reply in packets of three bytes."""

    async def act(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reply = "".join(f"{line}\r\n" for line in lines).encode()
        for begin in range(0, len(reply), 3):
            writer.write(reply[begin : begin + 3])
            await writer.drain()
            await asyncio.sleep(0.001)

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


class MisbehavingSmtp(MisbehavingServer):
    """A relay that acts by phase.

    Acts for rcpt, data and dot apply to every letter whose reference (the local part of its recipient) does not begin
    with "good". Those for greeting, ehlo and mail, where the letter is not known yet, apply once, after the first mail.

    `forgetful`: reads only the first command in each packet; with "dot", only loses what follows a mail.
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
        await RelaySession(self, reader, writer, self.fussy and self.strikes()).run()

    def strikes(self) -> bool:
        """Return True once, after the first mail."""
        if self._struck or not self.taken:
            return False
        self._struck = True
        return True

    def act(self, phase: str, reference: str, wild: bool) -> Act | None:
        if phase in ON_CONNECTING:
            return self.acts.get(phase) if wild else None
        return None if reference.startswith("good") else self.acts.get(phase)


class RelaySession:
    """One connection to the relay."""

    def __init__(
        self, relay: MisbehavingSmtp, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wild: bool
    ) -> None:
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
        if self.refused != acted:  # the default refusal, or an act that refuses
            return
        content = await self.reader.readuntil(b"\r\n.\r\n")
        if self.relay.forgetful:
            self.reader._buffer.clear()  # type: ignore[attr-defined]  # what came in the same packet
        self.relay.mails.append((b"\r\n" + content[:-3]).replace(b"\r\n.", b"\r\n")[2:])
        found = re.search(rb"^Message-ID: <([^@>]+)@", content, re.MULTILINE)
        self.relay.taken[found[1].decode() if found else self.recipient.partition("@")[0]] += 1
        await self.step("dot", "250 2.0.0 Ok: queued as EVIDENCE")
        if self.relay.fussy and self.recipient.startswith("good"):
            self.writer.close()
