"""Parses the query string of the jobs' page as a look-up of document 000."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext_noop

from campaigns.doors import filters, labels
from campaigns.engine.lifecycle import CUT_SHORT, GROUPS
from campaigns.models import Job, Sponsor
from campaigns.models.campaigns import sponsors_of
from campaigns.models.states import DONE, Status
from campaigns.reporting.forecast import kept_totals
from vendors.listing import CappedPaginator
from vendors.models import Vendor

ENDED = ("Sent", "Stopped", labels.FAILED, labels.ATTENTION)
TABS = ("Rendered", "Dispatched", "Sending", labels.PAUSED, *ENDED, "")  # "": all
SPANS = {
    "today": gettext_noop("Today"),
    "yesterday": gettext_noop("Yesterday"),
    "3": gettext_noop("Last 3 days"),
    "7": gettext_noop("Last 7 days"),
    "range": gettext_noop("Custom range"),
}
BY = {"created": "Created", "dispatched": "Dispatched", "sent": "Finished"}
# Statuses that have this date, so that the database need not search a million jobs without it.
DATED = {"created": set(Status), "dispatched": set(Status) - {Status.RENDERED}, "sent": {*DONE, Status.P_STOPPED}}
LISTED = 2000  # jobs to page through; use filters to find others
TAB_COUNTED = 1000  # jobs counted for a tab; more show as 1,000+
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
)  # and q, which Django also uses


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab. query: its address. count: as text."""

    name: str
    query: str
    count: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The values in the query string. Invalid values filter nothing; faults explains them.

    of_channel: ids of the chosen channel's vendors.
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
        """Parse the query string.

        Without a date the look-up covers three days; for a campaign or a search, all days.
        """
        values: dict[str, Any] = {name: str(typed.get(name, "")).strip() for name in (*NAMES, "q")}
        first, last = values.pop("from"), values.pop("to")
        date = "range" if first or last else values["date"]
        if date not in (*SPANS, "any"):
            date = "any" if values["campaign"] else "3"
        by = values["by"] if values["by"] in BY else "created"
        vendors = frozenset(channels.get(values["channel"], ()))
        look = cls(**{**values, "date": date, "by": by, "first": first, "last": last, "of_channel": vendors})
        return replace(look, faults=tuple(look._filter_faults()))

    def _filter_faults(self) -> list[str]:
        found = []
        for check in (self._status_condition, self._date_span):
            try:
                check()
            except ValueError as error:
                found.append(str(error))
        return found

    def _status_condition(self, word: str | None = None) -> Q:
        """Return the condition for a status.

        Children are hidden below their parents, except for a single status or a result.
        """
        asked = self.status if word is None else word
        if not asked:
            return Q(parent=None)
        if end := filters.filter_by_end(asked):
            return end
        by = filters.filter_by_group(asked, DATED[self.by])
        return by & Q(parent=None) if asked in GROUPS else by

    def _date_span(self) -> tuple[Any, Any]:
        """Return since and until, half-open, in the current zone."""
        today = timezone.localdate()
        back = {"today": 0, "yesterday": 1, "3": 2, "7": 6}
        if self.date in back:
            first = today - timedelta(days=back[self.date])
            return filters.parse_days(first.isoformat(), (first if self.date == "yesterday" else today).isoformat())
        if self.date != "range":
            return None, None
        since, until = filters.parse_days(self.first, self.last)
        if since and until and since >= until:
            raise ValueError(filters.REVERSED % {"first": self.first, "last": self.last})
        return since, until

    def jobs(self, jobs: "QuerySet[Job]", status: str | None = None) -> "QuerySet[Job]":
        """Return the jobs of this look-up. status: replaces the chosen one."""
        if self.by != "created":
            jobs = jobs.exclude(**{filters.DATES[self.by]: None})
        since, until = _or_none(self._date_span) or (None, None)
        jobs = filters.dated_within(self._filter_chosen(jobs), since, until, self.by)
        shown = _or_none(lambda: self._status_condition(status))
        return jobs.filter(shown if shown is not None else Q(parent=None))

    @property
    def without_dates(self) -> str:
        """Return the address of the same look-up without dates."""
        return self.query(**{"date": "any", "from": "", "to": ""})

    def _filter_chosen(self, jobs: "QuerySet[Job]") -> "QuerySet[Job]":
        for name in ("sponsor", "campaign"):
            if (value := getattr(self, name)).isdecimal():
                jobs = jobs.filter(**{f"{name}_id": int(value[:18])})
        one = {int(self.vendor[:18])} if self.vendor.isdecimal() else None
        if self.channel not in Vendor.Channel.values:
            return jobs.filter(vendor_id__in=one) if one else jobs
        return jobs.filter(vendor_id__in=self.of_channel & one if one else self.of_channel)

    def query(self, **changes: str) -> str:
        """Return the address of this look-up with these changes."""
        values = {name: getattr(self, name) for name in ("sponsor", "status", "channel", "vendor", "campaign", "date")}
        values |= {"by": self.by if self.by != "created" else "", "from": self.first, "to": self.last}
        values |= {"q": self.q} | changes
        if values["date"] == "range":
            values["date"] = ""
        return "?" + urlencode({name: value for name, value in values.items() if value})


