"""The API's webhooks: clients register URLs for their events, inspect the calls, and have events posted again."""

import json
import re
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Router, Status
from ninja.params.functions import Query
from ninja.responses import NinjaJSONEncoder
from pydantic import BaseModel, Field

from campaigns import tasks
from campaigns.doors import public_ids
from campaigns.doors.front import request_bodies
from campaigns.doors.front.cursors import page_of
from campaigns.doors.front.keys import Caller, Key
from campaigns.doors.front.problems import Problem, invalid_problem, make_error
from campaigns.doors.front.request_bodies import Created
from campaigns.doors.front.schemas import PageLinks, ProblemOut, Strict
from campaigns.integrations.webhooks import events
from campaigns.models import Webhook, WebhookCall
from campaigns.models.api_clients import Event
from vendors.history import Actor
from vendors.webhook_http import Forbidden

router = Router(tags=["webhooks"])
REPEAT = "A repeat with the same key and body creates nothing and gets the first answer again"
NOT_YOURS = "You have no such webhook."
HERE = "/api/v1/webhooks"
EVENT = re.compile(r"evt_([0-9a-f]{32})")
PROBLEMS = dict.fromkeys((401, 403, 404, 422, 429, 503), ProblemOut)


class WebhookIn(Strict):
    """Where a client wants its events."""

    url: str = Field(min_length=1, max_length=500, description="https, in the public network")
    events: list[Annotated[Event, Field(strict=False)]] = Field(
        default=[], max_length=20, description="All, if none is named"
    )


class WebhookOut(BaseModel):
    id: str
    url: str
    events: list[str]
    mode: Literal["live", "test"] = Field(description="It gets the events of sessions of such keys")
    enabled: bool
    disabled_reason: str | None
    suspended_until: datetime | None = Field(description="Its receiver does not answer in time; tried again then")
    created_at: datetime


class WebhookSecretOut(WebhookOut):
    secret: str = Field(description="For the signatures (Standard Webhooks); nobody can see it again")


class WebhooksOut(BaseModel):
    data: list[WebhookOut]


class CallOut(BaseModel):
    id: str = Field(description="The event's, which the receiver sees as webhook-id")
    type: str
    tries: int
    next_at: datetime | None = Field(description="Of the next try")
    taken_at: datetime | None
    http_status: int | None = Field(description="Of the last try")
    told: str | None = Field(description="The result of the last try, as text")
    created_at: datetime


class CallsOut(BaseModel):
    data: list[CallOut]
    links: PageLinks


@router.get("/webhooks", auth=Key("ops"), response={200: WebhooksOut, **PROBLEMS}, summary="All webhooks")
def list_webhooks(request: HttpRequest) -> dict[str, Any]:
    """Without their secrets."""
    return {"data": [_webhook_facts(hook) for hook in _webhooks_of_caller(request.auth)]}  # type: ignore[attr-defined]


@router.post(
    "/webhooks",
    auth=Key("ops"),
    response={201: WebhookSecretOut, 400: ProblemOut, 409: ProblemOut, 413: ProblemOut, **PROBLEMS},
    summary="Have events posted to an address",
    openapi_extra={
        "parameters": [request_bodies.key_parameter(REPEAT)],
        "requestBody": request_bodies.describe_body(WebhookIn),
    },
)
def create_webhook(request: HttpRequest) -> HttpResponse:
    """Its secret is shown once, and in the answer to a repeat with the same Idempotency-Key."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    asked, parsed = request_bodies.read_body(request, WebhookIn)
    key = request_bodies.idempotency_key(request)
    if not key:
        return _create_webhook(caller, asked).created_response()
    return request_bodies.answer_once(
        caller, "create webhook", key, request_bodies.body_fingerprint(parsed), lambda: _create_webhook(caller, asked)
    )


def _create_webhook(caller: Caller, asked: WebhookIn) -> Created:
    try:
        hook, secret = events.add_program_webhook(
            caller.sponsor_id, asked.url, list(dict.fromkeys(asked.events)), caller.test, Actor(caller.prefix)
        )
    except Forbidden as why:
        raise invalid_problem([make_error("/url", "url", str(why))]) from why
    except events.TooMany as why:
        raise Problem("state-conflict", str(why)) from why
    created = WebhookSecretOut.model_validate(_webhook_facts(hook) | {"secret": secret})
    return Created(
        f"{HERE}/{public_ids.id_of_number('whk', hook.pk)}", json.dumps(created.model_dump(), cls=NinjaJSONEncoder)
    )


@router.get("/webhooks/{webhook_id}", auth=Key("ops"), response={200: WebhookOut, **PROBLEMS}, summary="One webhook")
def get_webhook(request: HttpRequest, webhook_id: str) -> dict[str, Any]:
    """Without its secret."""
    return _webhook_facts(_find_webhook(webhook_id, request.auth))  # type: ignore[attr-defined]


@router.delete("/webhooks/{webhook_id}", auth=Key("ops"), response={204: None, **PROBLEMS}, summary="Remove a webhook")
def delete_webhook(request: HttpRequest, webhook_id: str) -> Status[None]:
    """Its calls are deleted, too; nothing is posted any more."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    events.remove_webhook(_find_webhook(webhook_id, caller).pk, Actor(caller.prefix))
    return Status(204, None)


