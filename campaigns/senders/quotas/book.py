"""Counts how much of each quota is used, in one statement, from the accounts and the unfinished jobs.

It stores no counter. A day or a month (UTC, as in the accounts) has used three things: messages accepted by vendors
from its calls, messages in doubt, and the uncalled rest of the jobs that go in it. Refused, expired and suppressed
messages do not count. Messages without a call yet have the mean units of this month's accepted ones at that vendor, and
today's price.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_CEILING, Decimal
from itertools import chain
from typing import Any, NamedTuple

from campaigns.engine.lifecycle import sql_list
from campaigns.models.quotas import SponsorQuota, describe_amount, write_amount
from campaigns.models.states import PARENTS, WAITING, S
from vendors import prices
from vendors.said import Said, gettext_noop

Measure, Span = SponsorQuota.Measure, SponsorQuota.Span
UNDISPATCHED = (S.RENDERED, S.READY)
CALLED = (S.ENQUEUED, S.SENDING, S.SENT, S.STOPPED)  # a job stopped a moment ago may have calls in flight

QUOTAS = """
SELECT q.id, q.sponsor_id, s.name, q.vendor_id, v.slug, q.span, q.measure, q.most, q.currency, q.warn_percent,
    q.warned_on
FROM campaigns_sponsorquota q JOIN campaigns_sponsor s ON s.id = q.sponsor_id
    LEFT JOIN vendors_vendor v ON v.id = q.vendor_id
WHERE q.sponsor_id = ANY(%(sponsors)s::bigint[]) ORDER BY q.id
"""
COLUMNS = "j.sponsor_id, j.vendor_id, j.credential_id"
# Messages of job j without a result; a parent has its uncut rest, and its children count for themselves.
OPEN = f"""CASE WHEN j.status IN {sql_list(PARENTS)} THEN j.remaining - j.remaining_suppressed
        ELSE j.size - j.accepted - j.refused - j.expired - j.suppressed - j.in_doubt END"""
# One statement, so that no message is missed or counted twice while it is accepted. Each branch follows an index:
# sums of the accounts by day and sponsor, entries not summed yet, waiting jobs by vendor and sponsor (job_turn),
# undispatched ones by sponsor, a vendor's few running ones, and those with doubts. `asked` adds the prices of new work.
COUNTS = f"""
WITH one AS (
    SELECT 'accepted' AS what, e.* FROM unnest(%(sponsors)s::bigint[]) s(id)
        CROSS JOIN generate_series(%(first)s::date, %(today)s::date, interval '1 day') d(day) CROSS JOIN LATERAL (
        SELECT sponsor_id, vendor_id, credential_id, day, messages, units FROM campaigns_costentry
        WHERE summed AND day = d.day::date AND sponsor_id = s.id OFFSET 0  -- by the index, not by a hash of all
    ) e
    UNION ALL
    SELECT 'accepted', sponsor_id, vendor_id, credential_id, day, messages, units FROM campaigns_costentry
    WHERE NOT summed AND day BETWEEN %(first)s AND %(today)s AND sponsor_id = ANY(%(sponsors)s::bigint[])
    UNION ALL
    SELECT 'open', j.* FROM unnest(%(sponsors)s::bigint[]) s(id) CROSS JOIN vendors_vendor v CROSS JOIN LATERAL (
        SELECT {COLUMNS}, %(today)s::date, {OPEN}, 0 FROM campaigns_job j
        WHERE j.vendor_id = v.id AND j.sponsor_id = s.id AND j.status IN {sql_list(WAITING)} AND j.parent_id IS NULL
        UNION ALL
        SELECT {COLUMNS}, %(today)s::date, {OPEN}, 0 FROM campaigns_job j
        WHERE j.vendor_id = v.id AND j.sponsor_id = s.id AND j.status IN {sql_list(WAITING)} AND j.parent_id IS NOT NULL
    ) j
    UNION ALL
    SELECT 'open', {COLUMNS}, %(today)s::date, {OPEN}, 0
    FROM vendors_vendor v JOIN campaigns_job j ON j.vendor_id = v.id
    WHERE j.status IN {sql_list(CALLED)} AND j.sponsor_id = ANY(%(sponsors)s::bigint[])
    UNION ALL
    SELECT 'waiting', {COLUMNS}, greatest(%(today)s::date, (j.not_before AT TIME ZONE 'UTC')::date), {OPEN}, 0
    FROM campaigns_job j WHERE j.status IN {sql_list(UNDISPATCHED)} AND j.sponsor_id = ANY(%(sponsors)s::bigint[])
    UNION ALL
    SELECT 'doubts', {COLUMNS}, coalesce((j.finished_at AT TIME ZONE 'UTC')::date, %(today)s::date), j.in_doubt, 0
    FROM campaigns_job j WHERE j.in_doubt > 0 AND j.sponsor_id = ANY(%(sponsors)s::bigint[])
        AND (j.finished_at IS NULL OR j.finished_at >= %(first)s::date::timestamp AT TIME ZONE 'UTC')
    UNION ALL
    SELECT 'asked', a.sponsor, a.vendor, a.credential, %(today)s::date, 0, 0
    FROM unnest(%(of)s::bigint[], %(vendors)s::bigint[], %(credentials)s::bigint[]) AS a(sponsor, vendor, credential)
), summed AS (
    SELECT what, sponsor_id, vendor_id, credential_id, day, sum(messages)::bigint AS messages,
        sum(units)::bigint AS units
    FROM one GROUP BY 1, 2, 3, 4, 5
)
SELECT d.what, d.sponsor_id, d.vendor_id, d.credential_id, d.day, d.messages, d.units, v.sandbox, p.currency,
    p.per_unit, p.per_message
