"""Tells whether a service's refusal concerns the mail and its recipient or everything we send."""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson

from vendors.adapters.http_client import Response
from vendors.causes import AnswerCause, judge_code
from vendors.outcomes import TEXT_MAX, NotSent, Outcome, Refused, capacity_wait, is_about_us

# Texts of refusals that concern the recipient, and of those that concern our sender, account or quota.
_OF_RECIPIENT = re.compile(
    r"\bto\b['\"`]? (parameter|field|address)|recipient|['\"`]to['\"`]|to\.\d|inactive", re.IGNORECASE
)
_OF_US = re.compile(
    r"['\"`]?\b(from|sender)\b['\"`]?|not (been )?(verified|confirmed|authori[sz]ed|allowed)|unverified|suspended"
    r"|\bcredits?\b|\baccount\b|\bplan\b|\bquota\b",
    re.IGNORECASE,
)
# Postmark's codes decide, as in vendors/described/shipped/postmark.toml; 300 covers any field, so its text decides.
# Amazon SES: all codes but these two concern our account, identity or configuration set.
_BY_CODE: dict[str, dict[str, bool | None]] = {  # True: the refusal concerns the letter; None: the text decides
    "amazon_ses": {"BadRequestException": None, "MessageRejected": None},
    "postmark": {"300": None, "406": True, "411": True},
}
_ADDRESS = re.compile(r"[^\s<>]{1,254}@[^\s<>]{1,254}")


def refusal(service: str, answer: Response, found: Refused) -> Outcome:
    """Judge a refused request: it refuses this letter, or pauses the credential if it concerns all mail.

    `found`: the outcome by the common table.
    """
    code, text = reason(answer.headers, answer.body)
    of_letter = _BY_CODE[service].get(code, False) if code and service in _BY_CODE else None
    judged = judge_code(code, text)
    if not of_letter and judged.cause == AnswerCause.CAPACITY:
        wait = capacity_wait(judged.wait, text)
        return NotSent(f"http {answer.status}: {text}"[:TEXT_MAX], wait, scope="credential")
    if of_letter is None:
        of_letter = bool(_OF_RECIPIENT.search(text)) or not (_OF_US.search(text) or is_about_us("", text))
    if not of_letter:
        return NotSent(f"http {answer.status}: {text}"[:TEXT_MAX], scope="credential", pause=True)
    return Refused(code or found.code, text or found.sub_type, judged.cause)


def reason(headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    """Return an answer's code and text, wherever the service puts them; either may be empty."""
    code, text = _of_body(body)
    code = shown(headers.get("x-amzn-errortype", "")).partition(":")[0] or code
    return code.rpartition("#")[2][:50], text


def _of_body(body: bytes) -> tuple[str, str]:
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "", ""
    said = said[0] if isinstance(said, list) and said else said
    said = said if isinstance(said, dict) else {}
    errors = said.get("errors")
    inner = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    codes = (said.get(name) for name in ("ErrorCode", "code", "name", "statusCode", "__type"))
    texts = (*(said.get(name) for name in ("Message", "message", "error")), inner.get("message"))
    code = next((str(one) for one in codes if isinstance(one, str | int)), "")
    text = next((one for one in texts if isinstance(one, str)), "")
    return shown(code), shown(text)


def is_json(body: bytes) -> bool:
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:  # also raised for NaN and a wrong charset
        return False
    return True


def shown(text: str) -> str:
    """Return one line without addresses, fit to be stored and shown."""
    line = "".join(one if one.isprintable() else " " for one in text[: 4 * TEXT_MAX])
    return _ADDRESS.sub("(address)", line).strip()[:TEXT_MAX]
