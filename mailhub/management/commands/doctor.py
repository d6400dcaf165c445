"""`manage.py doctor`: finds faults of sender identities in the DNS, and of the installation (mailhub/diagnosis)."""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from campaigns.doors.sponsors import named_identity, named_sponsor
from campaigns.models import Identity
from campaigns.senders.deliverability import findings, identity_checks
from campaigns.senders.deliverability.findings import Finding
from mailhub.diagnosis import registry
from mailhub.diagnosis.verdicts import HealthVerdict, VerdictLevel
from mailhub.management import probe_checks
from vendors.management.output import write_json

WIDE = 14  # characters for the subject of a line
# Programs that ask about identities read these.
STATUSES = {
    VerdictLevel.OK: findings.OK,
    VerdictLevel.WARNING: findings.PRICED,
    VerdictLevel.ERROR: findings.WRONG,
}


class Command(BaseCommand):
    help = (
        "Asks the DNS about sender identities: SPF, DKIM, DMARC, and the ways of answers, bounces and unsubscribe "
        "links; prints each record to enter. Then examines the installation: servers, their settings, clocks, disks, "
        "replicas and versions, this machine, keys, HTTPS, fonts, beat, workers and their queues; each line is ok, a "
        "warning or an error, with the way out. Exit codes: 0 all is well, or there are only warnings, 1 something is "
        "missing or wrong, or an unknown name, 2 usage, 3 the DNS did not answer."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--identity", metavar="SPONSOR/NAME", help="of this identity alone; default: of all enabled ones")
        add("--installation", action="store_true", help="of the installation alone; asks no DNS")
        add("--strict", action="store_true", help="warnings about the installation fail, too")
        add(
            "--seconds", type=_seconds, default=registry.SECONDS, metavar="S",
            help="for each check of the installation; default: %(default)g",
        )  # fmt: skip
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
            help="one object a finding: identity (null: the installation), about, status, sentence, enter; of the "
            "installation also level, seen, remedy",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        if options["identity"] and options["installation"]:
            raise CommandError("--identity and --installation are two questions: ask one of them", returncode=2)
        bad, silent = ("", "") if options["installation"] else self._check_identities(options)
        weak = "" if options["identity"] else self._check_installation(options)
        if bad or weak:
            raise CommandError("; ".join(filter(None, (bad, weak))))
        if silent:
            raise CommandError(silent, returncode=3)

    def _check_identities(self, options: dict[str, Any]) -> tuple[str, str]:
        """Return the faults, and the checks without an answer from the DNS, each as a sentence or empty."""
        found: list[Finding] = []
        identities = _named_identities(options["identity"])
        if not identities and not options["json"]:
            self.stdout.write("there is no sender identity: manage.py identity add")
        for identity in identities:
            of_it = identity_checks.check_identity(identity, options["sends_from"], options["relay_selector"])
            found.extend(of_it)
            if options["json"]:
                write_json(self.stdout, ({"identity": str(identity), **one.finding_facts()} for one in of_it))
            else:
                self._show_findings(identity, of_it)
        bad = sum(one.status in findings.BAD for one in found)
        silent = sum(one.status == findings.NO_ANSWER for one in found)
        return (
            f"{bad} of {len(found)} {'is' if bad == 1 else 'are'} missing or wrong" if bad else "",
            f"{silent} of {len(found)} {'has' if silent == 1 else 'have'} no answer from the DNS" if silent else "",
        )

    def _check_installation(self, options: dict[str, Any]) -> str:
        """Run all checks, showing each verdict at once. Returns the faults as a sentence, or empty."""
        if not options["json"]:
            self.stdout.write("installation:")
        found: list[VerdictLevel] = []
        for one in registry.examine_installation(probe_checks.CHECKS, options["seconds"]):
            found.append(one.level)
            if options["json"]:
                write_json(self.stdout, [_verdict_facts(one)])
            else:
                self.stdout.write(f"{one.name:{WIDE}} {one.level:9} {findings.escape_for_terminal(str(one))}")
            self.stdout.flush()
        errors, warnings = found.count(VerdictLevel.ERROR), found.count(VerdictLevel.WARNING)
        if not errors and not (options["strict"] and warnings):
            return ""
        counts = (f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((errors, "error"), (warnings, "warning")))
        return f"the installation has {' and '.join(counts)}"

    def _show_findings(self, identity: Identity, of_it: list[Finding]) -> None:
        self.stdout.write(f"{identity}: {identity.shown}")
        self._show_lines(of_it)

    def _show_lines(self, found: list[Finding]) -> None:
        for one in found:
            self.stdout.write(f"{one.about:{WIDE}} {one.status:9} {one.sentence}")
            if one.enter:
                self.stdout.write(f"{'':{WIDE}} enter     {one.enter}")


def _seconds(text: str) -> float:
    """Return a number of seconds above 0. Raises ArgumentTypeError, which the parser reports as a wrong usage."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 3600:
        raise ArgumentTypeError(f"{text!r} is no number of seconds between 0 and 3600")
    return seconds


def _verdict_facts(one: HealthVerdict) -> dict[str, Any]:
    finding = Finding(one.name, STATUSES[one.level], str(one))
    seen = {"level": one.level, "seen": one.seen, "remedy": one.remedy}
    return {"identity": None, **finding.finding_facts(), **seen}


def _named_identities(name: str | None) -> list[Identity]:
    if name is None:
        return list(Identity.objects.select_related("sponsor").filter(enabled=True, channel="email"))
    sponsor, slash, identity = name.rpartition("/")
    if not slash:
        raise CommandError(f"{name!r}: write SPONSOR/NAME", returncode=2)
    found = named_identity(named_sponsor(sponsor), identity)
    if found.channel != "email":
        raise CommandError(f"{found} is for SMS, of which the DNS knows nothing")
    return [found]
