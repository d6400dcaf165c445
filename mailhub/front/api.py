"""The API, put together: /api/v1, its documentation and its errors."""

import orjson
from django.http import HttpRequest
from ninja import NinjaAPI
from ninja.parser import Parser

from mailhub.front import messages, problems, services, sessions


class Orjson(Parser):
    """Keeps what it has read: the request's fingerprint is made from it."""

    def parse_body(self, request: HttpRequest) -> dict[str, object]:
        request.parsed = orjson.loads(request.body)  # type: ignore[attr-defined]
        return request.parsed  # type: ignore[attr-defined]


api = NinjaAPI(
    title="mailhub",
    version="1",
    urls_namespace="api",
    parser=Orjson(),
    description="Bulk mail through vendors with limits: never twice, never lost, never too fast.",
)
problems.install(api)
for router in (messages.router, sessions.router, services.router):
    api.add_router("", router)
