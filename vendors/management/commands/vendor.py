"""`manage.py vendor`: vendors, their rate limits, health and nightly dispatch."""

import re
from datetime import datetime, time, timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from vendors import adapters, configuration, health, locks, mail_classes, report_counts, restarts, second_person
from vendors import history as records
from vendors.condition.reading import conditions_of_vendors
from vendors.condition.values import describe_condition
from vendors.instants import write_time
from vendors.management import arguments, describing, moving, pricing, receipts
from vendors.management import facts as history
from vendors.management.facts import credential_facts, shown_condition, status_facts, vendor_facts
from vendors.management.output import value_word
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb
from vendors.models import Credential, Vendor
from vendors.said import Said, gettext_noop

# option -> field; stored as typed
FIELDS = {
    "name": "name", "channel": "channel", "threshold": "small_audience_threshold", "time_zone": "time_zone",
    "floor": "floor",
}  # fmt: skip
HEALTH_OPTIONS = ("min_requests", "min_ratio", "health_ttl", "retry_after")
SLUG = declare_argument("slug")
OWN = (  # what a new vendor gets and what can be changed later
    declare_argument("--name", help="its name in the admin; the default of a new one is its slug"),
    declare_argument("--owner", metavar="SPONSOR", help="whose users govern it; empty: the installation's"),
    declare_argument("--channel", choices=Vendor.Channel.values),
    declare_argument("--threshold", type=int, metavar="N", help="jobs of fewer messages are small"),
    declare_argument(
        "--floor", type=int, metavar="PERCENT", help="of its rate, for usual and bulk mail each; 0: they wait"
    ),
    declare_argument("--dispatch-at", metavar="HH:MM", help="local time of the nightly dispatch"),
    declare_argument("--time-zone", metavar="ZONE", help="for example Europe/London"),
    declare_argument("--weekdays", metavar="DAYS", help="of the nightly dispatch: 1-5, or 1,3,5; 1 is Monday"),
    declare_argument("--catch-up", metavar="HH:MM", help="how late a nightly dispatch may still start"),
)


