"""Accepts returned mails over SMTP or LMTP, for our own addresses only.

A mail is answered with 250 once its event is committed. Until then the sender keeps it and tries again after a 4xx.
Memory and time are bounded, for each connection and in total, and one sponsor's mails occupy half of the connections at
most.
"""

import asyncio
import logging
import signal
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from aiosmtpd.lmtp import LMTP
from aiosmtpd.smtp import SMTP, Envelope, Session
from django.conf import settings
from django.db import Error

from campaigns.audience.bounces import inbound
from campaigns.audience.bounces.inbound import InboundMail, Mailboxes
from campaigns.audience.bounces.parser import MOST
from campaigns.engine.threads import DatabaseThreads, wait_for_event
from vendors import alarms, liveness

log = logging.getLogger(__name__)

HandlerResult = TypeVar("HandlerResult")

CONNECTIONS = 50  # open at a time
LIFE = 300.0  # seconds of a connection
IDLE = 120.0  # seconds until a command
LARGEST = 20_000_000  # bytes of a mail; only the first MOST are kept
REFUSALS = 20  # unknown addresses on one SMTP connection; LMTP from our own server may have more
COUNT_EVERY = 5.0  # seconds between updates of the number of refused addresses
LATER = "451 4.3.0 Try again later"
NULL_SENDER = "<>"
TOO_MANY = "421 4.7.0 Too many of these at once, try again later"
NOBODY = "550 5.1.1 No such address here"


class InboundHandler:
    """Handles the receiver's commands. notify: called when webhook calls are due."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self.open: set[Any] = set()
        self._notify = notify
        self._threads = DatabaseThreads()
        self._mailboxes = Mailboxes()
        self._refused = 0  # not stored yet
        self._over = asyncio.Event()
        self._counting = asyncio.create_task(self._count_often())

    async def handle_MAIL(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        envelope.mail_from = address or NULL_SENDER  # aiosmtpd takes an empty address for none
        return "250 2.1.0 OK"

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if envelope.rcpt_tos:
            return "452 4.5.3 One recipient at a time"
        if not await self._call_in_thread(self._mailboxes.wants_address, address):
            self._refused += 1
            return server.refused() if isinstance(server, _Bounded) else NOBODY
        if await self._exceeds_share(address):
            if isinstance(server, _Bounded):
                server.end_soon()
            return TOO_MANY
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def _exceeds_share(self, address: str) -> bool:
        """Return whether one sponsor's mails would occupy more than half of the connections."""
        half = CONNECTIONS // 2
        if len(self.open) <= half:
            return False
        of_all = {str(id(one)): one.envelope.rcpt_tos[0] for one in self.open if one.envelope and one.envelope.rcpt_tos}
        sponsors = await self._call_in_thread(inbound.find_sponsors, {**of_all, "": address})
        return "" in sponsors and Counter(sponsors.values())[sponsors[""]] > half

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        null_sender = envelope.mail_from == NULL_SENDER
        mail = InboundMail(envelope.content, tuple(envelope.rcpt_tos), null_sender, datetime.now(UTC))
        taken = await self._call_in_thread(inbound.store_mail, mail, "receiver")
        log.info("a mail came back: %s", taken.what)
        if taken.calls:
            await self._call_in_thread(self._notify)
        return "250 2.0.0 OK"

    async def handle_exception(self, error: Exception) -> str:
        alarms.MAIL_NOT_TAKEN.log(log, type(error).__name__, error)
        return LATER

    async def close(self) -> None:
        """End all connections and store the number of refused addresses. Uncommitted mails will be sent again."""
        for one in list(self.open):
            one.end()
        self._over.set()
        await self._counting
        await asyncio.to_thread(self._threads.close)

    async def _count_often(self) -> None:
        while not self._over.is_set():
            await wait_for_event(self._over, COUNT_EVERY)
            mails, self._refused = self._refused, 0
            try:
                if mails:
                    await self._call_in_thread(inbound.count_mails, "refused", mails)
            except Error as error:
                self._refused += mails
                alarms.REFUSALS_NOT_COUNTED.log(log, type(error).__name__, error)

    async def _call_in_thread(self, function: Callable[..., HandlerResult], *given: Any) -> HandlerResult:
        return await asyncio.to_thread(self._threads.run_function, function, *given)


