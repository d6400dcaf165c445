"""Charges sponsors and classes for the units given to them at a vendor."""

from collections.abc import Callable, Mapping
from typing import Any

from django.db import connection

from campaigns.engine.lifecycle import sql_list
from campaigns.engine.turns.order import PARENTS, SMALL, has_job
from campaigns.models.states import WAITING
from vendors.mail_classes import MailClass

# The probes of one class: with rows of two columns, as in order.py, the planner reads the class again for each of them.
_RIVAL = f"""(SELECT j.sponsor_id FROM campaigns_job j WHERE j.vendor_id = t.vendor_id AND j.mail_class = t.mail_class
        AND j.status IN {sql_list(WAITING)} AND j.parent_id IS {{parent}} AND j.sponsor_id > {{after}}
        ORDER BY j.sponsor_id LIMIT 1)"""
_RIVALS = ", ".join(
    f"""{name}(sponsor) AS (
        SELECT {_RIVAL.format(parent=parent, after="0")}
        UNION ALL
        SELECT {_RIVAL.format(parent=parent, after=f"{name}.sponsor")} FROM {name} WHERE {name}.sponsor IS NOT NULL
    )"""
    for name, parent in PARENTS
)
# Whether no other sponsor has a job in the class of row t that waits and may go. It ends at the first one.
UNOPPOSED = f"""NOT EXISTS (
        WITH RECURSIVE {_RIVALS}
        SELECT FROM (SELECT t.mail_class, r.sponsor FROM (TABLE whole UNION ALL TABLE child) r) w
        WHERE w.sponsor <> t.sponsor_id
            AND ({has_job("t.vendor_id", WAITING, "NULL")} OR {has_job("t.vendor_id", SMALL, "NOT NULL")}))"""
_BEFORE = """greatest(t.given, (SELECT max(clock) FROM campaigns_classturn c
            WHERE c.vendor_id = t.vendor_id AND c.mail_class = t.mail_class))"""
_GIVEN = f"{_BEFORE} + excluded.given"
# What was given while nobody else waited, by the last look of the process: its sponsor owes nothing for that.
_ALONE = f"""{_BEFORE} + (SELECT excluded.given * g.alone / g.units FROM given g WHERE g.alone > 0
            AND g.vendor = t.vendor_id AND g.mail_class = t.mail_class AND g.sponsor = t.sponsor_id)"""
CREDIT_SECONDS = 5  # a class saves up its share of this many seconds
# Rows in the order of their keys, as two processes charge the same ones. A lower class owes at most the vendor's units
# of a second, or twice the most it may save up: then it waits for some seconds, and no longer.
CHARGE = f"""
WITH given AS (
    SELECT vendor, sponsor, mail_class, units, rate, alone, clock
    FROM unnest(%(vendors)s::bigint[], %(sponsors)s::bigint[], %(classes)s::smallint[], %(units)s::float8[],
            %(rates)s::float8[], %(alone)s::float8[], %(clocks)s::float8[])
        AS a(vendor, sponsor, mail_class, units, rate, alone, clock)
), credited AS (
    INSERT INTO campaigns_classcredit AS k (vendor_id, mail_class, credit, most, least)
    SELECT s.vendor, c.mail_class, s.share
            - coalesce((SELECT sum(g.units) FROM given g WHERE g.vendor = s.vendor AND g.mail_class = c.mail_class), 0),
        {CREDIT_SECONDS} * s.share, -greatest({2 * CREDIT_SECONDS} * s.share, s.units)
    FROM (
        SELECT g.vendor, sum(g.units) AS units, sum(g.units) * max(v.floor) / 100.0 AS share
        FROM given g JOIN vendors_vendor v ON v.id = g.vendor GROUP BY 1
    ) s CROSS JOIN unnest(ARRAY[{MailClass.USUAL.value}, {MailClass.BULK.value}]) AS c(mail_class)
    ORDER BY 1, 2
    ON CONFLICT (vendor_id, mail_class) DO UPDATE SET most = excluded.most, least = excluded.least,
        credit = greatest(excluded.least, least(excluded.most, k.credit + excluded.credit))
)
INSERT INTO campaigns_classturn AS t (vendor_id, mail_class, sponsor_id, given, clock, rate)
SELECT g.vendor, g.mail_class, g.sponsor, g.units / coalesce(n.weight, 1), g.clock, g.rate
FROM given g LEFT JOIN campaigns_sponsorturn n ON n.vendor_id = g.vendor AND n.sponsor_id = g.sponsor
ORDER BY 1, 2, 3
ON CONFLICT (vendor_id, mail_class, sponsor_id) DO UPDATE
SET given = {_GIVEN}, rate = CASE WHEN t.rate = 0 THEN excluded.rate ELSE (3 * t.rate + excluded.rate) / 4 END,
    clock = greatest(t.clock, excluded.clock, CASE WHEN {UNOPPOSED} THEN {_GIVEN} ELSE {_ALONE} END)
"""


