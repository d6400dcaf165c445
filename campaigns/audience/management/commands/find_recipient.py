"""`manage.py find_recipient`: lists the messages to one recipient, in all campaigns."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from campaigns.audience import finding
from campaigns.audience.finding import FoundMessage
from campaigns.doors.sponsors import named_sponsor
from vendors.management.output import write_json


class Command(BaseCommand):
    help = (
        "Finds a recipient's messages in all campaigns: by address (exactly; e-mail in any case), by our reference or "
        "a message's number, or by the vendor's id if its reports name nothing else. Shows each one's result, time "
        "and vendor, and the recipient's suppressions. Exit codes: 0 found, 1 nothing, or an unknown name, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("what", metavar="ADDRESS|REFERENCE|ID")
        parser.add_argument("--sponsor", metavar="NAME", help="only of this sponsor")
        parser.add_argument("--json", action="store_true", help="one object a message, then one a suppression")

    def handle(self, *args: Any, **options: Any) -> None:
        sponsors = [named_sponsor(options["sponsor"]).pk] if options["sponsor"] else None
        found = finding.look_for(options["what"], sponsors)
        if options["json"]:
            write_json(self.stdout, (message_facts(one) for one in found.messages))
            write_json(self.stdout, (finding.suppression_facts(one) for one in found.suppressed))
        else:
            for one in found.messages:
                self._write_message(one)
            for row in found.suppressed:
                facts = finding.suppression_facts(row)
                until = f" until {facts['until']}" if facts["until"] else ""
                whose = facts["sponsor"] or "all sponsors"
                self.stdout.write(f"suppressed for {whose} ({facts['reason']}) since {facts['since']}{until}")
            if found.more:
                self.stdout.write(f"the newest {finding.MOST}; there are more")
        if not found.messages and not found.suppressed:
            raise CommandError("nothing is known of it")

    def _write_message(self, one: FoundMessage) -> None:
        row = one.message
        campaign = f"{row.campaign} (campaign {row.campaign_id} of {row.campaign.sponsor})"
        self.stdout.write(f"message {row.pk} to {row.recipient}: {one.state}, {campaign}, by {one.vendor}")
        for happening in one.happenings:
            at = timezone.localtime(happening.at).isoformat(sep=" ", timespec="seconds")
            note = f": {happening.note}" if happening.note else ""
            self.stdout.write(f"  {at}  {happening.what}{note}")


def message_facts(one: FoundMessage) -> dict[str, Any]:
    """Return a message's facts with its sponsor, which a sponsor's own program knows already."""
    row = one.message
    return {
        "message": row.pk,
        "sponsor": row.campaign.sponsor.name,
        "recipient": row.recipient,
        **finding.found_facts(one),
    }
