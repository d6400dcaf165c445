"""`manage.py approve_campaign`: lists campaigns that wait for a second person's approval, and decides."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from campaigns.doors.sponsors import named_sponsor
from campaigns.models import Approval
from campaigns.operations import approving, job_commands
from campaigns.operations.approving import CannotDecide
from vendors.management.arguments import shell_user
from vendors.management.output import write_result, write_rows
from vendors.said import count_of

SHOWN = ("campaign", "name", "sponsor", "recipients", "asked_by", "asked_at", "verdict", "decided_by")
VERDICTS = {"approve": Approval.Verdict.APPROVED, "refuse": Approval.Verdict.REFUSED}


class Command(BaseCommand):
    help = (
        "Campaigns that await approval by a second person: list, approve, refuse. --by names a user of mailhub who "
        "may approve and did not request it; the record also names the shell's user. Requests made at a shell are "
        "approved on their page. Exit codes: 0 done (or decided before), 1 unknown name, or this user cannot decide "
        "it, 2 usage, or --yes is missing."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listing = verbs.add_parser("list", help="what waits, the oldest first")
        listing.add_argument("--sponsor", metavar="NAME")
        listing.add_argument("--all", action="store_true", help="also decided ones")
        approve = verbs.add_parser("approve", help="let it go, exactly as it was frozen")
        approve.add_argument(
            "--seen",
            default="",
            metavar="NAME",
            help="as it is now, where its sender, route or topic has changed since",
        )
        refuse = verbs.add_parser("refuse", help="stop it for good")
        for one in (approve, refuse):
            one.add_argument("campaign", type=int, metavar="ID")
            one.add_argument("--by", required=True, metavar="USER", help="the user of mailhub who decides")
            one.add_argument("--remark", default="", metavar="TEXT", help="kept with the decision; a refusal needs one")
            one.add_argument("--yes", action="store_true", help="do not ask; needed without a terminal")
        for one in (listing, approve, refuse):
            one.add_argument("--json", action="store_true", help="one object a campaign")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] == "list":
            self._list_approvals(options)
        else:
            self._decide_approval(options)

    def _list_approvals(self, options: dict[str, Any]) -> None:
        rows = Approval.objects.select_related("campaign__sponsor").defer("campaign__body", "campaign__text")
        rows = rows.filter(*approving.waiting_conditions()) if not options["all"] else rows
        if options["sponsor"]:
            rows = rows.filter(campaign__sponsor=named_sponsor(options["sponsor"]))
        write_rows(self.stdout, map(approval_facts, rows.order_by("id").iterator()), options["json"], SHOWN)

    def _decide_approval(self, options: dict[str, Any]) -> None:
        user = User.objects.filter(username=options["by"], is_active=True).first()
        if user is None:
            raise CommandError(f"--by {options['by']!r} is no user of mailhub who can log in")
        row = Approval.objects.filter(campaign=options["campaign"]).first()
        size = f" ({count_of(row.recipients, 'recipient')})" if row else ""
        done = {"approve": "lets campaign {} go", "refuse": "stops campaign {} for good"}[options["verb"]]
        job_commands.confirm_at_terminal(f"this {done.format(options['campaign'])}{size}", options)
        try:
            verdict, seen = VERDICTS[options["verb"]], options.get("seen", "")
            answer = approving.decide_approval(
                options["campaign"], verdict, user, options["remark"], shell=shell_user(), seen=seen
            )
        except CannotDecide as why:
            raise CommandError(str(why)) from None
        facts = {"campaign": options["campaign"], "changed": answer.changed, "told": answer.message}
        write_result(self.stdout, answer.message, facts, options["json"])


def approval_facts(row: Approval) -> dict[str, Any]:
    return {
        "campaign": row.campaign_id,
        "name": row.campaign.name,
        "sponsor": row.campaign.sponsor.name,
        "recipients": row.recipients,
        "asked_by": row.asked_by,
        "asked_at": row.asked_at.isoformat(timespec="seconds"),
        "digest": row.digest,
        "as_it_was_then": row.changed,
        "verdict": row.verdict,
        "decided_by": row.decided_by,
        "decided_at": row.decided_at.isoformat(timespec="seconds") if row.decided_at else None,
        "remark": row.remark,
    }