class Pages(CappedPaginator):
    """Counts the jobs of the list and of every tab in one statement, each up to a limit.

    user: limits the jobs to those of the user's sponsors. campaigns: ids of those found by the search; None: all.
    """

    def __init__(self, *args: Any, look: JobFilter, user: Any, campaigns: list[int] | None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.look, self.user, self.campaigns = look, user, campaigns

    @cached_property
    def _count_tabs(self) -> list[int]:
        look = self.look if self.campaigns is None else replace(self.look, q="")
        of = None if sponsors_of(self.user) is None else self.user.pk
        written = _count_statement(look, of, timezone.localdate(), timezone.get_current_timezone_name())
        if self.campaigns is not None:
            return _execute_counts(*written, self.campaigns)
        asked = [repr(look), of, timezone.localdate().isoformat(), timezone.get_current_timezone_name()]
        counted: list[int] = kept_totals.kept_counts("jobs", asked, lambda: _execute_counts(*written, None), _is_much)
        return counted

    @cached_property
    def count(self) -> int:
        return min(LISTED, self._count_tabs[0])

    @property
    def is_capped(self) -> bool:
        return self._count_tabs[0] > LISTED

    @property
    def tabs(self) -> list[Tab]:
        return [
            Tab(tab or "All", self.look.query(status=tab), _cap_count(count), tab == self.look.status)
            for tab, count in zip(TABS, self._count_tabs[1:], strict=True)
        ]


def _is_much(counts: list[int]) -> bool:
    return max(counts) > TAB_COUNTED


def _cap_count(count: int) -> str:
    return f"{labels.format_number(min(count, TAB_COUNTED))}{'+' if count > TAB_COUNTED else ''}"


@lru_cache(maxsize=500)
def _count_statement(look: JobFilter, user_id: int | None, _today: date, _zone: str) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that counts the list and each tab; cached, because the page polls every two seconds.

    user_id: whose sponsors' jobs; None: of all. _today and _zone are part of the cache's key, as they decide the days.
    """
    jobs: Any = Job.objects.of_sponsors(None if user_id is None else Sponsor.objects.filter(users=user_id).values("pk"))
    chosen = look.status, look.jobs(jobs)
    if look.q.isdecimal():
        jobs = jobs.filter(pk=int(look.q[:18]))
        chosen = "", jobs
    counts: list[str] = []
    params: list[Any] = []
    for tab, rows, most in ((*chosen, LISTED), *((tab, look.jobs(jobs, tab), TAB_COUNTED) for tab in TABS)):
        parts = []
        for part in _split_for_indexes(tab, rows):
            try:
                statement, values = part.order_by().values("pk")[: most + 1].query.sql_with_params()
            except EmptyResultSet:  # Django knows that the result is empty
                continue
            parts.append(f"(SELECT count(*) FROM ({statement}) AS capped)")
            params += values
        counts.append(" + ".join(parts) or "0")
    return "SELECT " + ", ".join(counts), tuple(params)


def _split_for_indexes(tab: str, rows: "QuerySet[Job]") -> "list[QuerySet[Job]]":
    """Split a look-up so that each part can use an index; one for both kinds of stopped jobs would read all of them."""
    if tab.lower() != "stopped":
        return [rows]
    return [rows.filter(status__in=GROUPS["Stopped"]), rows.filter(CUT_SHORT)]


# Finds a search's jobs once, to count them for each tab; campaigns_job stands for them.
OF_A_SEARCH = "WITH campaigns_job AS MATERIALIZED (SELECT * FROM campaigns_job WHERE campaign_id = ANY(%s)) "


def _execute_counts(statement: str, params: tuple[Any, ...], campaigns: list[int] | None) -> list[int]:
    with connection.cursor() as cursor:
        if campaigns is None:
            cursor.execute(statement, params)
        else:
            cursor.execute(OF_A_SEARCH + statement, [campaigns, *params])
        return list(cursor.fetchone())


def _or_none(asked: Any) -> Any:
    """Return the result, or None for a bad value, which `faults` reports."""
    try:
        return asked()
    except ValueError:
        return None


def status_choices() -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return the choices of the status as (value, label, machine word): groups and results, then the statuses."""
    groups = [(name, name, "") for name in (*GROUPS, *filters.ENDS)]
    return [("", groups), (gettext_noop("States"), [(one.value, one.label, one.value) for one in Status])]
