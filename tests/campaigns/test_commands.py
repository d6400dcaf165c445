"""What the commands that decide about jobs share: numbers first, --yes, --json, --wait and their exit codes."""

import json
import threading
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.utils import timezone

from campaigns.engine.finishing import finalizer
from campaigns.models import Job
from tests import factories
from tests.campaigns.rows import accepted, logged, refused
from tests.programs import wait_until
from tests.waiting import joined


class Running:
    """A command in a thread of its own; its output and exit code once it has ended."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.out, self.code = StringIO(), 0
        self.thread = threading.Thread(target=self._run, args=(args, options), daemon=True)
        self.thread.start()

    def _run(self, args: Any, options: Any) -> None:
        try:
            call_command(*args, stdout=self.out, **options)
        except SystemExit as end:
            self.code = int(end.code or 0)
        finally:
            connection.close()

    def end(self) -> list[dict[str, Any]]:
        joined(self.thread)
        assert not self.thread.is_alive()
        return [json.loads(line) for line in self.out.getvalue().splitlines()]


@pytest.mark.django_db
@pytest.mark.parametrize("since", ["soon", "0001-01-01T00:00Z", "9999-12-31T23:59:59-16:00"])
def test_a_backup_that_cannot_have_been_begun_then_is_refused(since: str) -> None:
    with pytest.raises(CommandError, match="is no time: write it like"):
        call_command("recover_store", since=since, yes=True)


@pytest.mark.django_db(transaction=True)
class TestWait:
    @pytest.mark.parametrize(
        ("counts", "code"),
        [({"accepted": 3}, 0), ({"accepted": 2, "refused": 1}, 4), ({"accepted": 2, "in_doubt": 1}, 5)],
    )
    def test_a_dispatch_is_waited_for_and_its_exit_code_tells_how_it_went(self, counts: Any, code: int) -> None:
        job = factories.campaign_with_job(3, status="RENDERED")
        run = Running("dispatch_jobs", wait=True, json=True)
        wait_until(lambda: Job.objects.filter(pk=job.pk, status="DISPATCHED").exists(), "dispatched")
        assert run.thread.is_alive()
        Job.objects.filter(pk=job.pk).update(status="LOGGED", finished_at=timezone.now(), **counts)
        dispatched, ended = run.end()
        assert dispatched["jobs"] == ended["jobs"] == 1
        assert {name: ended[name] for name in counts} == counts
        assert run.code == code

    def test_a_stop_is_waited_for_until_what_was_in_flight_is_recorded(self) -> None:
        job = factories.campaign_with_job(3, status="DISPATCHED")
        run = Running("stop_job", job.pk, wait=True, json=True)
        wait_until(lambda: Job.objects.filter(pk=job.pk, status="STOPPED").exists(), "stopped")
        assert run.thread.is_alive()
        assert finalizer.finalise_job(job.pk)
        stopped, ended = run.end()
        assert (stopped["verdict"], ended["waiting"], run.code) == ("done", 3, 0)


@pytest.mark.django_db
class TestNumbersFirst:
    @pytest.fixture
    def answer(self) -> Callable[..., dict[str, Any]]:
        def call(*args: Any, **options: Any) -> dict[str, Any]:
            out = StringIO()
            call_command(*args, stdout=out, json=True, **options)
            found: dict[str, Any] = json.loads(out.getvalue())
            return found

        return call

    def test_a_dry_run_tells_programs_what_would_be_done_and_changes_nothing(self, answer: Any) -> None:
        waiting = factories.campaign_with_job(4, status="DISPATCHED")
        ended = logged(3, [accepted(), refused()])
        stop = answer("stop_job", waiting.pk, dry_run=True)
        assert stop == {"dry_run": True, "jobs": 1, "waiting": 4}
        retry = answer("retry_job", sponsor=ended.sponsor.name, dry_run=True)
        assert retry == {"dry_run": True, "jobs": 1, "refused": 1, "waiting": 1}
        assert sorted(Job.objects.values_list("status", flat=True)) == ["DISPATCHED", "LOGGED"]

    def test_jobs_are_dispatched_by_any_of_the_lists_look_ups(self, answer: Any) -> None:
        mine, other = (factories.campaign_with_job(2, status="RENDERED") for _ in range(2))
        assert answer("dispatch_jobs", campaign=mine.campaign.name, dry_run=True)["jobs"] == 1
        assert answer("dispatch_jobs", since="2999-01-01")["jobs"] == 0
        assert answer("dispatch_jobs", other.pk)["jobs"] == 1
        assert answer("dispatch_jobs", sponsor=mine.sponsor.name, until="2999-01-01")["jobs"] == 1
        assert set(Job.objects.values_list("status", flat=True)) == {"DISPATCHED"}

    @pytest.mark.parametrize("command", ["stop_job", "retry_job"])
    def test_without_a_terminal_nothing_is_decided_by_a_look_up_without_yes(self, command: str) -> None:
        factories.campaign_with_job(4, status="DISPATCHED")
        logged(1, [refused()])
        with pytest.raises(CommandError, match="add --yes to do it") as error:
            call_command(command, since="2000-01-01")
        assert error.value.returncode == 2
        assert set(Job.objects.values_list("status", flat=True)) == {"DISPATCHED", "LOGGED"}
