"""Validates a request to send: returns a SendOrder, or raises a Problem with all errors and their pointers."""

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from django.utils import timezone

from campaigns.content import previews
from campaigns.doors.front.keys import Caller
from campaigns.doors.front.problems import Problem, invalid_problem, make_error
from campaigns.doors.front.rate_limits import RenderBudget, budget_problem
from campaigns.doors.front.vendor_cache import VendorSnapshot, vendor_cache
from campaigns.engine.ports import NotEntitled
from campaigns.engine.routes import entries
from campaigns.lists import estimates
from campaigns.lists.api import contents
from campaigns.lists.api import recipients as recipients_of
from campaigns.lists.api.print_previews import print_preview
from campaigns.lists.api.schemas import EstimateOut, SendRequest
from campaigns.lists.api.send_orders import SendOrder
from campaigns.lists.intake import AddressReader, BadInput, to_oneself
from campaigns.lists.intake.storage import FARTHEST, PauseRules, check_moment
from campaigns.lists.intake.uploads import Owner
from campaigns.models import Campaign, Sponsor
from campaigns.models.campaigns import needs_approval
from campaigns.senders import entitlements
from campaigns.suppression.links import given_values as given_to
from campaigns.suppression.links import links_of
from campaigns.texts import mjml, templates
from campaigns.texts.addresses import check_addresses
from campaigns.texts.headers import check_beside_body, header_templates
from campaigns.texts.signs import check_signs
from campaigns.texts.sizes import check_size
from campaigns.texts.templates import Budget, Content, OverBudget, TemplateError
from vendors.adapters.base import Letter
from vendors.mail_classes import MailClass, class_named
from vendors.models import Credential, Vendor
from vendors.said import Said

MOST_ERRORS = 50
SHORT = 20_000  # characters; longer templates are not cached
LATEST = timedelta(days=1)  # earlier times are mistakes, not slow requests
Error = dict[str, str]


def check_order(asked: SendRequest, caller: Caller, key: str, fingerprint: bytes) -> SendOrder:
    """Validate the request. Raises Problem: validation (up to MOST_ERRORS errors), forbidden, rate-limited."""
    vendors, budget = _vendors_of_request(asked, caller), RenderBudget(caller.sponsor_id)
    asked, version_id = contents.fill_from_template(asked, caller.sponsor_id, vendors[0].channel)
    if asked.mjml:
        asked = _convert_mjml(asked, budget)
    budget.foresee(*(one.value for one in asked.headers))
    beside = contents.read_beside(asked, Owner(caller.sponsor_id, caller.test))
    vendors, identity_id = _choose_identity(asked, caller, contents.vendors_carrying(asked, beside, vendors))
    topic_id = _topic_id_of(asked, caller)
    content, text = _compile_request(asked, vendors, budget, is_sent=bool(key))
    if beside.files or beside.headers:
        content = _check_beside(content, beside, budget)
    content = _check_composed(content, asked, beside, vendors)
    errors = [*_nul_faults(asked), *_time_faults(asked, vendors[0].channel)]
    normal = recipients_of.address_reader(asked, vendors[0].channel, caller.sponsor_id)
    checked = recipients_of.check_zones(asked, vendors[0].channel, content)
    good, more = recipients_of.check_recipients(asked.recipients, normal, checked, budget)
    if errors or (more and not (good and asked.skip_bad_recipients)):
        raise invalid_problem([*errors, *more][:MOST_ERRORS])
    references = [asked.recipients[number].reference for number in good]
    recipients = [(address, asked.recipients[number].fields) for number, address in good.items()]
    name, send_at = asked.name or f"API {key}"[:200], asked.send_at
    named_class = class_named(asked.mail_class)
    vendors = _vendors_allowing_class(named_class, 1 if asked.test_to is not None else len(recipients), vendors)
    shown: list[Letter] = []
    if asked.preview:
        shown = _preview_letters(asked, key, beside, content, vendors[0], recipients, budget)
    paper = print_preview(shown, beside.files, vendors[0], caller.sponsor_id) if asked.preview_pdf else None
    if asked.test_to is not None:
        recipients = _address_to_oneself(asked.test_to, recipients, normal, content, budget)
        beside = replace(beside, files=beside.files and beside.files.of(recipients))
        name, send_at, references = f"{to_oneself.NAME}{name}"[:200], None, []
    return SendOrder(
        caller=caller,
        vendors=vendors,
        idempotency_key=key,
        fingerprint=fingerprint,
        name=name,
        subject=asked.subject,
        body=asked.body,
        html=asked.html,
        text=text,
        beside=beside,
        recipients=recipients,
        left_out=recipients_of.one_error_each(more),
        preview=list(map(previews.letter_facts, shown)),
        printed=paper,
        cost=None if key else _dry_run_cost(asked, beside, content, vendors[0], recipients, budget),
        references=references if any(references) else None,
        metadata=asked.metadata,
        send_at=send_at if send_at and send_at > timezone.now() else None,
        deadline=asked.expires_at,
        hours=recipients_of.parse_request_hours(asked, vendors[0].channel),
        identity_id=identity_id,
        route_id=_route_id(asked, caller),
        template_version_id=version_id,
        topic_id=topic_id,
        transactional=asked.transactional,
        named_class=named_class,
        pauses=PauseRules(asked.first, asked.bounce_limit, asked.complaint_limit),
        needs_approval=_needs_approval(asked, caller, len(recipients)),
        to_oneself=asked.test_to is not None,
    )


