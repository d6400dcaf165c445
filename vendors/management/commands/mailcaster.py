"""`manage.py mailcaster`: the sending slots of a vendor (document 003)."""

from typing import Any

from django.core.management.base import CommandError
from django.db import IntegrityError, transaction

from vendors.history import changes_sentence
from vendors.management import arguments, facts
from vendors.management.facts import caster_facts
from vendors.management.resources import AddArgument, ResourceCommand, declare_argument, declare_verb
from vendors.models import Mailcaster
from vendors.said import Said, gettext_noop

NAMED = (declare_argument("vendor"), declare_argument("name"))
FIELDS = ("kind", "min_size", "max_size", "percentage")


def _size_arguments(*defaults: str) -> tuple[AddArgument, ...]:
    about = zip(("messages of a child at least", "and at most", "of what remains of the parent"), defaults, strict=True)
    least, most, share = (f"{text}{default}" for text, default in about)
    return (
        declare_argument("--min", type=int, dest="min_size", metavar="N", help=least),
        declare_argument("--max", type=int, dest="max_size", metavar="N", help=most),
        declare_argument("--percentage", type=float, metavar="P", help=share),
    )


class Command(ResourceCommand):
    help = (
        "Mailcasters: add, list, set, enable, disable, remove. A disabled or removed caster finishes its job. Exit "
        "codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    one_object = "a caster"
    shown = ("vendor", "name", "kind", "min", "max", "percentage", "enabled")
    row_facts = staticmethod(caster_facts)

    @declare_verb("all, or those of a vendor", declare_argument("vendor", nargs="?"))
    def do_list(self, vendor: str | None, **options: Any) -> None:
        rows = Mailcaster.objects.select_related("vendor")
        self.write_rows(rows.filter(vendor=arguments.find_vendor(vendor)) if vendor else rows)

    @declare_verb(
        "a slot that sends one job at a time",
        *NAMED,
        declare_argument("--kind", required=True, choices=Mailcaster.Kind.values),
        *_size_arguments(" (2000)", " (10000)", " (3)"),
    )
    def do_add(self, vendor: str, name: str, **options: Any) -> None:
        of = arguments.find_vendor(vendor)
        wanted = _typed_fields(options)
        row = Mailcaster(vendor=of, name=name, **wanted)
        _check_row(row)
        with transaction.atomic():
            row, new = Mailcaster.objects.get_or_create(vendor=of, name=name, defaults=wanted)
            if new:
                _record_change(row, ADDED)
        if not new:
            arguments.check_same(row, wanted)
        self.write_row(row, "added" if new else "already there")

    @declare_verb(
        "change its kind or sizes, from the next job or child that it takes",
        *NAMED,
        declare_argument("--kind", choices=Mailcaster.Kind.values),
        *_size_arguments("", "", ""),
    )
    def do_set(self, vendor: str, name: str, **options: Any) -> None:
        row = _find_mailcaster(vendor, name)
        wanted = _typed_fields(options)
        if not wanted:
            raise CommandError("say what is to be changed: --kind, --min, --max, --percentage", returncode=2)
        before = {field: getattr(row, field) for field, value in wanted.items() if getattr(row, field) != value}
        changed = {field: wanted[field] for field in before}
        for field, value in changed.items():
            setattr(row, field, value)
        _check_row(row)
        if changed:
            _store_row(row, changed, changes_sentence(before, changed))
        self.write_row(row, "changed" if changed else "already so")

    @declare_verb("it may take jobs", *NAMED)
    def do_enable(self, vendor: str, name: str, **options: Any) -> None:
        self._switch_row(_find_mailcaster(vendor, name), True)

    @declare_verb("it takes no further job", *NAMED)
    def do_disable(self, vendor: str, name: str, **options: Any) -> None:
        self._switch_row(_find_mailcaster(vendor, name), False)

    @declare_verb("for good", *NAMED)
    def do_remove(self, vendor: str, name: str, **options: Any) -> None:
        row = _find_mailcaster(vendor, name)
        with transaction.atomic():
            _record_change(row, REMOVED)
            row.delete()
        self.write_result(f"{row}: removed", {"vendor": vendor, "name": name, "removed": True})

    def _switch_row(self, row: Mailcaster, enabled: bool) -> None:
        state = (
            "already so" if row.enabled == enabled else "enabled" if enabled else "disabled: it takes no further job"
        )
        with transaction.atomic():
            if Mailcaster.objects.filter(pk=row.pk).exclude(enabled=enabled).update(enabled=enabled):
                _record_change(row, ENABLED if enabled else DISABLED)
        self.write_row(row, state)


def _typed_fields(options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields given as options."""
    return {field: options[field] for field in FIELDS if options[field] is not None}


def _check_row(row: Mailcaster) -> None:
    """Validate like the admin's form and the table's constraints. Raises CommandError."""
    arguments.check_row(row)
    if row.min_size < 1 or not 0 < row.percentage <= 100:
        raise CommandError("the minimum must be 1 or more, the percentage over 0 and at most 100")


def _store_row(row: Mailcaster, changed: dict[str, Any], what: str) -> None:
    try:
        with transaction.atomic():
            if stored := Mailcaster.objects.filter(pk=row.pk).update(**changed):
                _record_change(row, CHANGED, what)
    except IntegrityError:  # with another operator's new sizes
        stored = 0
    if not stored:
        raise CommandError(f"{row} was changed or removed meanwhile, so nothing was stored: run it again")


ADDED = gettext_noop("mailcaster %(row)s added")
REMOVED = gettext_noop("mailcaster %(row)s removed")
ENABLED = gettext_noop("mailcaster %(row)s enabled")
DISABLED = gettext_noop("mailcaster %(row)s disabled")
CHANGED = "mailcaster %(row)s: %(changes)s"


def _record_change(row: Mailcaster, form: str, changes: str = "") -> None:
    """Log the change in the vendor's history, like the admin's changes of its casters."""
    facts.log_changed(row.vendor, Said(form, row=str(row), changes=changes))


def _find_mailcaster(vendor: str, name: str) -> Mailcaster:
    of = arguments.find_vendor(vendor)
    return arguments.find_named(of.mailcasters.all(), name, f"{of.slug} has no mailcaster {name!r}; it has")