@router.post(
    "/webhooks/{webhook_id}/rotate",
    auth=Key("ops"),
    response={200: WebhookSecretOut, **PROBLEMS},
    summary="A new secret for a webhook",
)
def rotate_secret(request: HttpRequest, webhook_id: str) -> dict[str, Any]:
    """Shown once. For a day each event is signed with the old and with the new one."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    hook = _find_webhook(webhook_id, caller)
    try:
        return _webhook_facts(hook) | {"secret": events.rotate_secret(hook.pk, Actor(caller.prefix))}
    except Webhook.DoesNotExist:
        raise Problem("not-found", NOT_YOURS) from None  # deleted meanwhile


@router.get(
    "/webhooks/{webhook_id}/calls",
    auth=Key("ops"),
    response={200: CallsOut, **PROBLEMS},
    summary="The calls of a webhook, page by page",
)
def list_calls(
    request: HttpRequest,
    webhook_id: str,
    limit: int = Query(100, ge=1, le=1000),
    cursor: str = Query(
        "", pattern=rf"^([0-9]{{1,18}}|cal_{public_ids.PATTERN})?$", description="From the link to the next page"
    ),
) -> dict[str, Any]:
    """The latest first."""
    hook = _find_webhook(webhook_id, request.auth)  # type: ignore[attr-defined]
    rows = WebhookCall.objects.filter(webhook=hook).order_by("-pk")
    named = f"cal_{cursor}" if cursor.isdecimal() else cursor  # as earlier versions wrote it
    here = f"{HERE}/{public_ids.id_of_number('whk', hook.pk)}/calls?limit={limit}"
    return page_of(rows, "cal", here, limit, named, _call_facts)


@router.post(
    "/webhooks/{webhook_id}/calls/{event_id}/redeliver",
    auth=Key("ops"),
    response={202: CallOut, 409: ProblemOut, **PROBLEMS},
    summary="Post an event once more",
)
def redeliver(request: HttpRequest, webhook_id: str, event_id: str) -> Status[dict[str, Any]]:
    """The same event, with ten tries of its own."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    hook = _find_webhook(webhook_id, caller)
    found = EVENT.fullmatch(event_id)
    call = WebhookCall.objects.filter(webhook=hook, event=UUID(found[1])).first() if found else None
    if call is None:
        raise Problem("not-found", "This webhook has no such event.")
    if not events.repeat_call(call.pk, Actor(caller.prefix)):
        raise Problem("state-conflict", f"The webhook is switched off: {hook.disabled_reason}")
    tasks.notify_webhooks()
    return Status(202, _call_facts(WebhookCall.objects.filter(pk=call.pk).first() or call))


def _webhooks_of_caller(caller: Caller) -> list[Webhook]:
    return list(Webhook.objects.filter(sponsor=caller.sponsor_id, test=caller.test))


def _find_webhook(name: str, caller: Caller) -> Webhook:
    """Return the webhook. Raises the same Problem whether it does not exist or belongs to another sponsor."""
    number = public_ids.number_of_id("whk", name)
    mine = Webhook.objects.filter(sponsor=caller.sponsor_id, test=caller.test)
    hook = mine.filter(pk=number).first() if number is not None else None
    if hook is None:
        raise Problem("not-found", NOT_YOURS)
    return hook


def _webhook_facts(hook: Webhook) -> dict[str, Any]:
    return {
        "id": public_ids.id_of_number("whk", hook.pk),
        "url": hook.url,
        "events": hook.events,
        "mode": "test" if hook.test else "live",
        "enabled": hook.enabled,
        "disabled_reason": hook.disabled_reason or None,
        "suspended_until": hook.suspended_until,
        "created_at": hook.created_at,
    }


def _call_facts(row: WebhookCall) -> dict[str, Any]:
    names = ("tries", "next_at", "taken_at", "http_status", "created_at")
    facts = {name: getattr(row, name) for name in names}
    return facts | {"id": f"evt_{row.event.hex}", "type": row.kind, "told": row.result or None}
