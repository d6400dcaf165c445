"""What a vendor call came to: four outcomes and the one table that decides between them.

The rule behind every line: a message may be called again only if it is proved that the vendor did not take
it. Proof of acceptance is an id; proof of the contrary is an answer that says so, or that nothing left this
machine. Everything else is doubt, and doubt is never guessed away (promises P1 and P3).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Literal

import orjson

RETRY_DEFAULT = 30.0
"""Seconds to wait when a vendor throttles without a usable Retry-After."""
RETRY_MAX = 3600.0
"""Seconds; a longer wait is a mistake of the vendor or a matter for a person."""
TEXT_MAX = 255
"""Characters that an id, an error code or a sub-type may have (the width of their columns)."""

ACCOUNT_STATUSES = frozenset({401, 402, 403, 407})
"""Statuses that speak of our login or account: refusing the messages would burn the whole queue."""
UNPROCESSED_REDIRECTS = frozenset({307, 308})
"""The only redirects that say that nothing was processed: the same request is to go elsewhere (RFC 9110, 15.4.8)."""
WRONG_ADDRESS = frozenset({404, 405, 406, 410, 415, 421, 426})
"""Statuses that speak of the address, or of the form of our requests, whatever their body says: not of a message."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The vendor has the message; `vendor_id` is the evidence."""

    vendor_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The vendor answered that it does not take this message, now or later."""

    code: str
    sub_type: str = ""


@dataclass(frozen=True, slots=True)
class NotSent:
    """The vendor provably does not have the message; it goes again.

    `retry_after`: seconds to wait, None = the caller's own back-off. `scope`: who waits, this message only or
    everything on its credential. `pause`: only a person can mend it (login, address), so the credential is
    paused.
    """

    reason: str
    retry_after: float | None = None
    scope: Literal["message", "credential"] = "message"
    pause: bool = False

    @property
    def puts_off(self) -> bool:
        """Is this one message to be called later, by the vendor's word?"""
        return self.scope == "message" and bool(self.retry_after) and not self.pause


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The vendor may have the message, its answer is lost or says nothing.

    `pause`: as in NotSent; the next call would come to the same.
    """

    reason: str
    pause: bool = False


Outcome = Accepted | Refused | NotSent | InDoubt


class CallError(Exception):
    """A call that ended without a complete answer.

    `written`: at least one byte of the request may have left. `status` and `headers`: of the answer, as far
    as its head had arrived whole. `pause`: nothing left, and only a person can mend why.
    """

    def __init__(
        self,
        reason: str,
        *,
        written: bool,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        pause: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.written = written
        self.pause = pause
        self.status = status
        self.headers = headers or {}


def classify_error(error: CallError, *, now: float, safe_statuses: Collection[int] = ()) -> Outcome:
    """Decides for a call without a complete answer. `now`: seconds since 1970.

    From 300 on a status that has arrived decides alone: without its body it proves no acceptance, and what it says of
    the message, the login or the address it says in any case.
    """
    if not error.written:
        return NotSent(error.reason, scope="credential" if error.pause else "message", pause=error.pause)
    if error.status is None or error.status < 300:
        return InDoubt(error.reason)
    return classify_http(error.status, error.headers, b"", now=now, safe_statuses=safe_statuses)


def classify_http(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float,
    safe_statuses: Collection[int] = (),
    dedupe: bool = False,
) -> Outcome:
    """Decides for a complete HTTP answer to a POST.

    `headers`: names in lower case. `now`: seconds since 1970 (for a Retry-After given as a date).
    `safe_statuses`: 5xx statuses with which this vendor's contract promises that nothing was accepted.
    `dedupe`: its contract promises to know our reference again, so a 409 with an id is about that; else it may name
    anything that is in the way.
    """
    if 200 <= status < 300:
        vendor_id = _id_in(body)
        return Accepted(vendor_id) if vendor_id else InDoubt(f"http {status} without an id")
    if status in UNPROCESSED_REDIRECTS:
        return NotSent(f"http {status}: redirects are not followed", scope="credential", pause=True)
    if 300 <= status < 400:  # 303, and in practice 301 and 302, is how a POST that was processed is answered
        return InDoubt(f"http {status}: redirects are not followed", pause=True)
    if 400 <= status < 500:
        return _classify_4xx(status, headers, body, now, dedupe)
    if status in safe_statuses:
        wait = parse_retry_after(headers.get("retry-after"), now=now)
        return NotSent(f"http {status}", retry_after=wait, scope="credential")
    return InDoubt(f"http {status}")


def _classify_4xx(status: int, headers: Mapping[str, str], body: bytes, now: float, dedupe: bool) -> Outcome:
    if status in ACCOUNT_STATUSES:
        return NotSent(f"http {status}: login or account refused", scope="credential", pause=True)
    if status in WRONG_ADDRESS:
        return NotSent(f"http {status}: the address takes no messages", scope="credential", pause=True)
    if status == 429:
        wait = parse_retry_after(headers.get("retry-after"), now=now)
        return NotSent("http 429: too fast for the vendor", retry_after=wait, scope="credential")
    if status == 425:  # RFC 8470: the server was unwilling to process the request
        wait = parse_retry_after(headers.get("retry-after"), now=now)
        return NotSent("http 425", retry_after=max(RETRY_DEFAULT, wait))
    if status == 408:  # often from a gateway that does not know what happened behind it
        return InDoubt("http 408")
    if status == 409:
        vendor_id = _id_in(body) if dedupe else ""
        return Accepted(vendor_id) if vendor_id else InDoubt("http 409" + (" without an id" if dedupe else ""))
    answer = _json_object(body)
    code = _sane(answer.get("code")) or f"http_{status}"
    return Refused(code, _sane(answer.get("sub_type")))


def parse_retry_after(value: str | None, *, now: float) -> float:
    """Seconds to wait, 0 to 3600. `value`: seconds or an HTTP date; what makes no sense counts as 30
    seconds.
    """
    text = (value or "").strip()
    if re.fullmatch(r"[0-9]{1,20}(\.[0-9]{1,20})?", text):
        return min(float(text), RETRY_MAX)
    try:
        wait = parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return RETRY_DEFAULT
    return min(wait, RETRY_MAX) if math.isfinite(wait) and wait >= 0 else RETRY_DEFAULT


def _id_in(body: bytes) -> str:
    return _sane(_json_object(body).get("id"))


def _json_object(body: bytes) -> dict[str, object]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:  # also NaN, wrong charset and deep nesting
        return {}
    return found if isinstance(found, dict) else {}


def _sane(value: object) -> str:
    """A text or whole number that can be stored and shown; anything else is an empty string."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        return ""
    text = value.strip()
    return text if len(text) <= TEXT_MAX and text.isprintable() else ""


