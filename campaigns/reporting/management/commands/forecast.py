"""`manage.py forecast`: forecasts when the last message waiting for a vendor, or of a job, will be called."""

from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from campaigns.engine import progress
from campaigns.models import Job
from campaigns.reporting.forecast import ahead, eta, obstacles, queues
from campaigns.reporting.forecast.ahead import SharingSponsor
from campaigns.reporting.forecast.eta import Eta
from campaigns.reporting.forecast.queues import VendorQueue
from vendors.mail_classes import MailClass
from vendors.management import arguments
from vendors.management.output import wrap_sentence, write_result
from vendors.models import Vendor
from vendors.said import count_of


class Command(BaseCommand):
    help = (
        "Forecasts the last call of all messages waiting for a vendor, from its limits and the calls in their "
        "windows, if calls take no time and none is put off; or gives the reason for no forecast. Of a job it also "
        "says what goes before it. Exit codes: 0 done, 1 unknown vendor or job, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("vendor", nargs="?", metavar="VENDOR", help="its slug; default: all vendors")
        which.add_argument("--job", type=int, metavar="NUMBER", help="one job instead")
        parser.add_argument("--json", action="store_true", help="one object a vendor or job")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["job"] is not None:
            self._write_job(options["job"], options["json"])
            return
        vendors = (
            [arguments.find_vendor(options["vendor"])] if options["vendor"] else list(Vendor.objects.order_by("slug"))
        )
        if not vendors and not options["json"]:
            self.stdout.write("there is no vendor yet")
        now = timezone.now()
        found = queues.queues_of_vendors([vendor.pk for vendor in vendors], now)
        stays = eta.stays_of_queues(found.values(), now)
        for vendor in vendors:
            queue = found[vendor.pk]
            end = eta.forecast_queue(queue, now)
            of_routes = stays.get(vendor.pk, [])
            text = "; ".join([f"{vendor.slug}: {forecast_sentence(vendor, queue, end, now)}", *of_routes])
            facts = forecast_facts(queue, end, now) | {"routes": of_routes}
            write_result(self.stdout, wrap_sentence(self.stdout, text), facts, options["json"])

    def _write_job(self, number: int, as_json: bool) -> None:
        jobs, now = list(eta.select_related_rows(Job.objects.filter(pk=number))), timezone.now()
        if not jobs:
            raise CommandError(f"there is no job {number}")
        (found,) = eta.forecast_jobs(jobs, progress.progress_of_jobs(jobs), now).values()
        texts = {
            "next": found.next,
            "routes": found.stays,
            "ahead": found.describe_ahead(now, is_operator=True),
            "ends": found.ends,
        }
        text = f"job {number}: {'; '.join(filter(None, texts.values())) or jobs[0].status}"
        facts = {"job": number, "vendor": jobs[0].vendor.slug, **texts}
        facts |= {"first_at": found.first_at, "ends_at": found.ends_at}
        write_result(self.stdout, wrap_sentence(self.stdout, text), facts, as_json)


def forecast_sentence(vendor: Vendor, queue: VendorQueue, end: Eta, now: datetime) -> str:
    """Format a forecast: 1,000 messages in 1,000 jobs at 5 per 60 s: ends 21:20 (3 h 20 min)."""
    limits = " and ".join(map(str, queue.limits)) or "no limit"
    limits += f", {queue.cost_text}" if queue.cost_text else ""
    waiting = (
        f"{count_of(queue.waiting, 'message')} in {count_of(queue.jobs, 'job')} at {limits}: {_end(queue, end, now)}"
    )
    text = waiting if queue.waiting else f"nothing is queued at {limits}"
    best = queue.best_login
    waits = best.describe_for_page(now) if best and best.condition.until and best.condition.has_end else ""
    shares = _sharing_text(queue, now), ahead.describe_classes(queue)
    return "; ".join(filter(None, [text, waits, *shares, *obstacles.waiting_apart(vendor, queue, now)]))


def _sharing_text(queue: VendorQueue, now: datetime) -> str:
    """Format who shares the vendor: shares: Anton 1 of 2, 5,640 wait, ends 14:20 (2 min); Velma 1 of 2, ..."""
    found = [f"{_sponsor_share(one)}, {_end_of(end, now)}" for one, end in eta.forecast_sponsors(queue, now)]
    more = len(queue.sponsors) - len(found)
    found += [f"{more} more"] if found and more > 0 else []
    return f"shares: {'; '.join(found)}" if found else ""


def _sponsor_share(one: SharingSponsor) -> str:
    of = one.sponsor
    return f"{of.name} {of.weight} of {one.weights}, {of.count_queued:,} {'waits' if of.count_queued == 1 else 'wait'}"


def _end_of(end: Eta, now: datetime) -> str:
    if end.obstacle:
        return f"no end: {end.obstacle.reason}"
    return f"ends {eta.format_about(end.ends_at, now)}" if end.ends_at else "as fast as the vendor answers"


def _end(queue: VendorQueue, end: Eta, now: datetime) -> str:
    if end.obstacle and queue.waiting:
        return f"no end: {end.obstacle.reason}"
    if not queue.count_in_queue:
        return "put off or paused"
    return f"ends {eta.format_about(end.ends_at, now)}" if end.ends_at else "as fast as the vendor answers"


def forecast_facts(queue: VendorQueue, end: Eta, now: datetime) -> dict[str, Any]:
    """Return the forecast for --json."""
    return {
        "vendor": queue.slug,
        "jobs": queue.jobs,
        "messages": queue.waiting,
        "in_line": queue.count_in_queue,
        "units_a_message": queue.each,
        "limits": [f"{limit.units}/{limit.seconds:g}" for limit in queue.limits],
        "ends_at": end.ends_at,
        "seconds": (end.ends_at - now).total_seconds() if end.ends_at else None,
        "unknown": end.obstacle.reason if end.obstacle and queue.waiting else "",
        "put_off": queue.put_off,
        "for_the_night": queue.rendered,
        "classes": {MailClass(one).word: count for one, count in queue.queued_by_class.items()},
        "floor": queue.floor,
        "sponsors": [one.sharing_facts() | {"ends_at": end.ends_at} for one, end in eta.forecast_sponsors(queue, now)],
    }
