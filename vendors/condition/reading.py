"""Reads conditions: one statement for any number of credentials, without Redis."""

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection

from vendors import said, shut
from vendors.condition.values import (
    ASKED_TO_WAIT,
    NOTHING_TO_MEND,
    Condition,
    ConditionKind,
    Mender,
    Mending,
)
from vendors.own_reasons import read_reason
from vendors.said import Said, gettext_noop

CLOCKS = timedelta(seconds=5)
"""A full window has a place again within its own length. A longer wait, by more than this, follows a rebuild."""

READ = f"""
SELECT l.id, l.vendor_id, v.slug, l.name, v.owner_id IS NOT NULL AS is_owned, clock_timestamp() AS now,
    {shut.VENDOR} AS vendor_why, {shut.VENDOR_SAID}::text AS vendor_said, {shut.VENDOR_BRIEF} AS vendor_brief,
    {shut.LOGIN} AS login_why, {shut.LOGIN_SAID}::text AS login_said, {shut.LOGIN_BRIEF} AS login_brief,
    v.paused AS vendor_paused, v.paused_at AS vendor_paused_at, v.unconfirmed, v.limits_since,
    l.paused AS login_paused, l.paused_at AS login_paused_at, l.awaits_secret, l.retry_after_until,
    l.rate_limited_until, l.asked_wait IS NOT NULL AS was_asked, l.unreached_since, l.braked_at, l.brake_held_at,
    (SELECT coalesce(max(r.seconds), 0) FROM vendors_ratelimit r
        WHERE r.vendor_id = v.id AND coalesce(r.credential_id, l.id) = l.id) AS longest,
    k.good_at, k.failing_since, coalesce(k.tries, 0) AS tries, coalesce(k.last_answer, '') AS last_answer,
    coalesce(k.last_cause, '') AS last_cause
FROM vendors_credential l JOIN vendors_vendor v ON v.id = l.vendor_id
    LEFT JOIN vendors_vendorcondition k ON k.credential_id = l.id AND k.receiver = ''
        AND k.destination = v.destination + l.destination
WHERE {{which}} ORDER BY l.vendor_id, l.name
"""
OF_CREDENTIALS = READ.format(which="l.id = ANY(%(ids)s)")
OF_VENDORS = READ.format(which="l.vendor_id = ANY(%(ids)s)")
# Whose calls a person can make possible: it is shut, or its brake can be released.
TO_MEND = READ.format(
    which=f"""(%(ids)s::bigint[] IS NULL OR l.vendor_id = ANY(%(ids)s))
    AND (l.braked_at IS NOT NULL OR {shut.WHY} IS NOT NULL)"""
)
NO_CREDENTIAL = gettext_noop("the vendor has no credential")
RESUME_VENDOR, CONFIRM_VENDOR = gettext_noop("Resume this vendor"), gettext_noop("Confirm this vendor")
RESUME_LOGIN, ENTER_SECRET = gettext_noop("Resume this login"), gettext_noop("Enter its secret")
RAISE_LIMIT, TRY_NOW = gettext_noop("Raise the limit"), gettext_noop("Try now")
RELEASE = gettext_noop("Release the brake")
# From the best to the worst: a vendor is as its best credential is. One never tried says nothing beside a tried one,
# even if the latter is shut now.
_ORDER = (
    ConditionKind.WORKS, ConditionKind.SILENT, ConditionKind.FAILING, ConditionKind.SHUT, ConditionKind.UNTRIED,
)  # fmt: skip


def conditions_of_credentials(ids: Collection[int]) -> dict[int, Condition]:
    """Return the condition of each credential by its id. A shut vendor shuts its credentials."""
    return {row.id: _judge_row(row) for row in _read_rows(OF_CREDENTIALS, ids)}


def conditions_of_vendors(ids: Collection[int]) -> dict[int, Condition]:
    """Return the condition of each vendor by its id: its own if shut, else its best credential's."""
    found: dict[int, list[Condition]] = {vendor: [] for vendor in ids}
    for row in _read_rows(OF_VENDORS, ids):
        found[row.vendor_id].append(_judge_row(row))
    return {vendor: combine_conditions(of) for vendor, of in found.items()}


def conditions_to_mend(vendors: Collection[int] | None) -> list[tuple[int, int, Condition]]:
    """Return (vendor, credential, condition) of the shut or braked credentials. None: of all vendors."""
    with connection.cursor() as cursor:
        cursor.execute(TO_MEND, {"ids": None if vendors is None else list(vendors)})
        rows = [_Row(*row) for row in cursor.fetchall()]
    return [(row.vendor_id, row.id, _judge_row(row)) for row in rows]


def condition_of_route(conditions: Iterable[Condition]) -> Condition:
    """Return the best of a route's conditions, by credential. A credential never tried may be called."""
    found = list(conditions)
    return combine_conditions([one for one in found if one.kind is not ConditionKind.SHUT] or found)


def combine_conditions(conditions: Iterable[Condition]) -> Condition:
    """Return the best of a vendor's conditions, by credential."""
    best = min(conditions, key=_rank_condition, default=None)
    none = Said(NO_CREDENTIAL)
    return best or Condition(ConditionKind.SHUT, reason=none, brief=none, mending=Mending(Mender.OPERATOR))


