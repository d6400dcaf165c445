"""The query string of the jobs' page as a look-up of document 000."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.functional import cached_property

from campaigns import labels
from campaigns.lifecycle import DONE, GROUPS, Status
from campaigns.models import Job
from campaigns.operators import filters
from vendors.listing import CappedPaginator
from vendors.models import Vendor

TABS = ("Rendered", "Dispatched", "Sending", "Sent", "Stopped", labels.FAILED, labels.ATTENTION, "")  # "": all
SPANS = {"today": "Today", "yesterday": "Yesterday", "3": "Last 3 days", "7": "Last 7 days", "range": "Custom range"}
BY = {"created": "Created", "dispatched": "Dispatched", "sent": "Finished"}
# Which statuses have such a date at all, so that the database need not search a million jobs to find out.
DATED = {"created": set(Status), "dispatched": set(Status) - {Status.RENDERED}, "sent": {*DONE, Status.P_STOPPED}}
LISTED = 2000  # jobs that can be paged through; filters find the others
TAB_COUNTED = 1000  # jobs; a tab with more shows 1,000+
NAMES = (
    "sponsor",
    "status",
    "channel",
    "vendor",
    "campaign",
    "date",
    "by",
    "from",
    "to",
)  # and q, which Django has, too


@dataclass(frozen=True, slots=True)
class Tab:
    """One tab. query: its address; count: as text."""

    name: str
    query: str
    count: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The values in the query string; values that are not understood are explained in faults and filter nothing.

    of_channel: ids of the vendors of the chosen channel.
    """

    sponsor: str = ""
    status: str = ""
    channel: str = ""
    vendor: str = ""
    campaign: str = ""
    date: str = ""
    by: str = "created"
    first: str = ""
    last: str = ""
    q: str = ""
    faults: tuple[str, ...] = ()
    of_channel: frozenset[int] = frozenset()

    @classmethod
    def of(cls, typed: Mapping[str, str], channels: Mapping[str, Collection[int]]) -> "JobFilter":
        """Without a date the look-up covers three days; for a campaign or a search, all days."""
        values: dict[str, Any] = {name: str(typed.get(name, "")).strip() for name in (*NAMES, "q")}
        first, last = values.pop("from"), values.pop("to")
        date = "range" if first or last else values["date"]
        if date not in (*SPANS, "any"):
            date = "any" if values["campaign"] else "3"
        by = values["by"] if values["by"] in BY else "created"
        vendors = frozenset(channels.get(values["channel"], ()))
        look = cls(**{**values, "date": date, "by": by, "first": first, "last": last, "of_channel": vendors})
        return replace(look, faults=tuple(look._faults()))

    def _faults(self) -> list[str]:
        found = []
        for check in (self._status, self._span):
            try:
                check()
            except (ValueError, OverflowError) as error:
                found.append(str(error))
        return found

    def _status(self, word: str | None = None) -> Q:
        """Children are hidden below their parents, except for a single status or a result of messages."""
        asked = self.status if word is None else word
        if not asked:
            return Q(parent=None)
        if end := filters.end(asked):
            return end
        by = filters.of_statuses(asked, DATED[self.by])
        return by & Q(parent=None) if asked in GROUPS else by

    def _span(self) -> tuple[Any, Any]:
        """(since, until), half-open, in the current zone."""
        today = timezone.localdate()
        back = {"today": 0, "yesterday": 1, "3": 2, "7": 6}
        if self.date in back:
            first = today - timedelta(days=back[self.date])
            return filters.days(first.isoformat(), (first if self.date == "yesterday" else today).isoformat())
        if self.date != "range":
            return None, None
        since, until = filters.days(self.first, self.last)
        if since and until and since >= until:
            raise ValueError(filters.REVERSED % {"first": self.first, "last": self.last})
        return since, until

    def jobs(self, jobs: "QuerySet[Job]", status: str | None = None) -> "QuerySet[Job]":
        """The jobs of this look-up; status: replaces the chosen one."""
        if self.by != "created":
            jobs = jobs.exclude(**{filters.DATES[self.by]: None})
        since, until = _or_none(self._span) or (None, None)
        jobs = filters.within(self._chosen(jobs), since, until, self.by)
        shown = _or_none(lambda: self._status(status))
        return jobs.filter(shown if shown is not None else Q(parent=None))

    @property
    def without_dates(self) -> str:
        """The address of the same look-up without dates."""
        return self.query(**{"date": "any", "from": "", "to": ""})

    def _chosen(self, jobs: "QuerySet[Job]") -> "QuerySet[Job]":
        for name in ("sponsor", "campaign"):
            if (value := getattr(self, name)).isdecimal():
                jobs = jobs.filter(**{f"{name}_id": int(value[:18])})
        one = {int(self.vendor[:18])} if self.vendor.isdecimal() else None
        if self.channel not in Vendor.Channel.values:
            return jobs.filter(vendor_id__in=one) if one else jobs
        return jobs.filter(vendor_id__in=self.of_channel & one if one else self.of_channel)

    def query(self, **changes: str) -> str:
        """The address of this look-up with these changes."""
        values = {name: getattr(self, name) for name in ("sponsor", "status", "channel", "vendor", "campaign", "date")}
        values |= {"by": self.by if self.by != "created" else "", "from": self.first, "to": self.last}
        values |= {"q": self.q} | changes
        if values["date"] == "range":
            values["date"] = ""
        return "?" + urlencode({name: value for name, value in values.items() if value})


class Pages(CappedPaginator):
    """Counts the jobs of the list and of every tab in one statement, each up to a limit."""

    def __init__(self, *args: Any, look: JobFilter, everything: Any, listed: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.look, self.everything, self.listed = look, everything, listed

    @cached_property
    def _counts(self) -> list[int]:
        return counts([(self.listed, LISTED), *((self.look.jobs(self.everything, tab), TAB_COUNTED) for tab in TABS)])

    @cached_property
    def count(self) -> int:
        return min(LISTED, self._counts[0])

    @property
    def is_capped(self) -> bool:
        return self._counts[0] > LISTED

    @property
    def tabs(self) -> list[Tab]:
        return [
            Tab(tab or "All", self.look.query(status=tab), _capped(count), tab == self.look.status)
            for tab, count in zip(TABS, self._counts[1:], strict=True)
        ]


def _capped(count: int) -> str:
    return f"{labels.number(min(count, TAB_COUNTED))}{'+' if count > TAB_COUNTED else ''}"


def counts(asked: "Sequence[tuple[QuerySet[Any], int]]") -> list[int]:
    """How many rows each query set has, counted up to its number plus one, all in one statement."""
    parts: list[str] = []
    params: list[Any] = []
    for rows, most in asked:
        try:
            statement, values = rows.order_by().values("pk")[: most + 1].query.sql_with_params()
        except EmptyResultSet:  # Django sees that there can be none
            parts.append("0")
            continue
        parts.append(f"(SELECT count(*) FROM ({statement}) AS capped)")
        params += values
    with connection.cursor() as cursor:
        cursor.execute("SELECT " + ", ".join(parts), params)
        return list(cursor.fetchone())


def _or_none(asked: Any) -> Any:
    """The result, or None if the value is bad, which `faults` says already."""
    try:
        return asked()
    except (ValueError, OverflowError):
        return None


def states() -> list[tuple[str, list[str]]]:
    """The choices of the status: groups and results, then the statuses themselves."""
    return [("", [*GROUPS, *filters.ENDS]), ("States", list(Status.values))]
