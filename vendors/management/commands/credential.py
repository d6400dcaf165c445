"""`manage.py credential`: credentials of vendors. Secrets can be entered, never shown."""

from typing import Any

from django.core.management.base import CommandError
from django.db import transaction

from vendors import configuration, history, login_check
from vendors.condition.reading import conditions_of_credentials
from vendors.management import arguments, facts, moving
from vendors.management.facts import credential_facts
from vendors.management.resources import ResourceCommand, argument, verb
from vendors.models import Credential
from vendors.said import Said, gettext_noop

NAMED = (argument("vendor"), argument("name"))
SECRET = (
    argument("--set", nargs="+", action="extend", default=[], metavar="HEADER=VALUE", dest="secret"),
    argument("--secret-file", metavar="JSON", help="an object of texts; keeps it off the command line"),
)


class Command(ResourceCommand):
    help = (
        "Credentials: add, set, list, check, pause, resume, hold, release. "
        "Their own limits: vendor limit SLUG N/SECONDS --credential NAME. "
        "Exit codes: 0 done (or it was so already), 1 unknown name, bad value or a login that does not work, 2 usage."
    )
    one_object = "a credential"
    shown = ("vendor", "name", "exclusive", "limits", "secret", "condition")
    row_facts = staticmethod(credential_facts)

    @verb("all, or those of a vendor; of a secret the names alone", argument("vendor", nargs="?"))
    def do_list(self, vendor: str | None, **options: Any) -> None:
        rows = Credential.objects.select_related("vendor").prefetch_related("limits")
        found = list(rows.filter(vendor=arguments.vendor(vendor)) if vendor else rows)
        conditions = conditions_of_credentials([row.pk for row in found])
        shown = (
            credential_facts(row) | facts.shown_condition(conditions[row.pk], as_json=self.as_json) for row in found
        )
        self.write_facts(shown, self.shown)

    @verb(
        "a login; its adapter says which headers, or user and password, it needs",
        *(*NAMED, *SECRET, argument("--exclusive", action="store_true", help="one campaign at a time")),
    )
    def do_add(self, vendor: str, name: str, exclusive: bool, **options: Any) -> None:
        of = arguments.vendor(vendor)
        secret = arguments.secret(of, options["secret"], options["secret_file"])
        wanted = {"exclusive": exclusive, "secret": secret}
        arguments.check(Credential(vendor=of, name=name, **wanted))
        with transaction.atomic():
            row, new = Credential.objects.get_or_create(vendor=of, name=name, defaults=wanted)
            if new:
                facts.added(row)
        if not new:
            arguments.check_same(row, wanted)
        self.tell_row(row, "added" if new else "already there")

    @verb("a new secret in place of the old one", *NAMED, *SECRET, moving.add_arguments)
    def do_set(self, vendor: str, name: str, **options: Any) -> None:
        of = arguments.vendor(vendor)
        row = arguments.credential(of, name)
        if not options["secret"] and not options["secret_file"]:
            raise CommandError("give the new secret with --set or --secret-file")
        secret = arguments.secret(of, options["secret"], options["secret_file"])
        moving.agree_on_secret(self.stderr, row, options)
        with transaction.atomic():
            by = history.Actor(arguments.person())
            configuration.save_secret(row, secret, by, options["same_account"])
            resumed = configuration.resume_with_secret(row)
            done = [history.replaced("secret"), *([Said(gettext_noop("resumed"))] if resumed else [])]
            facts.changed(row, Said.joined("; ", done))
        row.refresh_from_db()
        self.tell_row(row, "its secret is replaced" + ("; it is still paused" if row.paused else ""))

    @verb("no new call starts over it", *NAMED, argument("--reason", default="paused by hand"))
    def do_pause(self, vendor: str, name: str, reason: str, **options: Any) -> None:
        row = arguments.credential(arguments.vendor(vendor), name)
        with facts.kept(row, credential_facts):
            paused = configuration.pause_credential(row, reason, again=True)
        self.tell_row(row, "paused: no new call starts" if paused else "was paused already")

    @verb("calls may start again", *NAMED)
    def do_resume(self, vendor: str, name: str, **options: Any) -> None:
        of = arguments.vendor(vendor)
        row = arguments.credential(of, name)
        arguments.check_secret(of, row)
        with facts.kept(row, credential_facts):
            resumed, tried = configuration.resume_credential(row)
        state = "resumed" if resumed else "was not paused"
        self.tell_row(row, state + ("; its vendor asked to wait, and is called again now" if tried else ""))

    @verb("log in and leave: whether it works, and what the relay offers; sends nothing", *NAMED)
    def do_check(self, vendor: str, name: str, **options: Any) -> None:
        row = arguments.credential(arguments.vendor(vendor), name)
        found = login_check.check_login(row, history.Actor(arguments.person()))
        if self.as_json:
            self.tell(found.sentence, found.facts())
        elif found.works:
            self.tell(f"{row}: {found.sentence}", {})
        if not found.works:
            raise CommandError(f"{row}: {found.sentence}")

    @verb("stop even the single calls that try a failing vendor", *NAMED)
    def do_hold(self, vendor: str, name: str, **options: Any) -> None:
        row = arguments.credential(arguments.vendor(vendor), name)
        with facts.kept(row, credential_facts):
            held = configuration.hold_brake(row)
        self.tell_row(row, "held: nobody calls over it until its release" if held else "was held already")

    @verb("call a failing vendor again at once, over all connections", *NAMED)
    def do_release(self, vendor: str, name: str, **options: Any) -> None:
        row = arguments.credential(arguments.vendor(vendor), name)
        with facts.kept(row, credential_facts):
            released = configuration.release_brake(row)
        self.tell_row(row, "its brake is released" if released else "its brake was not on")
