"""The credential that sends a message, and the record of a campaign's moves to other credentials.

A message goes by its campaign's credential or, in a routed campaign, by its job's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Sum

from campaigns.models import RouteMove
from vendors import destinations

# SQL for a message m of a campaign c. A message not cut yet belongs to the parent.
CREDENTIAL = """(CASE WHEN NOT c.routed THEN c.credential_id ELSE (
    SELECT o.credential_id FROM campaigns_job o WHERE o.campaign_id = c.id
        AND m.id >= o.first_message AND m.id < o.first_message + o.size
    ORDER BY o.parent_id IS NULL LIMIT 1
) END)"""
# After a takeover of the store a move may be missing from the rows. A vendor's look-up proves nothing then.
LOST_MOVE = "(c.routed AND coalesce(m.taken_over_at = m.in_doubt_at, false))"
# The message was called at another destination than its credential calls now. An answer from there proves nothing.
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
    """Return the messages in doubt called at another destination than their credential calls now."""
    with connection.cursor() as cursor:
        cursor.execute(FOUND_ELSEWHERE, {"messages": list(message_ids)})
        return {message for (message,) in cursor.fetchall()}


def vendors_of_messages(message_ids: list[int]) -> dict[int, tuple[int, str]]:
    """Return {message: (id, slug) of the vendor that sends it}."""
    with connection.cursor() as cursor:
        cursor.execute(VENDORS, {"messages": message_ids})
        rows: Any = cursor.fetchall()
    return {message: (vendor, slug) for message, vendor, slug in rows}


# Whether credential v belongs to a ReportingAccount.
OF_ACCOUNT = "v.vendor_id = %(vendor)s AND (%(credentials)s::bigint[] = '{}' OR v.id = ANY(%(credentials)s::bigint[]))"

# Whether the account's reports may concern message m: its credential sends m; or a move names the credential; or a move
# may be lost and the credential is one of the route's.
REPORTS = f"""(EXISTS (SELECT FROM vendors_credential v WHERE v.id = {CREDENTIAL} AND {OF_ACCOUNT})
    OR c.routed AND (EXISTS (
        SELECT FROM campaigns_routemove w JOIN vendors_credential v ON v.id IN (w.came_from_id, w.went_to_id)
        WHERE w.campaign_id = c.id AND m.id >= w.first_message AND m.id < w.first_message + w.size AND {OF_ACCOUNT}
    ) OR {LOST_MOVE} AND EXISTS (
        SELECT FROM campaigns_routeentry e JOIN vendors_credential v ON v.id = e.credential_id
        WHERE e.route_id = c.route_id AND {OF_ACCOUNT})))"""


@dataclass(frozen=True, slots=True)
class ReportingAccount:
    """The account a delivery report comes from: a vendor, or those of its credentials that share one account."""

    vendor_id: int
    credentials: tuple[int, ...] = ()

    @property
    def params(self) -> dict[str, Any]:
        return {"vendor": self.vendor_id, "credentials": sorted(self.credentials)}


MOST = 100  # the newest moves only


@dataclass(frozen=True, slots=True)
class MoveSum:
    """The messages that moved in one step from one credential to another."""

    at: datetime
    came_from: str
    went_to: str
    messages: int
    reason: str

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S}: {self.messages:,} from {self.came_from} to {self.went_to}: {self.reason}"


def list_moves(campaign_id: int) -> list[MoveSum]:
    """Return the campaign's moves, newest first, at most MOST."""
    pairs = ("came_from__vendor__slug", "came_from__name", "went_to__vendor__slug", "went_to__name")
    rows = RouteMove.objects.filter(campaign=campaign_id).order_by("-at", *pairs)
    sums = rows.values_list("at", *pairs, "reason").annotate(all=Sum("messages"))[:MOST]
    return [
        MoveSum(at, f"{source}/{name}", f"{to}/{its}", messages, reason)
        for at, source, name, to, its, reason, messages in sums
    ]
