"""Tells whether a service's refusal concerns the mail and its recipient or everything we send."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import orjson

from vendors.adapters.http_client import Response
from vendors.causes import AnswerCause
from vendors.causes.codes import judge_refusal, read_fields
from vendors.causes.services import find_service
from vendors.outcomes import TEXT_MAX, Outcome, Refused, capacity_wait, follow_cause

FIELDS = Path(__file__).with_name("anymail_fields.toml")
CODES = ("ErrorCode", "code", "name", "statusCode", "reject_reason", "__type")
_ADDRESS = re.compile(r"[^\s<>]{1,254}@[^\s<>]{1,254}")


def judge_refused_request(service: str, answer: Response, found: Refused) -> Outcome:
    """Judge a refused request by its cause: it refuses this letter, or pauses the credential, or makes it wait.

    `found`: the outcome by the common table.
    """
    code, text = find_reason(answer.headers, answer.body)
    judged = judge_refusal(find_service(service), read_fields(FIELDS), code, text)
    wait = capacity_wait(judged.wait, text) if judged.cause == AnswerCause.CAPACITY else None
    refused = Refused(code or found.code, text or found.sub_type, judged.cause)
    return follow_cause(refused, wait, f"http {answer.status}: {text}")


def judge_rejected(service: str, status: str, answer: Response) -> Outcome:
    """Return what follows from a good answer that rejects the one recipient. `status`: as django-anymail names it."""
    code, text = find_reason(answer.headers, answer.body)
    table = find_service(service)
    listed = table.find_cause(code) if table else ""
    if not listed:
        return Refused(status, text)
    return follow_cause(Refused(status, text or code, AnswerCause(listed)), said=f"{status}: {text or code}")


def find_reason(headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    """Return an answer's code and text, wherever the service puts them; either may be empty."""
    code, text = _reason_in_body(body)
    code = mask_addresses(headers.get("x-amzn-errortype", "")).partition(":")[0] or code
    return code.rpartition("#")[2][:50], text


def _reason_in_body(body: bytes) -> tuple[str, str]:
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "", ""
    said = said[0] if isinstance(said, list) and said else said
    said = said if isinstance(said, dict) else {}
    errors = said.get("errors")
    inner = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    codes = (*(said.get(name) for name in CODES), inner.get("code"))
    within = ": ".join(one for name in ("message", "description") if isinstance(one := inner.get(name), str))
    texts = (*(said.get(name) for name in ("Message", "message", "error")), within or None)
    code = next((str(one) for one in codes if isinstance(one, str | int)), "")
    text = next((one for one in texts if isinstance(one, str)), "")
    return mask_addresses(code), mask_addresses(text)


def is_json(body: bytes) -> bool:
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:  # also raised for NaN and a wrong charset
        return False
    return True


def mask_addresses(text: str) -> str:
    """Return one line without addresses, fit to be stored and shown."""
    line = "".join(one if one.isprintable() else " " for one in text[: 4 * TEXT_MAX])
    return _ADDRESS.sub("(address)", line).strip()[:TEXT_MAX]
