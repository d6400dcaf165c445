"""openapi.json by itself: what generators and linters of OpenAPI ask of it (`make lint-openapi` asks them all)."""

import json
from typing import Any

import pytest

from mailhub.front.api import api
from tests.front.everything import operations

SENDING = ("post", "/api/v1/messages")
HOOKING = ("post", "/api/v1/webhooks")


@pytest.fixture
def schema() -> dict[str, Any]:
    return json.loads(json.dumps(api.get_openapi_schema(path_prefix="/api/v1/"), default=str))


def test_a_client_learns_where_the_server_is_and_under_which_licence(schema: dict[str, Any]) -> None:
    assert [server["url"] for server in schema["servers"]] == ["/"]
    assert schema["info"]["license"] == {"name": "MIT", "identifier": "MIT"}


@pytest.mark.parametrize(("method", "path"), operations())
def test_every_endpoint_says_who_may_use_it(schema: dict[str, Any], method: str, path: str) -> None:
    operation = schema["paths"][path][method]
    assert "security" in operation
    assert bool(operation["security"]) == ("401" in operation["responses"] and "/receipts/" not in path)


def test_the_idempotency_key_is_required_where_something_is_sent_and_nowhere_else(schema: dict[str, Any]) -> None:
    required = {
        (method, path): parameter["required"]
        for method, path in operations()
        for parameter in schema["paths"][path][method].get("parameters", [])
        if parameter["name"] == "Idempotency-Key"
    }
    assert required == {SENDING: True, HOOKING: False}
    assert "400" in schema["paths"][SENDING[1]]["post"]["responses"]
