"""One SMTP connection. It always knows if it may have sent the end of a mail (RFC 5321, RFC 1047)."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from vendors.adapters.letter_faults import LetterPart, refuse_letter
from vendors.adapters.mime import END
from vendors.adapters.transport import TLS_FAREWELL, Wire, is_wrong_vendor
from vendors.outcomes import CallError, Outcome, Refused, SmtpPhase, classify_smtp

REPLY_MAX = 65_536
"""Bytes of replies that may wait to be read."""
AT_ONCE = 65_536
"""Bytes of a mail that are written at once; a piece waits until the one before it has left. The last has the end."""
SIZE_DIGITS = 18  # more do not fit into a bigint
FULL = 1
"""Bytes in a transport's buffer from which on it counts as full. With 0 the TLS of asyncio and uvloop calls an empty
one full, too (they compare by >=), and never resumes."""


class Rejected(Exception):
    """The relay refused a step of the session; `outcome`: its meaning for the message."""

    def __init__(self, phase: SmtpPhase, code: int, text: str) -> None:
        super().__init__(f"smtp {code} at {phase}")
        self.outcome = classify_smtp(phase, code, text)


SmtpReply = tuple[int, list[bytes]]  # the code, and the lines with their codes


class Envelope(NamedTuple):
    """Addresses in the form SMTP takes (mime.parse_address)."""

    return_path: str
    recipient: str


class Conversation(Wire):
    """One connection to a relay, and its session.

    `mails`: how many may be sent over it. `pipelining`: returns True to write ahead if the relay offers it.
    `recipient_codes`: as in classify_smtp.
    """

    def __init__(
        self, deadline: float, mails: int, *, pipelining: Callable[[], bool], recipient_codes: Collection[str]
    ) -> None:
        super().__init__(deadline)
        self.written = False
        """The end of the current mail may have been sent, and its reply has not arrived."""
        self.discards = False
        """The relay has answered one command, but not those written in the same packet."""
        self._used = self._answered = False  # for an earlier mail; for a command of the current one
        self._pipelining, self._recipient_codes = pipelining, recipient_codes
        self._envelope = Envelope("", "")
        self._mails_left = mails
        self._reusable = False
        self._stale = False
        self._ahead = False  # the next mail's envelope has been written
        self._extensions: dict[str, str] = {}
        self.size_offered = 0
        """Bytes of a mail that the relay takes (SIZE, RFC 1870); 0: it has no limit, or says none."""
        self._buffer = b""
        self._unread = 0
        self._lines: list[bytes] = []
        self._replies: deque[SmtpReply] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._failure = ""
        self._flowing = asyncio.Event()
        self._flowing.set()

    # --- for the adapter --------------------------------------------------------------------------

    async def greet_relay(self, name: str) -> None:
        """Read the greeting and send EHLO. `name`: ours; empty: this end's IP address. Raises Rejected, CallError."""
        self._name = name or _address_literal(self._transport.get_extra_info("sockname")[0])
        await self._expect_reply("connect", 220)
        await self._say_hello()

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Switch to TLS. Raises Rejected and CallError; then the connection is unusable."""
        self._transport.write(b"STARTTLS\r\n")
        await self._expect_reply("tls", 220)
        if self._buffer or self._replies or self._lines:
            raise CallError("the relay spoke before TLS began", written=False)
        try:
            transport = await self._loop.start_tls(
                self._transport, self, context, server_hostname=host, ssl_shutdown_timeout=TLS_FAREWELL
            )
        except OSError as error:
            raise CallError(f"no TLS: {error}", written=False, pause=is_wrong_vendor(error)) from error
        assert transport is not None
        self._transport = transport
        self._transport.set_write_buffer_limits(high=FULL)
        await self._say_hello()

    async def log_in(self, user: str, password: str) -> None:
        """Authenticate by AUTH PLAIN or LOGIN. Raises Rejected, CallError."""
        offered = self._extensions.get("AUTH", "PLAIN").split()
        if "PLAIN" in offered or "LOGIN" not in offered:
            await self._ask_relay("login", "AUTH PLAIN " + _encode_login(f"\0{user}\0{password}"), 235)
            return
        await self._ask_relay("login", "AUTH LOGIN", 334)
        await self._ask_relay("login", _encode_login(user), 334)
        await self._ask_relay("login", _encode_login(password), 235)

    async def deliver_mail(
        self, envelope: Envelope, mail: Sequence[bytes], handed_over: Callable[[], None], following: Envelope | None
    ) -> Outcome:
        """Send one mail. Its last piece ends with END; `handed_over` is called just before that is written.

        `following`: envelope of the next mail, if one follows immediately; with PIPELINING (RFC 2920) it is written
        together with the end of this mail. Raises CallError.
        """
        self.written, self._envelope, self._answered = False, envelope, False
        if not self._takes_recipient(envelope):
            self._reusable = True
            why = "the relay takes no address with other letters than ASCII before the @"
            return refuse_letter(why, LetterPart.ADDRESS)
        if not self.takes_size(mail):
            self._reusable = True
            return refuse_size(mail_size(mail), self.size_offered)
        self._reusable = False
        self._mails_left -= 1
        rejected = await self._begin_mail(envelope)
        if rejected is not None:
            return rejected
        ahead = b""
        if following is not None and self._mails_left > 0 and self._takes_recipient(following) and self._can_pipeline:
            ahead = _join_commands(following)
            self._ahead = True
        if len(mail) > 1 or len(mail[0]) > AT_ONCE:
            await self._write_before_the_last(mail)
        if self._replies or self.closed:
            return self._end_within()
        handed_over()
        self.written = True
        self._transport.write(mail[-1][-AT_ONCE:] + ahead)
        code, lines = await self._await_reply()
        self._reusable, self._used = code != 421, True
        return self._classify_reply("dot", code, lines)

    def is_fresh(self) -> bool:
        return super().is_fresh() and not (self._buffer or self._lines or self._replies)

    def is_reusable(self) -> bool:
        left = self._mails_left > 0 and not self._ahead
        return self._reusable and left and not self.closed and not self._replies

    def takes_size(self, mail: Sequence[bytes]) -> bool:
        """Return True if the mail is not larger than the relay said it takes."""
        most = self.size_offered
        return not most or mail_size(mail) <= most

    def goes_on(self) -> bool:
        """Return True if the next mail of the round may use this connection."""
        in_step = self._ahead or not self._replies
        return self._reusable and self._mails_left > 0 and not self.closed and in_step

    @property
    def left_between(self) -> bool:
        """True if the relay closed the connection between two mails: the current one may go over another."""
        return self.closed and self._used and not self._answered and not self.written

    def say_goodbye(self) -> None:
        self.closed = True
        if not self._transport.is_closing():
            self._transport.write(b"QUIT\r\n")
            self._transport.close()

    # --- a transaction ----------------------------------------------------------------------------

    @property
    def _can_pipeline(self) -> bool:
        """True if commands may be written before earlier replies have arrived (RFC 2920)."""
        return "PIPELINING" in self._extensions and self._pipelining()

    @property
    def relay_offers(self) -> dict[str, str]:
        """The extensions that the relay named in its last reply to EHLO, each with its parameters."""
        return dict(self._extensions)

    @property
    def tls_version(self) -> str:
        """The version of the encryption; "" if there is none."""
        secured = self._transport.get_extra_info("ssl_object")
        return (secured.version() or "") if secured else ""

    def _takes_recipient(self, envelope: Envelope) -> bool:
        return envelope.recipient.isascii() or "SMTPUTF8" in self._extensions

    def _classify_reply(self, phase: SmtpPhase, code: int, lines: list[bytes]) -> Outcome:
        sender, recipient = self._envelope
        return classify_smtp(phase, code, _reply_text(lines), self._recipient_codes, sender=sender, recipient=recipient)

    async def _begin_mail(self, envelope: Envelope) -> Outcome | None:
        """Send MAIL, RCPT and DATA. Returns None if the relay asks for the content, else an outcome."""
        steps = _AFTER_A_REFUSAL if self._stale else _STEPS
        together = self._can_pipeline
        if together and not self._ahead:
            self._transport.write(b"RSET\r\n" + _join_commands(envelope) if self._stale else _join_commands(envelope))
        self.discards, self._ahead = self._ahead, False
        rejected: Outcome | None = None
        for phase, good, line in steps:
            if not together:
                self._transport.write(line(envelope).encode())
            code, lines = self._pop_reply() if self._replies else await self._await_reply()
            self.discards, self._answered = together, True
            if code == 421:
                return rejected or self._classify_reply(phase, code, lines)
            if rejected is not None and code == 354:
                return rejected  # ending the mail here would send an empty one, so the connection is given up
            if code // 100 != good and rejected is None:
                rejected = self._classify_reply(phase, code, lines)
                if not together:
                    break
        self.discards = False
        self._reusable = self._stale = rejected is not None
        return rejected

    async def _write_before_the_last(self, mail: Sequence[bytes]) -> None:
        """Send all but the last piece, or less if the relay ends it."""
        for piece in _chunks_but_last(mail):
            self._transport.write(piece)
            await self._flowing.wait()
            if self._replies or self.closed:
                return

    def _end_within(self) -> Outcome:
        """Return the outcome if the relay refuses before it has seen the end of the mail.

        Raises CallError if it does not refuse.
        """
        if not self._replies:
            raise CallError(self._failure or "the relay broke off within the mail", written=False)
        code, lines = self._pop_reply()
        if code >= 400:
            return self._classify_reply("data", code, lines)
        raise CallError(f"smtp {code} within the mail", written=False)

    # --- question and answer ----------------------------------------------------------------------

    async def _say_hello(self) -> None:
        self._transport.write(f"EHLO {self._name}\r\n".encode("ascii"))
        lines = await self._expect_reply("hello", 250)
        offered = (_reply_text([line]).upper().partition(" ") for line in lines[1:])
        self._extensions = {keyword: rest for keyword, _, rest in offered}
        self.size_offered = _parse_size(self._extensions.get("SIZE", "").strip())

    async def _ask_relay(self, phase: SmtpPhase, line: str, wanted: int) -> None:
        self._transport.write(f"{line}\r\n".encode("ascii"))
        await self._expect_reply(phase, wanted)

    async def _expect_reply(self, phase: SmtpPhase, wanted: int) -> list[bytes]:
        code, lines = await self._await_reply()
        if code != wanted:
            raise Rejected(phase, code, _reply_text(lines))
        return lines

    async def _await_reply(self) -> SmtpReply:
        if not self._replies and not self._failure:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._replies:
            return self._pop_reply()
        raise CallError(self._failure, written=self.written)

    def _pop_reply(self) -> SmtpReply:
        """Return a reply that has arrived."""
        self._unread = 0
        return self._replies.popleft()

    # --- from the loop ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._transport.set_write_buffer_limits(high=FULL)

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            if not self._read_line(line):
                self._fail_conversation("the relay does not speak SMTP")
                return
        if self._unread > REPLY_MAX:
            self._fail_conversation(f"replies of more than {REPLY_MAX} bytes")
        self._wake_waiter()

    def _read_line(self, line: bytes) -> bool:
        """Read one line of a reply. Returns False if it cannot be one."""
        line = line.rstrip(b"\r")
        code, mark = line[:3], line[3:4]
        if not code.isdigit() or mark not in (b" ", b"-", b""):
            return False
        self._lines.append(line)
        if mark != b"-":
            self._replies.append((int(code), self._lines))
            self._lines = []
        return True

    def eof_received(self) -> None:
        self._fail_conversation("the relay closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail_conversation(f"connection lost: {exc or 'closed'}")
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self._flowing.clear()

    def resume_writing(self) -> None:
        self._flowing.set()

    def _fail_conversation(self, reason: str) -> None:
        self.closed = True
        self._failure = self._failure or reason
        self._flowing.set()
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done() and (self._replies or self._failure):
            self._waiter.set_result(None)


def mail_size(mail: Sequence[bytes]) -> int:
    """Return the bytes of a mail that a relay counts, a few more where lines begin with a dot (RFC 1870)."""
    return sum(map(len, mail)) - len(END)


def refuse_size(size: int, most: int) -> Refused:
    """Return the refusal of a mail above its relay's SIZE."""
    return refuse_letter(f"the mail has {size:,} bytes, and the relay takes {most:,}", LetterPart.SIZE)


