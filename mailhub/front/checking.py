"""From a request's body to an order, or to the list of all that is wrong with it and where."""

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.utils import timezone

from campaigns.content import templates
from campaigns.content.cost import Budget, OverBudget
from campaigns.content.templates import Content, TemplateError
from campaigns.intake import BadInput, address_reader
from campaigns.intake.checking import faults
from campaigns.intake.storage import FARTHEST, check_moment
from mailhub.front.keys import Caller
from mailhub.front.problems import Problem, error, invalid
from mailhub.front.rate_limits import RenderBudget, over_budget
from mailhub.front.schemas import Recipient, SendRequest
from mailhub.front.send_orders import SendOrder
from mailhub.front.vendor_cache import VendorSnapshot, vendor_cache

DEEPEST = 4  # levels of lists and objects in a field
MOST_ERRORS = 50
SHORT = 20_000  # characters; longer templates are not remembered
Error = dict[str, str]


def check(asked: SendRequest, caller: Caller, key: str, fingerprint: bytes) -> SendOrder:
    """Raises Problem: validation with every pointer, forbidden, not-found."""
    desks = _desks(asked, caller)
    allowance = RenderBudget(caller.sponsor_id)
    content = _content(asked, desks[0].channel, allowance)
    errors = [*_texts(asked), *_times(asked)]
    recipients, more = _recipients(asked.recipients, desks[0].channel, content, allowance)
    if errors or more:
        raise invalid([*errors, *more][:MOST_ERRORS])
    references = [one.reference for one in asked.recipients]
    return SendOrder(
        caller=caller,
        desks=desks,
        idempotency_key=key,
        fingerprint=fingerprint,
        name=asked.name or f"API {key}"[:200],
        subject=asked.subject,
        body=asked.body,
        html=asked.html,
        recipients=recipients,
        references=references if any(references) else None,
        metadata=asked.metadata,
        send_at=asked.send_at if asked.send_at and asked.send_at > timezone.now() else None,
        deadline=asked.expires_at,
    )


def _desks(asked: SendRequest, caller: Caller) -> list[VendorSnapshot]:
    """The vendor by its name, or all of the channel. A test key knows sandboxes only, a channel is live or test."""
    if (asked.vendor is None) == (asked.channel is None):
        raise invalid([error("/vendor", "vendor", "give a vendor or a channel, one of them")])
    if asked.vendor is None:
        found = [desk for _, desk in sorted(vendor_cache.desks().items()) if desk.channel == asked.channel]
        found = [desk for desk in found if desk.sandbox == caller.test]
        if not found:
            kind = "sandbox vendor" if caller.test else "vendor"
            raise invalid([error("/channel", "channel", f"there is no {kind} of the channel {asked.channel}")])
        return found
    desk = vendor_cache.find(asked.vendor)
    if desk is None:
        raise invalid([error("/vendor", "vendor", f"there is no vendor {asked.vendor!r}")])
    if caller.test and not desk.sandbox:
        raise Problem("forbidden", f"A test key cannot use {desk.slug}: it delivers to people.")
    return [desk]


def _content(asked: SendRequest, channel: str, allowance: RenderBudget) -> Content:
    if channel == "email" and not asked.subject.strip():
        raise invalid([error("/subject", "subject", "an e-mail needs a subject")])
    short = len(asked.subject) + len(asked.body) <= SHORT
    known = _remembered(asked.subject, asked.body, asked.html) if short else []
    try:
        if not known:
            known.append(templates.compile(asked.subject, asked.body, asked.html, allowance))
        return known[0]
    except OverBudget as why:
        raise over_budget(why, "/body") from why
    except TemplateError as why:
        where = "/subject" if str(why).startswith("the subject") else "/body"
        raise invalid([error(where, "template", str(why))]) from why


@lru_cache(maxsize=256)
def _remembered(subject: str, body: str, html: bool) -> list[Content]:
    """Where what was compiled is put."""
    return []


def _texts(asked: SendRequest) -> Iterator[Error]:
    """What the database cannot hold."""
    for name in ("subject", "body", "name"):
        if "\0" in (getattr(asked, name) or ""):
            yield error(f"/{name}", "nul", "there is a NUL character in it")
    for key, value in asked.metadata.items():
        if "\0" in key or "\0" in value:
            yield error("/metadata", "nul", "there is a NUL character in it")


def _times(asked: SendRequest) -> Iterator[Error]:
    now = timezone.now()
    if asked.send_at and asked.send_at > now + FARTHEST:
        yield error("/send_at", "time", "it is more than ten years ahead")
    if asked.expires_at:
        yield from _expiry(asked.expires_at, asked.send_at, now)


def _expiry(expires_at: datetime, send_at: datetime | None, now: datetime) -> Iterator[Error]:
    try:
        check_moment(expires_at, "expires_at", now)
    except BadInput as why:
        yield error("/expires_at", "time", str(why))
    if send_at and expires_at <= send_at:
        yield error("/expires_at", "time", "it is not after send_at")


Pairs = list[tuple[str, dict[str, Any]]]


def _recipients(
    asked: list[Recipient], channel: str, content: Content, allowance: RenderBudget
) -> tuple[Pairs, list[Error]]:
    normal = address_reader(channel)
    pairs: Pairs = []
    errors: list[Error] = []
    seen: dict[tuple[str, str | None], int] = {}
    for number, one in enumerate(asked):
        try:
            address = normal(one.to)
        except ValueError as why:
            errors.append(error(f"/recipients/{number}/to", "address", str(why)))
            continue
        first = seen.setdefault((address, one.reference), number)
        if first != number:
            told = f"the same recipient as /recipients/{first}; two messages to one need a reference each"
            errors.append(error(f"/recipients/{number}/to", "duplicate", told))
        try:
            for name, code, told in _faults(address, one, content, allowance):
                errors.append(error(f"/recipients/{number}/{name}", code, told))
        except OverBudget as why:
            raise over_budget(why, f"/recipients/{number}") from why
        pairs.append((address, one.fields))
    return pairs, errors


def _faults(address: str, one: Recipient, content: Content, budget: Budget) -> Iterator[tuple[str, str, str]]:
    if one.reference and "\0" in one.reference:
        yield "reference", "nul", "there is a NUL character in it"
    if _too_deep(one.fields, DEEPEST):
        yield "fields", "depth", f"fields may be {DEEPEST} levels deep"
        return
    for told in faults(address, one.fields, content, budget):
        yield "fields", "fields", told


def _too_deep(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list) and (not levels or any(_too_deep(one, levels - 1) for one in value))