SmtpPhase = Literal["connect", "hello", "tls", "login", "mail", "rcpt", "data", "dot"]
"""The question that an SMTP reply answers; `dot` is the end of the mail."""

_THROTTLED = frozenset({421, 454})
_LOGIN_WANTED = frozenset({530, 534, 535, 538})
_QUEUE_ID = re.compile(r"queued as ([^\s,;]+)|^(?:2\.\d+\.\d+ )?ok:? ([^\s,;]{6,})$", re.IGNORECASE)
_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})(?: |$)")
_ENHANCED_BEHIND = re.compile(r"\(#(5\.\d{1,3}\.\d{1,3})\)")  # as qmail writes it

# What a refusal of a recipient or a mail speaks of, by its enhanced code (RFC 3463, RFC 7372); the first that fits.
_SPEAKS_OF_US = (
    (re.compile(r"5\.7\.(2|17|18)$"), False),  # a closed mailing list; a mailbox or domain in other hands
    (re.compile(r"5\.7\."), True),  # policy: relaying, login, SPF, DKIM, DMARC, reputation, spam
    (re.compile(r"5\.1\.[78]$"), True),  # the sender's address
    (re.compile(r"5\.4\.5$"), True),  # the quota of what we may send
    (re.compile(r"5\.(1\.[1-9]|2\.|4\.[1-9])"), False),  # the recipient's address, mailbox or way there
)
# What it speaks of by its words, where no code decides. A full, disabled or unknown mailbox is told in none of these.
_WORDS_OF_US = re.compile(
    r"relay(ing)? (access )?(is )?(denied|not|prohibited|rejected|disallowed)|(no|not|to|cannot|can't|don't) relay"
    r"|authenticat\w+ .{0,20}(required|needed|failed|first)|(not|must|un-?)\W?authenticate"
    r"|spamhaus|spamcop|sorbs|barracuda|uceprotect|dnsbl|\brbl\b|(black|block|deny)[ -]?list|\bblocked\b|\bbanned\b"
    r"|reputation|\bspam\b|\bspf\b|\bdkim\b|\bdmarc\b|reverse dns|\bptr\b"
    r"|(daily|hourly|monthly|sending|submission|rate) .{0,40}(limit|quota)|(limit|quota) .{0,40}per (day|hour|minute)"
    r"|too many (messages|mails|e-?mails|connections)"
    r"|sender .{0,80}(rejected|denied|refused|not (allowed|authori[sz]ed|permitted|owned|verified))|sender verif"
    r"|sending .{0,20}suspended|address is not verified",
    re.IGNORECASE,
)


def classify_smtp(phase: SmtpPhase, code: int, text: str, recipient_codes: Collection[str] = ()) -> Outcome:
    """Decides for an SMTP reply that ends a transaction. `text`: without the code, lines joined by blanks.

    Up to `mail` the replies speak of us, not of the recipient: nothing is refused there. Nor is it later where the
    reply speaks of our standing with the relay, for that would burn the whole list. `recipient_codes`: codes, basic or
    enhanced, with which this relay surely speaks of the recipient or the mail.
    """
    shown = f"smtp {code} at {phase}: {text}"[:TEXT_MAX]
    if phase == "dot" and 200 <= code < 300:
        return Accepted(_evidence(code, text))
    if 400 <= code < 500:
        whole = code in _THROTTLED or phase not in ("rcpt", "data", "dot")
        return NotSent(shown, retry_after=RETRY_DEFAULT, scope="credential" if whole else "message")
    if 500 <= code < 600:
        enhanced = _ENHANCED.match(text) or _ENHANCED_BEHIND.search(text)
        detail = enhanced[1] if enhanced else ""
        late = phase in ("rcpt", "data", "dot")
        if late and (recipient_codes and {str(code), detail} & set(recipient_codes)):
            return Refused(str(code), detail)
        if not late or code in _LOGIN_WANTED or _speaks_of_us(detail, text):
            return NotSent(shown, scope="credential", pause=True)
        return Refused(str(code), detail)
    if phase == "dot":
        return InDoubt(shown)
    return NotSent(shown)


def _speaks_of_us(enhanced: str, text: str) -> bool:
    for codes, of_us in _SPEAKS_OF_US:
        if codes.match(enhanced):
            return of_us
    return bool(_WORDS_OF_US.search(text))


def _evidence(code: int, text: str) -> str:
    """The relay's own id for the mail if its reply holds one, else the reply."""
    found = _QUEUE_ID.search(text)
    return ((found[1] or found[2]) if found else f"{code} {text}".strip())[:TEXT_MAX]
