"""The four outcomes of a vendor call, and the table that decides between them.

The rule behind every line: a message may be called again only if the vendor provably did not accept it. An id proves
acceptance. The contrary is proved by an answer that says so, or if no byte of the request left this machine. Everything
else is in doubt, and a doubt is never settled by a guess (promises P1 and P3).
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

import orjson

from vendors import alarms
from vendors.causes import AnswerCause, Judgement, judge_code, judge_reply, stated_wait
from vendors.causes.consequences import AnswerProof, follows_from
from vendors.causes.gone import Gone, judge_gone, names_unknown_code
from vendors.causes.scopes import Speaker, concerns_receiver, concerns_sender
from vendors.causes.services import ServiceCodes, find_linked

log = logging.getLogger(__name__)

RETRY_DEFAULT = 30.0
"""Seconds to wait when a vendor throttles without a usable Retry-After."""
UNIX_TIMES = 1e9
"""From here on a number is a moment since 1970, in seconds or milliseconds, and no time to wait."""
_ISO_8601 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+(Z|[+-][0-9]{2}:?[0-9]{2})?", re.ASCII)
_NUMBER = re.compile(
    r"([0-9]{1,20}(?:\.[0-9]{1,20})?) ?"
    r"(?:s|secs?|seconds?|(?P<ms>ms|milliseconds?)|(?P<minutes>mins?|minutes?)|(?P<hours>h|hrs?|hours?))?",
    re.IGNORECASE | re.ASCII,
)
_UNITS = {"ms": 0.001, "minutes": 60, "hours": 3600}
_DURATION = re.compile(
    r"PT(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)S)?", re.IGNORECASE | re.ASCII
)
RETRY_MAX = 86_400.0
"""Seconds; a longer wait is the vendor's mistake, or for an operator to decide."""
TEXT_MAX = 255
"""Characters that an id, an error code or a sub-type may have (the width of their columns)."""

TEXT_READ = 8_000
"""Bytes of an answer in which a code beside a link is looked for."""

ACCOUNT_STATUSES = frozenset({401, 402, 403, 407})
"""Statuses about our login or account: to refuse the messages would mark every recipient as failed."""
EXPLAINED_BY_CODE = 403
"""One of them that services also answer of a recipient or a day's quota; a listed code says which."""
UNPROCESSED_REDIRECTS = frozenset({307, 308})
"""The only redirects which say that the request was not processed (RFC 9110, 15.4.8)."""
WRONG_ADDRESS = frozenset({404, 405, 406, 410, 415, 421, 426})
"""Statuses about the URL or the form of our requests, not about a message, whatever their body says."""
BEFORE_THE_CALL = frozenset({"template", "too_dear", "unsendable", "unsupported"})
"""Codes of refusals that no vendor gave."""
TOO_FAST = frozenset({420, 429})
"""Statuses about our rate or quota: 420 is Mailgun's, with the time of its end in the text."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The vendor accepted the message; `vendor_id` is the evidence."""

    vendor_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The vendor refused this message for good. `cause`: the party at fault."""

    code: str
    sub_type: str = ""
    cause: AnswerCause = field(default=AnswerCause.UNKNOWN, compare=False)

    @property
    def may_be_ours(self) -> bool:
        """True if it counts for a row of equal refusals: a vendor gave it, and the recipient is not at fault."""
        return self.code not in BEFORE_THE_CALL and follows_from(self.cause, AnswerProof.REFUSED).runs


@dataclass(frozen=True, slots=True)
class NotSent:
    """The vendor provably does not have the message; it will be called again.

    `retry_after`: seconds to wait; None: the caller's own backoff. `scope`: what waits: this message, everything on its
    credential, or everything to the domains of its receiver (vendors/receivers). `pause`: only an operator can fix it
    (credential, address), so the credential is paused; with the scope "receiver", only if other receivers say the same;
    with the scope "sender", the letter's campaign instead (`spare_credential`).
    `cause`: whose fault it is.
    """

    reason: str
    retry_after: float | None = None
    scope: Literal["message", "receiver", "sender", "credential"] = "message"
    pause: bool = False
    cause: AnswerCause = field(default=AnswerCause.UNKNOWN, compare=False)

    @property
    def puts_off(self) -> bool:
        """True if the vendor asked for a later call of this message alone."""
        return self.scope == "message" and bool(self.retry_after) and not self.pause

    @property
    def asks_to_wait(self) -> bool:
        """True if it says nothing about the vendor's health: it asked to wait, or speaks of one receiver or sender."""
        return self.scope in ("receiver", "sender") or (self.retry_after is not None and not self.pause)


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The vendor may have the message: its answer was lost, or proves nothing.

    `pause`: as in NotSent; the next call would end in doubt too. `wait`: seconds within which the vendor, which has the
    message, reports whether it accepts it; until then nobody is asked or alarmed. `answered`: some reply came, so the
    vendor was reached.
    """

    reason: str
    pause: bool = False
    wait: float = 0.0
    answered: bool = field(default=False, compare=False)


Outcome = Accepted | Refused | NotSent | InDoubt


class CallError(Exception):
    """A call that ended without a complete answer.

    `written`: at least one byte of the request may have left. `status`, `headers`: of the answer, if its head was
    complete. `pause`: nothing left, and only an operator can fix the cause.
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
    """Return the outcome of a call without a complete answer. `now`: Unix time in seconds.

    A status of 300 or more decides even without its body. It proves no acceptance, and its meaning for message,
    credential or address does not depend on the body.
    """
    if not error.written:
        cause = AnswerCause.US if error.pause else AnswerCause.VENDOR
        scope: Literal["message", "credential"] = "credential" if error.pause else "message"
        return NotSent(error.reason, scope=scope, pause=error.pause, cause=cause)
    if error.status is None or error.status < 300:
        return InDoubt(error.reason, answered=error.status is not None)
    return classify_http(error.status, error.headers, b"", now=now, safe_statuses=safe_statuses)


