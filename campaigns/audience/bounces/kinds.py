"""Interprets a bounce: no such recipient (hard), not delivered this time (soft), or we are blocked.

`vendors/causes/gone.py` decides if the recipient is gone. docs/how-to/bounces.md has the table.
"""

import re

from campaigns.engine.message_events import Kind
from campaigns.models import MessageEvent
from vendors.causes import judge_reply
from vendors.causes.consequences import AnswerProof, MessageEnd, follows_from
from vendors.causes.gone import VAGUE, Gone, judge_gone

ADDRESS = re.compile(r"[^\s<>]{1,254}@[^\s<>]{1,254}")
WEB = re.compile(r"https?://\S+")
ENHANCED = re.compile(r"(?<![\d.])([245])\.(\d{1,3}\.\d{1,3})(?![\d.])")
BASIC = re.compile(
    r"(?<![\d.])(?=421|45[0-5]|50[0-4]|55[0-6])([45])(\d\d)(?=[ \-#])(?! ?[ -]\d{3})"
)  # not a telephone number


def classify_bounce(status: str, text: str) -> tuple[MessageEvent.Kind, str]:
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
    if classes - {"5"}:  # a temporary failure is never hard, even beside other quoted codes
        return Kind.SOFT_BOUNCE, code
    gone = judge_gone(said, basic=basic[1] + basic[2] if basic else "", detail=detail)
    return Kind.HARD_BOUNCE if gone >= Gone.CLOSED else Kind.SOFT_BOUNCE, code
