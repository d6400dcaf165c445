"""Recipients of a request to send: normalised addresses, fields, duplicates, and each fault with its pointer."""

from collections.abc import Iterator

from django.core.exceptions import ValidationError

from campaigns.doors.front.problems import invalid_problem, make_error
from campaigns.doors.front.rate_limits import RenderBudget, budget_problem
from campaigns.doors.front.vendor_cache import vendor_cache
from campaigns.doors.shares import give_way
from campaigns.lists.api.schemas import Recipient, SendRequest
from campaigns.lists.intake import AddressReader, BadInput, Hours
from campaigns.lists.intake.checking import field_faults
from campaigns.lists.intake.hours import parse_hours
from campaigns.texts.phone_numbers import known_region
from campaigns.texts.templates import Budget, Content, OverBudget
from vendors.control_signs import IN_REFERENCES
from vendors.models import Vendor

DEEPEST = 4  # levels of lists and objects in a field


def address_reader(asked: SendRequest, channel: str, sponsor_id: int) -> AddressReader:
    """Return the reader for the recipients. Raises Problem for an unknown region."""
    if asked.region is None:
        return AddressReader(channel, vendor_cache.offered_to(sponsor_id).region, is_for_sending=True)
    if channel != Vendor.Channel.SMS:
        raise invalid_problem([make_error("/region", "region", "a region is for phone numbers, of the channel sms")])
    try:
        known_region(asked.region)
    except ValidationError as why:
        raise invalid_problem([make_error("/region", "region", why.messages[0])]) from why
    return AddressReader(channel, asked.region, is_for_sending=True)


def parse_request_hours(asked: SendRequest, channel: str) -> Hours | None:
    """Return the hours in which the request's letters go, or None; a test to oneself has none. Raises BadInput."""
    if asked.hours is None or asked.test_to is not None:
        return None
    given = asked.hours
    found = parse_hours(f"{given.start}-{given.end}", given.time_zone, given.of_each)
    found.check_fields(channel, {name for one in asked.recipients for name in one.fields})
    return found


def check_zones(asked: SendRequest, channel: str, content: Content) -> Content:
    """Return the content, which also checks the recipients' time zones if its hours depend on them."""
    try:
        within = parse_request_hours(asked, channel)
    except BadInput:
        return content  # wrong hours are reported separately
    return within.check_recipient_zones(channel, content) if within else content


def check_recipients(
    asked: list[Recipient], normal: AddressReader, content: Content, budget: RenderBudget
) -> tuple[dict[int, str], list[dict[str, str]]]:
    """Return the addresses of valid recipients by number, and the faults of the others."""
    good: dict[int, str] = {}
    errors: list[dict[str, str]] = []
    seen: dict[tuple[str, str | None], int] = {}
    for number, one in enumerate(asked):
        give_way()
        try:
            address = normal(one.to)
        except ValueError as why:
            errors.append(make_error(f"/recipients/{number}/to", "address", str(why)))
            continue
        try:
            found = [
                make_error(f"/recipients/{number}/{name}", code, detail)
                for name, code, detail in _faults_of_recipient(address, one, content, budget)
            ]
        except OverBudget as why:
            raise budget_problem(why, f"/recipients/{number}") from why
        key = normal.same(address), one.reference
        if key in seen:
            detail = f"the same recipient as /recipients/{seen[key]}; two messages to one need a reference each"
            found.insert(0, make_error(f"/recipients/{number}/to", "duplicate", detail))
        if found:
            errors.extend(found)
        else:
            seen[key] = number
            good[number] = address
    return good, errors


def one_error_each(errors: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return one error for each recipient."""
    first: dict[str, dict[str, str]] = {}
    for one in errors:
        first.setdefault(one["pointer"].split("/")[2], one)
    return list(first.values())


def _faults_of_recipient(
    address: str, one: Recipient, content: Content, budget: Budget
) -> Iterator[tuple[str, str, str]]:
    if one.reference and "\0" in one.reference:
        yield "reference", "nul", "there is a NUL character in it"
    elif one.reference and IN_REFERENCES.search(one.reference):
        yield "reference", "one-line", "it must be one line without control characters: leave out line breaks and tabs"
    if _is_too_deep(one.fields, DEEPEST):
        yield "fields", "depth", f"fields may be {DEEPEST} levels deep"
        return
    for fault in field_faults(address, one.fields, content, budget):
        yield "fields", "fields", fault


def _is_too_deep(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list) and (not levels or any(_is_too_deep(one, levels - 1) for one in value))
