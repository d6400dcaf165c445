"""The API: all endpoints below /api/v1, its OpenAPI document and its errors."""

from typing import Any

from django.conf import settings
from ninja import NinjaAPI, Swagger
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation

from campaigns.audience.api import answers, finds, inbound
from campaigns.audience.api.finds import FindIn
from campaigns.content import api as templates
from campaigns.content.api import TemplateIn
from campaigns.doors.front import problems
from campaigns.doors.front.keys import Key
from campaigns.doors.front.queries import query_rules
from campaigns.integrations.api import receipts, reports, sessions, webhooks
from campaigns.integrations.api.session_schemas import LimitsIn
from campaigns.integrations.api.webhooks import WebhookIn
from campaigns.lists.api import files, messages, notifier
from campaigns.lists.api.schemas import SendRequest
from campaigns.reporting.api import costs, days
from campaigns.senders.api import topics, vendors
from campaigns.suppression.api import suppressions
from campaigns.suppression.api.suppression_schemas import AddressesIn, SuppressionsIn
from mailhub.front import broker_check
from vendors.adapters.reports import ReceiptsIn


class Documentation(Swagger):
    """The Swagger page with our own files. Without "ninja" among the apps, Django Ninja uses one that loads a CDN's."""

    template_cdn = str(settings.NINJA / "templates" / Swagger.template)


class Api(NinjaAPI):
    """A NinjaAPI whose OpenAPI document includes problem+json errors, scopes, and bodies that are parsed by hand.

    The document is built once: anybody may request it, and building it takes longer than any other answer.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._schemas: dict[str, OpenAPISchema] = {}
        self._keys: dict[str, list[Key]] = {}  # by operation id

    def get_openapi_operation_id(self, operation: Operation) -> str:
        """Return the function's name, since clients are generated from it and modules may move."""
        name = operation.view_func.__name__
        self._keys[name] = [one for one in operation.auth_callbacks if isinstance(one, Key)]
        return name

    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        asked = repr(options)
        if asked not in self._schemas:
            self._schemas[asked] = self._describe_schema(super().get_openapi_schema(**options))
        return self._schemas[asked]

    def _describe_schema(self, schema: OpenAPISchema) -> OpenAPISchema:
        for model in (SendRequest, ReceiptsIn, WebhookIn, SuppressionsIn, AddressesIn, LimitsIn, TemplateIn, FindIn):
            body = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schema["components"]["schemas"] |= body.pop("$defs", {}) | {model.__name__: body}
        for methods in schema["paths"].values():
            for operation in methods.values():
                for key in self._keys[operation["operationId"]]:
                    _name_scopes(operation, key)
                for status, response in operation["responses"].items():
                    if int(status) >= 400 and "application/json" in response.get("content", {}):
                        response["content"] = {problems.MIME: response["content"]["application/json"]}
        return schema


def _name_scopes(operation: dict[str, Any], key: Key) -> None:
    """Say which scopes permit an operation: as roles of OpenAPI 3.1, and in the description."""
    operation["security"] = [{Key.__name__: [scope]} for scope in key.scopes]
    needed = f"Needs a key with the scope {' or '.join(f'`{scope}`' for scope in key.scopes)}."
    operation["description"] = f"{operation.get('description', '')}\n\n{needed}".strip()


api = Api(
    title="mailhub",
    version="1",
    urls_namespace="api",
    description="Bulk mail through vendors with limits: never twice, never lost, never too fast.",
    servers=[{"url": "/"}],
    docs=Documentation(),
    openapi_extra={"info": {"license": {"name": "MIT", "identifier": "MIT"}}},
)
problems.install_handlers(api)
for part in (
    messages,
    receipts,
    templates,
    files,
    sessions,
    reports,
    suppressions,
    vendors,
    inbound,
    answers,
    webhooks,
    costs,
    days,
    finds,
    topics,
):  # paths are matched in this order, so the most frequent come first
    api.add_router("", part.router)
notifier.check = broker_check.check_broker
query_rules.document = lambda: api.get_openapi_schema(path_prefix="/api/v1/")