def _check_composed(
    content: Content, asked: SendRequest, beside: contents.BesideBody, vendors: list[VendorSnapshot]
) -> Content:
    """Return the content after the checks for vendors' letters: addresses, sizes, and signs of fonts."""
    made = check_addresses(content, (vendor.address for vendor in vendors))
    files = beside.files.size_of if beside.files else None
    made = check_size(made, asked.html, files, (vendor.largest_mail for vendor in vendors))
    try:
        return check_signs(made, asked.body, asked.html, (vendor.signs for vendor in vendors))
    except TemplateError as why:
        raise invalid_problem([make_error("/body", "template", str(why))]) from why


def _vendors_allowing_class(named: MailClass | None, size: int, vendors: list[VendorSnapshot]) -> list[VendorSnapshot]:
    """Return the vendors over which a request of this size may have its class. Raises Problem if there is none."""
    if named != MailClass.URGENT:
        return vendors
    found, refused = list[VendorSnapshot](), ""
    for vendor in vendors:
        try:
            entitlements.decide_class(named, size, vendor.urgent, vendor.slug, transactional=False)
            found.append(vendor)
        except NotEntitled as why:
            refused = refused or str(why)
    if not found:
        raise Problem("forbidden", refused, errors=[make_error("/mail_class", "mail_class", refused)])
    return found


def _needs_approval(asked: SendRequest, caller: Caller, size: int) -> bool:
    """Return True if it needs approval. A test-send needs none."""
    above = vendor_cache.offered_to(caller.sponsor_id).approval_above
    return asked.test_to is None and needs_approval(above, size)


def _route_id(asked: SendRequest, caller: Caller) -> int | None:
    if asked.route is None or asked.test_to is not None:
        return None
    return vendor_cache.offered_to(caller.sponsor_id).routes[asked.route].id


def _topic_id_of(asked: SendRequest, caller: Caller) -> int | None:
    """Return the id of the named topic."""
    if not (asked.topic or asked.transactional):
        return None
    try:
        found = entitlements.choose_topic(
            Sponsor.objects.get(pk=caller.sponsor_id), asked.topic or "", asked.transactional
        )
    except NotEntitled as why:
        where = "/topic" if asked.topic else "/transactional"
        raise invalid_problem([make_error(where, "topic" if asked.topic else "transactional", str(why))]) from why
    return found.pk if found else None


def _convert_mjml(asked: SendRequest, budget: RenderBudget) -> SendRequest:
    """Return the request with HTML in place of its MJML."""
    try:
        return asked.model_copy(update={"body": mjml.mjml_to_html(asked.body, budget), "html": True})
    except OverBudget as why:
        raise budget_problem(why, "/body") from why
    except TemplateError as why:
        raise invalid_problem([make_error("/body", "template", str(why))]) from why


def _check_beside(content: Content, beside: contents.BesideBody, budget: RenderBudget) -> Content:
    shown = header_templates(beside.headers)
    try:
        budget.spend_budget(shown.steps if shown else 0)
    except OverBudget as why:
        raise budget_problem(why, "/headers") from why
    return check_beside_body(content, shown, beside.files.faults if beside.files else None)


