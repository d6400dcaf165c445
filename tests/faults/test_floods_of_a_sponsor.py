"""One sponsor's huge imports of suppressions neither hold up another's nor touch whom the other writes to."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.db import connection
from django.test import Client

from campaigns.engine import audit
from campaigns.engine.suppressed import recent
from campaigns.models import Sponsor, Suppression
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from tests import factories
from tests.faults.sending import login, meanwhile, sent, take_again
from tests.sandbox import Sandbox
from tests.waiting import result_of, wait_until

pytestmark = pytest.mark.django_db(transaction=True)
SLICE = 50  # suppressions in a transaction, for 5,000
HUGE = 4 * SLICE + 1


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "AT_ONCE", SLICE)


@pytest.fixture
def anton() -> Sponsor:
    return factories.sponsor("Anton")


@pytest.fixture
def velma() -> Sponsor:
    return factories.sponsor("Velma")


def addresses(number: int = HUGE) -> list[str]:
    return [f"reader{one}@sandbox.example" for one in range(number)]


def test_another_one_is_suppressed_amid_a_huge_import(anton: Sponsor, velma: Sponsor) -> None:
    """Hers is committed while the import still reads its file."""
    with ThreadPoolExecutor(1) as hers:

        def read_slowly() -> Iterator[NewSuppression]:
            for number, one in enumerate(addresses()):
                if number == 2 * SLICE:
                    mine = NewSuppression("ann@sandbox.example", "unsubscribed")
                    assert result_of(hers.submit(add_and_close, velma, mine), "hers is stored") == 1
                yield NewSuppression(one, "by_hand")

        assert lists.add_suppressions(anton.pk, "email", read_slowly()) == HUGE
    theirs = Suppression.objects.filter(sponsor=anton).order_by("position").values_list("position", flat=True)
    position = Suppression.objects.get(sponsor=velma).position
    assert theirs[2 * SLICE - 1] < position < theirs[2 * SLICE]


def add_and_close(sponsor: Sponsor, new: NewSuppression) -> int:
    try:
        return lists.add_suppressions(sponsor.pk, "email", [new])
    finally:
        connection.close()


@pytest.mark.parametrize("door", ["command", "owners", "admin"])
def test_at_no_door_an_import_is_one_transaction(door: str, anton: Sponsor, client: Client, tmp_path: Path) -> None:
    """Others would wait for the whole of it."""
    text = "\n".join(["address", *addresses(), ""])
    if door == "command":
        (file := tmp_path / "list.csv").write_text(text)
        call_command("suppression", "import", "--sponsor", anton.name, str(file))
    else:
        user = User.objects.create_superuser("root") if door == "admin" else User.objects.create_user("ann")
        user.groups.set(Group.objects.filter(name="campaign owner"))
        anton.users.add(user)
        client.force_login(user)
        path = "/admin/campaigns/suppression/import/" if door == "admin" else "/suppressions/import/"
        upload = SimpleUploadedFile("list.csv", text.encode(), "text/csv")
        given = {"sponsor": anton.pk, "channel": "email", "reason": "by_hand", "file": upload}
        assert client.post(path, given).status_code == 302
    with connection.cursor() as cursor:
        cursor.execute("SELECT xmin::text, count(*) FROM campaigns_suppression GROUP BY 1")
        assert sorted(count for _, count in cursor.fetchall()) == [1, *[SLICE] * 4]


@pytest.mark.parametrize("kept", [recent.MOST, 10])
def test_whom_one_sponsor_suppresses_amid_anothers_campaign_she_goes_on_writing_to(
    kept: int, sandbox: Sandbox, anton: Sponsor, velma: Sponsor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a sender's memory of new suppressions is too small for the import: then its claims ask the table."""
    monkeypatch.setattr(recent, "MOST", kept)
    job = take_again(
        factories.campaign_with_job(addresses(2_000), of=login(sandbox.url), by=velma, status="DISPATCHED")
    )
    with meanwhile(sent, job) as sending:
        wait_until(lambda: sandbox.books().recipients, "hers is being sent")
        his = [NewSuppression(one, "stop") for one in addresses(2_000)[-HUGE:]]
        assert lists.add_suppressions(anton.pk, "email", his) == HUGE
        assert lists.add_suppressions(velma.pk, "email", [NewSuppression(his[-1].address, "unsubscribed")]) == 1
        job = result_of(sending, "hers is sent")
    assert job.accepted + job.suppressed == 2_000 and job.suppressed <= 1
    assert not [check for check in audit.ask_all_questions() if not check.is_kept]


def test_a_bad_file_of_one_sponsor_stores_nothing_and_blocks_no_import_of_another(
    anton: Sponsor, velma: Sponsor, tmp_path: Path
) -> None:
    (bad := tmp_path / "bad.csv").write_text("\n".join(["address", *addresses(), "nobody", ""]))
    (good := tmp_path / "good.csv").write_text("address\nann@sandbox.example\n")

    def import_file(sponsor: Sponsor, file: Path) -> Any:
        return call_command("suppression", "import", "--sponsor", sponsor.name, str(file))

    with pytest.raises(Exception, match="row 203"):
        import_file(anton, bad)
    import_file(velma, good)
    assert Suppression.objects.get().sponsor_id == velma.pk
