"""The accounts: what vendors charge, by month, sponsor and vendor, with amounts by the prices that hold.

Vendors charge for what they accept, so a message counts once it is accepted, in the month of its call (UTC); also one
that is learned of a month later, or that a person settled as sent. Amounts are made when they are asked for: from the
units of a day and the price that holds on it, so that a price that is corrected is right from then on. They are exact,
one for each currency; of days without a price only the messages and units are known.

A sandbox delivers to nobody and charges nothing, whatever prices it was given to try them out.

What is in doubt is not charged for as long as it is: accounts tell it beside what is, with what it would cost.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, TextIO

from django.db import connection, transaction
from django.utils import formats
from django.utils.translation import gettext, ngettext

from campaigns import ground_truth
from campaigns.formulas import harmless
from vendors import prices

MOST_MONTHS = 120  # of one question


@dataclass(frozen=True, slots=True)
class MonthCost:
    """What one sponsor's messages of a month cost at one vendor, in one currency.

    month: its first day. currency, amount: empty and None for what was accepted on days without a price. in_doubt:
    messages of which nobody knows yet whether they were accepted, with what they would cost.
    """

    month: date
    sponsor_id: int
    sponsor: str
    vendor: str
    messages: int
    units: int
    currency: str
    amount: Decimal | None
    in_doubt: int
    in_doubt_amount: Decimal | None

    @property
    def money(self) -> str:
        """The amount as users read it."""
        return gettext("no price") if self.amount is None else prices.amount(self.amount, self.currency)

    @property
    def doubtful(self) -> str:
        """What is in doubt, as users read it."""
        if not self.in_doubt:
            return ""
        more = "" if self.in_doubt_amount is None else f" ({prices.amount(self.in_doubt_amount, self.currency)})"
        return f"{self.in_doubt:,}{more}"


# What holds is looked up once for a day, a vendor and a credential, not for each sponsor.
ACCOUNTS = f"""
WITH d AS MATERIALIZED (
    SELECT date_trunc('month', day)::date AS month, * FROM (
        SELECT day, sponsor_id, vendor_id, credential_id, messages, units, 0 AS in_doubt, 0 AS doubt_units
        FROM campaigns_costentry
        UNION ALL
        SELECT (m.sent_at AT TIME ZONE 'UTC')::date, j.sponsor_id, j.vendor_id, j.credential_id, 0, 0, 1,
            coalesce(m.units, 1)
        FROM campaigns_message m CROSS JOIN LATERAL ({ground_truth.LEAF.format(message="m")}) j
        WHERE m.in_doubt_at IS NOT NULL
    ) one
    WHERE day >= %(since)s AND day < %(until)s
        AND (%(sponsors)s::bigint[] IS NULL OR sponsor_id = ANY(%(sponsors)s::bigint[]))
        AND (%(vendors)s::text[] IS NULL OR vendor_id IN (SELECT id FROM vendors_vendor WHERE slug = ANY(%(vendors)s)))
)
SELECT d.month, s.id, s.name, v.slug, sum(d.messages)::bigint, sum(d.units)::bigint, coalesce(p.currency, ''),
    sum(d.units * p.per_unit + d.messages * p.per_message), sum(d.in_doubt)::bigint,
    sum(d.doubt_units * p.per_unit + d.in_doubt * p.per_message)
FROM d JOIN campaigns_sponsor s ON s.id = d.sponsor_id JOIN vendors_vendor v ON v.id = d.vendor_id AND NOT v.sandbox
    LEFT JOIN (
        SELECT k.vendor_id, k.credential_id, k.day, p.currency, p.per_unit, p.per_message
        FROM (SELECT DISTINCT vendor_id, credential_id, day FROM d) k
        CROSS JOIN LATERAL ({prices.HOLDS.format(vendor="k.vendor_id", credential="k.credential_id", day="k.day")}) p
    ) p ON (p.vendor_id, p.credential_id, p.day) = (d.vendor_id, d.credential_id, d.day)
GROUP BY d.month, s.id, s.name, v.slug, p.currency
ORDER BY d.month DESC, s.name, v.slug, p.currency
"""


def of_months(
    first: date, last: date, sponsors: Sequence[int] | None = None, vendors: Sequence[str] | None = None
) -> list[MonthCost]:
    """The accounts from the month of `first` to that of `last`, the newest first.

    sponsors, vendors: only of these; None: of all. Raises ValueError for more than MOST_MONTHS.
    """
    months = 12 * (last.year - first.year) + last.month - first.month + 1
    if not 0 < months <= MOST_MONTHS:
        raise ValueError(f"ask for 1 to {MOST_MONTHS} months, the first one first")
    ids = None if sponsors is None else list(sponsors)
    slugs = None if vendors is None else list(vendors)
    asked = {"since": first.replace(day=1), "until": after(last), "sponsors": ids, "vendors": slugs}
    with connection.cursor() as cursor:
        cursor.execute(ACCOUNTS, asked)
        return [MonthCost(*row) for row in cursor.fetchall()]


def after(month: date) -> date:
    """The first day of the month after this day's."""
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)