Pairs = list[tuple[str, dict[str, Any]]]


def _preview_letters(
    asked: SendRequest,
    key: str,
    beside: contents.BesideBody,
    content: Content,
    vendor: VendorSnapshot,
    recipients: Pairs,
    budget: Budget,
) -> list[Letter]:
    if key:
        raise invalid_problem([make_error("/preview", "preview", "only a dry run shows letters: add ?dry_run=true")])
    campaign = Campaign(html=asked.html, headers=list(beside.headers), transactional=asked.transactional)
    links = links_of(campaign, vendor.channel, vendor.carries, None)
    try:
        return previews.render_first_letters(campaign, content, links, recipients, asked.preview, budget)
    except OverBudget as why:
        raise budget_problem(why, "/preview") from why


def _dry_run_cost(
    asked: SendRequest,
    beside: contents.BesideBody,
    content: Content,
    vendor: VendorSnapshot,
    recipients: Pairs,
    budget: Budget,
) -> dict[str, Any] | None:
    """Return the cost for a dry run; None: no credential, bad settings, or no steps left."""
    login = Credential.objects.select_related("vendor").filter(pk=vendor.credential_id or 0).first()
    if login is None:
        return None
    campaign = Campaign(html=asked.html, headers=list(beside.headers), transactional=asked.transactional)
    campaign.has_files = beside.files is not None
    links = links_of(campaign, vendor.channel, vendor.carries, None)
    try:
        found = estimates.estimate_recipients(login, campaign, content, links, recipients, len(recipients), budget)
    except OverBudget:
        return None
    facts = found.estimate_facts() if found else {}
    return {name: facts[name] for name in EstimateOut.model_fields} if found else None


def _address_to_oneself(
    address: str, recipients: Pairs, normal: AddressReader, content: Content, budget: Budget
) -> Pairs:
    try:
        return to_oneself.address_first_letter(address, recipients, normal, content, budget)
    except BadInput as why:
        raise invalid_problem([make_error("/test_to", "address", str(why))]) from why
    except OverBudget as why:
        raise budget_problem(why, "/test_to") from why


def _vendors_of_request(asked: SendRequest, caller: Caller) -> list[VendorSnapshot]:
    """Return the vendor with this slug, or all vendors of the channel or route that the sponsor may use.

    Sandboxes and real vendors are never mixed.
    """
    if sum(one is not None for one in (asked.vendor, asked.channel, asked.route)) != 1:
        raise invalid_problem([make_error("/vendor", "vendor", "give a vendor, a channel or a route, one of them")])
    if asked.route is not None:
        offered = vendor_cache.offered_to(caller.sponsor_id).routes.get(asked.route)
        usable = [one for one in offered.vendors if one[0].sandbox or not caller.test] if offered else []
        by = entries.share_out(usable, random.random())
        if not by:
            raise invalid_problem([make_error("/route", "route", f"there is no route {asked.route!r} for you")])
        return by
    if asked.vendor is None:
        mine = vendor_cache.offered_to(caller.sponsor_id).vendors.values()
        found = [vendor for vendor in mine if vendor.channel == asked.channel]
        found = [vendor for vendor in found if vendor.sandbox == caller.test]
        if not found:
            kind = "sandbox vendor" if caller.test else "vendor"
            raise invalid_problem(
                [make_error("/channel", "channel", f"there is no {kind} of the channel {asked.channel} for you")]
            )
        return found
    vendor = vendor_cache.find_vendor(asked.vendor, caller.sponsor_id)
    if vendor is None:
        raise invalid_problem(
            [make_error("/vendor", "vendor", f"there is no vendor {asked.vendor!r} for you; /services lists yours")]
        )
    if caller.test and not vendor.sandbox:
        raise Problem("forbidden", f"A test key cannot use {vendor.slug}: it delivers to real recipients.")
    return [vendor]


