"""`manage.py complaints`: complaints by sponsor and provider, pauses after too many, and their end."""

from typing import Any

from django.core.management.base import CommandError

from campaigns.doors.sponsors import OF_SPONSOR, filter_by_sponsor, named_sponsor
from campaigns.engine.pausing import complaints
from campaigns.models import ComplaintPause, ComplaintRate
from campaigns.models.complaints import rate_in_percent
from campaigns.operations import pausing
from vendors.history import Actor
from vendors.management.arguments import shell_user
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb

RATES = ("sponsor", "provider", "since", "complaints", "accepted", "percent", "warned_at")


def pause_facts(row: ComplaintPause) -> dict[str, Any]:
    return {
        "sponsor": row.sponsor.name,
        "provider": row.receiver,
        "paused_at": row.paused_at,
        "complaints": row.complaints,
        "accepted": row.accepted,
        "percent": str(rate_in_percent(row.complaints, row.accepted)),
        "limit": row.limit,
        "resumed_at": row.resumed_at,
        "resumed_by": row.resumed_by,
        "reason": row.resumed_reason,
    }


def _rate_facts(row: ComplaintRate) -> dict[str, Any]:
    return {
        "sponsor": row.sponsor.name,
        "provider": row.receiver,
        "since": row.since,
        "complaints": row.complaints,
        "accepted": row.accepted,
        "percent": None if row.accepted is None else str(rate_in_percent(row.complaints, row.accepted)),
        "warned_at": row.warned_at,
    }


class Command(ResourceCommand):
    help = (
        "Complaints about a sponsor's e-mails at one provider: list pauses, show rates, resume. A provider is a group "
        "of receiving domains such as gmail; * is all others. Exit codes: 0 done (or it was so already), 1 unknown "
        "name or bad value, 2 usage."
    )
    one_object = "a row"
    shown = (
        "sponsor", "provider", "paused_at", "complaints", "accepted", "percent", "limit", "resumed_at", "resumed_by",
    )  # fmt: skip
    row_facts = staticmethod(pause_facts)

    @declare_verb(
        "pauses that last", OF_SPONSOR, declare_argument("--all", action="store_true", help="also those that are over")
    )
    def do_list(self, **options: Any) -> None:
        rows = filter_by_sponsor(ComplaintPause.objects.select_related("sponsor"), options["sponsor"])
        self.write_rows(rows if options["all"] else rows.filter(resumed_at=None))

    @declare_verb("complaints of the last days (UTC), by the day on which their mails were sent", OF_SPONSOR)
    def do_rates(self, **options: Any) -> None:
        rows = filter_by_sponsor(ComplaintRate.objects.select_related("sponsor"), options["sponsor"])
        self.write_facts(map(_rate_facts, complaints.recent_rates(rows)), RATES)

    @declare_verb(
        "bulk mail of the sponsor to the provider goes on; its present rate is accepted",
        declare_argument("sponsor"),
        declare_argument("provider"),
        declare_argument("--by", default="", metavar="NAME", help="who decides; default: the user of this shell"),
        declare_argument("--reason", default="", metavar="TEXT", help="why; it is kept with the decision"),
    )
    def do_resume(self, sponsor: str, provider: str, **options: Any) -> None:
        who = named_sponsor(sponsor)
        found = ComplaintPause.objects.select_related("sponsor").filter(sponsor=who, receiver=provider)
        pause = found.filter(resumed_at=None).first()
        by = Actor(options["by"] or shell_user())
        done = pause is not None and pausing.resume_receiver(pause.pk, by, options["reason"]) is not None
        if row := pause or found.first():
            row.refresh_from_db()
            said = "goes on" if done else "is not paused"
            self.write_result(f"bulk mail of {who.name} to {provider} {said}", pause_facts(row))
            return
        raise CommandError(f"bulk mail of {who.name} to {provider!r} was never paused")
