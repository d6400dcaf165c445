"""`manage.py entitlement`: lists, grants and withdraws sponsors' use of vendors and credentials."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from campaigns import entitlements
from campaigns.management.sponsors import entitlement_facts, named_sponsor
from campaigns.models import Entitlement, Identity
from vendors.management import arguments, facts
from vendors.management.output import tell, write_rows

SHOWN = ("sponsor", "vendor", "credential")


class Command(BaseCommand):
    help = (
        "Which sponsor may use which vendor: add, list, remove. Everything must be granted, except the first vendor "
        "to the sponsor made with it. After a removal, jobs waiting for dispatch are held; dispatched ones continue. "
        "Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        for verb, about in (("add", "the sponsor may use the vendor"), ("remove", "it may not any more")):
            one = verbs.add_parser(verb, help=about)
            one.add_argument("sponsor")
            one.add_argument("vendor")
            one.add_argument("--credential", metavar="NAME", help="only this one; else all that the vendor has")
        verbs.choices["add"].add_argument(
            "--new-sponsor", action="store_true", help="create the sponsor if there is none"
        )
        listing = verbs.add_parser("list", help="all of them")
        listing.add_argument("--sponsor", metavar="NAME")
        listing.add_argument("--vendor", metavar="SLUG")
        for one in verbs.choices.values():
            one.add_argument("--json", action="store_true", help="one object an entitlement")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"do_{options['verb']}")(**options)

    def do_add(self, sponsor: str, vendor: str, **options: Any) -> None:
        of = arguments.vendor(vendor)
        login = arguments.credential(of, options["credential"]) if options["credential"] else None
        with transaction.atomic():
            who = named_sponsor(sponsor, new=options["new_sponsor"])
            before = Identity.objects.exists()
            row, new = entitlements.grant(who, of, login)
            if new:
                facts.added(row)
        text = f"{row}{'' if new else ' already'}"
        first = None if before else Identity.objects.first()
        if first:
            text += f"; its sender identity {first.name} is {first.shown}, from the vendor's settings"
        tell(self.stdout, text, entitlement_facts(row), options["json"])

    def do_list(self, **options: Any) -> None:
        rows = Entitlement.objects.select_related("sponsor", "vendor", "credential").defer("credential__secret")
        if options["sponsor"]:
            rows = rows.filter(sponsor=named_sponsor(options["sponsor"]))
        if options["vendor"]:
            rows = rows.filter(vendor=arguments.vendor(options["vendor"]))
        write_rows(self.stdout, map(entitlement_facts, rows), options["json"], SHOWN)

    def do_remove(self, sponsor: str, vendor: str, **options: Any) -> None:
        who, of = named_sponsor(sponsor), arguments.vendor(vendor)
        login = arguments.credential(of, options["credential"]) if options["credential"] else None
        with transaction.atomic():
            found = Entitlement.objects.filter(sponsor=who, vendor=of, credential=login).first()
            if found:
                facts.removed(found)
                found.delete()
        rest = [] if login else list(Entitlement.objects.filter(sponsor=who, vendor=of).select_related("credential"))
        if rest:
            names = ", ".join(str(row.credential.name) for row in rest if row.credential)
            raise CommandError(f"{who.name} may still use single credentials of {of.slug}: {names}; name each")
        text = f"{who.name} may not use {login or of.slug} {'any more' if found else 'anyway'}"
        removal = {"sponsor": who.name, "vendor": of.slug, "credential": login and login.name, "removed": bool(found)}
        tell(self.stdout, text, removal, options["json"])
