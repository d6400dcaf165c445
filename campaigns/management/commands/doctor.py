"""`manage.py doctor`: finds deliverability faults of sender identities, and data that a crash would lose."""

from argparse import ArgumentParser
from typing import Any

from django.core.checks import run_checks
from django.core.management.base import BaseCommand, CommandError
from django.db import ProgrammingError

from campaigns.content.signs import drawing_adapter
from campaigns.deliverability import findings, identity_checks
from campaigns.deliverability.findings import Finding
from campaigns.engine.audit import leftover_bounds
from campaigns.engine.failover import durability
from campaigns.engine.failover.durability import Weakness
from campaigns.management.sponsors import named_identity, named_sponsor
from campaigns.models import Identity
from vendors.management.output import write_json
from vendors.models import Vendor

WIDE = 14  # characters for the subject of a line
INSTALLATION = "installation"


class Command(BaseCommand):
    help = (
        "Asks the DNS about sender identities: SPF, DKIM, DMARC, and the ways of answers, bounces and unsubscribe "
        "links; prints each record to enter. Then asks PostgreSQL and Redis about data lost in crashes, constraints "
        "that refuse messages, wrong clocks within the hour, and print's fonts about scripts that they lack. Exit "
        "codes: 0 all is well, or only told, 1 something is missing or wrong, or an unknown name, 2 usage, 3 the DNS "
        "did not answer."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--identity", metavar="SPONSOR/NAME", help="of this identity alone; default: of all enabled ones")
        add("--installation", action="store_true", help="of PostgreSQL and Redis alone; asks no DNS")
        add(
            "--sends-from", action="append", default=[], metavar="ADDRESS_OR_NAME",
            help="from where the relay sends, as its operator says: an address, a network, or the name to include",
        )  # fmt: skip
        add(
            "--relay-selector", action="append", default=[], metavar="NAME",
            help="the relay signs: its DKIM selector, or SELECTOR._domainkey.DOMAIN",
        )  # fmt: skip
        add(
            "--json", action="store_true",
            help="one object a finding: identity (null: the installation), about, status, sentence, enter",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        if options["identity"] and options["installation"]:
            raise CommandError("--identity and --installation are two questions: ask one of them", returncode=2)
        bad, silent = ("", "") if options["installation"] else self._of_identities(options)
        weak = "" if options["identity"] else self._of_installation(options["json"])
        if bad or weak:
            raise CommandError("; ".join(filter(None, (bad, weak))))
        if silent:
            raise CommandError(silent, returncode=3)

    def _of_identities(self, options: dict[str, Any]) -> tuple[str, str]:
        """Return the faults, and the checks without an answer from the DNS, each as a sentence or empty."""
        found: list[Finding] = []
        identities = _identities(options["identity"])
        if not identities and not options["json"]:
            self.stdout.write("there is no sender identity: manage.py identity add")
        for identity in identities:
            of_it = identity_checks.check(identity, options["sends_from"], options["relay_selector"])
            found.extend(of_it)
            if options["json"]:
                write_json(self.stdout, ({"identity": str(identity), **one.facts()} for one in of_it))
            else:
                self._show(identity, of_it)
        bad = sum(one.status in findings.BAD for one in found)
        silent = sum(one.status == findings.NO_ANSWER for one in found)
        return (
            f"{bad} of {len(found)} are missing or wrong" if bad else "",
            f"{silent} of {len(found)} have no answer from the DNS" if silent else "",
        )

    def _of_installation(self, as_json: bool) -> str:
        """Show the weaknesses of servers, tables and clocks. Returns the faults as a sentence, or empty."""
        weak, bounds = durability.weaknesses(), leftover_bounds.find_leftover_bounds()
        found = list(map(_finding, weak)) or [Finding("durability", findings.OK, "a crash loses nothing")]
        found += [Finding("storing", findings.WRONG, f"{one}. {leftover_bounds.REMEDY}") for one in bounds]
        # mailhub knows the stored times of all apps and registers its check under this tag (mailhub/apps.py).
        clocks = run_checks(tags=["clocks"], include_deployment_checks=True)
        found += [Finding("clocks", findings.PRICED, f"{one.msg}. {one.hint}") for one in clocks]
        found += _of_fonts()
        if as_json:
            write_json(self.stdout, ({"identity": None, **one.facts()} for one in found))
        else:
            self.stdout.write(f"{INSTALLATION}: PostgreSQL, Redis and clocks")
            self._show_lines(found)
        wrong = sum(one.refused for one in weak)
        loses = f"a crash loses what is committed: {wrong} wrong" if wrong else ""
        return "; ".join(filter(None, (loses, "a constraint refuses messages" if bounds else "")))

    def _show(self, identity: Identity, of_it: list[Finding]) -> None:
        self.stdout.write(f"{identity}: {identity.shown}")
        self._show_lines(of_it)

    def _show_lines(self, found: list[Finding]) -> None:
        for one in found:
            self.stdout.write(f"{one.about:{WIDE}} {one.status:9} {one.sentence}")
            if one.enter:
                self.stdout.write(f"{'':{WIDE}} enter     {one.enter}")


def _finding(one: Weakness) -> Finding:
    return Finding(one.about, findings.WRONG if one.refused else findings.PRICED, str(one))


def _of_fonts() -> list[Finding]:
    """Tell which scripts the vendors that are printed for here can show."""
    try:
        names = list(Vendor.objects.filter(channel=Vendor.Channel.PRINT).values_list("adapter", flat=True).distinct())
    except ProgrammingError:  # the tables are not made yet
        return []
    kinds = {kind for name in names if (kind := drawing_adapter(name))}
    found = []
    for there, lacking in (kind.scripts() for kind in kinds):
        if lacking:
            sentence = f"print shows {', '.join(there) or 'nothing'}; no installed font has {', '.join(lacking)}"
            found.append(Finding("fonts", findings.PRICED, sentence))
        elif there:
            found.append(Finding("fonts", findings.OK, "print shows all common scripts"))
    return found


def _identities(name: str | None) -> list[Identity]:
    if name is None:
        return list(Identity.objects.select_related("sponsor").filter(enabled=True, channel="email"))
    sponsor, slash, identity = name.rpartition("/")
    if not slash:
        raise CommandError(f"{name!r}: write SPONSOR/NAME", returncode=2)
    found = named_identity(named_sponsor(sponsor), identity)
    if found.channel != "email":
        raise CommandError(f"{found} is for SMS, of which the DNS knows nothing")
    return [found]