def _mail_line(envelope: Envelope) -> str:
    return f"MAIL FROM:<{envelope[0]}>{'' if envelope[1].isascii() else ' SMTPUTF8'}\r\n"


def _rcpt_line(envelope: Envelope) -> str:
    return f"RCPT TO:<{envelope[1]}>\r\n"


_STEPS: tuple[tuple[SmtpPhase, int, Callable[[Envelope], str]], ...] = (
    ("mail", 2, _mail_line),
    ("rcpt", 2, _rcpt_line),
    ("data", 3, lambda _: "DATA\r\n"),
)
"""The commands of an envelope: phase, first digit of a good reply, and line."""
_AFTER_A_REFUSAL: tuple[tuple[SmtpPhase, int, Callable[[Envelope], str]], ...] = (
    ("mail", 2, lambda _: "RSET\r\n"),
    *_STEPS,
)


def _join_commands(envelope: Envelope) -> bytes:
    return f"{_mail_line(envelope)}{_rcpt_line(envelope)}DATA\r\n".encode()


def _reply_text(lines: list[bytes]) -> str:
    """Return the text of a reply, without codes and control signs, its lines joined by blanks."""
    text = " ".join([line[4:].decode("utf-8", "replace") for line in lines])
    return text if text.isprintable() else "".join([sign if sign.isprintable() else "?" for sign in text])


def _parse_size(said: str) -> int:
    return int(said) if len(said) <= SIZE_DIGITS and said.isascii() and said.isdigit() else 0


def _address_literal(address: str) -> str:
    """Return an IP address as a literal instead of a name (RFC 5321, 4.1.3)."""
    return f"[IPv6:{address.partition('%')[0]}]" if ":" in address else f"[{address}]"


def _chunks_but_last(mail: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the chunks to write, except the last."""
    for number, piece in enumerate(mail, start=1):
        end = len(piece) - (AT_ONCE if number == len(mail) else 0)
        for begin in range(0, end, AT_ONCE):
            yield piece[begin : min(begin + AT_ONCE, end)]


def _encode_login(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")
