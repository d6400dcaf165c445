"""Interprets a bounce: no such recipient (hard), not delivered this time (soft), or we are blocked.

A false "hard" loses a recipient for good; a false "soft" costs a few more bounces. So a code makes a bounce hard only
if no words contradict it, and words only if there is no clear code. docs/how-to/bounces.md has the table.
"""

import re

from campaigns.engine.message_events import Kind
from campaigns.models import MessageEvent
from vendors.causes import judge_reply
from vendors.causes.consequences import AnswerProof, MessageEnd, follows_from
from vendors.outcomes import NOT_NOW

# Enhanced codes without their class (RFC 3463, RFC 7505, Exchange Online); any other is soft.
HARD = frozenset({"1.1", "1.2", "1.3", "1.6", "1.10", "2.1", "4.4", "4.310"})
VAGUE = frozenset({"", "0.0", "1.0", "2.0", "3.0", "4.0", "4.1", "5.0"})  # the text decides

LATER = re.compile(
    NOT_NOW + r"|\b(mail)?box\b.{0,20}\bfull\b|\bfull\b.{0,20}\b(mail)?box\b|out of space|disk full"
    r"|try (it )?again|timed? ?out|too long|retry|rate that|too (quickly|fast|many)"
    r"|over (the |its |his |her |their )?limit|exceeded|allotted|too often|maintenance"
    r"|connection (refused|reset|lost)|unavailable at this time|network is unreachable|no route",
    re.IGNORECASE,
)
_NOUN = r"\b(user|recipient|mailbox|account|address(ee)?|alias|person)\b"
_BETWEEN = (  # between a noun and its predicate
    r"([\s<>()\[\]'\":,.-]{1,9}(is|was|are|has|have|been|does|do|it|currently|name|address|account|mailbox|user|that|you"
    r"|tried|to|reach|for|at|in|on|this|the|local|email)\b){0,8}[\s<>()\[\]'\":,.-]{1,9}"
)
_NOT_OF = r"(?!'s|\s{1,9}(server|service|connection|protocol|helo|ehlo|header|error|reason|command)\b)"
NOBODY = re.compile(
    rf"{_NOUN}{_BETWEEN}(unknown|not (be )?found|not exist|not known|not listed|not a valid|invalid|disabled|inactive"
    r"|deactivated|closed|unavailable|no longer (exist|available|active|valid|in use|in service)s?)\b" + _NOT_OF + "|"
    r"\b(unknown|no such|invalid|illegal|disabled|inactive|non-?existent) "
    r"((or|local|virtual|illegal|e-?mail|mail) ?){0,3}(user|recipient|mailbox|account|address|alias|person)\b"
    + _NOT_OF
    + "|"
    r"\b(does ?n.t|does not) (exist|have an? .{0,40}account)|\bno mailbox here\b|\bnot our customer\b"
    r"|recipient address rejected: access denied|\bunrouteable address\b"
    r"|\b(host|domain)( name)?( [\w.-]{1,80})?( (is|was))? (not found|not exist|unknown|invalid)\b" + _NOT_OF + "|"
    r"\bnxdomain\b|all relevant mx records point to",
    re.IGNORECASE,
)
ADDRESS = re.compile(r"[^\s<>]{1,254}@[^\s<>]{1,254}")
WEB = re.compile(r"https?://\S+")
ENHANCED = re.compile(r"(?<![\d.])([245])\.(\d{1,3}\.\d{1,3})(?![\d.])")
BASIC = re.compile(
    r"(?<![\d.])(?=421|45[0-5]|50[0-4]|55[0-6])([45])(\d\d)(?=[ \-#])(?! ?[ -]\d{3})"
)  # not a telephone number


def of_bounce(status: str, text: str) -> tuple[MessageEvent.Kind, str]:
    """Return the kind of a failed delivery, and its code, which may be empty.

    status: the field of its report, if there is one. text: the server's words, without the original mail.
    """
    stated, found, basic = ENHANCED.search(status), ENHANCED.search(text), BASIC.search(text)
    enhanced = stated or found
    if stated and stated[2] in VAGUE:  # the remote server may be more exact than the reporting one
        enhanced = next((one for one in ENHANCED.finditer(text) if one[1] == stated[1]), stated)
    detail = enhanced[2] if enhanced else ""
    classes = {one[1] for one in (enhanced, basic if not stated or detail in VAGUE else None) if one}
    code = enhanced[0] if enhanced else ""
    if basic and (enhanced is None or (detail == "0.0" and enhanced[1] == basic[1])):
        code = f"{basic[1]}{basic[2]}"
    said = WEB.sub("", ADDRESS.sub("", text))
    judged = judge_reply(int(f"{basic[1]}{basic[2]}") if basic else None, said, code if enhanced else "")
    if follows_from(judged.cause, AnswerProof.REPORTED).message == MessageEnd.BLOCKED and not judged.alone:
        return Kind.BLOCKED, code
    if classes - {"5"}:  # a temporary failure is never hard, whatever else the mail quotes
        return Kind.SOFT_BOUNCE, code
    return _kind(detail, basic[1] + basic[2] if basic else "", said), code


def _kind(detail: str, basic: str, said: str) -> MessageEvent.Kind:
    """Return whether the recipient is gone (hard) or was not reached this time (soft)."""
    if basic == "552" or LATER.search(said):
        return Kind.SOFT_BOUNCE
    if detail in HARD:
        return Kind.HARD_BOUNCE
    return Kind.HARD_BOUNCE if detail in VAGUE and NOBODY.search(said) else Kind.SOFT_BOUNCE
