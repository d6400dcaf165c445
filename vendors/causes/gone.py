"""Judges if an answer calls its recipient gone. Every door that may suppress a recipient asks here.

A false "gone" loses a recipient for good, a false "not gone" costs a few more refusals. So a code proves it only if no
words contradict it, and words only without a clear code.
"""

import re
from collections.abc import Collection
from enum import IntEnum

from vendors.causes import AnswerCause
from vendors.causes.consequences import AnswerProof, follows_from
from vendors.causes.reading import names_nobody
from vendors.causes.scopes import is_about_us


class Gone(IntEnum):
    """What an answer says of its recipient, from "not gone" to "does not exist"."""

    NOT = 0  # it speaks of something else, such as a full mailbox or us
    UNSAID = 1
    CLOSED = 2  # out of use, perhaps for a while; enough for a bounce, which comes after all tries
    UNKNOWN = 3  # the recipient does not exist


# Enhanced codes without their class (RFC 3463, RFC 7505, Exchange Online).
_UNKNOWN = frozenset({"1.1", "1.2", "1.3", "1.6", "1.10"})
_CLOSED = frozenset({"2.1", "4.4", "4.310"})
VAGUE = frozenset({"", "0.0", "1.0", "2.0", "3.0", "4.0", "4.1", "5.0"})
"""Details of codes that leave it to the text."""
_LITTLE_SAID = frozenset({"", "0.0", "1.0"})
_OF_MAILBOX = frozenset({"", "550", "551", "553"})

_NOT_NOW = r"quota|storage|temporar|gr[ae]ylist|expired|suspended"  # about an existing recipient
_LATER = re.compile(
    _NOT_NOW + r"|\b(mail)?box\b.{0,20}\bfull\b|\bfull\b.{0,20}\b(mail)?box\b|out of space|disk full"
    r"|try (it )?again|timed? ?out|too long|retry|rate that|too (quickly|fast|many)"
    r"|over (the |its |his |her |their )?limit|exceeded|allotted|too often|maintenance"
    r"|connection (refused|reset|lost)|unavailable at this time|network is unreachable|no route",
    re.IGNORECASE,
)
_OTHERWISE = re.compile(
    _NOT_NOW + r"|\bfull\b|too (large|big|many)|disabled|inactive|policy|denied|\brate\b|sender", re.IGNORECASE
)
_NO_SUCH = re.compile(
    r"\b(user|recipient|mailbox|account|address|addressee) (is )?(unknown|not found|does(n't| not) exist)\b"
    r"|\b(unknown|no such|invalid) (local )?(user|recipient|mailbox|account|addressee)\b"
    r"|\bno mailbox here by that name\b",
    re.IGNORECASE,
)
_NOUN = r"\b(user|recipient|mailbox|account|address(ee)?|alias|person)\b"
_BETWEEN = (  # between a noun and its predicate
    r"([\s<>()\[\]'\":,.-]{1,9}(is|was|are|has|have|been|does|do|it|currently|name|address|account|mailbox|user|that|you"
    r"|tried|to|reach|for|at|in|on|this|the|local|email)\b){0,8}[\s<>()\[\]'\":,.-]{1,9}"
)
_NOT_OF = r"(?!'s|\s{1,9}(server|service|connection|protocol|helo|ehlo|header|error|reason|command)\b)"
_NOBODY = re.compile(
    rf"{_NOUN}{_BETWEEN}(unknown|not (be )?found|not exist|not known|not listed|not a valid|invalid|disabled|inactive"
    r"|deactivated|closed|unavailable|no longer (exist|available|active|valid|in use|in service)s?)\b" + _NOT_OF + "|"
    r"\b(unknown|no such|invalid|illegal|disabled|inactive|non-?existent) "
    r"((or|local|virtual|illegal|e-?mail|mail) ?){0,3}(user|recipient|mailbox|account|address|alias|person)\b"
    + _NOT_OF
    + "|"
    r"\b(does ?n.t|does not) (exist|have an? .{0,40}account)|\bno mailbox here\b|\bnot our customer\b"
    r"|recipient address rejected: access denied|\bunrouteable address\b"
    r"|\b(host|domain)( name)?( [\w.-]{1,80})?( (is|was))? (not found|not exist|unknown|invalid)\b" + _NOT_OF + "|"
    r"\bnxdomain\b|all relevant mx records point to|\b(recipient|user|mailbox) name (is |was )?not recogni[sz]ed\b"
    r"|\bnot listed in .{0,30}(directory|address book)|\binvalid final delivery userid"
    r"|\baddress could(n't| not) be found",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"\S{1,254}@\S{1,254}")
