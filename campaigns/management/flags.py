"""The look-ups of the admin's list as flags, the same for every command that is about jobs."""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError
from django.db.models import Q, QuerySet

from campaigns.models import Job, Sponsor
from campaigns.operators import filters
from vendors.management import arguments

KNOWN = 20  # sponsors that are named to who has misspelt one
NAMES = ("sponsor", "campaign", "vendor", "status", "since", "until")


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--sponsor", metavar="NAME")
    parser.add_argument("--campaign", metavar="NAME", help="a campaign's name, or its number")
    parser.add_argument("--vendor", metavar="SLUG")
    parser.add_argument(
        "--status", metavar="STATUS", help='a status, a group such as Rendered or Sending, Failed or "Needs attention"'
    )
    parser.add_argument("--since", default="", metavar="TIME", help="created then or later; ISO date or time")
    parser.add_argument("--until", default="", metavar="TIME", help="created before")


def given(options: Mapping[str, Any]) -> bool:
    return any(options[name] for name in NAMES)


def whole(options: Mapping[str, Any]) -> Q:
    """A parent stands for its children; but where an end of messages is asked for, the children are meant."""
    ends = [name.lower() for name in filters.ENDS]
    return Q() if (options["status"] or "").lower() in ends else Q(parent=None)


def looked_up_jobs(options: Mapping[str, Any]) -> "QuerySet[Job]":
    """Those that the flags name. Raises CommandError for names and values that there are not."""
    found = Job.objects.all()
    if options["sponsor"]:
        sponsor = Sponsor.objects.filter(name=options["sponsor"]).first()
        if sponsor is None:
            known = ", ".join(Sponsor.objects.values_list("name", flat=True)[:KNOWN]) or "none yet"
            raise CommandError(f"there is no sponsor {options['sponsor']!r}; there are: {known}")
        found = found.filter(sponsor=sponsor)
    if options["vendor"]:
        found = found.filter(vendor=arguments.vendor(options["vendor"]))
    if campaign := options["campaign"]:
        number = Q(campaign_id=int(campaign)) if campaign.isdecimal() and len(campaign) < 19 else Q()
        found = found.filter(Q(campaign__name=campaign) | number if number else Q(campaign__name=campaign))
    try:
        if options["status"]:
            found = found.filter(filters.by_status(options["status"]))
        return filters.dated(found, options["since"], options["until"])
    except ValueError as error:
        raise CommandError(str(error)) from None