def _choose_identity(
    asked: SendRequest, caller: Caller, vendors: list[VendorSnapshot]
) -> tuple[list[VendorSnapshot], int | None]:
    """Return the vendors that can use the selected identity, and its id."""
    channel = vendors[0].channel
    if channel == Vendor.Channel.PRINT:
        if asked.identity:
            raise invalid_problem([make_error("/identity", "identity", "a sender identity is for e-mail or SMS")])
        return vendors, None
    offered = vendor_cache.offered_to(caller.sponsor_id).identities
    mine = {name: one for name, one in offered.items() if one.channel == channel}
    found = entitlements.pick_identity(mine, asked.identity or "", vendors[0].slug if len(vendors) == 1 else "")
    if asked.identity and found is None:
        detail = f"there is no sender identity {asked.identity!r} for {channel}; /identities lists yours"
        raise invalid_problem([make_error("/identity", "identity", detail)])
    usable = vendors if found else [vendor for vendor in vendors if not vendor.needs_identity]
    if not usable:
        detail = f"{vendors[0].slug} needs one, and none of yours is the default"
        raise invalid_problem([make_error("/identity", "identity", detail)])
    return usable, found.pk if found else None


def _compile_request(
    asked: SendRequest, vendors: list[VendorSnapshot], budget: RenderBudget, is_sent: bool
) -> tuple[Content, str]:
    """Return the compiled templates and the text beside HTML. Those that are sent are cached for later requests."""
    if vendors[0].channel == "email" and not asked.subject.strip():
        raise invalid_problem([make_error("/subject", "subject", Said("an e-mail needs a subject"))])
    short = len(asked.subject) + len(asked.body) + len(asked.text) <= SHORT
    carried = contents.carried_by_all(vendors) if asked.html else frozenset()
    ours = given_to(asked.transactional)
    key = (asked.subject, asked.body, asked.html, asked.text, "text" in carried, bool(ours))
    known = _remembered_contents(*key) if short else []
    try:
        if known:
            return known[0]
        budget.foresee(asked.subject, asked.body, asked.text)
        text = contents.text_of(asked, carried, budget) if asked.html or asked.text else ""
        kept = short and is_sent
        made = templates.compile_templates(asked.subject, asked.body, asked.html, budget, text, ours, is_kept=kept)
        if not made.is_deferred:
            known.append((made, text))
        return made, text
    except OverBudget as why:
        raise budget_problem(why, "/body") from why
    except TemplateError as why:
        begins = str(why).startswith
        where = "/subject" if begins("the subject") else "/text" if begins(("the text", "a text")) else "/body"
        raise invalid_problem([make_error(where, "template", str(why))]) from why


@lru_cache(maxsize=256)
def _remembered_contents(
    subject: str, body: str, html: bool, text: str, made: bool, linked: bool
) -> list[tuple[Content, str]]:
    """Return a cache entry, empty until the compiled templates are appended. `made`: a missing text is generated.

    `linked`: there is a link to unsubscribe.
    """
    return []


def _nul_faults(asked: SendRequest) -> Iterator[Error]:
    """Yield errors for NUL characters, which PostgreSQL cannot store."""
    for name in ("subject", "body", "text", "name"):
        if "\0" in (getattr(asked, name) or ""):
            yield make_error(f"/{name}", "nul", "there is a NUL character in it")
    for key, value in asked.metadata.items():
        if "\0" in key or "\0" in value:
            yield make_error("/metadata", "nul", "there is a NUL character in it")


def _time_faults(asked: SendRequest, channel: str) -> Iterator[Error]:
    now = timezone.now()
    try:
        recipients_of.parse_request_hours(asked, channel)
    except BadInput as why:
        yield make_error("/hours", "time", str(why))
    if asked.send_at and asked.send_at > now + FARTHEST:
        yield make_error("/send_at", "time", "it is more than ten years ahead")
    if asked.send_at and asked.send_at < now - LATEST:
        yield make_error("/send_at", "time", "it is more than a day past; leave it out to send now")
    if asked.expires_at:
        yield from _expiry_faults(asked.expires_at, asked.send_at, now)


def _expiry_faults(expires_at: datetime, send_at: datetime | None, now: datetime) -> Iterator[Error]:
    try:
        check_moment(expires_at, "expires_at", now)
    except BadInput as why:
        yield make_error("/expires_at", "time", str(why))
    if send_at and expires_at <= send_at:
        yield make_error("/expires_at", "time", "it is not after send_at")