FROM summed d JOIN vendors_vendor v ON v.id = d.vendor_id LEFT JOIN LATERAL ({
    prices.HOLDS.format(vendor="d.vendor_id", credential="d.credential_id", day="least(d.day, %(today)s::date)")
}) p ON true
"""


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """A quota, as it is stored. vendor_id, vendor: its slug; None for all."""

    id: int
    sponsor_id: int
    sponsor: str
    vendor_id: int | None
    vendor: str | None
    span: str
    measure: str
    most: Decimal
    currency: str
    warn_percent: int
    warned_on: date | None

    @property
    def amount_sentence(self) -> Said:
        """Describe the allowance: 1,000 messages a day at letters."""
        what = describe_amount(self.measure, self.span, self.most, self.currency)
        if self.vendor:
            return Said(gettext_noop("%(quota)s at %(vendor)s"), quota=what, vendor=self.vendor)
        return Said(gettext_noop("%(quota)s in all"), quota=what)

    def write_rounded(self, amount: Decimal) -> int | str:
        """Return an amount of its measure, rounded up, as a value of a sentence."""
        whole = self.measure != Measure.MONEY
        return write_amount(self.measure, amount.to_integral_value(ROUND_CEILING) if whole else amount, self.currency)

    def period_of(self, at: datetime) -> tuple[date, date]:
        """Return the first day of its period with this moment, and the first one after it. In flight: the day."""
        day = at.astimezone(UTC).date()
        if self.span == Span.MONTH:
            return day.replace(day=1), (day.replace(day=1) + timedelta(days=32)).replace(day=1)
        return day, day + timedelta(days=1)


class NewWork(NamedTuple):
    """Messages that ask to be sent. starts_at: the earliest time for them to go."""

    sponsor_id: int
    vendor_id: int
    credential_id: int
    messages: int
    starts_at: datetime


class CountRow(NamedTuple):
    """A sum of COUNTS, with the price that holds for it."""

    what: str
    sponsor_id: int
    vendor_id: int
    credential_id: int
    day: date
    messages: int
    units: int
    sandbox: bool
    currency: str | None
    per_unit: Decimal | None
    per_message: Decimal | None


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """How much of a quota is used in the period of a moment. renewed_at: its end; None for work in flight."""

    quota: QuotaRow
    used: Decimal
    started_on: date
    renewed_at: datetime | None

    @property
    def percent(self) -> int:
        """Percent used, 100 of a quota of 0."""
        return int(100 * self.used / self.quota.most) if self.quota.most else 100

    @property
    def warns(self) -> bool:
        return self.used * 100 >= self.quota.most * self.quota.warn_percent

    @property
    def sentence(self) -> Said:
        """Say: Velma has used 850 of 1,000 messages a day at letters (85 %); renewed at 2026-12-01 00:00 UTC."""
        values = {
            "sponsor": self.quota.sponsor,
            "used": self.quota.write_rounded(self.used),
            "quota": self.quota.amount_sentence,
            "percent": self.percent,
        }
        if self.renewed_at is None:
            return Said(gettext_noop("%(sponsor)s has used %(used)s of %(quota)s (%(percent)s%%)"), **values)
        form = gettext_noop("%(sponsor)s has used %(used)s of %(quota)s (%(percent)s%%); it is renewed at %(at)s")
        return Said(form, **values, at=write_moment(self.renewed_at))


@dataclass(frozen=True, slots=True)
class QuotaRefusal:
    """The reason to refuse or hold work. again: the quota's renewal; None: it never fits, or once work has ended."""

    use: QuotaUse
    sentence: Said
    can_fit: bool

    @property
    def again(self) -> datetime | None:
        return self.use.renewed_at if self.can_fit else None


