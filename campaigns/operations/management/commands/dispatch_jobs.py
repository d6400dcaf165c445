"""`manage.py dispatch_jobs`: dispatches nightly jobs now (document 000)."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from campaigns.engine.dispatch import dispatcher
from campaigns.engine.dispatch.dispatcher import Dispatched
from campaigns.models import Job
from campaigns.models.states import Status
from campaigns.operations import following, job_commands
from vendors.models import Vendor
from vendors.said import count_of


class Command(BaseCommand):
    help = (
        "Dispatches jobs that wait for the night, now: all, or those named. It asks on a terminal only, as it sends "
        "nothing that the night would not send. " + job_commands.CODES
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("jobs", nargs="*", type=int, metavar="ID")
        job_commands.add_lookups(parser)
        job_commands.add_deciding_flags(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        jobs = job_commands.looked_up_jobs(options)
        if options["jobs"]:
            jobs = jobs.filter(pk__in=options["jobs"])
        found = dispatcher.preview_dispatch(jobs)
        if options["dry_run"]:
            self._tell_dispatched(found, options)
            return
        if found.jobs and job_commands.somebody_there():
            job_commands.confirm_at_terminal(f"This dispatches {_dispatched_sentence(found)}", options)
        waited = list(jobs.filter(status=Status.RENDERED).values_list("pk", flat=True)) if options["wait"] else []
        done = dispatcher.dispatch_rendered(jobs)
        dispatcher.notify_vendors(done.vendors)
        self._tell_dispatched(done, options)
        gone = Job.objects.filter(pk__in=waited).exclude(status=Status.RENDERED)
        job_commands.wait_for_jobs(self, list(gone.values_list("pk", flat=True)), options, following.OVER)

    def _tell_dispatched(self, done: Dispatched, options: dict[str, Any]) -> None:
        if options["json"]:
            facts = {"jobs": done.jobs, "whole": done.leaves, "to_cut": done.parents, "vendors": _slugs(done)}
            self.stdout.write(json.dumps(facts | {"dry_run": options["dry_run"]}))
        elif not done.jobs:
            self.stdout.write("No job waits for dispatch.")
        else:
            self.stdout.write(
                f"{'Would dispatch' if options['dry_run'] else 'Dispatched'} {_dispatched_sentence(done)}"
            )


def _dispatched_sentence(done: Dispatched) -> str:
    return (
        f"{count_of(done.jobs, 'job')} ({done.leaves:,} whole, {done.parents:,} to be cut): {', '.join(_slugs(done))}"
    )


def _slugs(done: Dispatched) -> list[str]:
    return list(Vendor.objects.filter(pk__in=done.vendors).values_list("slug", flat=True))
