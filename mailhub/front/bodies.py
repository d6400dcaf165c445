"""Bodies that are read by hand: the framework's own way costs more, and names places otherwise than RFC 9457 has it."""

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
