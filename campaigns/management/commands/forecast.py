"""`manage.py forecast`: when what waits for a vendor will have gone."""

from argparse import ArgumentParser
from contextlib import closing
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from campaigns.outlook import Outlook, outlook
from campaigns.prospects import about
from vendors import stores
from vendors.management import arguments
from vendors.management.output import tell
from vendors.models import Vendor
from vendors.throttle import Throttle, Unreachable


class Command(BaseCommand):
    help = (
        "Says when the last message that waits for a vendor will be called: from its limits and the calls in their "
        "windows, if calls take no time and none is put off. Exit codes: 0 done, 1 unknown vendor or Redis is away, "
        "2 usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("vendor", nargs="?", metavar="VENDOR", help="its slug; default: all vendors")
        parser.add_argument("--json", action="store_true", help="one object a vendor")

    def handle(self, *args: Any, **options: Any) -> None:
        vendors = [arguments.vendor(options["vendor"])] if options["vendor"] else list(Vendor.objects.order_by("slug"))
        if not vendors and not options["json"]:
            self.stdout.write("there is no vendor yet")
        with closing(stores.redis(settings.REDIS_URL)) as redis:
            for vendor in vendors:
                now = timezone.now()
                try:
                    found = outlook(vendor, Throttle(redis), now)
                except Unreachable as error:
                    raise CommandError(f"Redis does not tell what is in the windows: {error}") from error
                tell(self.stdout, f"{vendor.slug}: {sentence(found, now)}", facts(vendor, found, now), options["json"])


def sentence(found: Outlook, now: datetime) -> str:
    """1,000 messages in 1,000 jobs at 5 per 60 s: ends 21:20 (3 h 20 min)."""
    pace = " and ".join(f"{limit.units:,} per {limit.seconds:g} s" for limit in found.limits) or "no limit"
    words = f"{_count(found.messages, 'message')} in {_count(found.jobs, 'job')} at {pace}: {_end(found, now)}"
    rest = [f"{found.put_off:,} wait for a time of their own"] if found.put_off else []
    rest += [f"{found.for_the_night:,} for the nightly dispatch"] if found.for_the_night else []
    return "; ".join([words, *rest])


def _end(found: Outlook, now: datetime) -> str:
    if not found.messages:
        return "nothing waits"
    if found.unknown:
        return f"no end: {found.unknown}"
    if found.ends_at is None:
        return "ends in more than ten years"
    return f"ends {about(found.ends_at, now)}" if found.limits else "as fast as the vendor answers"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def facts(vendor: Vendor, found: Outlook, now: datetime) -> dict[str, Any]:
    """For programs."""
    ends = found.ends_at if found.messages else None
    return {
        "vendor": vendor.slug,
        "jobs": found.jobs,
        "messages": found.messages,
        "limits": [f"{limit.units}/{limit.seconds:g}" for limit in found.limits],
        "ends_at": ends,
        "seconds": (ends - now).total_seconds() if ends else None,
        "unknown": found.unknown,
        "put_off": found.put_off,
        "for_the_night": found.for_the_night,
    }
