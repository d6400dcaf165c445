"""Causes by services' own codes and the fields that their words name, from a TOML file beside the adapter."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vendors.causes import AnswerCause, Judgement, judge_code

ANY_OTHER, BY_TEXT = "*", "text"


@dataclass(frozen=True, slots=True)
class CodeTable:
    """The causes of one service. `texts`: patterns with their causes, for codes that say nothing."""

    codes: dict[str, str]
    texts: tuple[tuple[re.Pattern[str], AnswerCause], ...]

    def judge_refusal(self, code: str, text: str) -> Judgement:
        """Judge a refused request by its code, else by its words. A rate or quota of ours is known by words alone."""
        judged = judge_code(code, text)
        known = (self.codes.get(code) or self.codes.get(ANY_OTHER, "")) if code else ""
        if known in (AnswerCause.RECIPIENT, AnswerCause.CONTENT):
            return Judgement(AnswerCause(known))
        if judged.cause == AnswerCause.CAPACITY:
            return judged
        if known not in ("", BY_TEXT):
            return Judgement(AnswerCause(known))
        cause = next((cause for pattern, cause in self.texts if pattern.search(text)), judged.cause)
        named_content = cause == AnswerCause.RECIPIENT and judged.cause == AnswerCause.CONTENT
        return judged if named_content or cause == judged.cause else Judgement(cause)


@cache
def read_table(path: Path, service: str) -> CodeTable:
    """Return the table of a service; words alone decide if the file has no codes for it."""
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    texts = tuple((re.compile(one["text"], re.IGNORECASE), AnswerCause(one["cause"])) for one in found["texts"])
    return CodeTable(found.get(service, {}).get("codes", {}), texts)
