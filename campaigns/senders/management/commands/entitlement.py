"""`manage.py entitlement`: lists, grants and withdraws sponsors' use of vendors and credentials."""

from typing import Any

from django.core.management.base import CommandError
from django.db import transaction

from campaigns.doors.sponsors import NEW_SPONSOR, OF_SPONSOR, entitlement_facts, filter_by_sponsor, named_sponsor
from campaigns.models import Entitlement, Identity
from campaigns.models.identities import Urgent
from campaigns.senders import entitlements
from vendors.management import arguments, facts
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb

NAMED = (
    declare_argument("sponsor"),
    declare_argument("vendor"),
    declare_argument("--credential", metavar="NAME", help="only this one; else all that the vendor has"),
)


class Command(ResourceCommand):
    help = (
        "Which sponsor may use which vendor: add, set, list, remove. Everything must be granted, except the first "
        "vendor to the sponsor made with it. After a removal, jobs waiting for dispatch are held; dispatched ones "
        "continue. Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    one_object = "an entitlement"
    shown = ("sponsor", "vendor", "credential", "urgent")
    row_facts = staticmethod(entitlement_facts)

    @declare_verb(
        "the sponsor may use the vendor",
        *NAMED,
        NEW_SPONSOR,
        declare_argument("--urgent", choices=Urgent.values, help="what it may send as urgent; default: single"),
    )
    def do_add(self, sponsor: str, vendor: str, **options: Any) -> None:
        of = arguments.find_vendor(vendor)
        login = arguments.find_credential(of, options["credential"]) if options["credential"] else None
        with transaction.atomic():
            who = named_sponsor(sponsor, new=options["new_sponsor"])
            before = Identity.objects.exists()
            row, new = entitlements.grant_entitlement(who, of, login, options["urgent"] or Urgent.SINGLE)
            if new:
                facts.log_added(row)
        text = f"{row}{'' if new else ' already'}"
        first = None if before else Identity.objects.first()
        if first:
            text += f"; its sender identity {first.name} is {first.shown}, from the vendor's settings"
        self.write_result(text, entitlement_facts(row))

    @declare_verb(
        "what it may send as urgent, before the mail of all others",
        *NAMED,
        declare_argument("--urgent", choices=Urgent.values, required=True, help="single: letters to one recipient"),
    )
    def do_set(self, sponsor: str, vendor: str, **options: Any) -> None:
        who, of = named_sponsor(sponsor), arguments.find_vendor(vendor)
        login = arguments.find_credential(of, options["credential"]) if options["credential"] else None
        row = Entitlement.objects.filter(sponsor=who, vendor=of, credential=login).first()
        if row is None:
            raise CommandError(f"{who.name} may not use {login or of.slug}: entitlement add allows it")
        already = row.urgent == options["urgent"]
        with facts.log_changes(row, entitlement_facts):
            entitlements.set_urgent(row, options["urgent"])
        self.write_result(f"{row}; urgent: {row.urgent}{' already' if already else ''}", entitlement_facts(row))

    @declare_verb("it may not any more", *NAMED)
    def do_remove(self, sponsor: str, vendor: str, **options: Any) -> None:
        who, of = named_sponsor(sponsor), arguments.find_vendor(vendor)
        login = arguments.find_credential(of, options["credential"]) if options["credential"] else None
        with transaction.atomic():
            found = Entitlement.objects.filter(sponsor=who, vendor=of, credential=login).first()
            if found:
                facts.log_removed(found)
                found.delete()
        rest = [] if login else list(Entitlement.objects.filter(sponsor=who, vendor=of).select_related("credential"))
        if rest:
            names = ", ".join(str(row.credential.name) for row in rest if row.credential)
            raise CommandError(f"{who.name} may still use single credentials of {of.slug}: {names}; name each")
        text = f"{who.name} may not use {login or of.slug} {'any more' if found else 'anyway'}"
        removal = {"sponsor": who.name, "vendor": of.slug, "credential": login and login.name, "removed": bool(found)}
        self.write_result(text, removal)

    @declare_verb("all of them", OF_SPONSOR, declare_argument("--vendor", metavar="SLUG"))
    def do_list(self, **options: Any) -> None:
        rows = filter_by_sponsor(
            Entitlement.objects.select_related("sponsor", "vendor", "credential").defer("credential__secret"),
            options["sponsor"],
        )
        if options["vendor"]:
            rows = rows.filter(vendor=arguments.find_vendor(options["vendor"]))
        self.write_rows(rows)