_WEB = re.compile(r"https?://\S+")
_CODES = re.compile(r"(?<![\d.])[45]\.(\d{1,3}\.\d{1,3})(?![\d.])")
_FULL = re.compile(r"(?<![\d.])552(?![\d.])")
TEXT_MAX = 2_000
"""Characters of a service's text that are read."""


def judge_gone(text: str, *, basic: str = "", detail: str = "") -> Gone:
    """Judge a permanent answer. `basic`: its code of RFC 5321; `detail`: that of RFC 3463 without the class; or ""."""
    said = _WEB.sub("", _ADDRESS.sub("", text))
    if basic == "552" or _LATER.search(said) or is_about_us("", said, basic):
        return Gone.NOT
    otherwise = _OTHERWISE.search(said) is not None
    if detail in _UNKNOWN:
        return Gone.CLOSED if otherwise else Gone.UNKNOWN
    if detail in _CLOSED:
        return Gone.CLOSED
    foreign = names_nobody(said)
    little = detail in _LITTLE_SAID and basic in _OF_MAILBOX and not otherwise
    if little and (_NO_SUCH.search(said) or (foreign and basic)):  # of a service a foreign "user" may be our login
        return Gone.UNKNOWN
    return Gone.CLOSED if detail in VAGUE and (foreign or _NOBODY.search(said)) else Gone.UNSAID


def names_unknown_code(enhanced: str) -> bool:
    """Return True for a code such as 5.1.1: the recipient does not exist."""
    return enhanced.partition(".")[2] in _UNKNOWN


def says_unknown(text: str) -> bool | None:
    """Return True if a service's text says that the recipient does not exist, False if it contradicts, else None."""
    said = _ADDRESS.sub("", text[:TEXT_MAX])
    details = set(_CODES.findall(said)) - {"0.0", "1.0"}
    if details - _UNKNOWN or _OTHERWISE.search(said):
        return False
    found = judge_gone(said, basic="552" if _FULL.search(said) else "", detail=min(details, default=""))
    return False if found == Gone.NOT else True if found == Gone.UNKNOWN else None


_WHO = "(recipient|number|mailbox|subscriber)"  # not user or address, which may mean our credential or our sender
# Codes and sub types of refusals, as they are stored. PostgreSQL and Python match these patterns alike, in any case.
STOPPED = r"^(stop|21610|opt(ed)?[-_ ]?out|unsubscribed?)$"
UNKNOWN = rf"^((unknown|invalid|no[-_ ]such)[-_ ]{_WHO}|{_WHO}[-_ ](unknown|not[-_ ]found)|5\.1\.([1236]|10))$"


def read_stored(codes: Collection[str], cause: str | None = None) -> str:
    """Return "stop" or "unknown" if a stored refusal says so of its recipient, else "".

    `codes`: its code and sub type. `cause`: as stored; without a known one, the words alone decide.
    """
    if cause not in (None, "", AnswerCause.UNKNOWN) and not may_suppress(AnswerCause(cause), AnswerProof.REFUSED):
        return ""
    if any(re.search(STOPPED, word, re.IGNORECASE) for word in codes):
        return "stop"
    return "unknown" if any(re.search(UNKNOWN, word, re.IGNORECASE) for word in codes) else ""


def may_suppress(cause: AnswerCause, proof: AnswerProof, channel: str = "") -> bool:
    """Tell whether an answer of this cause may suppress its recipient. `channel`: "": on any channel."""
    allowed = follows_from(cause, proof).suppresses
    return channel in allowed if channel else bool(allowed)
