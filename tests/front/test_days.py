"""What happened by day, for programs: the same sums as on the first page of campaign owners, of the key's sponsor."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from campaigns.models import DayCount
from tests.campaigns.rows import accepted, logged
from tests.front.program import Program, fresh, problem

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Any:
    """Three messages that were sent today, of which 21 more have been reported since."""
    made = logged(3, [accepted()] * 3)
    DayCount.objects.create(day=timezone.now().date(), sponsor=made.sponsor, delivered=21, complained=1)
    return made


@pytest.mark.usefixtures("frozen_clock")
def test_a_program_sees_its_sponsors_days_as_the_page_of_its_owners_does(job: Any) -> None:
    ours, theirs = Program(job.sponsor), Program()
    found = ours.get("/api/v1/days").json()["data"]
    assert len(found) == 30 and found[-1]["day"] == timezone.now().date().isoformat()
    assert list(found[-1]) == ["day", "sent", "delivered", "bounced", "complained", "unsubscribed"]
    sums = {name: sum(row[name] for row in found) for name in list(found[0])[1:]}
    assert sums == {"sent": 3, "delivered": 21, "bounced": 0, "complained": 1, "unsubscribed": 0}
    assert len(ours.get("/api/v1/days?days=366").json()["data"]) == 366
    assert [row["delivered"] for row in theirs.get("/api/v1/days?days=2").json()["data"]] == [0, 0]
    ann = User.objects.create(username="ann")
    ann.user_permissions.set(Permission.objects.filter(codename="view_campaign"))
    job.sponsor.users.add(ann)
    client = Client()
    client.force_login(ann)
    assert client.get("/").context["chart"].total.delivered == 21


def test_only_keys_that_may_read_see_days_and_a_test_key_sees_none(job: Any) -> None:
    problem(Program(job.sponsor, scopes=("send", "ops")).get("/api/v1/days"), "forbidden", 403)
    assert Program(job.sponsor, "test").get("/api/v1/days").json() == {"data": []}


@pytest.mark.parametrize("days", ["0", "367", "x"])
def test_what_is_no_number_of_days_is_refused(days: str) -> None:
    problem(Program().get(f"/api/v1/days?days={days}"), "validation", 422)