class UnitsGiven:
    """The units given to the streams of a process since its last charge, by vendor, sponsor and class."""

    def __init__(self) -> None:
        self._units: dict[tuple[int, int, int], int] = {}
        self._alone: dict[tuple[int, int, int], int] = {}
        self._seconds: dict[tuple[int, int, int], float] = {}

    def add_units(self, vendor_id: int, sponsor_id: int, mail_class: int, units: int, alone: bool = False) -> None:
        """alone: nobody else waited at the last look."""
        key = vendor_id, sponsor_id, mail_class
        self._units[key] = self._units.get(key, 0) + units
        if alone:
            self._alone[key] = self._alone.get(key, 0) + units

    def add_time(self, key: tuple[int, int, int], seconds: float) -> None:
        """Note how long a stream has been there."""
        self._seconds[key] = self._seconds.get(key, 0.0) + seconds

    def take_params(self, find_clock: Callable[[int, int], float]) -> dict[str, Any] | None:
        """Return the parameters of CHARGE and forget them, or None if nothing was given.

        find_clock: the least virtual time of a vendor and class at the last look.
        """
        units, self._units = self._units, {}
        alone, self._alone = self._alone, {}
        if not units:
            return None
        rates = [number / max(0.1, self._seconds.pop(key, 0.0)) for key, number in units.items()]
        vendors, sponsors, classes = zip(*units, strict=True)
        return {
            "vendors": list(vendors), "sponsors": list(sponsors), "classes": list(map(int, classes)),
            "units": list(map(float, units.values())), "rates": rates,
            "alone": [float(alone.get(key, 0)) for key in units],
            "clocks": [find_clock(vendor, mail_class) for vendor, _, mail_class in units],
        }  # fmt: skip

    def put_back(self, charged: Mapping[str, Any]) -> None:
        """Remember again what could not be charged."""
        names = ("vendors", "sponsors", "classes", "units", "rates", "alone")
        for *key, units, rate, alone in zip(*(charged[name] for name in names), strict=True):
            vendor, sponsor, mail_class = key
            self.add_units(vendor, sponsor, mail_class, int(alone), alone=True)
            self.add_units(vendor, sponsor, mail_class, int(units - alone))
            self.add_time((vendor, sponsor, mail_class), units / rate if rate else 0.0)


def charge_sponsor(
    vendor_id: int, sponsor_id: int, units: int, rate: float = 0.0, mail_class: int = MailClass.BULK
) -> None:
    """Charge a sponsor over Django's connection, as senders do over theirs."""
    params = {"vendors": [vendor_id], "sponsors": [sponsor_id], "classes": [int(mail_class)]}
    with connection.cursor() as cursor:
        cursor.execute(CHARGE, {**params, "units": [float(units)], "rates": [rate], "alone": [0.0], "clocks": [0.0]})
