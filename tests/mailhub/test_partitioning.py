"""docs/partitioning.md, block by block, on a copy of the database, while mail goes out through its partitions."""

import io
from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection

from campaigns.models import Message
from tests import factories
from tests.copies import backup, blocks, psql, restore
from tests.faults.checker import judge
from tests.faults.sending import login, sent, take_again, taken
from tests.sandbox import Sandbox

pytestmark = pytest.mark.django_db(transaction=True)
FIRST, MONTH, QUESTION, LEAVE = blocks("partitioning.md")
SPARE_IDS = 1_000_000  # ids that the page leaves for what is imported meanwhile


@pytest.fixture(autouse=True)
def copy() -> Iterator[None]:
    """What the page does to the table cannot be undone."""
    with backup() as name:
        restore(name)
        call_command("recover_store", yes=True, reason="a copy", stdout=io.StringIO())  # it has another number
        yield


def partitions() -> dict[str, int]:
    """Messages by the table that they stand in."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableoid::regclass::text, count(*) FROM campaigns_message GROUP BY 1")
        return dict(cursor.fetchall())


def skip_ids(count: int) -> None:
    """As if so many messages had been imported and sent."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval('campaigns_message_block', nextval('campaigns_message_block') + %s)", [count])


def test_messages_move_into_partitions_and_an_old_month_leaves(sandbox: Sandbox) -> None:
    account = login(sandbox.url)
    sent(taken(20, account))
    waiting = factories.campaign_with_job(10, of=account, status="DISPATCHED")
    psql(FIRST)
    sent(taken(20, account))
    assert partitions() == {"campaigns_message_first": 50}, "what was imported before the switch's room is used up"
    skip_ids(2 * SPARE_IDS)
    sent(taken(30, account))
    psql(MONTH)
    skip_ids(2 * SPARE_IDS)
    sent(taken(40, account))
    assert partitions() == {
        "campaigns_message_first": 50, "campaigns_message_2026_12": 30, "campaigns_message_next": 40,
    }  # fmt: skip
    assert psql(QUESTION) == [(1,)], "a job of the first partition waits"
    sent(take_again(waiting))
    assert psql(QUESTION) == [(0,)]
    assert judge(sandbox.books()) == []
    psql(LEAVE)
    assert Message.objects.count() == 70
    sent(taken(5, account))