class Command(ResourceCommand):
    help = (
        "Vendors: add, list, show, set, limit, price, pause, resume, release, status, reset, receipts, describe, "
        "remove. "
        "Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )

    one_object = "a vendor"
    shown = ("slug", "name", "channel", "adapter", "limits", "casters", "dispatch_at", "condition")
    row_facts = staticmethod(vendor_facts)

    @declare_verb(
        "a vendor with a credential 'default' and a set of casters",
        SLUG,
        lambda parser: parser.add_argument("--adapter", required=True, choices=adapters.list_names()),  # those of now
        declare_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", dest="values"),
        declare_argument("--limit", nargs="+", action="extend", metavar="N/SECONDS", dest="limits"),
        declare_argument("--secret-file", metavar="JSON", help="the secret of the credential default"),
        *OWN,
        declare_argument("--sandbox", action="store_true", help="delivers to nobody: test keys may use it"),
        declare_argument("--no-casters", action="store_true", help="they are added with the command mailcaster"),
    )
    def do_add(self, slug: str, **options: Any) -> None:
        wanted = self._wanted_fields(slug, options)
        limits = arguments.parse_windows(options["limits"] or [])
        row = Vendor(**{"slug": slug, "name": slug, **wanted})
        arguments.check_row(row)
        try:
            with transaction.atomic():
                row.save()
                login = Credential.objects.create(
                    vendor=row, **arguments.read_first_secret(row, options["secret_file"])
                )
                configuration.replace_rate_limits(row, None, limits)
                if not options["no_casters"]:
                    configuration.create_default_casters(row)
                history.log_added(row)
        except IntegrityError:
            self._compare_row(arguments.find_vendor(slug), wanted, None if options["limits"] is None else limits)
            return
        summary = f"{slug}: added, with the credential default and {row.mailcasters.count()} casters"
        summary = "\n".join([summary, *restarts.restarts_after_adding(row.adapter)])
        if login.paused:
            summary += f"\n{login} is paused: {login.paused_reason}"
        self._tell_stored(row, "\n".join([summary, *map(configuration.describe_rate_limit, limits)]))

    @declare_verb("all of them")
    def do_list(self, **options: Any) -> None:
        found = list(Vendor.objects.select_related("owner").prefetch_related("limits", "credentials", "mailcasters"))
        conditions = conditions_of_vendors([row.pk for row in found])
        rows = [
            vendor_facts(row)
            | shown_condition(conditions[row.pk], as_json=self.as_json)
            | ({} if self.as_json else {"limits": history.limit_texts(row)})
            for row in found
        ]
        self.write_facts(rows, self.shown)

    @declare_verb("one of them", SLUG)
    def do_show(self, slug: str, **options: Any) -> None:
        row = arguments.find_vendor(slug)
        lines = [f"{name}: {value_word(value)}" for name, value in vendor_facts(row).items()]
        lines += map(configuration.describe_rate_limit, configuration.rate_limits(row))
        lines += [] if row.floor else [mail_classes.NO_FLOOR]
        self._tell_stored(row, "\n".join(lines))

    @declare_verb("calls may start again", SLUG)
    def do_resume(self, slug: str, **options: Any) -> None:
        row = arguments.find_vendor(slug)
        with history.log_changes(row, vendor_facts):
            resumed = configuration.resume_vendor(row)
        self._tell_stored(row, f"{slug}: {'resumed' if resumed else 'was not paused'}")

    @declare_verb("forget its good and bad answers: work of API clients is accepted again", SLUG)
    def do_reset(self, slug: str, **options: Any) -> None:
        row = arguments.find_vendor(slug)
        try:
            health.health_store(settings.REDIS_URL).reset(row.pk)
        except health.HealthStoreUnreachable as error:
            raise CommandError(f"the status store cannot be reached: {error}") from error
        history.log_changed(row, Said(gettext_noop("its answers are forgotten")))
        self._tell_stored(row, f"{slug}: its answers are forgotten")

    @declare_verb("a vendor without campaigns", SLUG)
    def do_remove(self, slug: str, **options: Any) -> None:
        row = arguments.find_vendor(slug)
        try:
            with transaction.atomic():
                history.log_removed(row)
                row.credentials.all().delete()
                row.delete()
        except ProtectedError:
            raise CommandError(f"{slug} has campaigns and stays, for the record; pause it instead") from None
        self.write_result(f"{slug}: removed", {"slug": slug, "removed": True})

    @declare_verb(
        "change its name, night or settings; KEY= takes one away",
        SLUG,
        declare_argument("values", nargs="*", metavar="KEY=VALUE"),
        *OWN,
        moving.add_arguments,
    )
    def do_set(self, slug: str, **options: Any) -> None:
        row = arguments.find_vendor(slug)
        wanted = _typed_fields(options)
        if values := arguments.parse_pairs(options["values"]):
            merged = {key: value for key, value in (row.settings | values).items() if value != ""}
            wanted["settings"] = arguments.parse_settings(row.adapter, merged)
        if not wanted:
            raise CommandError("say what is to be changed: KEY=VALUE, --dispatch-at and the like", returncode=2)
        changed = [name for name, value in wanted.items() if getattr(row, name) != value]
        if "channel" in changed:  # recipients were parsed and compared with suppressions by its channel
            raise CommandError(f"{slug} delivers {row.channel}; for {wanted['channel']} add another vendor")
        for name in changed:
            setattr(row, name, wanted[name])
        arguments.check_row(row)
        moving.agree_on_vendor(self.stderr, row, options)
        with history.log_changes(row, vendor_facts):
            # Only these columns: senders write others. Beat learns of a changed night.
            by = records.Actor(arguments.shell_user())
            forgotten = configuration.save_vendor(row, changed, by, options["same_account"])
        summary = [f"{slug}: {'changed' if changed else 'already so'}"]
        summary += [f"{login} is paused: {login.paused_reason}" for login in forgotten]
        summary += [mail_classes.NO_FLOOR] if "floor" in changed and not row.floor else []
        self._tell_stored(row, "\n".join(summary))

    @declare_verb(
        "replace its limits, in force immediately; 0/60 pauses; none: show them",
        SLUG,
        declare_argument("limits", nargs="*", metavar="N/SECONDS"),
        declare_argument("--credential", metavar="NAME", help="of this credential alone"),
        declare_argument("--clear", action="store_true", help="no limit any more"),
    )
    def do_limit(self, slug: str, **options: Any) -> None:
        row = arguments.find_vendor(slug)
        name = options["credential"]
        login = arguments.find_credential(row, name) if name else None
        windows = arguments.parse_windows(options["limits"])
        if windows and options["clear"]:
            raise CommandError("give new limits or --clear, not both")
        result = ""
        if windows or options["clear"]:
            with history.log_changes(login, credential_facts) if login else history.log_changes(row, vendor_facts):
                result = "changed\n" if configuration.replace_rate_limits(row, login, windows) else "already so\n"
        now = "\n".join(map(configuration.describe_rate_limit, configuration.rate_limits(row, login))) or "no limit"
        self._tell_stored(row, f"{login or slug}: {result}{now}")

    @declare_verb("set its price from a day on, or show the prices", pricing.add_arguments)
    def do_price(self, slug: str, **options: Any) -> None:
        pricing.run_price(self.stdout, slug, options)

    @declare_verb(
        "whether work of API clients is accepted, and why not; or change the rules for it",
        SLUG,
        declare_argument("--min-requests", type=int, metavar="N", help="with fewer answers it counts as healthy"),
        declare_argument("--min-ratio", type=float, metavar="0..1", help="share of good answers needed"),
        declare_argument("--health-ttl", type=int, metavar="S", help="seconds after which answers are forgotten"),
        declare_argument("--retry-after", type=int, metavar="S", help="seconds that API clients are asked to wait"),
    )
    def do_status(self, slug: str, **options: Any) -> None:
        row = arguments.find_vendor(slug)
        changed = {name: options[name] for name in HEALTH_OPTIONS if options[name] is not None}
        if changed:
            for name, value in changed.items():
                setattr(row, name, value)
            arguments.check_row(row)
            with history.log_changes(row, _health_options):
                locks.take_turn(row.pk)
                Vendor.objects.filter(pk=row.pk).update(**changed)
        try:
            status = health.health_store(settings.REDIS_URL).look(row.pk, health.HealthPolicy.of(row))
        except health.HealthStoreUnreachable as error:
            raise CommandError(f"the status store cannot be reached: {error}") from error
        condition = conditions_of_vendors([row.pk])[row.pk]
        seen = describe_condition(condition, write_time)
        terms = f"{row.min_ratio:.0%} of at least {row.min_requests} answers in {row.health_ttl} s must be good"
        reports = report_counts.counts_today([row.pk])[row.pk]
        counted = ", ".join(f"{number:,} {what}" for what, number in reports.items())
        note = f"{slug}: {seen}; for programs: {status}; {terms}; retry after {row.retry_after} s"
        note += f"; reports today: {counted}"
        self.write_result(note, status_facts(row, condition, status, reports))

    @declare_verb(
        "no new call starts, not even one that tries it", SLUG, declare_argument("--reason", default="paused by hand")
    )
    def do_pause(self, slug: str, **options: Any) -> None:
        row = arguments.find_vendor(slug)
        with history.log_changes(row, vendor_facts):
            locks.take_turn(row.pk)
            reason = second_person.name_pause(row.pk, options["reason"])
            paused = configuration.pause_vendor(row, reason, again=True)
        self._tell_stored(row, f"{slug}: {'paused: no new call starts' if paused else 'was paused already'}")

    @declare_verb("call it again at once over all credentials whose brake is on or held", SLUG)
    def do_release(self, slug: str, **options: Any) -> None:
        row = arguments.find_vendor(slug)
        with transaction.atomic():
            released = configuration.release_all_brakes(row)
            for login in released:
                history.log_changed(login, Said(gettext_noop("its brake was released")))
        names = ", ".join(login.name for login in released)
        self._tell_stored(row, f"{slug}: {f'released: {names}' if released else 'no brake was on'}")

    @declare_verb("a secret for its delivery reports: a new one, or its own", receipts.add_arguments)
    def do_receipts(self, slug: str, **options: Any) -> None:
        receipts.run_receipts(self.stdout, slug, options)

    @declare_verb("check a description (TOML), try it, or store it", describing.add_arguments)
    def do_describe(self, **options: Any) -> None:
        describing.run_describe(self.stdout, self.stderr, options)

    def _wanted_fields(self, slug: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return the fields given for a new vendor; the others keep their defaults."""
        wanted = _typed_fields(options) | {"adapter": options["adapter"]}
        wanted["settings"] = arguments.parse_settings(options["adapter"], arguments.parse_pairs(options["values"]))
        return wanted | ({"sandbox": True} if options["sandbox"] else {})

    def _compare_row(self, row: Vendor, wanted: dict[str, Any], limits: list[configuration.LimitSpec] | None) -> None:
        differs = limits is not None and configuration.rate_limits(row) != limits
        others = [f"the limits are {value_word(vendor_facts(row)['limits']) or 'none'}"] if differs else []
        arguments.check_same(row, wanted, *others)
        self._tell_stored(row, f"{row.slug}: already there")

    def _tell_stored(self, row: Vendor, sentence: str) -> None:
        row.refresh_from_db()
        self.write_result(sentence, vendor_facts(row))


def _health_options(row: Vendor) -> dict[str, Any]:
    return {name: getattr(row, name) for name in HEALTH_OPTIONS}


def _typed_fields(options: dict[str, Any]) -> dict[str, Any]:
    """Return the given fields with the values to store."""
    wanted = {field: options[option] for option, field in FIELDS.items() if options[option] is not None}
    if options["owner"] is not None:
        wanted["owner"] = arguments.find_owner(options["owner"])
    if options["dispatch_at"]:
        wanted["dispatch_at"] = _parse_clock(options["dispatch_at"])
    if options["weekdays"]:
        wanted["weekdays"] = _parse_days(options["weekdays"])
    if options["catch_up"]:
        wanted["catch_up"] = _parse_span(options["catch_up"])
    return wanted


def _parse_clock(typed: str) -> time:
    try:
        return datetime.strptime(typed, "%H:%M").time()  # noqa: DTZ007  a local time of day
    except ValueError:
        raise CommandError(f"{typed!r} is not a time of day: write HH:MM") from None


def _parse_span(typed: str) -> timedelta:
    """Parse hours and minutes, more than none; the hours may exceed a day."""
    hours, _, minutes = typed.partition(":")
    if not re.fullmatch(r"\d{1,3}:[0-5]\d", typed) or not int(hours) + int(minutes):
        raise CommandError(f"{typed!r} is not a span of time: write HH:MM, for example 6:00")
    return timedelta(hours=int(hours), minutes=int(minutes))


def _parse_days(typed: str) -> list[int]:
    """Parse 1-5 or 1,3,5 into ISO weekdays."""
    days: set[int] = set()
    for part in typed.split(","):
        first, dash, last = part.partition("-")
        ends = {first, last if dash else first}
        if not ends <= set("1234567"):
            raise CommandError(f"{typed!r} are not weekdays: write 1-5 or 1,3,5; 1 is Monday")
        days.update(range(int(first), int(last if dash else first) + 1))
    if not days:
        raise CommandError(f"{typed!r} are not weekdays: write 1-5 or 1,3,5; 1 is Monday")
    return sorted(days)
