"""`manage.py mailcaster`: the sending slots of a vendor (document 003)."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from vendors.management import arguments
from vendors.management import facts as history
from vendors.management.facts import caster_facts
from vendors.management.output import tell, write_rows
from vendors.models import Mailcaster, Vendor

SHOWN = ("vendor", "name", "kind", "min", "max", "percentage", "enabled")


class Command(BaseCommand):
    help = (
        "Mailcasters: add, list, enable, disable, remove. A disabled or removed caster finishes its job. Exit codes: "
        "0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        verbs.add_parser("list", help="all, or those of a vendor").add_argument("vendor", nargs="?")
        abouts = {
            "add": "a slot that sends one job at a time",
            "enable": "it may take jobs",
            "disable": "it takes no further job",
            "remove": "for good",
        }
        for verb, about in abouts.items():
            one = verbs.add_parser(verb, help=about)
            one.add_argument("vendor")
            one.add_argument("name")
        add = verbs.choices["add"]
        add.add_argument("--kind", required=True, choices=Mailcaster.Kind.values)
        add.add_argument("--min", type=int, dest="min_size", metavar="N", help="messages of a child at least (2000)")
        add.add_argument("--max", type=int, dest="max_size", metavar="N", help="and at most (10000)")
        add.add_argument("--percentage", type=float, metavar="P", help="of what remains of the parent (3)")
        for one in verbs.choices.values():
            one.add_argument("--json", action="store_true", help="one object a caster")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"do_{options['verb']}")(**options)

    def do_add(self, vendor: str, name: str, **options: Any) -> None:
        of = arguments.vendor(vendor)
        sizes = ("min_size", "max_size", "percentage")
        wanted = {"kind": options["kind"]} | {key: options[key] for key in sizes if options[key] is not None}
        row = Mailcaster(vendor=of, name=name, **wanted)
        arguments.check(row)
        if row.min_size < 1 or not 0 < row.percentage <= 100:
            raise CommandError("the minimum must be 1 or more, the percentage over 0 and at most 100")
        with transaction.atomic():
            row, new = Mailcaster.objects.get_or_create(vendor=of, name=name, defaults=wanted)
            if new:
                _on_record(of, row, "added")
        faults = [] if new else arguments.differences(row, wanted)
        if faults:
            raise CommandError(f"{row} is already there, and differs: " + "; ".join(faults))
        self._tell(row, "added" if new else "already there", options)

    def do_list(self, vendor: str | None, **options: Any) -> None:
        rows = Mailcaster.objects.select_related("vendor")
        if vendor:
            rows = rows.filter(vendor=arguments.vendor(vendor))
        write_rows(self.stdout, map(caster_facts, rows), options["json"], SHOWN)

    def do_enable(self, vendor: str, name: str, **options: Any) -> None:
        self._switch(vendor, name, True, options)

    def do_disable(self, vendor: str, name: str, **options: Any) -> None:
        self._switch(vendor, name, False, options)

    def do_remove(self, vendor: str, name: str, **options: Any) -> None:
        row = _caster(arguments.vendor(vendor), name)
        with transaction.atomic():
            _on_record(row.vendor, row, "removed")
            row.delete()
        facts = {"vendor": vendor, "name": name, "removed": True}
        tell(self.stdout, f"{row}: removed", facts, options["json"])

    def _switch(self, vendor: str, name: str, enabled: bool, options: dict[str, Any]) -> None:
        row = _caster(arguments.vendor(vendor), name)
        state = (
            "already so" if row.enabled == enabled else "enabled" if enabled else "disabled: it takes no further job"
        )
        with transaction.atomic():
            if Mailcaster.objects.filter(pk=row.pk).exclude(enabled=enabled).update(enabled=enabled):
                _on_record(row.vendor, row, "enabled" if enabled else "disabled")
        self._tell(row, state, options)

    def _tell(self, row: Mailcaster, sentence: str, options: dict[str, Any]) -> None:
        row.refresh_from_db()
        tell(self.stdout, f"{row}: {sentence}", caster_facts(row), options["json"])


def _on_record(of: Vendor, row: Mailcaster, what: str) -> None:
    """Log the change in the vendor's history, like the admin's changes of its casters."""
    history.changed(of, f"mailcaster {row} {what}")


def _caster(of: Vendor, name: str) -> Mailcaster:
    found = of.mailcasters.filter(name=name).first()
    if found is None:
        known = ", ".join(of.mailcasters.values_list("name", flat=True)) or "none yet"
        raise CommandError(f"{of.slug} has no mailcaster {name!r}; it has: {known}")
    return found