def classify_http(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float,
    safe_statuses: Collection[int] = (),
    dedupe: bool = False,
    service: ServiceCodes | None = None,
) -> Outcome:
    """Return the outcome of a complete HTTP answer to a POST.

    `headers`: lower-case names. `now`: Unix time in seconds (for a Retry-After with a date). `safe_statuses`: 5xx
    statuses for which the vendor's contract promises that nothing was accepted. `dedupe`: the contract promises to
    recognise our reference, so a 409 with an id means an earlier acceptance; otherwise a 409 may be any conflict.
    `service`: the table of the vendor's codes, if it has one.
    """
    if 200 <= status < 300:
        vendor_id = _id_in(body)
        return Accepted(vendor_id) if vendor_id else InDoubt(f"http {status} without an id", answered=True)
    if status in UNPROCESSED_REDIRECTS:
        reason = f"http {status}: not processed; redirects are not followed"
        return NotSent(reason, scope="credential", pause=True, cause=AnswerCause.US)
    if 300 <= status < 400:  # a processed POST is answered with 303, in practice also with 301 and 302
        return InDoubt(f"http {status}: redirects are not followed", pause=True, answered=True)
    if 400 <= status < 500:
        return _classify_4xx(status, headers, body, now, dedupe, service)
    if status in safe_statuses:
        wait = parse_retry_after(headers.get("retry-after"), now=now)
        return NotSent(f"http {status}", retry_after=wait, scope="credential", cause=AnswerCause.VENDOR)
    return InDoubt(f"http {status}", answered=True)


