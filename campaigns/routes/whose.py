"""By which credential a message goes, and what of a campaign went by another one than it began with.

It is its campaign's credential, or, where the campaign has a route, its job's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Sum

from campaigns.models import RouteMove
from vendors import destinations

# Of a message m and its campaign c, in SQL. What is not cut yet is its parent's.
CREDENTIAL = """(CASE WHEN NOT c.routed THEN c.credential_id ELSE (
    SELECT o.credential_id FROM campaigns_job o WHERE o.campaign_id = c.id
        AND m.id >= o.first_message AND m.id < o.first_message + o.size
    ORDER BY o.parent_id IS NULL LIMIT 1
) END)"""
# After a takeover of the store the rows may not know of a move: no vendor's look-up proves anything then.
LOST_MOVE = "(c.routed AND m.error_sub_type = 'may have been called before the store was taken over')"
# Where and as whom a message in doubt was called is not where its credential l of vendor v calls now: what is asked
# there proves nothing of it.
ELSEWHERE = f"(m.in_doubt_at IS NOT NULL AND coalesce(m.destination, 0) <> {destinations.NUMBER})"
IS_ELSEWHERE = f"""(m.in_doubt_at IS NOT NULL AND coalesce(m.destination, 0) <> (
    SELECT {destinations.NUMBER} FROM vendors_credential l JOIN vendors_vendor v ON v.id = l.vendor_id
    WHERE l.id = {CREDENTIAL}))"""
VENDORS = f"""
SELECT m.id, v.id, v.slug FROM campaigns_message m JOIN campaigns_campaign c ON c.id = m.campaign_id
JOIN vendors_credential l ON l.id = {CREDENTIAL} JOIN vendors_vendor v ON v.id = l.vendor_id
WHERE m.id = ANY(%(messages)s)
"""


CALLED_HERE = f"""
SELECT count(*) FROM campaigns_message m JOIN campaigns_campaign c ON c.id = m.campaign_id
JOIN vendors_credential l ON l.id = {CREDENTIAL} JOIN vendors_vendor v ON v.id = l.vendor_id
WHERE m.in_doubt_at IS NOT NULL AND v.id = %(vendor)s AND l.id = coalesce(%(credential)s, l.id) AND NOT {ELSEWHERE}
"""
FOUND_ELSEWHERE = f"""
SELECT m.id FROM campaigns_message m JOIN campaigns_campaign c ON c.id = m.campaign_id
WHERE m.id = ANY(%(messages)s) AND {IS_ELSEWHERE}
"""


def count_called_here(sender: Any, vendor: int, credential: int | None, **_: Any) -> int:
    """Count the doubts that only a person could settle once the vendor, or this credential, is called elsewhere.

    A receiver of vendors.destinations.open_doubts.
    """
    with connection.cursor() as cursor:
        cursor.execute(CALLED_HERE, {"vendor": vendor, "credential": credential})
        return int(cursor.fetchone()[0])


def called_elsewhere(message_ids: Iterable[int]) -> set[int]:
    """Return those of the messages that are in doubt and were called elsewhere than their credential calls now."""
    with connection.cursor() as cursor:
        cursor.execute(FOUND_ELSEWHERE, {"messages": list(message_ids)})
        return {message for (message,) in cursor.fetchall()}


def vendors(message_ids: list[int]) -> dict[int, tuple[int, str]]:
    """{message: (id, slug) of the vendor by which it goes}."""
    with connection.cursor() as cursor:
        cursor.execute(VENDORS, {"messages": message_ids})
        rows: Any = cursor.fetchall()
    return {message: (vendor, slug) for message, vendor, slug in rows}


# Whether a credential v may be one of a ReportingAccount's.
OF_ACCOUNT = "v.vendor_id = %(vendor)s AND (%(credentials)s::bigint[] = '{}' OR v.id = ANY(%(credentials)s::bigint[]))"

# Whether its reports may be about m: it has it; or a move says that it had it or got it; or, where the rows may have
# lost a move, it is one of the route's.
REPORTS = f"""(EXISTS (SELECT FROM vendors_credential v WHERE v.id = {CREDENTIAL} AND {OF_ACCOUNT})
    OR c.routed AND (EXISTS (
        SELECT FROM campaigns_routemove w JOIN vendors_credential v ON v.id IN (w.came_from_id, w.went_to_id)
        WHERE w.campaign_id = c.id AND m.id >= w.first_message AND m.id < w.first_message + w.size AND {OF_ACCOUNT}
    ) OR {LOST_MOVE} AND EXISTS (
        SELECT FROM campaigns_routeentry e JOIN vendors_credential v ON v.id = e.credential_id
        WHERE e.route_id = c.route_id AND {OF_ACCOUNT})))"""


@dataclass(frozen=True, slots=True)
class ReportingAccount:
    """Who reports: a vendor, or of its credentials some that are one account."""

    vendor_id: int
    credentials: tuple[int, ...] = ()

    @property
    def params(self) -> dict[str, Any]:
        return {"vendor": self.vendor_id, "credentials": sorted(self.credentials)}


MOST = 100  # of the newest


@dataclass(frozen=True, slots=True)
class MoveSum:
    """Messages that went at once from one credential to another."""

    at: datetime
    came_from: str
    went_to: str
    messages: int
    reason: str

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S}: {self.messages:,} from {self.came_from} to {self.went_to}: {self.reason}"


def moves(campaign_id: int) -> list[MoveSum]:
    """The moves of a campaign, the newest first."""
    pairs = ("came_from__vendor__slug", "came_from__name", "went_to__vendor__slug", "went_to__name")
    rows = RouteMove.objects.filter(campaign=campaign_id).order_by("-at", *pairs)
    sums = rows.values_list("at", *pairs, "reason").annotate(all=Sum("messages"))[:MOST]
    return [
        MoveSum(at, f"{source}/{name}", f"{to}/{its}", messages, reason)
        for at, source, name, to, its, reason, messages in sums
    ]
