"""A decision asked for again, because its answer was lost, changes nothing: by the API, a command, the admin."""

import io
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from campaigns.engine.casting import mailcaster
from campaigns.engine.pausing import pauses
from campaigns.models import Job
from campaigns.operations import pausing
from tests import factories
from tests.front.program import Program, api_vendor, fresh, letter, problem

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db


class First:
    """A session of which the first two of five are called before it waits."""

    def __init__(self) -> None:
        self.program, vendor = Program(), api_vendor()
        self.caster = factories.caster(vendor, min_size=2, max_size=2)
        addresses = [f"p{number}@sandbox.example" for number in range(5)]
        answer = self.program.send(letter(vendor, addresses, first=2))
        self.links: dict[str, str] = answer.json()["links"]
        self.job = Job.objects.get()

    def session(self) -> Any:
        return self.program.get(self.links["self"]).json()

    def called(self) -> None:
        """The first two are called, and the wait behind them begins."""
        assert mailcaster.claim_next_job(self.caster.pk, timezone.now())
        Job.objects.filter(parent=self.job).update(status="LOGGED", finished_at=timezone.now(), mailcaster=None)
        assert pauses.pause_after_first() == [self.job.pk]

    def waits(self) -> bool:
        """The rest waits for somebody."""
        self.job.refresh_from_db()
        return self.job.wait_after == 2 and self.job.paused_at is not None


def manage(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def test_a_resume_that_is_repeated_after_the_wait_behind_the_first_n_began_lets_nobody_go() -> None:
    first = First()
    paused = first.program.post(first.links["pause"]).json()["session"]
    resume = paused["links"]["resume"]
    assert resume == f"{first.links['self']}/resume?revision={paused['revision']}"
    assert first.program.post(resume).json()["changed"]
    assert not first.program.post(resume).json()["changed"]
    first.called()
    problem(first.program.post(resume), "state-conflict", 409)
    assert first.waits()
    go = first.session()["links"]["resume"]
    assert first.program.post(go).json()["changed"] and not first.waits()
    assert not first.program.post(go).json()["changed"]


def test_a_resume_that_came_too_early_is_no_go_for_the_rest_when_it_is_repeated() -> None:
    first = First()
    early = first.session()["links"]["resume"]
    assert not first.program.post(early).json()["changed"]
    first.called()
    problem(first.program.post(early), "state-conflict", 409)
    assert first.waits()


@pytest.mark.parametrize("verb", ["resume", "retry"])
def test_what_may_let_more_be_called_has_to_name_the_revision(verb: str) -> None:
    first = First()
    first.program.post(first.links["pause"])
    for query in ("", "?revision=x", "?revision=-1"):
        found = problem(first.program.post(f"{first.links['self']}/{verb}{query}"), "validation", 422)
        assert found["errors"][0]["parameter"] == "revision"
    assert first.session()["paused"]


def test_a_pause_and_a_stop_hold_with_and_without_a_revision_but_not_on_an_old_one() -> None:
    first = First()
    assert first.program.post(f"{first.links['pause']}?revision=0").json()["changed"]
    assert first.program.post(first.session()["links"]["resume"]).json()["changed"]
    for verb in ("pause", "stop"):
        problem(first.program.post(f"{first.links[verb]}?revision=0"), "state-conflict", 409)
    assert first.session()["paused"] is None
    assert first.program.post(first.links["stop"]).json()["changed"]


def test_a_command_takes_the_revision_and_decides_about_what_it_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    first = First()
    pausing.pause_jobs([first.job.pk], "ann")
    seen = str(first.session()["revision"])
    assert f'"revision":{seen},' in manage("list_jobs", "--json")
    manage("resume_job", str(first.job.pk), "--revision", seen)
    first.called()
    with pytest.raises(CommandError, match="look again"):
        manage("resume_job", str(first.job.pk), "--revision", seen)
    with pytest.raises(CommandError, match="--revision is that of one job"):
        manage("resume_job", "--vendor", first.job.vendor.slug, "--yes", "--revision", seen)
    assert first.waits()

    def meanwhile(*_: Any) -> None:
        pausing.resume_jobs([first.job.pk], "bob")
        pausing.pause_jobs([first.job.pk], "bob", "a wrong link")

    monkeypatch.setattr("campaigns.operations.job_commands.confirm_at_terminal", meanwhile)
    with pytest.raises(CommandError, match="look again"):
        manage("resume_job", "--vendor", first.job.vendor.slug)
    assert first.session()["paused"] == "a wrong link"


def test_a_page_of_the_admin_that_is_posted_again_lets_nobody_go(admin_client: Client) -> None:
    first = First()
    pausing.pause_jobs([first.job.pk], "ann")
    shown = f"{first.job.pk}:{first.session()['revision']}"
    body = {"action": "resume", "confirmed": "Y", "shown": [shown], "_selected_action": [first.job.pk]}
    admin_client.post("/admin/campaigns/job/", body)
    assert first.session()["paused"] is None
    first.called()
    admin_client.post("/admin/campaigns/job/", body)
    assert first.waits()
