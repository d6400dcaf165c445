"""`manage.py sponsor`: manages sponsors, on whose behalf mail is sent."""

from contextlib import suppress
from math import isfinite
from typing import Any

from django.core.management.base import CommandError

from campaigns.doors.sponsors import named_sponsor
from campaigns.lists.intake import BadInput
from campaigns.lists.intake.hours import parse_hours
from campaigns.models import Sponsor
from vendors.management import arguments, facts
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb

LANGUAGES = ", ".join(name for name, _ in Sponsor.LANGUAGES)
REGION = "of phone numbers in its lists that lack the country code; empty: none"
APPROVAL = "campaigns of more recipients wait for the approval of a second person; 0: all, empty: none"

COMPLAINTS = "complaints of a day at one provider from which {}; 0: never, empty: the installation's"


def sponsor_facts(row: Sponsor) -> dict[str, Any]:
    return {
        "sponsor": row.name,
        "language": row.language,
        "region": row.phone_region,
        "transactional": row.may_be_transactional,
        "quiet_hours": f"{row.quiet_from:%H:%M}-{row.quiet_to:%H:%M}" if row.quiet_from else None,
        "time_zone": row.time_zone,
        "approval_above": row.approval_above,
        "complaint_warning": row.complaint_warning,
        "complaint_limit": row.complaint_limit,
    }


class Command(ResourceCommand):
    help = (
        "Sponsors: list, set. A sponsor is made with its first campaign, or by `entitlement add --new-sponsor`. Exit "
        "codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    one_object = "a sponsor"
    shown = ("sponsor", "language", "region", "transactional", "quiet_hours", "time_zone", "approval_above")
    row_facts = staticmethod(sponsor_facts)

    @declare_verb("all of them")
    def do_list(self, **options: Any) -> None:
        self.write_rows(Sponsor.objects.all())

    @declare_verb(
        "change it",
        declare_argument("sponsor"),
        declare_argument(
            "--language", metavar="CODE", help=f"of the page to unsubscribe: {LANGUAGES}; empty: the browser's"
        ),
        declare_argument("--region", metavar="GB", help=REGION),
        declare_argument("--transactional", choices=["yes", "no"], help="may it mark campaigns so?"),
        declare_argument(
            "--quiet-hours", metavar="HH:MM-HH:MM", help="no SMS then, by the recipient's clock; empty: none"
        ),
        declare_argument("--time-zone", metavar="ZONE", help="of quiet hours for numbers of an unknown zone"),
        declare_argument("--approval-above", metavar="N", help=APPROVAL),
        declare_argument("--complaint-warning", metavar="PERCENT", help=COMPLAINTS.format("operators are warned")),
        declare_argument("--complaint-limit", metavar="PERCENT", help=COMPLAINTS.format("its bulk mail there pauses")),
    )
    def do_set(self, sponsor: str, **options: Any) -> None:
        row = named_sponsor(sponsor)
        may = {"yes": True, "no": False, None: None}[options["transactional"]]
        typed = {"language": options["language"], "phone_region": options["region"], "may_be_transactional": may}
        typed |= {"time_zone": options["time_zone"]}
        wanted = {field: value for field, value in typed.items() if value is not None} | _parse_quiet_hours(
            options["quiet_hours"]
        )
        wanted |= _parse_approval_above(options["approval_above"])
        for name in ("complaint_warning", "complaint_limit"):
            wanted |= _parse_percent(name, options[name])
        if not wanted:
            names = "--language, --region, --transactional, --quiet-hours, --time-zone, --approval-above, --complaint-*"
            raise CommandError(f"say what is to be changed: {names}", returncode=2)
        changed = {field: value for field, value in wanted.items() if getattr(row, field) != value}
        if changed:
            for field, value in changed.items():
                setattr(row, field, value)
            arguments.check_row(row)
            with facts.log_changes(row, sponsor_facts):
                row.save(update_fields=list(changed))
        self.write_row(row, "changed" if changed else "already so")


def _parse_quiet_hours(text: str | None) -> dict[str, Any]:
    """Return the quiet hours' fields as typed; empty if not given."""
    if not text:
        return {} if text is None else {"quiet_from": None, "quiet_to": None}
    try:
        hours = parse_hours(text, "UTC")
    except BadInput as error:
        raise CommandError(str(error).replace("sending hours", "quiet hours")) from None
    return {"quiet_from": hours.start, "quiet_to": hours.end}


def _parse_approval_above(text: str | None) -> dict[str, Any]:
    if not text:
        return {} if text is None else {"approval_above": None}
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise CommandError(f"--approval-above {text!r} is no number of recipients")
    return {"approval_above": int(text)}


def _parse_percent(name: str, text: str | None) -> dict[str, Any]:
    if not text:
        return {} if text is None else {name: None}
    with suppress(ValueError):
        if isfinite(percent := float(text)):
            return {name: percent}
    raise CommandError(f"--{name.replace('_', '-')} {text!r} is no percentage")
