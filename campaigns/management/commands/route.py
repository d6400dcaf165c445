"""`manage.py route`: by which vendors campaigns may go, in order."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import IntegrityError, transaction

from campaigns.management.sponsors import named_sponsor
from campaigns.models import Campaign, Route, RouteEntry
from campaigns.routes.entries import why_not
from vendors.management import arguments, facts
from vendors.management.output import tell, write_rows
from vendors.models import Credential

SHOWN = ("name", "sponsor", "channel", "by", "patience", "closed")
MOST = 20  # entries


class Command(BaseCommand):
    help = (
        "Routes: add, list, set, remove. A campaign with a route begins with its first credential; while a vendor "
        "takes no work, what was never called goes by the next one. Exit codes: 0 done (or so already), 1 unknown "
        "name or bad value, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        verbs.add_parser("list", help="all of them, and what takes no work now")
        abouts = {
            "add": "a new one",
            "set": "change its vendors or its patience",
            "remove": "campaigns stay where they are",
        }
        for verb, about in abouts.items():
            one = verbs.add_parser(verb, help=about)
            one.add_argument("name")
            if verb != "remove":
                what = "in order: VENDOR, or VENDOR/CREDENTIAL"
                one.add_argument("by", nargs="+" if verb == "add" else "*", metavar="VENDOR", help=what)
                seconds = "for which a vendor may be out of reach, or ask to wait, before the next one is taken"
                one.add_argument("--patience", type=int, metavar="SECONDS", help=f"{seconds}; default: 5")
            one.add_argument("--sponsor", metavar="NAME", help="whose it is; default: it is for all")
        for one in verbs.choices.values():
            one.add_argument("--json", action="store_true", help="one object a route")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"do_{options['verb']}")(**options)

    def do_add(self, name: str, by: list[str], patience: int | None, **options: Any) -> None:
        logins = _logins(by)
        row = Route(name=name, channel=logins[0].vendor.channel, sponsor=_whose(options["sponsor"]))
        row.patience = row.patience if patience is None else patience
        arguments.check(row)
        try:
            with transaction.atomic():
                row.save()
                _enter(row, logins)
                facts.added(row)
        except IntegrityError:
            raise CommandError(f"{row} is already there: route set changes it") from None
        self._tell(row, options)

    def do_list(self, **options: Any) -> None:
        rows = Route.objects.select_related("sponsor").prefetch_related("entries__credential__vendor")
        write_rows(self.stdout, map(route_facts, rows), options["json"], SHOWN)

    def do_set(self, name: str, by: list[str], patience: int | None, **options: Any) -> None:
        row = _named(name, options["sponsor"])
        with facts.kept(row, route_facts):
            if patience is not None:
                row.patience = patience
                arguments.check(row)
                row.save(update_fields=["patience"])
            if by:
                _enter(row, _logins(by))
        self._tell(row, options)

    def do_remove(self, name: str, **options: Any) -> None:
        row = _named(name, options["sponsor"])
        open_jobs = Campaign.objects.filter(route=row, jobs__finished_at=None, jobs__parent=None).count()
        with transaction.atomic():
            facts.removed(row)
            row.delete()
        stay = (
            f"; {open_jobs:,} campaigns that are not finished stay with the vendors that they have" if open_jobs else ""
        )
        removal = {"name": name, "sponsor": options["sponsor"], "removed": True, "open": open_jobs}
        tell(self.stdout, f"{name}: removed{stay}", removal, options["json"])

    def _tell(self, row: Route, options: dict[str, Any]) -> None:
        found = route_facts(Route.objects.prefetch_related("entries__credential__vendor").get(pk=row.pk))
        tell(self.stdout, f"{row}: {', then '.join(found['by'])}", found, options["json"])


def _whose(sponsor: str | None) -> Any:
    return named_sponsor(sponsor) if sponsor else None


def _named(name: str, sponsor: str | None) -> Route:
    found = Route.objects.select_related("sponsor").filter(name=name, sponsor=_whose(sponsor)).first()
    if found is None:
        known = ", ".join(map(str, Route.objects.select_related("sponsor"))) or "none yet"
        raise CommandError(
            f"there is no route {name!r} {f'of {sponsor}' if sponsor else 'for all'}; there are: {known}"
        )
    return found


def _logins(typed: list[str]) -> list[Credential]:
    """The credentials that VENDOR or VENDOR/CREDENTIAL name, all of one channel and none twice."""
    if len(typed) > MOST:
        raise CommandError(f"a route has at most {MOST} vendors")
    found = [_login(*word.partition("/")[::2]) for word in typed]
    channels = sorted({login.vendor.channel for login in found})
    if len(channels) > 1:
        raise CommandError(f"a route has one channel, not {' and '.join(channels)}")
    if len({login.vendor.sandbox for login in found}) > 1:
        raise CommandError("sandboxes and vendors that deliver are never in one route")
    if len({login.pk for login in found}) < len(found):
        raise CommandError("each credential can be in it once")
    return found


def _login(slug: str, name: str) -> Credential:
    of = arguments.vendor(slug)
    logins = list(of.credentials.all())
    return logins[0] if not name and len(logins) == 1 else arguments.credential(of, name or "default")


def _enter(row: Route, logins: list[Credential]) -> None:
    """These are its entries now."""
    if logins[0].vendor.channel != row.channel:
        raise CommandError(f"{row} is for {row.channel}")
    row.entries.all().delete()
    entries = [RouteEntry(route=row, position=at, credential=login) for at, login in enumerate(logins, start=1)]
    RouteEntry.objects.bulk_create(entries)


def route_facts(row: Route) -> dict[str, Any]:
    logins = [entry.credential for entry in row.entries.all()]
    closed = why_not([login.pk for login in logins], row.patience)
    return {
        "name": row.name,
        "sponsor": row.sponsor.name if row.sponsor else None,
        "channel": row.channel,
        "by": [str(login) for login in logins],
        "patience": row.patience,
        "closed": [f"{login}: {closed[login.pk]}" for login in logins if closed[login.pk]],
    }