def write_moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def read_quotas(cursor: Any, sponsors: Collection[int]) -> list[QuotaRow]:
    """Return the quotas of these sponsors. cursor: of Django or of psycopg."""
    cursor.execute(QUOTAS, {"sponsors": list(sponsors)})
    return [QuotaRow(*row) for row in cursor.fetchall()]


class QuotaBook:
    """Quotas of some sponsors, with their present counts. Admitted work is added."""

    def __init__(self, quotas: Sequence[QuotaRow], counts: Sequence[CountRow], now: datetime) -> None:
        self.quotas, self.now, self._counts = quotas, now, counts
        self._added: list[CountRow] = []
        self._asked = {(one.vendor_id, one.credential_id): one for one in counts if one.what == "asked"}
        self._sandboxes = {one.vendor_id for one in counts if one.sandbox}
        self._means = _mean_units(counts)
        self._used: dict[tuple[int, date, bool], Decimal] = {}  # by quota, first day, and whether with waiting work

    def find_uses(self, at: datetime | None = None) -> list[QuotaUse]:
        """Return how much of each quota is used in its period of that moment; None: now."""
        return [self._quota_use(quota, at or self.now, with_waiting=True) for quota in self.quotas]

    def uses_of(self, work: NewWork) -> list[QuotaUse]:
        """Return the use of the quotas that this work counts for."""
        at = max(self.now, work.starts_at)
        return [self._quota_use(quota, at, with_waiting=True) for quota in self._quotas_of(work)]

    def refusal_of_work(self, work: NewWork, is_counted: bool = False, dispatches: bool = False) -> QuotaRefusal | None:
        """Return the reason why work does not fit: a quota too small for it at any time, else the one renewed last.

        is_counted: it is stored already. dispatches: it is compared with dispatched work only.
        """
        found = []
        for quota in self._quotas_of(work) if work.messages else ():
            use = self._quota_use(quota, max(self.now, work.starts_at), with_waiting=not dispatches)
            asked = self._value_of_count(quota, self._count_row_of(work, "open"))
            if use.used + (0 if is_counted else asked) > quota.most:
                found.append(_make_refusal(use, asked, is_counted))
        far = datetime.max.replace(tzinfo=UTC)
        return max(found, key=lambda one: (not one.can_fit, one.again or far), default=None)

    def add_work(self, work: NewWork) -> None:
        """Count admitted work as if it were stored."""
        today, at = self.now.astimezone(UTC).date(), max(self.now, work.starts_at)
        day = at.astimezone(UTC).date()
        row = self._count_row_of(work, "open" if day == today else "waiting")._replace(day=day)
        self._added.append(row)
        for quota in self._quotas_of(work):
            for with_waiting in (True, False):
                key = _period_key(quota, at, with_waiting)
                if key in self._used and (with_waiting or row.what == "open"):
                    self._used[key] += self._value_of_count(quota, row)

    def _quotas_of(self, work: NewWork) -> list[QuotaRow]:
        everywhere = work.vendor_id not in self._sandboxes
        return [
            quota for quota in self.quotas
            if quota.sponsor_id == work.sponsor_id
            and (quota.vendor_id == work.vendor_id or (quota.vendor_id is None and everywhere))
        ]  # fmt: skip

    def _count_row_of(self, work: NewWork, what: str) -> CountRow:
        row = self._asked[work.vendor_id, work.credential_id]
        return row._replace(what=what, sponsor_id=work.sponsor_id, messages=work.messages)

    def _quota_use(self, quota: QuotaRow, at: datetime, with_waiting: bool) -> QuotaUse:
        start, end = quota.period_of(self.now if quota.span == Span.FLIGHT else at)
        key = _period_key(quota, at, with_waiting)
        if key not in self._used:
            mine = (one for one in chain(self._counts, self._added) if _counts_for(one, quota, start, end))
            self._used[key] = sum(
                (self._value_of_count(quota, one) for one in mine if with_waiting or one.what != "waiting"), Decimal(0)
            )
        renewed = None if quota.span == Span.FLIGHT else datetime.combine(end, time.min, tzinfo=UTC)
        return QuotaUse(quota, self._used[key], start, renewed)

    def _value_of_count(self, quota: QuotaRow, one: CountRow) -> Decimal:
        if quota.measure == Measure.MESSAGES:
            return Decimal(one.messages)
        mean = self._means.get((one.sponsor_id, one.vendor_id), Decimal(1))
        units = Decimal(one.units) if one.what == "accepted" else one.messages * mean
        if quota.measure == Measure.UNITS:
            return units
        if one.sandbox or one.per_unit is None or one.per_message is None or one.currency != quota.currency:
            return Decimal(0)
        return units * one.per_unit + one.messages * one.per_message


