"""What a bounce means: that there is no such recipient, that it was not delivered this time, or that we are blocked.

A false "hard" loses a recipient for good, a false "soft" costs a few more bounces. So a code alone makes a bounce hard
only if no word speaks against it, and a text only where no code says anything. docs/how-to/bounces.md has the table.
"""

import re

from campaigns.message_events import Kind
from campaigns.models import MessageEvent
from vendors.outcomes import is_about_us

# By the enhanced code without its class (RFC 3463, RFC 7505, and those of Exchange Online); what is missing is soft.
HARD = frozenset({"1.1", "1.2", "1.3", "1.6", "1.10", "2.1", "4.4", "4.310"})
BLOCKED = re.compile(r"1\.[78]|2\.3|3\.4|4\.5|6\.\d{1,3}|7\.\d{1,3}")
VAGUE = frozenset({"", "0.0", "1.0", "2.0", "3.0", "4.0", "4.1", "5.0"})  # then the text decides

NOT_NOW = re.compile(
    r"quota|\b(mail)?box\b.{0,20}\bfull\b|\bfull\b.{0,20}\b(mail)?box\b|storage|out of space|disk full"
    r"|temporar|try (it )?again|gr[ae]ylist|timed? ?out|expired|too long|retry|rate that|too (quickly|fast|many)"
    r"|connection (refused|reset|lost)|unavailable at this time|network is unreachable|no route",
    re.IGNORECASE,
)
CONTENT = re.compile(
    r"too (large|big)|exceeds .{0,40}(size|limit|length)|\bvirus\b|attachment|content (rejected|filter)"
    r"|\bpolicy\b|\bphish",
    re.IGNORECASE,
)
NOBODY = re.compile(
    r"\b(user|recipient|mailbox|account|address(ee)?|alias|person)\b.{0,80}?\b(unknown|not (be )?found|not exist"
    r"|not known|not listed|not a valid|invalid|disabled|inactive|deactivated|closed|unavailable|no longer)\b"
    r"|\b(unknown|no such|invalid|illegal|disabled|inactive|non-?existent) "
    r"((or|local|virtual|illegal|e-?mail|mail) ?){0,3}(user|recipient|mailbox|account|address|alias|person)"
    r"|\b(does ?n.t|does not) (exist|have an? .{0,40}account)|\bno mailbox here\b|\bnot our customer\b"
    r"|recipient address rejected: access denied|\bunrouteable address\b"
    r"|\b(host|domain)\b.{0,40}\b(not found|not exist|unknown|invalid)\b|\bnxdomain\b|all relevant mx records point to",
    re.IGNORECASE | re.DOTALL,
)
ADDRESS = re.compile(r"[^\s<>]{1,254}@[^\s<>]{1,254}")
WEB = re.compile(r"https?://\S+")
ENHANCED = re.compile(r"(?<![\d.])([245])\.(\d{1,3}\.\d{1,3})(?![\d.])")
BASIC = re.compile(r"(?<![\d.])([45])(\d\d)(?=[ \-#])")


def of_bounce(status: str, text: str) -> tuple[MessageEvent.Kind, str]:
    """The kind of a failed delivery, and its code, perhaps empty.

    status: the field of its report, if there is one. text: what the server said, without the original mail.
    """
    stated, found = ENHANCED.search(status), ENHANCED.search(text)
    if stated and stated[2] in VAGUE and found:
        stated = None  # the server was more exact than the one that reports it
    enhanced = stated or found
    basic = BASIC.search(text)
    digit = enhanced[1] if enhanced else basic[1] if basic else ""
    detail = enhanced[2] if enhanced else ""
    code = f"{digit}.{detail}" if detail else ""
    if basic and detail in ("", "0.0"):
        code = f"{basic[1]}{basic[2]}"
    said = WEB.sub("", ADDRESS.sub("", text))
    return _kind(digit, detail, basic[1] + basic[2] if basic else "", said), code


def _kind(digit: str, detail: str, basic: str, said: str) -> MessageEvent.Kind:
    if digit == "4":
        return Kind.SOFT_BOUNCE
    if BLOCKED.fullmatch(detail) or is_about_us("", said) or (CONTENT.search(said) and detail not in HARD):
        return Kind.BLOCKED
    if basic == "552" or NOT_NOW.search(said):
        return Kind.SOFT_BOUNCE
    if detail in HARD:
        return Kind.HARD_BOUNCE
    return Kind.HARD_BOUNCE if detail in VAGUE and NOBODY.search(said) else Kind.SOFT_BOUNCE
