"""`manage.py route`: manages routes, the vendors of a campaign in order."""

from typing import Any

from django.core.management.base import CommandError
from django.db import IntegrityError, transaction

from campaigns.doors.sponsors import named_sponsor
from campaigns.engine.routes.entries import closed_credentials
from campaigns.models import Campaign, Route, RouteEntry
from campaigns.models.routes import MOST_WEIGHT
from vendors.management import arguments, facts
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb
from vendors.models import Credential
from vendors.said import count_of

MOST = 20  # entries
BY = "in order: VENDOR or VENDOR/CREDENTIAL; with =WEIGHT it has that share of new campaigns"
PATIENCE = declare_argument(
    "--patience",
    type=int,
    metavar="SECONDS",
    help="for which a vendor may be out of reach, or ask to wait, before the next one is taken; default: 5",
)
SPONSOR = declare_argument("--sponsor", metavar="NAME", help="whose it is; default: it is for all")


def route_facts(row: Route) -> dict[str, Any]:
    entries = row.entries.all()
    logins = [entry.credential for entry in entries]
    closed = closed_credentials([login.pk for login in logins], row.patience)
    return {
        "name": row.name,
        "sponsor": row.sponsor.name if row.sponsor else None,
        "channel": row.channel,
        "by": [str(entry) for entry in entries],
        "patience": row.patience,
        "closed": [f"{login}: {closed[login.pk]}" for login in logins if closed[login.pk]],
    }


class Command(ResourceCommand):
    help = (
        "Routes: add, list, set, remove. A campaign with a route begins with its first credential, or by weight; "
        "while a vendor takes no work, unaccepted messages go by the next one. Exit codes: 0 done (or so already), 1 "
        "unknown name or bad value, 2 usage."
    )
    one_object = "a route"
    shown = ("name", "sponsor", "channel", "by", "patience", "closed")
    row_facts = staticmethod(route_facts)

    @declare_verb("all of them, and what takes no work now")
    def do_list(self, **options: Any) -> None:
        rows = Route.objects.select_related("sponsor").prefetch_related("entries__credential__vendor")
        self.write_rows(rows)

    @declare_verb(
        "a new one",
        declare_argument("name"),
        declare_argument("by", nargs="+", metavar="VENDOR", help=BY),
        PATIENCE,
        SPONSOR,
    )
    def do_add(self, name: str, by: list[str], patience: int | None, **options: Any) -> None:
        entries = _parse_entries(by)
        row = Route(
            name=name, channel=entries[0].credential.vendor.channel, sponsor=_sponsor_or_shared(options["sponsor"])
        )
        row.patience = row.patience if patience is None else patience
        arguments.check_row(row)
        try:
            with transaction.atomic():
                row.save()
                _replace_entries(row, entries)
                facts.log_added(row)
        except IntegrityError:
            raise CommandError(f"{row} is already there: route set changes it") from None
        self._tell_order(row)

    @declare_verb(
        "change its vendors or its patience",
        declare_argument("name"),
        declare_argument("by", nargs="*", metavar="VENDOR", help=BY),
        PATIENCE,
        SPONSOR,
    )
    def do_set(self, name: str, by: list[str], patience: int | None, **options: Any) -> None:
        row = _named_route_of(name, options["sponsor"])
        with facts.log_changes(row, route_facts):
            if patience is not None:
                row.patience = patience
                arguments.check_row(row)
                row.save(update_fields=["patience"])
            if by:
                _replace_entries(row, _parse_entries(by))
        self._tell_order(row)

    @declare_verb("campaigns stay where they are", declare_argument("name"), SPONSOR)
    def do_remove(self, name: str, **options: Any) -> None:
        row = _named_route_of(name, options["sponsor"])
        open_jobs = Campaign.objects.filter(route=row, jobs__finished_at=None, jobs__parent=None).count()
        with transaction.atomic():
            facts.log_removed(row)
            row.delete()
        left = count_of(open_jobs, "campaign that is not finished stays", "campaigns that are not finished stay")
        stay = f"; {left} with its vendors" if open_jobs else ""
        removal = {"name": name, "sponsor": options["sponsor"], "removed": True, "open": open_jobs}
        self.write_result(f"{name}: removed{stay}", removal)

    def _tell_order(self, row: Route) -> None:
        found = route_facts(Route.objects.prefetch_related("entries__credential__vendor").get(pk=row.pk))
        self.write_result(f"{row}: {', then '.join(found['by'])}", found)


def _sponsor_or_shared(sponsor: str | None) -> Any:
    return named_sponsor(sponsor) if sponsor else None


def _named_route_of(name: str, sponsor: str | None) -> Route:
    found = Route.objects.select_related("sponsor").filter(name=name, sponsor=_sponsor_or_shared(sponsor)).first()
    if found is None:
        known = ", ".join(map(str, Route.objects.select_related("sponsor"))) or "none yet"
        raise CommandError(
            f"there is no route {name!r} {f'of {sponsor}' if sponsor else 'for all'}; there are: {known}"
        )
    return found


def _parse_entries(typed: list[str]) -> list[RouteEntry]:
    """Parse VENDOR or VENDOR/CREDENTIAL, perhaps with =WEIGHT: all of one channel, without repeats."""
    if len(typed) > MOST:
        raise CommandError(f"a route has at most {MOST} vendors")
    named = [word.partition("=")[::2] for word in typed]
    found = [_login_of_vendor(*by.partition("/")[::2]) for by, _ in named]
    weights = [_parse_weight(weight) for _, weight in named]
    channels = sorted({login.vendor.channel for login in found})
    if len(channels) > 1:
        raise CommandError(f"a route has one channel, not {' and '.join(channels)}")
    if len({login.vendor.sandbox for login in found}) > 1:
        raise CommandError("sandboxes and vendors that deliver are never in one route")
    if len({login.pk for login in found}) < len(found):
        raise CommandError("each credential can be in it once")
    weighted = enumerate(zip(found, weights, strict=True), start=1)
    return [RouteEntry(position=at, credential=login, weight=weight) for at, (login, weight) in weighted]


def _parse_weight(typed: str) -> int:
    if typed and not (typed.isascii() and typed.isdigit() and 1 <= int(typed) <= MOST_WEIGHT):
        raise CommandError(f"a weight is a number from 1 to {MOST_WEIGHT}, not {typed!r}")
    return int(typed or 0)


def _login_of_vendor(slug: str, name: str) -> Credential:
    of = arguments.find_vendor(slug)
    logins = list(of.credentials.all())
    return logins[0] if not name and len(logins) == 1 else arguments.find_credential(of, name or "default")


def _replace_entries(row: Route, entries: list[RouteEntry]) -> None:
    """Replace the route's entries."""
    if entries[0].credential.vendor.channel != row.channel:
        raise CommandError(f"{row} is for {row.channel}")
    row.entries.all().delete()
    for entry in entries:
        entry.route = row
    RouteEntry.objects.bulk_create(entries)
