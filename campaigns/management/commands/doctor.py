"""`manage.py doctor`: what is missing before receivers trust the mails of sender identities."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from campaigns.deliverability import findings, identity_checks
from campaigns.deliverability.findings import Finding
from campaigns.management.sponsors import named_identity, named_sponsor
from campaigns.models import Identity
from vendors.management.output import write_json

WIDE = 14  # columns of what a line is about


class Command(BaseCommand):
    help = (
        "Asks the DNS whether receivers can trust the mails of sender identities: SPF, DKIM, DMARC, and whether "
        "answers, bounces and clicks on unsubscribe links arrive; prints each record to enter. Exit codes: 0 all is "
        "well, 1 something is missing or wrong, or an unknown name, 2 usage, 3 the DNS did not answer."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--identity", metavar="SPONSOR/NAME", help="of one identity; default: of all that are enabled")
        add(
            "--sends-from", action="append", default=[], metavar="ADDRESS_OR_NAME",
            help="from where the relay sends, as its operator says: an address, a network, or the name to include",
        )  # fmt: skip
        add(
            "--relay-selector", action="append", default=[], metavar="NAME",
            help="the relay signs: its DKIM selector, or SELECTOR._domainkey.DOMAIN",
        )  # fmt: skip
        add("--json", action="store_true", help="one object a finding: identity, about, status, sentence, enter")

    def handle(self, *args: Any, **options: Any) -> None:
        found: list[Finding] = []
        for identity in _identities(options["identity"]):
            of_it = identity_checks.check(identity, options["sends_from"], options["relay_selector"])
            found.extend(of_it)
            if options["json"]:
                write_json(self.stdout, ({"identity": str(identity), **one.facts()} for one in of_it))
            else:
                self._show(identity, of_it)
        bad = sum(one.status in findings.BAD for one in found)
        if bad:
            raise CommandError(f"{bad} of {len(found)} are missing or wrong")
        if silent := sum(one.status == findings.NO_ANSWER for one in found):
            raise CommandError(f"{silent} of {len(found)} have no answer from the DNS", returncode=3)

    def _show(self, identity: Identity, of_it: list[Finding]) -> None:
        self.stdout.write(f"{identity}: {identity.shown}")
        for one in of_it:
            self.stdout.write(f"{one.about:{WIDE}} {one.status:9} {one.sentence}")
            if one.enter:
                self.stdout.write(f"{'':{WIDE}} enter     {one.enter}")


def _identities(name: str | None) -> list[Identity]:
    if name is None:
        rows = list(Identity.objects.select_related("sponsor").filter(enabled=True, channel="email"))
        if not rows:
            raise CommandError("there is no sender identity: manage.py identity add")
        return rows
    sponsor, slash, identity = name.rpartition("/")
    if not slash:
        raise CommandError(f"{name!r}: write SPONSOR/NAME", returncode=2)
    found = named_identity(named_sponsor(sponsor), identity)
    if found.channel != "email":
        raise CommandError(f"{found} is for SMS, of which the DNS knows nothing")
    return [found]