def _classify_4xx(
    status: int, headers: Mapping[str, str], body: bytes, now: float, dedupe: bool, service: ServiceCodes | None
) -> Outcome:
    if status == EXPLAINED_BY_CODE and service and service.find_cause(*_codes_in(body)):
        return _refuse_by_code(status, body, service)
    if status in ACCOUNT_STATUSES:
        said = " ".join(body[:TEXT_MAX].decode("utf-8", "replace").split())
        about_sender = status == 403 and concerns_sender(said)
        reason = f"http {status}: {said}"[:TEXT_MAX] if about_sender else f"http {status}: login or account refused"
        return NotSent(reason, scope="credential", pause=True, cause=AnswerCause.US)
    if status in WRONG_ADDRESS:
        reason = f"http {status}: the address takes no messages"
        return NotSent(reason, scope="credential", pause=True, cause=AnswerCause.US)
    if status in TOO_FAST:
        stated = None if "retry-after" in headers else stated_wait(body.decode("utf-8", "replace"), now=now)
        wait = min(stated, RETRY_MAX) if stated else parse_retry_after(headers.get("retry-after"), now=now)
        reason = f"http {status}: too fast for the vendor"
        return NotSent(reason, retry_after=wait, scope="credential", cause=AnswerCause.CAPACITY)
    if status == 425:  # RFC 8470: the server was unwilling to process the request
        wait = parse_retry_after(headers.get("retry-after"), now=now)
        return NotSent("http 425", retry_after=max(RETRY_DEFAULT, wait), cause=AnswerCause.VENDOR)
    if status == 408:  # often from a gateway, which cannot know if the server behind it acted
        return InDoubt("http 408", answered=True)
    if status == 409:
        vendor_id = _id_in(body) if dedupe else ""
        return Accepted(vendor_id) if vendor_id else InDoubt(f"http 409{' without an id' * dedupe}", answered=True)
    return _refuse_by_code(status, body, service)


def _refuse_by_code(status: int, body: bytes, service: ServiceCodes | None) -> Refused:
    code, sub_type = _codes_in(body)
    listed = "" if service or b"http" not in body else find_linked(body[:TEXT_READ].decode("utf-8", "replace"))
    cause = AnswerCause(listed) if listed else judge_code(code or f"http_{status}", sub_type, service).cause
    return Refused(code or f"http_{status}", sub_type, cause)


def _codes_in(body: bytes) -> tuple[str, str]:
    answer = _json_object(body)
    return sane(answer.get("code")), sane(answer.get("sub_type"))


def follow_cause(outcome: Outcome, wait: float | None = None, said: str = "") -> Outcome:
    """Return the outcome for the cause of a refusal; the judge of the cause does not matter.

    A refusal without a cause is judged by its code and sub type. One that concerns us pauses the credential, one of a
    quota or rate of ours makes it wait; neither refuses the message. If it quotes a receiving domain, that domain waits
    and not the credential. `wait`: seconds that the vendor has stated. `said`: the reason of a pause or wait, if the
    code alone does not tell it.
    """
    if not isinstance(outcome, Refused) or outcome.code in BEFORE_THE_CALL:
        return outcome
    text = f"{outcome.code} {outcome.sub_type}".strip()
    judged = judge_code(outcome.code, outcome.sub_type)
    cause = judged.cause if outcome.cause == AnswerCause.UNKNOWN else outcome.cause
    follows = follows_from(cause, AnswerProof.REFUSED)
    if not follows.pauses and not follows.waits:
        return outcome if cause == outcome.cause else Refused(outcome.code, outcome.sub_type, cause)
    reason = (said or f"refused: {text}")[:TEXT_MAX]
    stated = capacity_wait(judged.wait, text) if wait is None else min(wait, RETRY_MAX)
    if concerns_receiver(Judgement(cause), AnswerProof.REFUSED, Speaker.SERVICE, f"{text} {said}"):
        waits = POLICY_WAIT if follows.pauses else stated
        return NotSent(reason, waits, "receiver", pause=follows.pauses, cause=cause)
    return NotSent(reason, None if follows.pauses else stated, "credential", pause=follows.pauses, cause=cause)


def spare_credential(outcome: NotSent) -> NotSent:
    """Return the outcome for a letter with a sender chosen by the sponsor.

    A refusal of that sender pauses the campaign: others send over the credential with senders of their own.
    """
    if outcome.pause and outcome.scope == "credential" and concerns_sender(outcome.reason):
        return replace(outcome, scope="sender")
    return outcome


