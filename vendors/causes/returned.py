"""Judges a report on an accepted letter: its cause, its kind of bounce, and any wait of its receiver."""

import re
from dataclasses import dataclass
from typing import Literal

from vendors.causes import AnswerCause, Judgement, judge_code, judge_reply
from vendors.causes.consequences import AnswerProof, MessageEnd, follows_from
from vendors.causes.scopes import Speaker, concerns_receiver

_BASIC = re.compile(r"[45][0-9]{2}")
_PERMANENT = re.compile(r"(?<![\d.])5(\d\d|\.\d{1,3}\.\d{1,3})(?![\d.])")
BounceKind = Literal["hard", "soft", "blocked"]


@dataclass(frozen=True, slots=True)
class ReportJudgement:
    """The judgement of a report. `slows`: the receiving domain waits; `refused`: it refuses for good because of us."""

    cause: AnswerCause
    bounce: BounceKind
    slows: bool = False
    refused: bool = False


def judge_return(
    bounce: BounceKind, code: str, note: str, *, cause: str = "", delayed: bool = False
) -> ReportJudgement:
    """Judge a report of a failed or delayed letter.

    `bounce`: the kind that the reporter states. Words about us, a rate or the content overrule it, and words about a
    broken server make "hard" "soft", because only a recipient's own fault may suppress it immediately. `cause`: the
    meaning of the vendor's own code, if known.
    """
    judged = Judgement(AnswerCause(cause)) if cause else _judge_text(code, note)
    if cause and judged.cause == AnswerCause.RECIPIENT and note:  # its words may still quote a server about us
        quoted = judge_reply(None, note)
        judged = quoted if _is_block(quoted) else judged
    found = _judge_recipient(judged, bounce)
    proof = AnswerProof.DELAYED if delayed else AnswerProof.REPORTED
    text = f"{code} {note}"
    slows = concerns_receiver(judged, proof, Speaker.REPORT, text)
    permanent = not delayed and judged.cause == AnswerCause.US and _PERMANENT.search(text) is not None
    return ReportJudgement(found[0], found[1], slows, slows and permanent)


def _judge_recipient(judged: Judgement, bounce: BounceKind) -> tuple[AnswerCause, BounceKind]:
    if _is_block(judged):
        return judged.cause, "blocked"
    if bounce == "hard":
        broken = judged.cause == AnswerCause.VENDOR
        return (judged.cause, "soft") if broken else (AnswerCause.RECIPIENT, "hard")
    if bounce == "blocked" and judged.cause == AnswerCause.RECIPIENT:
        return AnswerCause.UNKNOWN, "blocked"
    return judged.cause, bounce


def _is_block(judged: Judgement) -> bool:
    return follows_from(judged.cause, AnswerProof.REPORTED).message == MessageEnd.BLOCKED and not judged.alone


def _judge_text(code: str, note: str) -> Judgement:
    return judge_reply(int(code), note) if _BASIC.fullmatch(code) else judge_code(code, note)
