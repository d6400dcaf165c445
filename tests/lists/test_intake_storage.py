"""What was checked is stored exactly, all together or not at all; and ids are never given twice."""

import io
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.lists import intake
from campaigns.models import Campaign, Job, Message
from campaigns.models.jobs import read_reference
from campaigns.models.states import S
from campaigns.texts import templates
from tests import factories as make

ROOT = Path(__file__).resolve().parents[2]
BARE = templates.compile_templates("Hello", "Good day", html=False)
pytestmark = pytest.mark.django_db


def accept(recipients: intake.Recipients, **more: Any) -> Job:
    facts = {"name": "Winter", "subject": "Hello", "body": "Good day", "html": False, **more}
    return intake.store_campaign(sponsor=make.sponsor(), credential=make.credential(), recipients=recipients, **facts)


def test_a_campaign_its_messages_and_its_job_cover_one_block_of_ids() -> None:
    job = accept([("a@sandbox.example", {"n": 1}), ("b@sandbox.example", {})])
    campaign = job.campaign
    assert (job.status, job.size, job.not_before, job.remaining) == (S.RENDERED, 2, None, 0)
    assert (campaign.first_message, campaign.size) == (job.first_message, 2)
    messages = Message.objects.filter(campaign=campaign).order_by("id")
    assert [message.id for message in messages] == list(range(job.first_message, job.end))
    assert len({message.uuid for message in messages}) == 2
    assert [read_reference(message.reference) for message in messages] == [
        (message.id, message.uuid, 0) for message in messages
    ], "a receipt finds its message by what stands in its reference"
    assert [(message.resend_no, message.dequeued_at, message.sent_at) for message in messages] == [(0, None, None)] * 2


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@settings(max_examples=30)
@given(st.lists(st.tuples(text, st.dictionaries(text, text, max_size=3)), min_size=1, max_size=5))
def test_every_character_survives_the_copy(recipients: list[tuple[str, dict[str, str]]]) -> None:
    recipients.append(("\\N\t\\.\r\n\\", {"\\N": '"\\\t\n\u2028\\.'}))
    job = accept(recipients)
    rows = Message.objects.filter(campaign=job.campaign).order_by("id").values_list("recipient", "params")
    assert list(rows) == recipients


def test_a_file_is_stored_over_more_than_one_block_of_the_copy() -> None:
    rows = "".join(f"r{n}@sandbox.example,{n}\n" for n in range(4_500))
    table = intake.Table(io.BytesIO(b"email,n\n" + rows.encode()))
    stored: list[int] = []
    job = accept(intake.check_table(table, "email", BARE), progress=stored.append)
    last = Message.objects.get(pk=job.end - 1)
    assert (last.recipient, last.params) == ("r4499@sandbox.example", {"n": "4499"})
    assert stored == [2_000, 4_000, 4_500]
    assert Message.objects.filter(campaign=job.campaign).count() == job.size == 4_500


class Shrunk(list[tuple[str, dict[str, str]]]):
    """A list that yields fewer items than len() says, like a file that is cut short meanwhile."""

    def __iter__(self) -> Iterator[tuple[str, dict[str, str]]]:
        return iter(self[:-1])


class Broken(Shrunk):
    def __iter__(self) -> Iterator[tuple[str, dict[str, str]]]:
        yield self[0]
        raise OSError("the disk is gone")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("kind", "error"), [(Shrunk, intake.BadInput), (Broken, OSError)])
def test_an_import_that_breaks_off_leaves_nothing(kind: type[Shrunk], error: type[Exception]) -> None:
    with pytest.raises(error):
        accept(kind([("a@sandbox.example", {}), ("b@sandbox.example", {})]))
    assert not (Campaign.objects.exists() or Message.objects.exists() or Job.objects.exists())


@pytest.mark.parametrize(
    "more", [{"name": ""}, {"subject": "a\0b"}, {"body": "\0"}, {"recipients": []}, {"name": "x" * 201}]
)
def test_what_no_campaign_can_have_is_bad_input(more: dict[str, Any]) -> None:
    with pytest.raises(intake.BadInput):
        accept(**{"recipients": [("a@sandbox.example", {})], **more})
    assert not Campaign.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_imports_at_the_same_time_never_share_an_id() -> None:
    def allocate(size: int) -> range:
        try:
            first = intake.allocate_ids(size)
        finally:
            connection.close()
        return range(first, first + size)

    with ThreadPoolExecutor(8) as pool:
        blocks = list(pool.map(allocate, range(1, 101)))
    ids = [id for block in blocks for id in block]
    assert len(set(ids)) == len(ids) == 5_050


def test_two_recipients_with_the_same_digest_are_not_taken_for_one() -> None:
    def rows(*recipients: str) -> list[tuple[int, str, dict[str, Any]]]:
        return [(number, recipient, {}) for number, recipient in enumerate(recipients, start=2)]

    def same(key: str) -> int:
        return -1

    normal = intake.AddressReader("email")
    different = rows(*(f"{n}@sandbox.example" for n in range(5)))
    assert intake.check_rows(different, normal, BARE, digest=same) == 5
    with pytest.raises(intake.BadInput) as error:
        intake.check_rows([*different, *rows("x@sandbox.example", "3@sandbox.example")], normal, BARE, digest=same)
    assert [str(problem) for problem in error.value.problems] == [
        "row 3: the same recipient as in row 5: 3@sandbox.example"
    ]


def test_fields_that_are_not_text_are_checked_too() -> None:
    rows = [(1, "a@sandbox.example", {"n": 1, "list": ["x\0"]}), (2, "b@sandbox.example", {"n": ["y" * 100_000]})]
    with pytest.raises(intake.BadInput) as error:
        intake.check_rows(rows, intake.AddressReader("email"), BARE)
    assert [str(problem) for problem in error.value.problems] == [
        "row 1: 'list' has a NUL character in it",
        "row 2: 'n' is larger than 100,000 characters",
    ]


@pytest.mark.slow("processes")
def test_a_long_file_is_checked_in_memory_that_hardly_grows() -> None:
    command = [sys.executable, "-m", "tests.campaigns.checking", "300000"]
    ran = subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
    grown_kb = int(ran.stdout)
    assert grown_kb < 30_000  # 100 bytes a recipient: less than a set of their addresses alone