def parse_retry_after(value: str | None, *, now: float) -> float:
    """Return the seconds that a vendor asks to wait, 0 to RETRY_MAX; RETRY_DEFAULT if it does not say.

    `value`: seconds or an HTTP date, or against the standard a number with a unit, a duration or time of ISO 8601, or
    a time since 1970. A time without a zone is in UTC, as HTTP's dates are.
    Proxies join equal headers with commas; then the longest counts. 0 is passed on, because callers have a growing
    floor of their own (campaigns/engine/claiming/limits.py).
    """
    text = (value or "").strip()
    waits = [wait for one in _split_header(text) if (wait := _seconds_until(one, now)) is not None]
    wait = max(waits, default=RETRY_DEFAULT)
    if wait > RETRY_MAX:
        alarms.LONG_RETRY_AFTER.log(log, wait, text[:80])
    return min(wait, RETRY_MAX)


def _split_header(text: str) -> list[str]:
    """Split a header that may occur several times. A date contains a comma itself."""
    parts = [part.strip() for part in text.split(",")]
    if not parts[0].isalpha():
        return parts
    return [f"{day}, {rest}" for day, rest in zip(parts[::2], parts[1::2], strict=False)] if parts[1:] else parts


def _seconds_until(text: str, now: float) -> float | None:
    """Return the seconds until a future moment; None if the text has none."""
    text = text.removesuffix(";")
    if found := _NUMBER.fullmatch(text):
        seconds = float(found[1]) * next((size for unit, size in _UNITS.items() if found[unit]), 1)
        if seconds < UNIX_TIMES:
            return seconds
        at = seconds / 1000 if seconds > 1000 * UNIX_TIMES else seconds
        return at - now if at >= now else None
    if (spans := _DURATION.fullmatch(text)) and any(spans.groups()):
        hours, minutes, seconds = (float(one or 0) for one in spans.groups())
        return 3600 * hours + 60 * minutes + seconds
    try:
        moment = datetime.fromisoformat(text) if _ISO_8601.fullmatch(text) else parsedate_to_datetime(text)
        at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return at - now if math.isfinite(at) and at >= now else None


def _id_in(body: bytes) -> str:
    return sane(_json_object(body).get("id"))


def _json_object(body: bytes) -> dict[str, object]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:  # also raised for NaN, a wrong charset and deep nesting
        return {}
    return found if isinstance(found, dict) else {}


