"""Checks a request's query by the OpenAPI document: a misspelt parameter must not be ignored in silence.

`?dryrun=true` would send, and `?stat=failed` would list everything.
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from django.http import HttpRequest

from campaigns.doors.front.problems import invalid_problem

Schema = Mapping[str, Any]
WHOLE = re.compile("-?(0|[1-9][0-9]*)", re.ASCII)
FLAGS = ("true", "false", "1", "0")
_IN_ROUTES = re.compile(r"<(?:\w+:)?(\w+)>")


class QueryRules:
    """The parameters that each operation takes in its query. document: returns the OpenAPI document; set once."""

    document: Callable[[], Schema]

    def check_parameters(self, request: HttpRequest) -> None:
        """Raise Problem for a parameter that the operation does not have, or has twice, or of another type."""
        if not request.META["QUERY_STRING"] or request.resolver_match is None:
            return
        path = "/" + _IN_ROUTES.sub(r"{\1}", request.resolver_match.route)
        rules = self._types_by_operation.get((str(request.method).lower(), path))
        if rules is None:
            return
        for name, values in request.GET.lists():
            if name not in rules:
                known = ", ".join(rules) or "none"
                raise _parameter_problem(
                    name, "extra_forbidden", f"there is no such parameter here; there are: {known}"
                )
            if len(values) > 1:
                raise _parameter_problem(name, "repeated", "it is given more than once")
            if "integer" in rules[name] and not WHOLE.fullmatch(values[0]):
                raise _parameter_problem(name, "int_parsing", "it must be a whole number, in digits alone")
            if "boolean" in rules[name] and values[0].lower() not in FLAGS:
                raise _parameter_problem(name, "bool_parsing", "it must be true or false")

    @cached_property
    def _types_by_operation(self) -> dict[tuple[str, str], dict[str, set[str]]]:
        """Types by name, by method and path."""
        return {
            (method, path): {
                one["name"]: _schema_types(one["schema"])
                for one in operation.get("parameters", ())
                if one["in"] == "query"
            }
            for path, methods in self.document()["paths"].items()
            for method, operation in methods.items()
        }


query_rules = QueryRules()


def _schema_types(schema: Schema) -> set[str]:
    return {str(one.get("type")) for one in (schema, *schema.get("anyOf", ()))}


def _parameter_problem(name: str, code: str, detail: str) -> Exception:
    return invalid_problem([{"parameter": name, "code": code, "detail": detail}])
