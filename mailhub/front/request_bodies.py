"""Bodies that are read by hand: the framework's own way costs more, and names places otherwise than RFC 9457 has it."""

import hashlib
from typing import Any, TypeVar

import orjson
from django.http import HttpRequest
from pydantic import BaseModel, ValidationError

from mailhub.front.problems import Problem, invalid, located

JSON = "application/json"
Body = TypeVar("Body", bound=BaseModel)


def described(model: type[BaseModel]) -> dict[str, Any]:
    """For the API's documentation."""
    return {"content": {JSON: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}, "required": True}


LONGEST_KEY = 255


def key_parameter(description: str) -> dict[str, Any]:
    """The Idempotency-Key, for the API's documentation."""
    schema = {"type": "string", "maxLength": LONGEST_KEY}
    return {"in": "header", "name": "Idempotency-Key", "schema": schema, "description": description}


def idempotency_key(request: HttpRequest) -> str:
    """'' if there is none. Raises Problem."""
    key: str = request.META.get("HTTP_IDEMPOTENCY_KEY", "")
    if len(key) > LONGEST_KEY or (key and not (key.isascii() and key.isprintable())):
        detail = f"it must be 1 to {LONGEST_KEY} printable ASCII characters"
        raise invalid([{"parameter": "Idempotency-Key", "code": "idempotency-key", "detail": detail}])
    return key


def fingerprint(parsed: Any) -> bytes:
    """Of a body's content, however it is spelled."""
    return hashlib.sha256(orjson.dumps(parsed, option=orjson.OPT_SORT_KEYS)).digest()


def read(request: HttpRequest, model: type[Body]) -> tuple[Body, Any]:
    """The body, and its JSON. Raises Problem with every place that is wrong."""
    try:
        parsed = orjson.loads(request.body)
    except orjson.JSONDecodeError as why:
        raise Problem("bad-request", f"The body is not JSON: {why}") from why
    try:
        return model.model_validate(parsed), parsed
    except ValidationError as why:
        found = why.errors(include_url=False, include_context=False, include_input=False)
        raise invalid(located(("body", *one["loc"]), one["type"], one["msg"]) for one in found) from why