def sane(value: object) -> str:
    """Return a short printable text or a whole number as text; "" for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        return ""
    text = value.strip()
    return text if len(text) <= TEXT_MAX and text.isprintable() else ""


SmtpPhase = Literal["connect", "hello", "tls", "login", "mail", "rcpt", "data", "dot"]
"""The command that an SMTP reply answers; `dot` is the end of the mail."""

UNKNOWN_RECIPIENT = "unknown_recipient"
"""The sub type of a refusal by SMTP whose text says so, without a code."""
_THROTTLED = frozenset({421, 454})
POLICY_WAIT = 600.0
"""Seconds that a receiver waits after it refused a mail for good because of us; growing each time."""
_LOGIN_WANTED = frozenset({530, 534, 535, 538})
_QUEUE_ID = re.compile(r"queued as ([^\s,;]+)|^(?:2\.\d+\.\d+ )?ok:? ([^\s,;]{6,})$", re.IGNORECASE)
_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})(?: |$)")
_ENHANCED_BEHIND = re.compile(r"\(#(5\.\d{1,3}\.\d{1,3})\)")  # as qmail writes it


def classify_smtp(
    phase: SmtpPhase,
    code: int,
    text: str,
    recipient_codes: Collection[str] = (),
    *,
    sender: str = "",
    recipient: str = "",
) -> Outcome:
    """Return the outcome of an SMTP reply that ends a transaction. `text`: without the code, lines joined by blanks.

    Replies up to `mail` concern the session, not the recipient, so they refuse no message. Nor do later replies about
    our reputation, rate or rights, which would mark every recipient as failed. Such a reply to one recipient may speak
    for that recipient's domain alone, so its receiver waits first (campaigns/engine/claiming/receiver_waits.py), unless
    it speaks of our login, sender or account at the relay. `recipient_codes`: basic or enhanced codes that this relay
    uses only for the recipient or the mail. `sender`, `recipient`: the addresses of the envelope, as in judge_reply.
    """
    if phase == "dot" and 200 <= code < 300:
        return Accepted(_relay_evidence(code, text))
    shown = f"smtp {code} at {phase}: {text}"[:TEXT_MAX]
    late = phase in ("rcpt", "data", "dot")
    enhanced = _ENHANCED.match(text) or _ENHANCED_BEHIND.search(text)
    detail = enhanced[1] if enhanced else ""
    is_early = False if phase == "rcpt" else None if late else True
    judged = judge_reply(code, text, detail, is_early=is_early, sender=sender, recipient=recipient)
    if 400 <= code < 500:
        ours = follows_from(judged.cause, AnswerProof.DEFERRED, alone=judged.alone).waits
        wait = max(RETRY_DEFAULT, capacity_wait(judged.wait, text)) if ours else RETRY_DEFAULT
        scope = _scope_of_reply(AnswerProof.DEFERRED, code, late, judged, text)
        return NotSent(shown, wait, scope, cause=judged.cause)
    if 500 <= code < 600:
        if late and recipient_codes and {str(code), detail} & set(recipient_codes):
            return Refused(str(code), _refusal_sub_type(phase, code, detail, text), AnswerCause.RECIPIENT)
        followed = _follow_policy(judged, detail)
        scope = _scope_of_reply(AnswerProof.REFUSED, code, late and code not in _LOGIN_WANTED, followed, text)
        follows = follows_from(followed.cause, AnswerProof.REFUSED)
        if follows.waits and code not in _LOGIN_WANTED:
            return NotSent(shown, capacity_wait(judged.wait, text), scope, cause=judged.cause)
        if follows.pauses and scope == "receiver":
            return NotSent(shown, POLICY_WAIT, scope, pause=True, cause=judged.cause)
        if not late or code in _LOGIN_WANTED or follows.pauses:
            return NotSent(shown, scope="credential", pause=True, cause=judged.cause)
        return Refused(str(code), _refusal_sub_type(phase, code, detail, text), judged.cause)
    if phase == "dot":
        return InDoubt(shown, answered=True)
    return NotSent(shown)


def _follow_policy(judged: Judgement, detail: str) -> Judgement:
    """Return the cause to act on: a policy's verdict on the letter, such as spam, pauses like one on us."""
    policy = judged.cause == AnswerCause.CONTENT and detail.startswith("5.7.")
    return Judgement(AnswerCause.US) if policy else judged


def _scope_of_reply(
    proof: AnswerProof, code: int, late: bool, judged: Judgement, text: str
) -> Literal["message", "receiver", "credential"]:
    """Return what waits after a reply. 421 and 454 are the relay's own, unless they speak of our reputation."""
    of_session = not late or (code in _THROTTLED and judged.cause == AnswerCause.CAPACITY)
    if concerns_receiver(judged, proof, Speaker.SESSION if of_session else Speaker.RELAY, text):
        return "receiver"
    ours = judged.cause in (AnswerCause.US, AnswerCause.CAPACITY) and not judged.alone
    return "credential" if ours or not late or code in _THROTTLED else "message"


def capacity_wait(expected: float, text: str) -> float:
    """Return the seconds until a quota or rate of ours is back: as the text states, else as expected of its kind."""
    return min(stated_wait(text, now=time.time()) or expected or RETRY_DEFAULT, RETRY_MAX)


def _refusal_sub_type(phase: SmtpPhase, code: int, enhanced: str, text: str) -> str:
    """Return the sub type of a refusal: a code like 5.1.1, or UNKNOWN_RECIPIENT, only if no word contradicts it.

    Such a sub type suppresses the address.
    """
    known = names_unknown_code(enhanced)
    found = judge_gone(text, basic=str(code), detail=enhanced.partition(".")[2])
    if known:
        return enhanced if found == Gone.UNKNOWN else f"{enhanced} (unclear)"
    return UNKNOWN_RECIPIENT if phase == "rcpt" and found == Gone.UNKNOWN else enhanced


def _relay_evidence(code: int, text: str) -> str:
    """Return the relay's own id of the mail, else the reply itself."""
    found = _QUEUE_ID.search(text)
    return ((found[1] or found[2]) if found else f"{code} {text}".strip())[:TEXT_MAX]
