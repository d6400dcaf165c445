"""`manage.py report`: prints a campaign report, or exports the recipients as CSV or XLSX."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from campaigns.doors import labels
from campaigns.models import Campaign
from campaigns.reporting import export, reasons
from campaigns.reporting.export import Export
from campaigns.reporting.forecast import campaign_states
from campaigns.reporting.forecast.campaign_states import CampaignState
from vendors.causes.wording import read_causes
from vendors.management.output import write_result
from vendors.said import count_of


class Command(BaseCommand):
    help = (
        "Summarises a campaign with the reasons of failures, or writes its recipients with results: the columns of "
        "the list, then state, reason, times and cause. Any number of rows in constant memory; a text that a "
        "spreadsheet would take for a formula begins with a quote in CSV. Exit codes: 0 done, 1 unknown campaign, "
        "state or cause, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("campaign", type=int, metavar="CAMPAIGN", help="its number")
        files = parser.add_mutually_exclusive_group()
        files.add_argument("--csv", metavar="FILE", help="write the recipients as CSV; -: to the terminal or a pipe")
        files.add_argument("--xlsx", metavar="FILE", help="write the recipients as a spreadsheet")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--failed", action="store_true", help="only those who were not reached")
        which.add_argument(
            "--state", action="append", metavar="STATE", help="only these, like bounced; may be repeated"
        )
        parser.add_argument(
            "--cause", action="append", metavar="CAUSE", help="only of this cause, like us; may be repeated"
        )
        parser.add_argument("--json", action="store_true", help="without a file: one object")

    def handle(self, *args: Any, **options: Any) -> None:
        campaign = (
            Campaign.objects.select_related("credential__vendor", "sponsor").filter(pk=options["campaign"]).first()
        )
        if campaign is None:
            raise CommandError(f"there is no campaign {options['campaign']}")
        try:
            states = list(export.FAILURES) if options["failed"] else export.states_named(options["state"] or ())
            causes = read_causes(options["cause"] or ())
        except ValueError as error:
            raise CommandError(str(error)) from error
        of = Export(campaign, campaign.credential.vendor.channel, states, causes=causes)
        if options["csv"]:
            self._write_report(options["csv"], export.csv_chunks(of))
        elif options["xlsx"]:
            self._write_report(options["xlsx"], export.xlsx_chunks(of))
        else:
            self._tell_campaign(campaign, of.channel, options["json"])

    def _write_report(self, name: str, chunks: Iterator[bytes]) -> None:
        """Write a file whole or not at all."""
        if name == "-":
            with suppress(BrokenPipeError):
                for chunk in chunks:
                    sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
            return
        try:
            with NamedTemporaryFile(dir=Path(name).absolute().parent, delete=False) as file:
                try:
                    for chunk in chunks:
                        file.write(chunk)
                    file.flush()
                    os.chmod(file.name, 0o600)
                    os.replace(file.name, name)
                except BaseException:
                    os.unlink(file.name)
                    raise
        except OSError as error:
            raise CommandError(f"cannot write {name}: {error.strerror}") from error
        self.stderr.write(f"{name} is written")

    def _tell_campaign(self, campaign: Campaign, channel: str, as_json: bool) -> None:
        state = campaign_states.states_of_campaigns([campaign.pk])[campaign.pk]
        found = reasons.reasons_of_campaign(campaign, channel, state.sums)
        lines = [f"{campaign.name} ({campaign.sponsor}): {state.label}. {state.why}".strip(), _counts_line(state)]
        lines += [f"{one.messages:>12,}  {one.sentence} ({one.state})" for one in found]
        facts = {
            "campaign": campaign.pk,
            "name": campaign.name,
            "state": state.label,
            "why": state.why,
            "size": state.sums.size,
            "reports_deliveries": state.reports_deliveries,
            "reasons": [
                {
                    "key": one.key,
                    "state": one.state,
                    "text": one.sentence,
                    "messages": one.messages,
                    "causes": one.causes,
                }
                for one in found
            ],
        }
        write_result(self.stdout, "\n".join(lines), facts, as_json)


def _counts_line(state: CampaignState) -> str:
    sums = state.sums
    counts = {
        "sent": sums.accepted,
        "delivered": sums.delivered,
        "bounced": sums.bounced,
        "failed": sums.refused,
        "expired": sums.expired,
        "suppressed": sums.suppressed,
        labels.ATTENTION.lower(): sums.in_doubt,
        "waiting": sums.open_messages,
    }
    shown = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count or name == "sent")
    note = "" if state.reports_deliveries or not sums.accepted else "; the vendor reports no deliveries"
    return f"{count_of(sums.size, 'recipient')}: {shown}{note}"