def last_year() -> tuple[date, date]:
    """The first and the last of the twelve months that end with this one (UTC)."""
    today = prices.today()
    return after(date(today.year - 1, today.month, 1)), today


def parse_month(text: str) -> date:
    """The first day of a month that is written 2026-11. Raises ValueError."""
    try:
        found = date.fromisoformat(f"{text}-01")
    except ValueError:
        found = None
    if found is None or len(text) != 7 or found.year >= 9999:
        raise ValueError(f"{text!r} is not a month: write it like 2026-11")
    return found


def totals(accounts: Iterable[MonthCost]) -> dict[str, Decimal]:
    """The sum of the amounts by currency."""
    sums: dict[str, Decimal] = {}
    for one in accounts:
        if one.amount is not None:
            sums[one.currency] = sums.get(one.currency, Decimal(0)) + one.amount
    return dict(sorted(sums.items()))


COLUMNS = ("month", "sponsor", "vendor", "messages", "units", "currency", "amount", "in_doubt", "in_doubt_amount")


def facts(account: MonthCost) -> dict[str, Any]:
    """An account for programs; the amount is a text, because a number in JSON would be rounded."""
    amounts = [
        None if one is None else prices.digits(one, account.currency)
        for one in (account.amount, account.in_doubt_amount)
    ]
    return {
        "month": f"{account.month:%Y-%m}",
        "sponsor": account.sponsor,
        "vendor": account.vendor,
        "messages": account.messages,
        "units": account.units,
        "currency": account.currency or None,
        "amount": amounts[0],
        "in_doubt": account.in_doubt,
        "in_doubt_amount": amounts[1],
    }


def write_csv(accounts: Iterable[MonthCost], file: TextIO) -> None:
    """Writes the accounts with a header. A text that a spreadsheet would take for a formula begins with a quote."""
    writer = csv.DictWriter(file, COLUMNS)
    writer.writeheader()
    for one in accounts:
        row = facts(one)
        writer.writerow(row | {name: harmless(row[name]) for name in ("sponsor", "vendor")})


def so_far(jobs: Iterable[Any]) -> str:
    """What jobs with their `sums` have cost, as users read it: 3,150 units, about 23.63 EUR at today's price.

    Empty: nothing is known. How many units refused messages had is not kept apart, so only the accounts are exact.
    """
    units, calls = 0, 0
    amounts: dict[str, Decimal] = {}
    for job in jobs:
        sums, price = job.sums, prices.held(job.vendor_id, job.credential_id, prices.today())
        called = sums.accepted + sums.refused + sums.in_doubt
        units, calls = units + sums.units, calls + called
        if price is not None and sums.accepted:
            charged = Decimal(max(sums.units, called)) * sums.accepted / called
            new = charged * price.per_unit + sums.accepted * price.per_message
            amounts[price.currency] = amounts.get(price.currency, Decimal(0)) + new
    money = f" {gettext('and')} ".join(
        prices.amount(round(sum_, 2), currency) for currency, sum_ in sorted(amounts.items())
    )
    shown = formats.number_format(units, force_grouping=True)
    said = ngettext("%(shown)s unit", "%(shown)s units", units) % {"shown": shown}
    cost = gettext("about %(amount)s at today's price") % {"amount": money}
    parts = (said if units > calls else "", cost if money else "")
    return ", ".join(filter(None, parts))


MOST_SUMMED = 10_000  # entries at a time
SUM_UP = """
WITH gone AS (
    DELETE FROM campaigns_costentry WHERE id = ANY(ARRAY(
        SELECT id FROM campaigns_costentry WHERE NOT summed ORDER BY id LIMIT %(most)s FOR UPDATE SKIP LOCKED
    )) RETURNING *
)
INSERT INTO campaigns_costentry AS was (day, sponsor_id, vendor_id, credential_id, messages, units, summed)
SELECT day, sponsor_id, vendor_id, credential_id, sum(messages), sum(units), true FROM gone
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4  -- two at once lock the sums in the same order
ON CONFLICT (day, sponsor_id, vendor_id, credential_id) WHERE summed DO UPDATE
SET messages = was.messages + excluded.messages, units = was.units + excluded.units
"""


def sum_up() -> None:
    """Adds entries up to one for each day, sponsor and credential; what is read stays the same."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(SUM_UP, {"most": MOST_SUMMED})
