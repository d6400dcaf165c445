"""The API, put together: /api/v1, its documentation and its errors."""

from typing import Any

import orjson
from django.http import HttpRequest
from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema
from ninja.parser import Parser

from mailhub.front import messages, problems, services, sessions


class Orjson(Parser):
    """Keeps what it has read: the request's fingerprint is made from it."""

    def parse_body(self, request: HttpRequest) -> dict[str, object]:
        request.parsed = orjson.loads(request.body)  # type: ignore[attr-defined]
        return request.parsed  # type: ignore[attr-defined]


class Api(NinjaAPI):
    """Its documentation calls errors what they are: application/problem+json."""

    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        schema = super().get_openapi_schema(**options)
        for methods in schema["paths"].values():
            for operation in methods.values():
                for status, response in operation["responses"].items():
                    if int(status) >= 400 and "application/json" in response.get("content", {}):
                        response["content"] = {problems.MIME: response["content"]["application/json"]}
        return schema


api = Api(
    title="mailhub",
    version="1",
    urls_namespace="api",
    parser=Orjson(),
    description="Bulk mail through vendors with limits: never twice, never lost, never too fast.",
)
problems.install(api)
for router in (messages.router, sessions.router, services.router):
    api.add_router("", router)
