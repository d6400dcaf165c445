"""The accounts: vendors' charges by month, sponsor and vendor, with amounts by the prices in force.

Vendors charge for accepted messages. Such a message counts in the month of its call (UTC), even if its acceptance is
learned months later or a person settled it as sent.

Amounts are computed on request from each day's units and the price in force that day, so a corrected price takes effect
everywhere. They are exact, one for each currency. Days without a price count messages and units only. Sandbox vendors
deliver nothing and cost nothing, even with prices.

Messages in doubt are not charged. Accounts list them separately, with their possible cost.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, TextIO

from django.db import connection, transaction
from django.utils.translation import gettext

from campaigns.doors import labels
from campaigns.engine import ground_truth
from campaigns.texts.formulas import make_harmless
from vendors import prices
from vendors.said import Said

MOST_MONTHS = 120  # in one request


@dataclass(frozen=True, slots=True)
class MonthCost:
    """The cost of one sponsor's messages in a month at one vendor, in one currency.

    month: its first day. currency, amount: empty and None for messages accepted on days without a price. in_doubt:
    number of messages in doubt, with their cost if accepted.
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
        """The amount, formatted for users."""
        return gettext("no price") if self.amount is None else prices.format_amount(self.amount, self.currency)

    @property
    def doubtful(self) -> str:
        """The messages in doubt and their cost, formatted for users."""
        if not self.in_doubt:
            return ""
        more = "" if self.in_doubt_amount is None else f" ({prices.format_amount(self.in_doubt_amount, self.currency)})"
        return f"{self.in_doubt:,}{more}"


# Prices are looked up once for each day, vendor and credential, not for each sponsor.
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


def accounts_of_months(
    first: date, last: date, sponsors: Sequence[int] | None = None, vendors: Sequence[str] | None = None
) -> list[MonthCost]:
    """Return the accounts from the month of `first` to that of `last`, newest first.

    sponsors, vendors: only these; None: all. Raises ValueError for more than MOST_MONTHS.
    """
    months = 12 * (last.year - first.year) + last.month - first.month + 1
    if not 0 < months <= MOST_MONTHS:
        raise ValueError(Said("ask for 1 to %(count)s months, the first one first", count=str(MOST_MONTHS)))
    ids = None if sponsors is None else list(sponsors)
    slugs = None if vendors is None else list(vendors)
    asked = {"since": first.replace(day=1), "until": month_after(last), "sponsors": ids, "vendors": slugs}
    with connection.cursor() as cursor:
        cursor.execute(ACCOUNTS, asked)
        return [MonthCost(*row) for row in cursor.fetchall()]


def month_after(month: date) -> date:
    """Return the first day of the next month."""
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)


def past_twelve_months() -> tuple[date, date]:
    """Return the first day and today of the twelve months that end with this one (UTC)."""
    today = prices.pricing_day()
    return month_after(date(today.year - 1, today.month, 1)), today


def parse_month(text: str) -> date:
    """Parse a month written 2026-11; return its first day. Raises ValueError."""
    try:
        found = date.fromisoformat(f"{text}-01")
    except ValueError:
        found = None
    if found is None or len(text) != 7 or found.year >= 9999:
        raise ValueError(Said("%(word)s is not a month: write it like 2026-11", word=repr(text)))
    return found


def sum_by_currency(accounts: Iterable[MonthCost]) -> dict[str, Decimal]:
    """Return the sum of the amounts by currency."""
    sums: dict[str, Decimal] = {}
    for one in accounts:
        if one.amount is not None:
            sums[one.currency] = sums.get(one.currency, Decimal(0)) + one.amount
    return dict(sorted(sums.items()))


COLUMNS = ("month", "sponsor", "vendor", "messages", "units", "currency", "amount", "in_doubt", "in_doubt_amount")


def account_facts(account: MonthCost) -> dict[str, Any]:
    """Return an account for programs; amounts are texts, because JSON numbers would be rounded."""
    amounts = [
        None if one is None else prices.format_digits(one, account.currency)
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
    """Write the accounts as CSV with a header. Texts that look like formulas get a leading quote."""
    writer = csv.DictWriter(file, COLUMNS)
    writer.writeheader()
    for one in accounts:
        row = account_facts(one)
        writer.writerow(row | {name: make_harmless(row[name]) for name in ("sponsor", "vendor")})


def cost_so_far(jobs: Iterable[Any]) -> str:
    """Return the cost of a campaign's jobs with their `sums`: 3,150 SMS segments, about 23.63 EUR at today's price.

    It is of what vendors have accepted. Empty if nothing is known. It is an estimate, because the units of refused
    messages are not stored separately; only the accounts are exact.
    """
    units, accepted, channel = 0, 0, ""
    amounts: dict[str, Decimal] = {}
    for job in jobs:
        sums, price = job.sums, prices.price_on(job.vendor_id, job.credential_id, prices.pricing_day())
        called, channel = sums.accepted + sums.refused + sums.in_doubt, job.vendor.channel
        charged = Decimal(max(sums.units, called)) * sums.accepted / max(1, called)
        units, accepted = units + round(charged), accepted + sums.accepted
        if price is not None and sums.accepted:
            new = charged * price.per_unit + sums.accepted * price.per_message
            amounts[price.currency] = amounts.get(price.currency, Decimal(0)) + new
    and_ = gettext("and")
    money = f" {and_} ".join(
        prices.format_amount(round(sum_, 2), currency) for currency, sum_ in sorted(amounts.items())
    )
    said = labels.format_charged(units, channel)
    cost = gettext("about %(amount)s at today's price") % {"amount": money}
    parts = (said if units > accepted else "", cost if money else "")
    return ", ".join(filter(None, parts))


MOST_SUMMED = 10_000  # entries in a transaction
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
    """Merge entries into one for each day, sponsor and credential; the accounts do not change."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(SUM_UP, {"most": MOST_SUMMED})