def _period_key(quota: QuotaRow, at: datetime, with_waiting: bool) -> tuple[int, date, bool]:
    return quota.id, date.min if quota.span == Span.FLIGHT else quota.period_of(at)[0], with_waiting


def _mean_units(counts: Iterable[CountRow]) -> dict[tuple[int, int], Decimal]:
    """Return the units of an accepted message this month, by sponsor and vendor; at least one."""
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for one in counts:
        if one.what == "accepted":
            units, messages = sums.get((one.sponsor_id, one.vendor_id), (0, 0))
            sums[one.sponsor_id, one.vendor_id] = units + one.units, messages + one.messages
    return {key: max(Decimal(1), Decimal(units) / max(1, messages)) for key, (units, messages) in sums.items()}


def _counts_for(one: CountRow, quota: QuotaRow, start: date, end: date) -> bool:
    if one.sponsor_id != quota.sponsor_id:
        return False
    if one.sandbox if quota.vendor_id is None else one.vendor_id != quota.vendor_id:
        return False
    if quota.span == Span.FLIGHT:
        return one.what in ("open", "waiting")
    return start <= one.day < end


def _make_refusal(use: QuotaUse, asked: Decimal, is_counted: bool) -> QuotaRefusal:
    quota = use.quota
    values = {"sponsor": quota.sponsor, "quota": quota.amount_sentence, "asked": quota.write_rounded(asked)}
    if asked > quota.most:
        form = gettext_noop(
            "the quota of %(sponsor)s is %(quota)s, and this is %(asked)s: it never fits. Send less, or have the quota "
            "raised"
        )
        return QuotaRefusal(use, Said(form, **values), can_fit=False)
    values["used"] = quota.write_rounded(use.used - asked if is_counted else use.used)
    if use.renewed_at is None:
        form = gettext_noop(
            "the quota of %(sponsor)s is %(quota)s: %(used)s are used, and this is %(asked)s more. It fits when other "
            "work has ended"
        )
        return QuotaRefusal(use, Said(form, **values), can_fit=True)
    form = gettext_noop(
        "the quota of %(sponsor)s is %(quota)s: %(used)s are used, and this is %(asked)s more. It is renewed at %(at)s"
    )
    return QuotaRefusal(use, Said(form, **values, at=write_moment(use.renewed_at)), can_fit=True)


def read_book(
    cursor: Any, quotas: Sequence[QuotaRow], now: datetime, asked: Iterable[tuple[int, int, int]] = ()
) -> QuotaBook:
    """Count the use of these quotas by their sponsors.

    asked: sponsor, vendor and credential of new work. cursor: of Django or of psycopg.
    """
    today = now.astimezone(UTC).date()
    of = list(dict.fromkeys(asked))
    params = {
        "sponsors": sorted({quota.sponsor_id for quota in quotas}),
        "first": today.replace(day=1),
        "today": today,
        "of": [sponsor for sponsor, _, _ in of],
        "vendors": [vendor for _, vendor, _ in of],
        "credentials": [credential for _, _, credential in of],
    }
    cursor.execute(COUNTS, params)
    return QuotaBook(quotas, [CountRow(*row) for row in cursor.fetchall()], now)
