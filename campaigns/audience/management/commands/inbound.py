"""`manage.py inbound`: lists recipients' messages to our numbers."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from campaigns.doors.sponsors import named_sponsor
from campaigns.models import InboundMessage
from campaigns.operations.job_commands import add_limit, rows_to_list
from vendors.management.output import write_rows

SHOWN = ("id", "sponsor", "identity", "vendor", "from", "to", "does", "text", "answer", "at")


class Command(BaseCommand):
    help = (
        "Lists the SMS that recipients have written to our numbers, the latest first, and what their words did: stop, "
        "start, help. Exit codes: 0 listed, 1 unknown name, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--sponsor", metavar="NAME", help="to the numbers of this sponsor")
        commands = [one for one in InboundMessage.Command.values if one]
        parser.add_argument("--does", choices=commands, help="those alone whose words did that")
        add_limit(parser, "latest")
        parser.add_argument("--json", action="store_true", help="one object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        rows = InboundMessage.objects.select_related("sponsor", "identity", "vendor").defer("identity__secret")
        if options["sponsor"]:
            rows = rows.filter(sponsor=named_sponsor(options["sponsor"]))
        if options["does"]:
            rows = rows.filter(command=options["does"])
        latest = rows.order_by("-pk")[: rows_to_list(options)].iterator()
        write_rows(self.stdout, map(_text_facts, latest), options["json"], SHOWN)


def _text_facts(row: InboundMessage) -> dict[str, Any]:
    return {
        "id": row.pk,
        "sponsor": row.sponsor.name if row.sponsor else None,
        "identity": row.identity.name if row.identity else None,
        "vendor": row.vendor.slug,
        "from": row.sender,
        "to": row.to,
        "does": row.command,
        "text": row.text,
        "answer": row.answer_id,
        "at": row.written_at,
    }
