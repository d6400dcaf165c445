"""Holds calls while another installation may have the same rows, until a person has decided.

A copy of the disk has every row of the original and would call the same letters again. An installation that returns
after a long time may be such a copy, or its letters may come too late. mailhub/presence.py detects both. A held store
has a timeline that no PostgreSQL has, so each claim fails the check of guard.py.
"""

import json
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from campaigns.engine.failover import guard, queries
from campaigns.models import Store
from vendors import history
from vendors.history import Actor
from vendors.said import Said, gettext_noop
from vendors.said import read as read_said

Mark = dict[str, str]
JOBS = gettext_noop("1 job"), gettext_noop("%(count)s jobs")
RECIPIENTS = gettext_noop("1 recipient"), gettext_noop("%(count)s recipients")
DOUBTS = gettext_noop("1 message in doubt"), gettext_noop("%(count)s messages in doubt")
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
# Only if nobody else has decided since: several processes start together.
HOLD = f"""
UPDATE campaigns_store SET timeline = '{guard.HELD_TIMELINE}', noticed_at = clock_timestamp(),
    held = jsonb_build_object('timeline', timeline, 'why', %(why)s::text, 'said', %(said)s::jsonb,
        'mark', %(mark)s::jsonb)
WHERE id = 1 AND timeline <> '{guard.HELD_TIMELINE}'
"""
NOTE = "UPDATE campaigns_store SET mark = %(mark)s::jsonb WHERE id = 1 AND held IS NULL"
STILL = f"SELECT held->>'timeline' = {guard.TIMELINE} FROM campaigns_store WHERE held IS NOT NULL"
UNHOLD = "UPDATE campaigns_store SET timeline = held->>'timeline', held = NULL WHERE held IS NOT NULL"


@dataclass(frozen=True, slots=True)
class WaitingMail:
    """Jobs that would be sent, with their recipients, and doubts that would be looked up or repeated."""

    jobs: int
    recipients: int
    doubts: int

    def __bool__(self) -> bool:
        return bool(self.jobs or self.doubts)

    def __str__(self) -> str:
        return self.sentence

    @property
    def sentence(self) -> Said:
        jobs, recipients = Said.count_form(*JOBS, count=self.jobs), Said.count_form(*RECIPIENTS, count=self.recipients)
        mail = Said(gettext_noop("%(jobs)s for %(recipients)s"), jobs=jobs, recipients=recipients)
        doubts = [Said.count_form(*DOUBTS, count=self.doubts)] if self.doubts else []
        return (
            Said.join_parts(", ", [*([mail] if self.jobs else []), *doubts]) if self else Said(gettext_noop("no mail"))
        )


class NotHeld(Exception):
    """Calls are not held: somebody has decided already, or the store was taken over."""


def find_waiting(everything: bool = True, nights: list[int] | None = None) -> WaitingMail:
    """Count waiting mail. everything=False: only mail under way or due now, and these vendors' nightly jobs."""
    with connection.cursor() as cursor:
        cursor.execute(WAITING, {"everything": everything, "nights": nights or []})
        return WaitingMail(*map(int, cursor.fetchone()))


def read_mark() -> tuple[Mark | None, bool]:
    """Return the mark under which the rows were last written, and True if the store allows calls."""
    with connection.cursor() as cursor:
        cursor.execute(READ)
        row = cursor.fetchone()
    if row is None:
        return None, False
    return json.loads(row[0]) if row[0] else None, bool(row[1])


def hold_calls(why: Said, mark: str) -> None:
    """Hold calls until `go_on`. mark: JSON, stored once a person has decided."""
    with connection.cursor() as cursor:
        cursor.execute(HOLD, {"why": why, "said": json.dumps(why.data), "mark": mark})


def note_mark(mark: str) -> None:
    """Store the mark under which the rows are written from now on."""
    with connection.cursor() as cursor:
        cursor.execute(NOTE, {"mark": mark})


def hold_reason() -> str | None:
    """Return the reason calls are held, or None if they are not, or are halted for another reason."""
    held: dict[str, Any] | None = Store.objects.values_list("held", flat=True).first()
    return read_said(held["why"], held.get("said")) if held else None


@transaction.atomic
def go_on(by: Actor, reason: str, answer: str) -> None:
    """Let calls start again. answer: goes to the history. Raises NotHeld."""
    queries.hold_all_jobs()
    with connection.cursor() as cursor:
        cursor.execute(STILL)
        found = cursor.fetchone()
        if found is None:
            raise NotHeld("calls are not held: nothing was done")
        if not found[0]:
            cursor.execute(UNHOLD)
    if not found[0]:
        return  # the store was taken over, too: its question comes next
    queries.adopt_store()
    history.record_changes(by, Store, [(1, answer)], reason)