class _Bounded:
    """A mixin for aiosmtpd's SMTP that limits connections, their lifetime and the size kept of a mail."""

    line_length_limit = 4_000  # longer lines are read in pieces
    event_handler: InboundHandler
    transport: Any
    envelope: Any
    _reader: asyncio.StreamReader

    def connection_made(self, transport: Any) -> None:
        self._life = asyncio.get_running_loop().call_later(LIFE, self.end)
        self.event_handler.open.add(self)
        super().connection_made(transport)  # type: ignore[misc]

    def connection_lost(self, error: Exception | None) -> None:
        self._life.cancel()
        self.event_handler.open.discard(self)
        super().connection_lost(error)  # type: ignore[misc]

    async def _handle_client(self) -> None:
        if len(self.event_handler.open) > CONNECTIONS:
            await self.push("421 4.7.0 Too many connections, try again later")
            self.transport.close()
            return
        await super()._handle_client()  # type: ignore[misc]

    def end(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def end_soon(self) -> None:
        """Close the connection after the present answer."""
        asyncio.get_running_loop().call_soon(self.transport.close)

    def refused(self) -> str:
        """Return the answer to an unknown address."""
        return NOBODY

    async def push(self, status: Any) -> None:
        await super().push(status)  # type: ignore[misc]

    async def smtp_DATA(self, arg: str | None) -> None:
        """Handle DATA like aiosmtpd, but without keeping the whole mail or refusing long lines: reports quote any
        content.
        """
        if not self.envelope.rcpt_tos:
            await self.push("503 5.5.1 RCPT first")
            return
        if arg:
            await self.push("501 5.5.4 DATA has no argument")
            return
        await self.push("354 End with a dot on a line of its own")
        self.envelope.content, size = await self._read_bounded()
        try:
            status = await self.event_handler.handle_DATA(self, None, self.envelope) if size <= LARGEST else TOO_LARGE  # type: ignore[arg-type]
        finally:
            self._set_post_data_state()  # type: ignore[attr-defined]
        await self.push(status)

    async def _read_bounded(self) -> tuple[bytes, int]:
        """Return the beginning of the mail, and its full size."""
        kept, size, new_line = bytearray(), 0, True
        while True:
            try:
                piece = await self._reader.readuntil(b"\r\n")
            except asyncio.LimitOverrunError as error:
                piece = await self._reader.readexactly(error.consumed)
            if new_line and piece == b".\r\n":
                return bytes(kept), size
            size += len(piece)
            if len(kept) < MOST:
                kept += piece[1:] if new_line and piece.startswith(b".") else piece
            new_line = piece.endswith(b"\r\n")


TOO_LARGE = "552 5.3.4 Too large"


class BoundedSmtp(_Bounded, SMTP):
    """The server for other mail servers."""

    _refusals = 0

    def refused(self) -> str:
        """Return the answer to an unknown address; after REFUSALS of them the connection is closed."""
        self._refusals += 1
        if self._refusals <= REFUSALS:
            return NOBODY
        self.end_soon()
        return "421 4.7.0 Too many addresses that are not here"


class BoundedLmtp(_Bounded, LMTP):
    """The server for our own mail server in front."""


async def listen_for_mail(
    protocol: str, host: str, port: int, notify: Callable[[], None]
) -> tuple[asyncio.Server, InboundHandler]:
    """Start listening. protocol: smtp or lmtp; port 0: any. Raises OSError."""
    handler = InboundHandler(notify)
    kind = BoundedLmtp if protocol == "lmtp" else BoundedSmtp
    make = partial(
        kind, handler, data_size_limit=LARGEST, enable_SMTPUTF8=True, hostname="mailhub", ident="mailhub", timeout=IDLE
    )
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: make(loop=loop), host, port), handler


async def run_receiver(protocol: str, host: str, port: int, notify: Callable[[], None]) -> None:
    """Listen until SIGTERM or SIGINT."""
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    server, handler = await listen_for_mail(protocol, host, port, notify)
    log.info("bounces are taken at %s://%s:%s", protocol, host, port)
    signs = asyncio.create_task(liveness.show_in_loop("bounces", settings.MAILHUB_HOME))
    await over.wait()
    signs.cancel()
    server.close()
    await handler.close()
