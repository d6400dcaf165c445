"""Interprets a bounce: no such recipient (hard), not delivered this time (soft), or we are blocked.

`vendors/causes/gone.py` decides if the recipient is gone. docs/how-to/bounces.md has the table.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from campaigns.engine.message_events import Kind
from campaigns.models import MessageEvent
from vendors.causes import AnswerCause, judge_reply, name_sender
from vendors.causes.consequences import AnswerProof, MessageEnd, follows_from
from vendors.causes.gone import VAGUE, Gone, judge_gone

ADDRESS = re.compile(r"[^\s<>]{1,254}@[^\s<>]{1,254}")
EDGES = ".,:;'\"()[]"  # signs that end a word and no address
WRAPPED = re.compile(r"(?<![\n\s])[ \t]{0,80}\n[ \t]{0,80}(?=\S)")  # a line goes on; an empty line ends a paragraph
# What Exchange Online writes before the answer of another server.
RELAYED = re.compile(r"remote server returned [^>]{1,120}-> ?(?=\S)", re.IGNORECASE)
ENHANCED = re.compile(r"(?<![\d.])([245])\.(\d{1,3}\.\d{1,3})(?![\d.])")
BASIC = re.compile(
    r"(?<![\d.])(?=421|45[0-5]|50[0-4]|55[0-6])([45])(\d\d)(?=[\s\-#])(?! ?[ -]\d{3})"
)  # not a telephone number


@dataclass(frozen=True, slots=True)
class JudgedBounce:
    """The kind of a failed delivery, and its code or "". cause: "us" if the server speaks of our address, else "".

    is_clear: the words or the code name somebody's fault.
    """

    kind: MessageEvent.Kind
    code: str
    cause: str = ""
    is_clear: bool = True


def classify_bounce(status: str, text: str, senders: Collection[str] = ()) -> JudgedBounce:
    """Judge a failed delivery.

    status: the field of its report, if there is one. text: the server's words, without the original mail. senders: the
    addresses to which the report has come back: words that quote these alone speak of the sender.
    """
    quoting = RELAYED.search(text)
    text = WRAPPED.sub(" ", text[quoting.end() :] if quoting else text)
    stated, found, basic = ENHANCED.search(status), ENHANCED.search(text), BASIC.search(text)
    enhanced = found if quoting else stated or found
    if not quoting and stated and stated[2] in VAGUE:  # the remote server may be more exact than the reporting one
        enhanced = next((one for one in ENHANCED.finditer(text) if one[1] == stated[1]), stated)
    detail = enhanced[2] if enhanced else ""
    classes = {one[1] for one in (enhanced, basic) if one}
    code = enhanced[0] if enhanced else ""
    if basic and (enhanced is None or (detail == "0.0" and enhanced[1] == basic[1])):
        code = f"{basic[1]}{basic[2]}"
    named = _name_senders(text, senders)
    said = ADDRESS.sub("", named)
    judged = judge_reply(int(f"{basic[1]}{basic[2]}") if basic else None, said, code if "." in code else "")
    is_clear = judged.cause != AnswerCause.UNKNOWN
    if follows_from(judged.cause, AnswerProof.REPORTED).message == MessageEnd.BLOCKED and not judged.alone:
        ours = named != text and judged.cause == AnswerCause.US
        return JudgedBounce(Kind.BLOCKED, code, AnswerCause.US.value if ours else "")
    # A temporary failure is never hard, even beside other quoted codes; nor is one of a server or at another step.
    if classes - {"5"} or judged.cause == AnswerCause.VENDOR:
        return JudgedBounce(Kind.SOFT_BOUNCE, code, is_clear=is_clear)
    gone = judge_gone(said, basic=basic[1] + basic[2] if basic else "", detail=detail)
    return JudgedBounce(Kind.HARD_BOUNCE if gone >= Gone.CLOSED else Kind.SOFT_BOUNCE, code, is_clear=is_clear)


def _name_senders(text: str, senders: Collection[str]) -> str:
    ours = {sender.casefold() for sender in senders}
    quoted = {found.casefold().strip(EDGES) for found in ADDRESS.findall(text)}
    if not quoted or not quoted <= ours:
        return text
    for sender in ours & quoted:
        text = name_sender(text, sender, "")
    return text