def _rank_condition(one: Condition) -> int:
    was_tried = one.kind is not ConditionKind.SHUT or one.good_at or one.tries or one.until
    return _ORDER.index(one.kind) if was_tried else len(_ORDER)


class _Row(NamedTuple):
    """A row of READ."""

    id: int
    vendor_id: int
    slug: str
    name: str
    is_owned: bool
    now: datetime
    vendor_why: str | None
    vendor_said: str | None
    vendor_brief: str | None
    login_why: str | None
    login_said: str | None
    login_brief: str | None
    vendor_paused: bool
    vendor_paused_at: datetime | None
    unconfirmed: bool
    limits_since: datetime | None
    login_paused: bool
    login_paused_at: datetime | None
    awaits_secret: bool
    retry_after_until: datetime | None
    rate_limited_until: datetime | None
    was_asked: bool
    unreached_since: datetime | None
    braked_at: datetime | None
    brake_held_at: datetime | None
    longest: float
    good_at: datetime | None
    failing_since: datetime | None
    tries: int
    last_answer: str
    last_cause: str

    @property
    def governing_mender(self) -> Mender:
        return Mender.OWNER if self.is_owned else Mender.OPERATOR

    @property
    def closed_until(self) -> datetime | None:
        return self.retry_after_until if self.retry_after_until and self.retry_after_until > self.now else None

    @property
    def answers(self) -> Mapping[str, Any]:
        """The facts that the last calls have left."""
        return {
            "tries": self.tries,
            "answer": read_reason(self.last_answer),
            "cause": self.last_cause,
            "good_at": self.good_at,
        }


def _read_rows(statement: str, ids: Collection[int]) -> list[_Row]:
    if not ids:
        return []
    with connection.cursor() as cursor:
        cursor.execute(statement, {"ids": list(ids)})
        return [_Row(*row) for row in cursor.fetchall()]


def _judge_row(row: _Row) -> Condition:
    return _judge_shut(row) or _judge_failing(row) or _judge_closed(row) or _judge_answers(row)


def _judge_shut(row: _Row) -> Condition | None:
    """Return the condition of a credential shut until somebody acts."""
    who = row.governing_mender
    why: str | None
    login = f"{row.slug} {row.name}"
    if row.vendor_why:
        verb = f"vendor resume {row.slug}" if row.vendor_paused else f"vendor limit {row.slug} N/SECONDS"
        button = CONFIRM_VENDOR if row.unconfirmed else RESUME_VENDOR if row.vendor_paused else RAISE_LIMIT
        why, data, brief = row.vendor_why, row.vendor_said, row.vendor_brief
        since = row.vendor_paused_at if row.vendor_paused else row.limits_since
    elif row.login_paused:
        verb = f"credential {'set' if row.awaits_secret else 'resume'} {login}"
        button = ENTER_SECRET if row.awaits_secret else RESUME_LOGIN
        why, data, brief, since = row.login_why, row.login_said, row.login_brief, row.login_paused_at
    elif row.login_why:
        held = row.brake_held_at is not None
        verb = f"credential release {login}" if held else f"vendor limit {row.slug} N/SECONDS --credential {row.name}"
        button, since = (RELEASE, row.brake_held_at) if held else (RAISE_LIMIT, row.limits_since)
        why, data, brief = row.login_why, row.login_said, row.login_brief
    else:
        return None
    reason = said.read(why or "", data and json.loads(data))
    return Condition(
        ConditionKind.SHUT, since, reason=reason, brief=Said(brief or ""), mending=Mending(who, verb, Said(button)),
        is_braked=row.braked_at is not None, is_held=row.brake_held_at is not None, **row.answers,
    )  # fmt: skip


def _judge_failing(row: _Row) -> Condition | None:
    """Return the condition of a credential with no good answer since a known time."""
    since = min((at for at in (row.failing_since, row.unreached_since, row.braked_at) if at), default=None)
    if since is None:
        return None
    mending = Mending(Mender.VENDOR)
    if row.braked_at:
        mending = Mending(Mender.VENDOR, f"credential release {row.slug} {row.name}", Said(RELEASE))
    return Condition(
        ConditionKind.FAILING, since, until=row.closed_until, mending=mending, is_braked=row.braked_at is not None,
        **row.answers,
    )  # fmt: skip


def _judge_closed(row: _Row) -> Condition | None:
    """Return the condition of a credential that waits for a known time."""
    if until := row.closed_until:
        if not row.was_asked:  # after a recovery of the store its windows are unknown
            return Condition(ConditionKind.SILENT, until=until, mending=NOTHING_TO_MEND, **row.answers)
        why = Said(ASKED_TO_WAIT)
        try_now = Mending(Mender.NOBODY, f"credential resume {row.slug} {row.name}", Said(TRY_NOW))
        return Condition(ConditionKind.SHUT, until=until, reason=why, brief=why, mending=try_now, **row.answers)
    full = row.rate_limited_until
    if full and full > row.now + timedelta(seconds=row.longest) + CLOCKS:
        return Condition(ConditionKind.SILENT, until=full, mending=NOTHING_TO_MEND, **row.answers)
    return None


def _judge_answers(row: _Row) -> Condition:
    kind = ConditionKind.WORKS if row.good_at else ConditionKind.UNTRIED
    return Condition(kind, row.good_at, **row.answers)
