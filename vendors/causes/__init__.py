"""The cause of a vendor's answer: whose fault a refusal or a deferral is.

One module judges every code and text that a mail server or a service gives: replies of SMTP, delivery status
notifications, texts of HTTP answers. The rules are data (replies.toml); the first rule that fits decides.
`vendors/outcomes.py` and `campaigns/bounces/kinds.py` say what follows from a cause.
"""

import re
import tomllib
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

RULES = Path(__file__).with_name("replies.toml")
TEXT_MAX = 2_000
"""Characters of an answer that are read."""
_ADDRESS = re.compile(r"[^\s<>:;,()\"]{1,254}@[^\s<>:;,()\"]{1,254}")
_WEB = re.compile(r"https?://\S+|\bwww\.\S+")
_JOINED, _SEAM = re.compile(r"(\d+ )?([A-Z][a-z]+){2,}"), re.compile(r"(?<=[a-z])(?=[A-Z])")  # as InvalidPhoneNumber
_WORD = re.compile(r"[^\W\d_]{3}")
_ENHANCED = re.compile(r"(?<![\d.])([245])\.(\d{1,3})\.(\d{1,3})(?![\d.])")
_AFTER = re.compile(
    r"\b(?:after|until|at) ((?:mon|tue|wed|thu|fri|sat|sun)[a-z]*, \d{1,2} [a-z]{3} \d{4} \d{2}:\d{2}(?::\d{2})?"
    r"(?: [a-z]{3,4}| [+-]\d{4})?)",
    re.IGNORECASE,
)


class AnswerCause(StrEnum):
    """Whose fault it is that a message was not taken."""

    RECIPIENT = "recipient"  # the address, the mailbox, or its owner's wish
    CONTENT = "content"  # the letter: its size, form or files
    US = "us"  # login, sender address, reputation, policy
    CAPACITY = "capacity"  # a quota or a rate of ours; it ends by itself
    VENDOR = "vendor"  # the server is down or broken
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A cause, and what goes with it.

    `wait`: seconds after which a capacity is expected back; 0: the answer does not say. `alone`: it concerns this
    message alone, although its cause would concern others, as with greylisting.
    """

    cause: AnswerCause
    wait: float = 0.0
    alone: bool = False


@dataclass(frozen=True, slots=True)
class ReplyRule:
    """Conditions, all of which must hold. `enhanced` and `code` match whole values; `text` is searched for."""

    judgement: Judgement
    code: re.Pattern[str] | None
    enhanced: re.Pattern[str] | None
    text: re.Pattern[str] | None
    unless: re.Pattern[str] | None

    def fits(self, code: str, enhanced: str, text: str) -> bool:
        return (
            (self.code is None or self.code.fullmatch(code) is not None)
            and (self.enhanced is None or self.enhanced.fullmatch(enhanced) is not None)
            and (self.text is None or self.text.search(text) is not None)
            and (self.unless is None or self.unless.search(text) is None)
        )


def judge_reply(code: int | None, text: str, enhanced: str = "") -> Judgement:
    """Judge a refusal or deferral of a mail server, or the words of a bounce.

    `code`: the basic code, if known. `enhanced`: the code of RFC 3463; if "", the first one in the text counts.
    Addresses and links in the text are not read.
    """
    if not enhanced and (found := _ENHANCED.search(text)):
        enhanced = found[0]
    if _JOINED.fullmatch(text[:TEXT_MAX]):
        text = _SEAM.sub(" ", text)
    without_addresses = _ADDRESS.sub("", text[:TEXT_MAX])
    said = _WEB.sub("", without_addresses)
    said = said if _WORD.search(said) else without_addresses  # a block list may give its link alone
    return _judge(str(code) if code else "", enhanced, said)


def judge_code(code: str, sub_type: str = "") -> Judgement:
    """Judge a vendor's own code and its explanation, such as `unknown_recipient`."""
    return judge_reply(None, re.sub(r"[_-]", " ", f"{code} {sub_type}"))


def stated_wait(text: str, *, now: float) -> float | None:
    """Return the seconds until a moment that a text names as "after" or "until"; None if it names none ahead."""
    found = _AFTER.search(text)
    if not found:
        return None
    try:
        at = parsedate_to_datetime(found[1])
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    wait = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now
    return wait if wait > 0 else None


@lru_cache(maxsize=512)  # a server says the same of many recipients
def _judge(code: str, enhanced: str, said: str) -> Judgement:
    return next(
        (rule.judgement for rule in _rules() if rule.fits(code, enhanced, said)), Judgement(AnswerCause.UNKNOWN)
    )


@cache
def _rules() -> tuple[ReplyRule, ...]:
    return tuple(_rule(one) for one in tomllib.loads(RULES.read_text(encoding="utf-8"))["rule"])


def _rule(keys: dict[str, Any]) -> ReplyRule:
    judgement = Judgement(AnswerCause(keys["cause"]), float(keys.get("wait", 0)), bool(keys.get("alone", False)))
    return ReplyRule(judgement, *(_pattern(keys.get(name)) for name in ("code", "enhanced", "text", "unless")))


def _pattern(found: str | list[str] | None) -> re.Pattern[str] | None:
    if found is None:
        return None
    return re.compile("|".join([found] if isinstance(found, str) else found), re.IGNORECASE)
