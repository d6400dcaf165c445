"""Adds, lifts and erases suppressions, thousands in a statement; every sender's next claim sees each change.

Changes are stored one at a time, in the order of `position`. The last statement of a change writes its position into
the vendors of the channel, whose rows each claim locks. So a claim either commits before the change or sees it.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from django.db import connection, transaction

from campaigns.engine.suppressed.digests import digest_addresses, digest_key, made_key
from campaigns.models import Suppression
from vendors import locks
from vendors.said import to_data

AT_ONCE = 5_000  # suppressions in a transaction
MOST_TEXT = 200  # characters in a source

ONE_CHANGE = "SELECT pg_advisory_xact_lock(hashtext('campaigns_suppression'))"
# Revive a suppression that has ended, or extend one that holds; its first source stays.
ADD = """
INSERT INTO campaigns_suppression AS was (sponsor_id, channel, digest, address, reason, source, source_said,
    since, until, topic_id, position)
SELECT %(sponsor)s, %(channel)s, a.digest, nullif(a.address, ''), a.reason, a.source,
    a.said::jsonb, coalesce(a.since, clock_timestamp()), a.until, a.topic, nextval('campaigns_suppression_position')
FROM unnest(%(digests)s::bigint[], %(addresses)s::text[], %(reasons)s::text[], %(sources)s::text[],
    %(saids)s::text[], %(sinces)s::timestamptz[], %(untils)s::timestamptz[], %(topics)s::bigint[])
    AS a(digest, address, reason, source, said, since, until, topic)
WHERE coalesce(a.until > clock_timestamp(), true)
ON CONFLICT (digest, (coalesce(sponsor_id, 0)), reason, (coalesce(topic_id, 0))) DO UPDATE SET until = excluded.until,
    position = excluded.position,
    since = CASE WHEN was.until <= clock_timestamp() THEN excluded.since ELSE was.since END,
    source = CASE WHEN was.until <= clock_timestamp() THEN excluded.source ELSE was.source END,
    source_said = CASE WHEN was.until <= clock_timestamp() THEN excluded.source_said ELSE was.source_said END,
    address = coalesce(excluded.address, was.address)
WHERE CASE WHEN was.until <= clock_timestamp() THEN %(again)s OR excluded.since > was.until
    ELSE was.until < coalesce(excluded.until, 'infinity') END
RETURNING position
"""
LIFT = """
UPDATE campaigns_suppression SET until = clock_timestamp(), position = nextval('campaigns_suppression_position')
WHERE id = ANY(%(ids)s) AND coalesce(until > clock_timestamp(), true) RETURNING position
"""
TELL_VENDORS = """
UPDATE vendors_vendor SET suppressions = %(position)s WHERE id IN (
    SELECT id FROM vendors_vendor WHERE channel = ANY(%(channels)s) ORDER BY id FOR NO KEY UPDATE)
"""
KNOWN_BY_NEW = """UPDATE vendors_vendor SET suppressions = (
    SELECT coalesce(max(position), 0) FROM campaigns_suppression) WHERE id = %s RETURNING suppressions"""


@dataclass(frozen=True, slots=True)
class NewSuppression:
    """A normalised address and the reason to suppress it. since: None means now. until: None means for good.

    topic_id: one of the sponsor's topics, if somebody unsubscribed from it alone.
    """

    address: str
    reason: str
    source: str = ""
    since: datetime | None = None
    until: datetime | None = None
    topic_id: int | None = None


def add_suppressions(sponsor_id: int | None, channel: str, new: Iterable[NewSuppression], *, again: bool = True) -> int:
    """Suppress addresses for a sponsor (None: for all); return the number of new or extended suppressions.

    again: revive a suppression that has ended, even if the new one's `since` is before that end. Idempotent, because
    bounces and complaints may be repeated. Uses transactions of 5,000, and constant memory.
    """
    secret = made_key()
    return sum(_add_slice(secret, sponsor_id, channel, some, again) for some in _slices_of_new(new))


def _slices_of_new(new: Iterable[NewSuppression]) -> Iterator[list[NewSuppression]]:
    rest = iter(new)
    while some := list(islice(rest, AT_ONCE)):
        yield some


def _add_slice(secret: bytes, sponsor_id: int | None, channel: str, some: Sequence[NewSuppression], again: bool) -> int:
    found = digest_addresses(secret, channel, [one.address for one in some])
    return _store_suppressions(sponsor_id, channel, zip(found, some, strict=True), again)


def add_found(sponsor_id: int, channel: str, digest: int, new: NewSuppression) -> bool:
    """Suppress the recipient with this digest, whose address may be unknown (empty); return whether that is new."""
    return _store_suppressions(sponsor_id, channel, [(digest, new)], again=True) == 1


def _store_suppressions(
    sponsor_id: int | None, channel: str, of: Iterable[tuple[int, NewSuppression]], again: bool
) -> int:
    rows = {(digest, one.reason, one.topic_id): one for digest, one in of}  # of equals the last one wins
    params = {
        "sponsor": sponsor_id,
        "channel": channel,
        "again": again,
        "digests": [digest for digest, *_ in rows],
        "addresses": [one.address for one in rows.values()],
        "reasons": [one.reason for one in rows.values()],
        "sources": [one.source[:MOST_TEXT] for one in rows.values()],
        "saids": [_source_as_json(one.source) for one in rows.values()],
        "sinces": [one.since for one in rows.values()],
        "untils": [one.until for one in rows.values()],
        "topics": [one.topic_id for one in rows.values()],
    }
    return _change_and_tell(ADD, params, [channel])


def _source_as_json(text: str) -> str | None:
    data = to_data(text)
    return None if data is None else json.dumps(data)


@transaction.atomic
def _change_and_tell(statement: str, params: dict[str, Any], channels: list[str]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(ONE_CHANGE)
        cursor.execute(statement, params)
        positions = [position for (position,) in cursor.fetchall()]
        if positions:
            cursor.execute(locks.VENDORS_ALONE, {"channels": channels})
            cursor.execute(TELL_VENDORS, {"position": max(positions), "channels": channels})
    return len(positions)


def vendor_made(sender: Any, instance: Any, created: bool = False, raw: bool = False, **_: Any) -> None:
    """Give a new vendor the position of its channel's last suppression, so that its claims check for older ones."""
    if created and not raw:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(ONE_CHANGE)
            cursor.execute(KNOWN_BY_NEW, [instance.pk])
            (instance.suppressions,) = cursor.fetchone()


def lift_suppressions(ids: Iterable[int]) -> int:
    """End these suppressions; return how many held. Messages they ended are not called until a retry."""
    rows = dict(Suppression.objects.filter(pk__in=list(ids)).values_list("pk", "channel"))
    return _change_and_tell(LIFT, {"ids": list(rows)}, sorted(set(rows.values())))


def erase_addresses(ids: Iterable[int]) -> int:
    """Delete the addresses of these suppressions, which hold as before; return how many had one."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(ONE_CHANGE)  # like additions, which lock the same rows in another order
        return Suppression.objects.filter(pk__in=list(ids), address__isnull=False).update(address=None)


def ids_of_addresses(channel: str, addresses: Iterable[str], sponsor_id: int | None) -> list[int]:
    """Return the ids of these addresses' suppressions for a sponsor (None: for all), including ended ones."""
    secret = digest_key()
    if secret is None:
        return []
    mine = Suppression.objects.filter(sponsor=sponsor_id, digest__in=digest_addresses(secret, channel, addresses))
    return list(mine.order_by("pk").values_list("pk", flat=True))
