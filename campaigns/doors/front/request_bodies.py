"""Request bodies and Idempotency-Keys of the API.

Bodies are parsed here because the framework's parsing is slower and lacks the JSON pointers of RFC 9457. `answer_once`
keeps the answer to a request for its repeats, if the rows that it creates do not.
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import orjson
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from pydantic import BaseModel, ValidationError

from campaigns.doors.front.keys import Caller
from campaigns.doors.front.problems import Problem, invalid_problem, locate_error
from campaigns.models import KeptAnswer

JSON = "application/json"
Body = TypeVar("Body", bound=BaseModel)


def describe_body(model: type[BaseModel]) -> dict[str, Any]:
    """Return the body's description for the OpenAPI document."""
    return {"content": {JSON: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}, "required": True}


LONGEST_KEY = 255


def key_parameter(description: str, required: bool = False) -> dict[str, Any]:
    """Return the Idempotency-Key's description for the OpenAPI document."""
    schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY}
    facts = {"schema": schema, "description": description, "required": required}
    return {"in": "header", "name": "Idempotency-Key", **facts}


def idempotency_key(request: HttpRequest) -> str:
    """Return the request's Idempotency-Key, or ''. Raises Problem if it is not valid."""
    key: str = request.META.get("HTTP_IDEMPOTENCY_KEY", "")
    if len(key) > LONGEST_KEY or (key and not (key.isascii() and key.isprintable())):
        detail = f"it must be 1 to {LONGEST_KEY} printable ASCII characters"
        raise invalid_problem([{"parameter": "Idempotency-Key", "code": "idempotency-key", "detail": detail}])
    return key


def body_fingerprint(parsed: Any) -> bytes:
    """Return the SHA-256 of what `parse_exactly` gave; spacing and the order of members do not matter."""
    return hashlib.sha256(orjson.dumps(parsed, option=orjson.OPT_SORT_KEYS)).digest()


_BLANKS_BEFORE_COLONS = (b"  :", b"\t:", b"\n:", b"\r:")
# Numbers that Python may not write with the digits that came: long, tiny, or with an exponent.
_LONG_NUMBER = re.compile(rb"[0-9.]{16}|[:\[,\s]-?(?:0\.0000|[0-9.]{1,15}[eE])")
_WHOLE = range(-(2**63), 2**64)  # whole numbers that common JSON libraries preserve


def _parse_whole(digits: str) -> int | str:
    return int(digits) if len(digits) < 21 and int(digits) in _WHOLE else digits


def _parse_decimal(digits: str) -> float | str:
    number = float(digits)
    try:
        is_kept = "e" not in repr(number) and Decimal(digits) == Decimal(repr(number))
        return number if is_kept else digits
    except InvalidOperation:  # its exponent is too long for a Decimal
        return digits


def _check_members(body: bytes, parsed: Any) -> None:
    """Raise ValueError if an object has a member twice, or values are nested deeper than orjson writes (254).

    Looks closely at members only where their numbers differ.
    """
    try:
        written = orjson.dumps(parsed)
    except orjson.JSONEncodeError as why:
        raise ValueError("it is nested too deeply") from why
    is_usual = not any(blank in body for blank in _BLANKS_BEFORE_COLONS)
    if not is_usual or _count_members(body) != _count_members(written):
        json.loads(body, object_pairs_hook=_members_once)


def _count_members(text: bytes) -> int:
    """Count quotes before colons. Texts may hold them with other escapes, so unequal numbers prove nothing yet."""
    return text.count(b'":') + text.count(b'" :')


def _members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"an object has the member {name[:100]!r} twice")
        found[name] = value
    return found


def parse_exactly(body: bytes) -> Any:
    """Parse JSON. A number with more digits than our types preserve becomes a text of its original digits.

    Raises ValueError with a sentence, also if an object has a member twice: programs differ in which one they take.
    """
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8, from byte {error.start} on") from error
    parsed = orjson.loads(body)
    _check_members(body, parsed)
    if _LONG_NUMBER.search(body):
        parsed = json.loads(body, parse_int=_parse_whole, parse_float=_parse_decimal)
    return parsed


def read_body(request: HttpRequest, model: type[Body]) -> tuple[Body, Any]:
    """Return the validated body and the parsed JSON. Raises Problem with all errors."""
    try:
        parsed = parse_exactly(request.body)
    except ValueError as why:
        raise Problem("bad-request", f"The body is not JSON: {why}") from why
    try:
        return model.model_validate(parsed), parsed
    except ValidationError as why:
        found = why.errors(include_url=False, include_context=False, include_input=False)
        raise invalid_problem(locate_error(("body", *one["loc"]), one["type"], one["msg"]) for one in found) from why


@dataclass(frozen=True, slots=True)
class Created:
    """The answer to a request that created something: Location and JSON."""

    location: str
    body: str

    def created_response(self, replayed: bool = False) -> HttpResponse:
        headers = {"Location": self.location} | ({"Idempotent-Replayed": "true"} if replayed else {})
        return HttpResponse(self.body, JSON, 201, headers=headers)


def answer_once(
    caller: Caller, operation: str, key: str, fingerprint: bytes, work: Callable[[], Created]
) -> HttpResponse:
    """Run `work`, or return its earlier answer for this key. Raises Problem: another body, or work's own."""
    found = _find_kept_answer(caller, operation, key, fingerprint)
    if found:
        return found.created_response(replayed=True)
    try:
        with transaction.atomic():
            made = work()
            kept = KeptAnswer(sponsor_id=caller.sponsor_id, test=caller.test, operation=operation)
            kept.idempotency_key, kept.fingerprint, kept.answer = key, fingerprint, asdict(made)
            kept.save()
    except (IntegrityError, Problem):  # the same request may be running in another thread
        found = _find_kept_answer(caller, operation, key, fingerprint)
        if found is None:
            raise
        return found.created_response(replayed=True)
    return made.created_response()


def _find_kept_answer(caller: Caller, operation: str, key: str, fingerprint: bytes) -> Created | None:
    kept = KeptAnswer.objects.filter(
        sponsor=caller.sponsor_id, test=caller.test, operation=operation, idempotency_key=key
    ).first()
    if kept is None:
        return None
    if bytes(kept.fingerprint) != fingerprint:
        raise Problem("idempotency-key-reused", "Its first request had another body.")
    return Created(**kept.answer)
