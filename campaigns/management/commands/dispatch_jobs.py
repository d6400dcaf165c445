"""`manage.py dispatch_jobs`: the nightly jobs, now (document 000)."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Model

from campaigns import dispatcher
from campaigns.claims.dispatching import Dispatched
from campaigns.models import Sponsor
from campaigns.tasks import ring
from vendors.models import Vendor


class Command(BaseCommand):
    help = (
        "Dispatches the jobs that wait for the night, now. Exit codes: 0 done (also if none waited), "
        "1 unknown vendor or sponsor, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--vendor", metavar="SLUG", help="only this vendor's jobs")
        parser.add_argument("--sponsor", metavar="NAME", help="only this sponsor's jobs")
        parser.add_argument("--dry-run", action="store_true", help="say what would go out; change nothing")
        parser.add_argument("--json", action="store_true", help="one object: jobs, whole, to_cut, vendors, dry_run")

    def handle(self, *args: Any, **options: Any) -> None:
        vendor = _named(Vendor, "slug", options["vendor"])
        sponsor = _named(Sponsor, "name", options["sponsor"])
        if options["dry_run"]:
            self._tell(dispatcher.pending(vendor, sponsor), options)
            return
        done = dispatcher.dispatch(vendor, sponsor)
        ring(done.vendors)
        self._tell(done, options)

    def _tell(self, done: Dispatched, options: dict[str, Any]) -> None:
        slugs = list(Vendor.objects.filter(pk__in=done.vendors).values_list("slug", flat=True))
        if options["json"]:
            facts = {"jobs": done.jobs, "whole": done.leaves, "to_cut": done.parents, "vendors": slugs}
            self.stdout.write(json.dumps(facts | {"dry_run": options["dry_run"]}))
            return
        if not done.jobs:
            self.stdout.write("No job waits for dispatch.")
            return
        verb = "Would dispatch" if options["dry_run"] else "Dispatched"
        jobs = "1 job" if done.jobs == 1 else f"{done.jobs:,} jobs"
        self.stdout.write(f"{verb} {jobs} ({done.leaves:,} whole, {done.parents:,} to be cut): {', '.join(slugs)}")


def _named(model: type[Model], field: str, name: str | None) -> Any:
    """The row of that name; an unknown name is an error that lists the known ones (the first twenty)."""
    if name is None:
        return None
    rows = model._default_manager.all()
    found = rows.filter(**{field: name}).first()
    if found is None:
        known = ", ".join(rows.order_by(field).values_list(field, flat=True)[:20]) or "there is none yet"
        raise CommandError(f"no {model._meta.verbose_name} {name!r}; known: {known}")
    return found
