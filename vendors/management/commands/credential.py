"""`manage.py credential`: credentials of vendors. Secrets can be entered, never shown."""

from typing import Any

from django.core.management.base import CommandError
from django.db import transaction

from vendors import configuration, history, login_check
from vendors.condition.reading import conditions_of_credentials
from vendors.management import arguments, facts, moving
from vendors.management.facts import credential_facts
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb
from vendors.models import Credential
from vendors.said import Said, gettext_noop

NAMED = (declare_argument("vendor"), declare_argument("name"))
SECRET = (
    declare_argument("--set", nargs="+", action="extend", default=[], metavar="HEADER=VALUE", dest="secret"),
    declare_argument("--secret-file", metavar="JSON", help="an object of texts; keeps it off the command line"),
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

    @declare_verb("all, or those of a vendor; of a secret the names alone", declare_argument("vendor", nargs="?"))
    def do_list(self, vendor: str | None, **options: Any) -> None:
        rows = Credential.objects.select_related("vendor").prefetch_related("limits")
        found = list(rows.filter(vendor=arguments.find_vendor(vendor)) if vendor else rows)
        conditions = conditions_of_credentials([row.pk for row in found])
        shown = (
            credential_facts(row) | facts.shown_condition(conditions[row.pk], as_json=self.as_json) for row in found
        )
        self.write_facts(shown, self.shown)

    @declare_verb(
        "a login; its adapter says which headers, or user and password, it needs",
        *(*NAMED, *SECRET, declare_argument("--exclusive", action="store_true", help="one campaign at a time")),
    )
    def do_add(self, vendor: str, name: str, exclusive: bool, **options: Any) -> None:
        of = arguments.find_vendor(vendor)
        secret = arguments.read_secret(of, options["secret"], options["secret_file"])
        wanted = {"exclusive": exclusive, "secret": secret}
        arguments.check_row(Credential(vendor=of, name=name, **wanted))
        with transaction.atomic():
            row, new = Credential.objects.get_or_create(vendor=of, name=name, defaults=wanted)
            if new:
                facts.log_added(row)
        if not new:
            arguments.check_same(row, wanted)
        self.write_row(row, "added" if new else "already there")

    @declare_verb("a new secret in place of the old one", *NAMED, *SECRET, moving.add_arguments)
    def do_set(self, vendor: str, name: str, **options: Any) -> None:
        of = arguments.find_vendor(vendor)
        row = arguments.find_credential(of, name)
        if not options["secret"] and not options["secret_file"]:
            raise CommandError("give the new secret with --set or --secret-file")
        secret = arguments.read_secret(of, options["secret"], options["secret_file"])
        moving.agree_on_secret(self.stderr, row, options)
        with transaction.atomic():
            by = history.Actor(arguments.shell_user())
            configuration.save_secret(row, secret, by, options["same_account"])
            resumed = configuration.resume_with_secret(row)
            done = [history.replaced_sentence("secret"), *([Said(gettext_noop("resumed"))] if resumed else [])]
            facts.log_changed(row, Said.join_parts("; ", done))
        row.refresh_from_db()
        self.write_row(row, "its secret is replaced" + ("; it is still paused" if row.paused else ""))

    @declare_verb("no new call starts over it", *NAMED, declare_argument("--reason", default="paused by hand"))
    def do_pause(self, vendor: str, name: str, reason: str, **options: Any) -> None:
        row = arguments.find_credential(arguments.find_vendor(vendor), name)
        with facts.log_changes(row, credential_facts):
            paused = configuration.pause_credential(row, reason, again=True)
        self.write_row(row, "paused: no new call starts" if paused else "was paused already")

    @declare_verb("calls may start again", *NAMED)
    def do_resume(self, vendor: str, name: str, **options: Any) -> None:
        of = arguments.find_vendor(vendor)
        row = arguments.find_credential(of, name)
        arguments.check_has_secret(of, row)
        with facts.log_changes(row, credential_facts):
            resumed, tried = configuration.resume_credential(row)
        state = "resumed" if resumed else "was not paused"
        self.write_row(row, state + ("; its vendor asked to wait, and is called again now" if tried else ""))

    @declare_verb("log in and leave: whether it works, and what the relay offers; sends nothing", *NAMED)
    def do_check(self, vendor: str, name: str, **options: Any) -> None:
        row = arguments.find_credential(arguments.find_vendor(vendor), name)
        found = login_check.check_login(row, history.Actor(arguments.shell_user()))
        if self.as_json:
            self.write_result(found.sentence, found.json_facts())
        elif found.works:
            self.write_result(f"{row}: {found.sentence}", {})
        if not found.works:
            raise CommandError(f"{row}: {found.sentence}")

    @declare_verb("stop even the single calls that try a failing vendor", *NAMED)
    def do_hold(self, vendor: str, name: str, **options: Any) -> None:
        row = arguments.find_credential(arguments.find_vendor(vendor), name)
        with facts.log_changes(row, credential_facts):
            held = configuration.hold_brake(row)
        self.write_row(row, "held: nobody calls over it until its release" if held else "was held already")

    @declare_verb("call a failing vendor again at once, over all connections", *NAMED)
    def do_release(self, vendor: str, name: str, **options: Any) -> None:
        row = arguments.find_credential(arguments.find_vendor(vendor), name)
        with facts.log_changes(row, credential_facts):
            released = configuration.release_brake(row)
        self.write_row(row, "its brake is released" if released else "its brake was not on")
