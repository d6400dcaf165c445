"""Decisions about suppressions, from a command, the admin or the API; each one is recorded.

The admin's log records an Actor's decision with an entry for each suppression, or with one for many.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from campaigns.engine.suppressed.digests import digest_addresses, digest_key
from campaigns.models import Suppression
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from campaigns.texts.phone_numbers import parse_e164
from vendors import history
from vendors.history import Actor
from vendors.models import Vendor
from vendors.said import Said, gettext_noop

MOST_REGIONS = 300  # more than there are
EACH = 100  # suppressions; above that number they share one entry
AT_ONCE = 5_000


def held_suppressions(now: datetime | None = None) -> "QuerySet[Suppression]":
    """Select the suppressions in force now."""
    return Suppression.objects.filter(Q(until=None) | Q(until__gt=now or timezone.now()))


def add_and_record(sponsor_id: int | None, channel: str, new: Iterable[NewSuppression], by: Actor) -> int:
    """Add suppressions with lists.add_suppressions, and record their number."""
    number = lists.add_suppressions(sponsor_id, channel, new)
    if number:
        for_all = gettext_noop("%(count)s of %(channel)s added for all sponsors")
        for_one = gettext_noop("%(count)s of %(channel)s added for sponsor %(sponsor)s")
        form = for_all if sponsor_id is None else for_one
        _record_ids(by, [0], Said(form, count=number, channel=channel, sponsor=str(sponsor_id)))
    return number


def lift_and_record(ids: Sequence[int], by: Actor, reason: str = "") -> int:
    """Lift suppressions with lists.lift_suppressions, and record it."""
    return _change_each_slice(lists.lift_suppressions, ids, LIFTED, by, reason)


def erase_and_record(ids: Sequence[int], by: Actor, reason: str = "") -> int:
    """Erase addresses with lists.erase_addresses, and record it without naming an address."""
    return _change_each_slice(lists.erase_addresses, ids, ERASED, by, reason)


LIFTED = (gettext_noop("lifted"), gettext_noop("%(count)s lifted"))
ERASED = (gettext_noop("address erased"), gettext_noop("%(count)s address erased"))


def _change_each_slice(change: Any, ids: Sequence[int], what: tuple[str, str], by: Actor, reason: str) -> int:
    number = 0
    for some in _id_slices(ids):
        with transaction.atomic():
            number += change(some)
            if len(ids) <= EACH:
                _record_ids(by, some, Said(what[0]), reason)
            else:
                _record_ids(by, [0], Said(what[1], count=len(some)), reason)
    return number


def _id_slices(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    return (ids[first : first + AT_ONCE] for first in range(0, len(ids), AT_ONCE))


def _record_ids(by: Actor, ids: Sequence[int], what: str, reason: str = "") -> None:
    history.record_changes(by, Suppression, [(pk, what) for pk in ids], reason)


def suppressions_of_text(rows: "QuerySet[Suppression]", text: str, regions: Iterable[str]) -> "QuerySet[Suppression]":
    """Select the rows with exactly this address, found by its digest, also after its erasure.

    A match of parts would reveal an address letter by letter. regions: whose forms of a phone number are recognised.
    """
    secret = digest_key()
    if secret is None:
        return rows.none()
    numbers = set()
    for region in {"", *islice(regions, MOST_REGIONS)}:
        with suppress(ValueError):
            numbers.add(parse_e164(text, region))
    wanted = [digest for channel in Vendor.Channel.values for digest in digest_addresses(secret, channel, [text])]
    wanted += digest_addresses(secret, Vendor.Channel.SMS, numbers)
    return rows.filter(digest__in=wanted)


def ids_from_source(sponsor_id: int | None, channel: str, source: str) -> "QuerySet[Suppression, int]":
    """Return the ids of suppressions from this source; for a campaign, with any reason for its refusals."""
    named = Q(source=source) | Q(source__startswith=f"{source}, ")
    found = Suppression.objects.filter(named, sponsor=sponsor_id, channel=channel)
    return found.order_by("pk").values_list("pk", flat=True)


def ids_of_file(sponsor_id: int | None, channel: str, addresses: Iterable[NewSuppression]) -> list[int]:
    """Return the ids of the suppressions of a file's addresses, read in slices."""
    found: list[int] = []
    rest: list[str] = []
    for one in addresses:
        rest.append(one.address)
        if len(rest) == AT_ONCE:
            found += lists.ids_of_addresses(channel, rest, sponsor_id)
            rest = []
    return found + lists.ids_of_addresses(channel, rest, sponsor_id)
