"""Judges a service's refusal by its table of codes (services.toml), else by its words.

The fields that the words name come from a TOML file beside the adapter.
"""

import re
import tomllib
from functools import cache
from pathlib import Path

from vendors.causes import AnswerCause, Judgement, judge_code
from vendors.causes.services import ServiceCodes

Fields = tuple[tuple[re.Pattern[str], AnswerCause], ...]


def judge_refusal(service: ServiceCodes | None, fields: Fields, code: str, text: str) -> Judgement:
    """Judge a refused request by its listed code, else by its words.

    The cause of all other codes of a service counts only if the words name no rate or quota of ours.
    """
    listed = service.find_cause(code) if service else ""
    if listed:
        return Judgement(AnswerCause(listed))
    judged = judge_code(code, text)
    if judged.cause == AnswerCause.CAPACITY:
        return judged
    if service and not service.leaves_to_text(code):
        return Judgement(AnswerCause(service.others))
    cause = next((cause for pattern, cause in fields if pattern.search(text)), judged.cause)
    named_content = cause == AnswerCause.RECIPIENT and judged.cause == AnswerCause.CONTENT
    return judged if named_content or cause == judged.cause else Judgement(cause)


@cache
def read_fields(path: Path) -> Fields:
    """Return the patterns of fields, and the causes of refusals that name them."""
    found = tomllib.loads(path.read_text(encoding="utf-8"))["texts"]
    return tuple((re.compile(one["text"], re.IGNORECASE), AnswerCause(one["cause"])) for one in found)
