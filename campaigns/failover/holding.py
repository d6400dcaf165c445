"""Calls are held where an installation may not be the only one with its rows, until a person has said what it is.

A copy of the disk has every row of the original, so it would call the same letters again; one that comes back after a
long time may be such a copy, or its letters may come too late. Who looks for that is mailhub/presence.py. A held store
has a timeline that no PostgreSQL has, so each claim finds that it is not the one that wrote the rows (guard.py).
"""

import json
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from campaigns.failover import guard, queries
from campaigns.models import Store
from vendors import history
from vendors.history import Actor

Mark = dict[str, str]
ENDED = "('LOGGED', 'P_FINISHED', 'P_STOPPED', 'STOPPED')"
WAITING = f"""
SELECT count(*), coalesce(sum(j.size), 0),
    (SELECT count(*) FROM campaigns_message WHERE in_doubt_at IS NOT NULL AND settle_at IS NOT NULL)
FROM campaigns_job j JOIN campaigns_campaign c ON c.id = j.campaign_id
WHERE j.parent_id IS NULL AND j.status NOT IN {ENDED} AND (%(everything)s OR j.paused_at IS NULL AND CASE j.status
    WHEN 'RENDERED' THEN j.vendor_id = ANY(%(nights)s)
    WHEN 'READY' THEN coalesce(greatest(j.not_before, c.send_at) <= clock_timestamp(), true)
    ELSE true END)
"""
READ = f"SELECT s.mark::text, {guard.SAME} FROM campaigns_store s WHERE s.id = 1"
# Only as long as nobody else has decided since: several processes start together.
HOLD = f"""
UPDATE campaigns_store SET timeline = '{guard.HELD_TIMELINE}', noticed_at = clock_timestamp(),
    held = jsonb_build_object('timeline', timeline, 'why', %(why)s::text, 'mark', %(mark)s::jsonb)
WHERE id = 1 AND timeline <> '{guard.HELD_TIMELINE}'
"""
NOTE = "UPDATE campaigns_store SET mark = %(mark)s::jsonb WHERE id = 1 AND held IS NULL"
STILL = f"SELECT held->>'timeline' = {guard.TIMELINE} FROM campaigns_store WHERE held IS NOT NULL"
UNHOLD = "UPDATE campaigns_store SET timeline = held->>'timeline', held = NULL WHERE held IS NOT NULL"


@dataclass(frozen=True, slots=True)
class WaitingMail:
    """Jobs that would be sent, their recipients, and doubts that would be asked about or repeated."""

    jobs: int
    recipients: int
    doubts: int

    def __bool__(self) -> bool:
        return bool(self.jobs or self.doubts)

    def __str__(self) -> str:
        return f"{self.jobs:,} jobs with {self.recipients:,} recipients, {self.doubts:,} messages in doubt"


class NotHeld(Exception):
    """The answer has no question: somebody has answered it, or the store was taken over."""


def find_waiting(everything: bool = True, nights: list[int] | None = None) -> WaitingMail:
    """What waits. everything: else only what is under way or due now, with what these vendors' nights dispatch."""
    with connection.cursor() as cursor:
        cursor.execute(WAITING, {"everything": everything, "nights": nights or []})
        return WaitingMail(*map(int, cursor.fetchone()))


def read() -> tuple[Mark | None, bool]:
    """The mark under which the rows were written last, and whether calls may start as far as the store is concerned."""
    with connection.cursor() as cursor:
        cursor.execute(READ)
        row = cursor.fetchone()
    if row is None:
        return None, False
    return json.loads(row[0]) if row[0] else None, bool(row[1])


def hold_calls(why: str, mark: str) -> None:
    """No call starts from here on until `go_on`. mark: as JSON, to be noted with the answer."""
    with connection.cursor() as cursor:
        cursor.execute(HOLD, {"why": why, "mark": mark})


def note_mark(mark: str) -> None:
    """The rows are written under this mark from here on."""
    with connection.cursor() as cursor:
        cursor.execute(NOTE, {"mark": mark})


def why_held() -> str | None:
    """Why calls are held; None: they are not, or for another reason."""
    held: dict[str, Any] | None = Store.objects.values_list("held", flat=True).first()
    return str(held["why"]) if held else None


@transaction.atomic
def go_on(by: Actor, reason: str, answer: str) -> None:
    """Lets calls start again. answer: said in the history. Raises NotHeld."""
    queries.hold()
    with connection.cursor() as cursor:
        cursor.execute(STILL)
        found = cursor.fetchone()
        if found is None:
            raise NotHeld("calls are not held: nothing was done")
        if not found[0]:
            cursor.execute(UNHOLD)
    if not found[0]:
        return  # it was taken over besides, so that question is asked now
    queries.adopt()
    history.record(by, Store, [(1, answer)], reason)
