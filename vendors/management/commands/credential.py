"""`manage.py credential`: credentials of vendors. Secrets can be entered, never shown."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from vendors import configuration, history, locks
from vendors.management import arguments, facts, moving
from vendors.management.facts import credential_facts
from vendors.management.output import tell, write_rows
from vendors.models import Credential

SHOWN = ("vendor", "name", "exclusive", "limits", "secret", "paused", "retry_after_until")


class Command(BaseCommand):
    help = (
        "Credentials: add, set, list, pause, resume. Their own limits: vendor limit SLUG N/SECONDS --credential NAME. "
        "Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listing = verbs.add_parser("list", help="all, or those of a vendor; of a secret the names alone")
        listing.add_argument("vendor", nargs="?")
        abouts = {
            "add": "a login; its adapter says which headers, or user and password, it needs",
            "set": "a new secret in place of the old one",
            "pause": "no new call starts over it",
            "resume": "calls may start again",
        }
        for verb, about in abouts.items():
            one = verbs.add_parser(verb, help=about)
            one.add_argument("vendor")
            one.add_argument("name")
        for verb in ("add", "set"):
            one = verbs.choices[verb]
            one.add_argument("--set", nargs="+", action="extend", default=[], metavar="HEADER=VALUE", dest="secret")
            one.add_argument("--secret-file", metavar="JSON", help="an object of texts; keeps it off the command line")
        moving.add_arguments(verbs.choices["set"])
        verbs.choices["add"].add_argument("--exclusive", action="store_true", help="one campaign at a time")
        verbs.choices["pause"].add_argument("--reason", default="paused by hand")
        for one in verbs.choices.values():
            one.add_argument("--json", action="store_true", help="one object a credential")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"do_{options['verb']}")(**options)

    def do_add(self, vendor: str, name: str, **options: Any) -> None:
        of = arguments.vendor(vendor)
        wanted = {
            "exclusive": options["exclusive"],
            "secret": arguments.secret(of, options["secret"], options["secret_file"]),
        }
        arguments.check(Credential(vendor=of, name=name, **wanted))
        with transaction.atomic():
            row, new = Credential.objects.get_or_create(vendor=of, name=name, defaults=wanted)
            if new:
                facts.added(row)
        faults = [] if new else arguments.differences(row, wanted)
        if faults:
            raise CommandError(f"{row} is already there, and differs: " + "; ".join(faults))
        self._tell(row, "added" if new else "already there", options)

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
            waited = Credential.objects.filter(pk=row.pk, paused=True, paused_reason__startswith=arguments.NO_SECRET)
            resumed = waited.update(paused=False, paused_reason="")
            facts.changed(row, "secret replaced; resumed" if resumed else "secret replaced")
        row.refresh_from_db()
        self._tell(row, "its secret is replaced" + ("; it is still paused" if row.paused else ""), options)

    def do_list(self, vendor: str | None, **options: Any) -> None:
        rows = Credential.objects.select_related("vendor").prefetch_related("limits")
        if vendor:
            rows = rows.filter(vendor=arguments.vendor(vendor))
        write_rows(self.stdout, map(credential_facts, rows), options["json"], SHOWN)

    def do_pause(self, vendor: str, name: str, **options: Any) -> None:
        row = arguments.credential(arguments.vendor(vendor), name)
        state = "was paused already" if row.paused else "paused: no new call starts"
        with facts.kept(row, credential_facts):
            locks.take_turn(row.vendor_id)
            Credential.objects.filter(pk=row.pk).update(paused=True, paused_reason=options["reason"][:255])
        self._tell(row, state, options)

    def do_resume(self, vendor: str, name: str, **options: Any) -> None:
        of = arguments.vendor(vendor)
        row = arguments.credential(of, name)
        arguments.check_secret(of, row)
        with facts.kept(row, credential_facts):
            Credential.objects.filter(pk=row.pk).update(paused=False, paused_reason="")
            tried = configuration.end_wait(row)
        state = "resumed" if row.paused else "was not paused"
        self._tell(row, state + ("; its vendor asked to wait, and is called again now" if tried else ""), options)

    def _tell(self, row: Credential, sentence: str, options: dict[str, Any]) -> None:
        row.refresh_from_db()
        tell(self.stdout, f"{row}: {sentence}", credential_facts(row), options["json"])
