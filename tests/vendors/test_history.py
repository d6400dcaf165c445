"""What commands change of vendors, credentials and casters stands in the history that the admin shows."""

from collections.abc import Callable

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.core.management import CommandError, call_command
from django.test import Client

from tests import factories
from vendors.management.arguments import shell_user
from vendors.models import Vendor

pytestmark = pytest.mark.django_db
Run = Callable[[str], None]


@pytest.fixture
def run(capsys: pytest.CaptureFixture) -> Run:
    """Runs a command line."""
    return lambda line: call_command(*line.split())


def history(kind: str = "vendor") -> list[str]:
    """Oldest first, without who."""
    rows = LogEntry.objects.filter(content_type__model=kind).order_by("pk")
    assert all(row.user.username == "command line" and not row.user.is_active for row in rows)
    said = [row.change_message for row in rows]
    assert all(one.endswith(f" by {shell_user()}") for one in said)
    return [one.removesuffix(f" by {shell_user()}") for one in said]


def test_a_changed_limit_stands_on_the_vendors_page_with_old_and_new(run: Run, admin_client: Client) -> None:
    vendor = factories.vendor("letters", limits=[(5, 60)])
    run("vendor limit letters 8/60 100/3600")
    run("vendor limit letters 8/60 100/3600")
    run("vendor limit letters")
    assert history() == ["limits 5/60 → 8/60, 100/3600"]
    page = admin_client.get(f"/admin/vendors/vendor/{vendor.pk}/change/").content.decode()
    assert "limits 5/60 → 8/60, 100/3600" in page and "command line" in page


def test_a_night_a_pause_and_the_terms_of_health_are_kept(run: Run) -> None:
    factories.vendor("letters")
    Vendor.objects.update(dispatch_at="18:00", min_requests=10)
    run("vendor set letters --dispatch-at 21:30")
    run("vendor pause letters --reason stocktaking")
    run("vendor pause letters --reason stocktaking")
    run("vendor resume letters")
    run("vendor status letters --min-requests 20")
    run("vendor status letters")
    assert history() == [
        "dispatch at 18:00 → 21:30",
        "paused none → stocktaking",
        "paused stocktaking → none",
        "min requests 10 → 20",
    ]


def test_what_comes_and_goes_is_told_as_such(run: Run) -> None:
    run("vendor add letters --adapter http --set url=http://127.0.0.1:1/ --no-casters")
    run("vendor add letters --adapter http --set url=http://127.0.0.1:1/ --no-casters")
    number = str(Vendor.objects.get().pk)
    run("vendor remove letters")
    rows = LogEntry.objects.order_by("pk")
    assert [(row.action_flag, row.object_id) for row in rows] == [(ADDITION, number), (DELETION, number)]


def test_a_vendor_that_cannot_go_is_not_told_to_be_gone(run: Run) -> None:
    job = factories.campaign_with_job(1)
    with pytest.raises(CommandError, match="has campaigns and stays"):
        run(f"vendor remove {job.vendor.slug}")
    assert not LogEntry.objects.exists()


def test_of_a_secret_only_that_it_was_replaced(run: Run) -> None:
    factories.vendor("letters")
    Vendor.objects.update(adapter="http", settings={"url": "http://127.0.0.1:1/"})
    run("credential add letters second --set Authorization=s3cret-one")
    run("credential set letters second --set Authorization=s3cret-two")
    run("credential pause letters second --reason expired")
    run("vendor limit letters 1/60 --credential second")
    assert history("credential") == ["added", "secret replaced", "paused none → expired", "limits none → 1/60"]
    assert not LogEntry.objects.filter(change_message__contains="s3cret").exists()


def test_casters_stand_in_the_history_of_their_vendor(run: Run) -> None:
    factories.vendor("letters")
    run("mailcaster add letters night --kind large-only")
    run("mailcaster disable letters night")
    run("mailcaster disable letters night")
    run("mailcaster enable letters night")
    run("mailcaster remove letters night")
    assert [one.split()[-1] for one in history()] == ["added", "disabled", "enabled", "removed"]
    assert all("night" in one for one in history())
    assert set(LogEntry.objects.values_list("action_flag", flat=True)) == {CHANGE}


def test_a_change_of_a_caster_stands_there_with_old_and_new_values(run: Run) -> None:
    factories.vendor("letters")
    run("mailcaster add letters night --kind large-only")
    run("mailcaster set letters night --percentage 4 --max 5000 --kind large-only")
    run("mailcaster set letters night --percentage 4")
    assert history()[1:] == ["mailcaster letters/night: max size 10000 → 5000; percentage 3.0 → 4.0"]
