"""The adapter `smtp`: an SMTP relay over kept connections, one mail per transaction, the reference as Message-ID.

SMTP has neither deduplication nor look-up. If the reply to the end of a mail is lost, the mail stays in doubt (RFC
1047).
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from vendors import alarms
from vendors.adapters import mime, options
from vendors.adapters.base import WIND_UP, Adapter, Capabilities, Letter, LoginAnswer
from vendors.adapters.call_progress import NotedOutcomes
from vendors.adapters.letter_faults import refuse_letter
from vendors.adapters.options import InvalidSettings, Option
from vendors.adapters.segments import cost_by_size
from vendors.adapters.smtp_conversation import Conversation, Envelope, Rejected, mail_size, refuse_size
from vendors.adapters.transport import Deadlines, Pool, open_wire
from vendors.outcomes import CallError, NotSent, Outcome, Refused, classify_error
from vendors.said import Said

log = logging.getLogger(__name__)

PreparedMail = tuple[Envelope, mime.Mail] | Refused | NotSent  # composed, or why it cannot be sent
IDLE_MAX = 60.0
"""Seconds that a connection waits for its next mail; relays wait for five minutes (RFC 5321, 4.5.3.2.7)."""


def parse_sender(value: Any) -> str:
    """Parse an address, or a name with an address in <>. Raises ValueError."""
    try:
        mime.parse_sender(options.text(value))
    except ValueError as error:
        raise ValueError(Said("must be an address or a name with an address in <>: %(why)s", why=error)) from None
    return str(value).strip()


def parse_host_name(value: Any) -> str:
    """Parse a host name. Raises ValueError."""
    if not mime.DOMAIN.fullmatch(options.text(value)):
        raise ValueError(Said("must be the name of a host, such as mail.example.com"))
    return str(value).strip()


def smtp_codes(value: Any) -> tuple[str, ...]:
    """Parse SMTP codes of refusals, basic or enhanced, separated by commas. Raises ValueError."""
    parts = value.split(",") if isinstance(value, str) else value
    found = tuple(sorted({str(word).strip() for word in parts})) if isinstance(parts, list | tuple) else ("",)
    if not all(re.fullmatch(r"5[0-9]{2}|5\.[0-9]{1,3}\.[0-9]{1,3}", code) for code in found):
        raise ValueError(Said("must be codes such as 550 or 5.7.1, separated by commas"))
    return found


class Smtp(Adapter):
    """An SMTP relay.

    Settings: `tls` is starttls (never without), implicit or none. `sender` is "address" or "Name <address>"; an
    installation's first sender identity is made from it, and only letters without an origin use it as From. `helo`: our
    name for the relay; default: the domain of `sender`, else our IP address.

    `connect_timeout`: seconds from the start of the call to the end of the mail. `timeout`: seconds to wait for the
    reply to that. RFC 5321 asks for ten minutes, since a shorter wait leaves mails in doubt. `mails`: per connection.

    `batch`: mails that one call sends over a connection, one after the other. All must begin within `connect_timeout`;
    if the sender is killed, all are in doubt. `recipient_codes`: codes that usually concern the sender, but at this
    relay a single recipient; they refuse the message without pausing the credential (vendors/outcomes.py).

    The secret holds `user` and `password`, or nothing. `plain_login`: send it even without TLS.
    """

    discarding: ClassVar[set[tuple[str, int]]] = set()
    """Relays that offer PIPELINING but lose commands that were written ahead; each process learns it once."""

    tells_progress = True
    needs_origin = True
    checks_login = True
    options = {
        "host": Option(options.text, required=True, destination=True, about="The relay"),
        "port": Option(options.whole(1, 65535), 587, destination=True, about="Of the relay"),
        "tls": Option(
            options.choice("none", "starttls", "implicit"),
            "starttls",
            destination=True,
            about="`starttls`, `implicit` or `none`",
        ),
        "plain_login": Option(options.flag, False, destination=True, about="Allows the password without TLS"),
        "sender": Option(
            parse_sender,
            "",
            about="From of the installation's first [sender identity](../how-to/sender-identities.md), as `Velma "
            "<post@example.com>`; later identities have their own",
        ),
        "helo": Option(
            parse_host_name, "", tuning=True, about="Our name; default: the domain of `sender`, else our IP address"
        ),
        "concurrency": Option(
            options.whole(1, 1000), 8, tuning=True, about="Connections of a sender, hence concurrent calls"
        ),
        "batch": Option(
            options.whole(1, 100),
            1,
            tuning=True,
            about="Mails given to a connection at a time, fewer over ten million characters ([decision "
            "9](../decisions/0009-mails-in-rounds.md))",
        ),
        "mails": Option(options.whole(1, 1_000_000), 100, tuning=True, about="Mails before a connection is closed"),
        "recipient_codes": Option(
            smtp_codes,
            (),
            tuning=True,
            about="Replies that this relay uses for one recipient, though most use them for the sender, as `5.7.1`",
        ),
        "size_kb": Option(
            options.whole(0, 1_000_000),
            0,
            tuning=True,
            about="Kilobytes of a mail that the relay takes; larger ones are bad rows. 0: as its EHLO says after SIZE",
        ),
        "unit_kb": Option(
            options.whole(0, 1_000_000),
            0,
            tuning=True,
            about="Kilobytes a [unit](../how-to/costs.md), begun ones included, of texts and files; 0: one unit a mail",
        ),
        "connect_timeout": Option(
            options.seconds,
            60.0,
            tuning=True,
            about="Seconds from the call's start to the mail's end; more for files over slow lines",
        ),
        "timeout": Option(
            options.seconds,
            600.0,
            tuning=True,
            about="Seconds for the reply to the mail; less risks doubts (RFC 5321 asks for ten minutes)",
        ),
        "ca_file": Option(
            options.certificates,
            "",
            destination=True,
            about="File with the authorities of its certificate, instead of the system's",
        ),
    }

    def __init__(self, settings: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        self._known = self.validate(settings)
        unknown = [f"the secret must not hold {name}" for name in secret if name not in ("user", "password")]
        if unknown or (secret and len(secret) != 2):
            raise InvalidSettings(unknown or [Said("the secret must hold user and password")])
        if secret and self._known["tls"] == "none" and not self._known["plain_login"]:
            raise InvalidSettings(
                [Said("without TLS the password can be read on the way: set tls, or plain_login if it may")]
            )
        self._secret = dict(secret)
        self._relay: tuple[str, int] = (self._known["host"], self._known["port"])
        self._sender = mime.parse_sender(self._known["sender"]) if self._known["sender"] else None
        self._connect_timeout: float = self._known["connect_timeout"]
        self._timeout: float = self._known["timeout"]
        self._greeting = LoginAnswer()
        self.deadline = self._connect_timeout + self._timeout + WIND_UP
        self.concurrency = self._known["concurrency"]
        self.capabilities = Capabilities(batch_max=self._known["batch"], cost=cost_by_size(self._known["unit_kb"]))

    @classmethod
    def carries(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"text", "headers", "attachments"})

    @classmethod
    def largest_mail(cls, settings: Mapping[str, Any]) -> int:
        return 1000 * int(cls.validate(settings)["size_kb"])

    async def open(self) -> None:
        secure = self._known["tls"] != "none"
        self._tls = ssl.create_default_context(cafile=self._known["ca_file"] or None) if secure else None
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._connect_timeout)
        self._pool = Pool(self._open_conversation, slots=self.concurrency, idle_max=IDLE_MAX)

    async def close(self) -> None:
        await self._pool.close()

    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        return await self._send_round([self._prepare_mail(letter) for letter in letters], NotedOutcomes())

    def _prepare_mail(self, letter: Letter) -> PreparedMail:
        try:
            origin = mime.parse_origin(letter.origin) if letter.origin else self._sender
            if origin is None:
                return NotSent("the mail has no sender identity", scope="credential", pause=True)
            recipient = mime.parse_address(letter.recipient)
            envelope = Envelope(letter.return_path or origin.return_path, recipient)
            mail = mime.compose_mail(origin, recipient, letter)
        except ValueError as error:
            return refuse_letter(error)
        most = 1000 * self._known["size_kb"]
        if most and mail_size(mail) > most:
            return refuse_size(mail_size(mail), most)
        return envelope, mail

    async def _send_round(self, mails: list[PreparedMail], outcomes: NotedOutcomes) -> list[Outcome]:
        """Send a round. Returns one outcome per mail; mails not begun are NotSent."""
        try:
            await self._send_in_order(mails, outcomes)
        except Rejected as rejected:
            outcomes.append(rejected.outcome)
        except CallError as error:
            outcomes.append(classify_error(error, now=time.time()))
        unsent = NotSent("its round broke off before it", retry_after=0.0)
        rest = (unsent if isinstance(mail, tuple) else mail for mail in mails[len(outcomes) :])
        return [*outcomes, *rest]

    async def _send_in_order(self, mails: list[PreparedMail], outcomes: NotedOutcomes) -> None:
        """Send the mails in order, over one connection while it lasts; append an outcome for each."""
        conversation: Conversation | None = None
        begin = self._loop.time() + self._connect_timeout
        try:
            with self._deadlines:
                while self._may_go_on(mails, outcomes, begin):
                    conversation = None
                    conversation = await self._pool.take_connection()
                    try:
                        begin = await self._send_over(conversation, mails, outcomes, begin)
                    finally:
                        self._pool.put_back(conversation)
        except TimeoutError:
            written = conversation is not None and conversation.written
            if conversation is not None and conversation.discards:
                alarms.PIPELINING_LOST.log(log, self._relay)
                self.discarding.add(self._relay)
            seconds = self._timeout if written else self._connect_timeout
            raise CallError(f"no reply within {seconds:g} s", written=written) from None

    async def _send_over(
        self, conversation: Conversation, mails: list[PreparedMail], outcomes: NotedOutcomes, begin: float
    ) -> float:
        """Send mails over this connection until it or the round is over.

        begin: until when the mails must begin, in seconds of the loop's time. Returns the same for those left; -inf if
        none may begin.
        """

        def hand_over() -> None:
            outcomes.begin()
            self._await_reply()

        while outcomes.may_begin():
            ready = mails[len(outcomes)]
            assert isinstance(ready, tuple)
            following = None
            if len(outcomes) + 1 == len(mails) and (letter := outcomes.next_letter()) is not None:
                mails.append(self._prepare_mail(letter))
                begin = self._loop.time() + self._connect_timeout
            if len(outcomes) + 1 < len(mails) and isinstance(after := mails[len(outcomes) + 1], tuple):
                following = after[0] if conversation.takes_size(after[1]) else None
            try:
                outcomes.append(await conversation.deliver_mail(*ready, hand_over, following))
            except CallError:
                if conversation.left_between:
                    return begin
                raise
            if len(outcomes) == len(mails):
                return begin
            self._deadlines.reschedule(begin)
            if not self._may_go_on(mails, outcomes, begin) or not conversation.goes_on():
                return begin
        return -math.inf

    def _await_reply(self) -> None:
        """Give the relay its time for the reply to a mail."""
        self._deadlines.reschedule(self._loop.time() + self._timeout)

    def _may_go_on(self, mails: list[PreparedMail], outcomes: NotedOutcomes, begin: float) -> bool:
        """Return True if there is time for another mail. Takes over the outcomes of the next ones that cannot be sent.

        None may if time is up, or the last outcome concerns the whole relay. Checked before each mail: one with its
        go-ahead already received awaits nothing, so the timer cannot cancel it.
        """
        last = outcomes[-1] if outcomes else None
        held_up = isinstance(last, NotSent) and (last.scope == "credential" or last.retry_after is None)
        while len(outcomes) < len(mails) and not isinstance(refused := mails[len(outcomes)], tuple):
            outcomes.append(refused)
        return len(outcomes) < len(mails) and not held_up and self._loop.time() < begin

    async def check_login(self) -> LoginAnswer:
        self._greeting = LoginAnswer()
        try:
            async with asyncio.timeout(self._connect_timeout):
                conversation = await self._pool.take_connection()
                try:
                    conversation.say_goodbye()
                    await conversation.lost
                finally:
                    self._pool.put_back(conversation)
        except Rejected as rejected:
            return replace(self._greeting, failure=rejected.outcome)
        except CallError as error:
            return replace(self._greeting, failure=classify_error(error, now=time.time()))
        except TimeoutError:
            return replace(self._greeting, failure=NotSent(f"no reply within {self._connect_timeout:g} s"))
        return self._greeting

    async def _open_conversation(self) -> Conversation:
        (host, port), tls = self._relay, self._known["tls"]

        def make_conversation() -> Conversation:
            return Conversation(
                self.deadline,
                self._known["mails"],
                pipelining=lambda: self._relay not in self.discarding,
                recipient_codes=self._known["recipient_codes"],
            )

        conversation = await open_wire(make_conversation, host, port, self._tls if tls == "implicit" else None)
        try:
            await conversation.greet_relay(self._known["helo"] or (self._sender.domain if self._sender else ""))
            if tls == "starttls":
                assert self._tls is not None
                await conversation.start_tls(self._tls, host)
            self.size_offered = conversation.size_offered
            self._greeting = LoginAnswer(None, conversation.relay_offers, conversation.tls_version)
            if self._secret:
                await conversation.log_in(self._secret["user"], self._secret["password"])
        except BaseException:
            conversation.abort()
            raise
        return conversation
