"""docs/partitioning.md, block by block, on a copy of the database, while mail goes out through its partitions."""

import io
from collections.abc import Iterator

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, OperationalError, connection
from django.test import Client, RequestFactory

from campaigns.doors.front import problems
from campaigns.engine import audit
from campaigns.lists.intake.storage import allocate_ids
from campaigns.models import Message
from mailhub import checks
from mailhub.monitoring import probes
from tests import factories
from tests.copies import backup, blocks, psql, restore
from tests.faults.checker import judge
from tests.faults.sending import login, sent, take_again, taken
from tests.sandbox import Sandbox
from tests.waiting import wait_until

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


def asked(block: str) -> str:
    return str(psql(block)[0][0])


def tables() -> dict[str, str]:
    """Whatever is there of messages: tables, indexes and constraints."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, coalesce(pg_get_expr(relpartbound, oid), relkind::text) FROM pg_class"
            " WHERE relname LIKE 'campaigns_message%%' OR relname LIKE 'message_%%'"
            " UNION ALL SELECT conname || conrelid, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE conname = 'message_until'"
        )
        return dict(cursor.fetchall())


def test_without_any_message_the_table_becomes_partitions_and_no_month_is_cut(sandbox: Sandbox) -> None:
    assert asked(MONTH) == "nothing to cut: messages have no partitions"
    assert asked(FIRST).startswith("campaigns_message_first has the messages below ")
    before = tables()
    assert asked(FIRST) == "nothing to do: messages have partitions"
    assert asked(MONTH).startswith("nothing to cut: the open partition begins at ")
    assert asked(LEAVE) == "campaigns_message_first stays: new messages still go into it"
    assert tables() == before
    sent(taken(3, login(sandbox.url)))
    skip_ids(2 * SPARE_IDS)
    assert asked(LEAVE) == "campaigns_message_first has left: dump it, then drop it"
    assert asked(LEAVE).startswith("nothing to do: ")
    sent(taken(3, login(sandbox.url)))
    assert probes.probe_storing() == {"storing": ""}


def test_a_month_with_few_messages_or_a_second_cut_changes_nothing(sandbox: Sandbox) -> None:
    account = login(sandbox.url)
    sent(taken(5, account))
    psql(FIRST)
    skip_ids(2 * SPARE_IDS)
    sent(taken(5, account))
    assert asked(MONTH).startswith("campaigns_message_2026_12 has the messages from ")
    before = tables()
    skip_ids(1000)
    sent(taken(5, account))
    assert asked(MONTH).startswith("nothing to cut: ") and tables() == before
    skip_ids(5 * SPARE_IDS)  # a hole: ids that were never used
    sent(taken(5, account))
    assert asked(MONTH).startswith("campaigns_message_2026_12_2 has the messages from ")
    sent(taken(5, account))
    assert sum(partitions().values()) == 25 and judge(sandbox.books()) == []


@pytest.mark.parametrize("block", [FIRST, MONTH, LEAVE])
@pytest.mark.slow("time")
def test_a_lock_that_does_not_come_and_a_session_that_is_killed_leave_nothing_behind(block: str) -> None:
    if block != FIRST:
        psql(FIRST)
        skip_ids(2 * SPARE_IDS)
    before = tables()
    options = connection.get_connection_params()
    for ours in ("cursor_factory", "context", "prepare_threshold"):
        options.pop(ours, None)
    with psycopg.connect(**options) as other:
        other.execute("LOCK TABLE campaigns_message IN ROW EXCLUSIVE MODE")
        with pytest.raises(OperationalError, match="lock timeout"):
            psql(block)
    assert tables() == before
    cut = psycopg.connect(**options)
    cut.execute(block)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [cut.info.backend_pid])
    cut.close()
    wait_until(lambda: tables() == before, "all of it is undone")


def leave_a_bound() -> None:
    """As the page of old did where it was broken off."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE campaigns_message ADD CONSTRAINT message_until CHECK (id < 4 AND id > 4) NOT VALID")


def test_a_bound_that_an_old_cut_left_behind_is_told_and_taken_away(sandbox: Sandbox) -> None:
    leave_a_bound()
    assert "message_until" in probes.probe_storing()["storing"]
    [check] = [one for one in audit.ask_all_questions() if not one.is_kept]
    assert check.question == "no constraint of a cut that was broken off refuses messages"
    with pytest.raises(IntegrityError) as caught:
        factories.campaign_with_job(1, of=login(sandbox.url))
    answer = problems.answer_exception(RequestFactory().post("/api/v1/messages"), caught.value)
    assert answer.status_code == 503 and "takes no messages until an operator" in answer.content.decode()
    psql(FIRST)
    assert probes.probe_storing() == {"storing": ""} and all(one.is_kept for one in audit.ask_all_questions())
    sent(taken(2, login(sandbox.url)))


def said(*command: str) -> tuple[str, int]:
    """What a command writes, and its exit code."""
    out, code, why = io.StringIO(), 0, ""
    try:
        call_command(*command, stdout=out)
    except CommandError as error:
        code, why = error.returncode, str(error)
    return " ".join((out.getvalue() + why).split()), code


def test_a_bound_that_refuses_messages_months_later_is_told_by_status_doctor_the_start_and_the_page(
    admin_client: Client,
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE campaigns_message ADD CONSTRAINT message_until CHECK (id < 9000000000) NOT VALID")
    assert probes.probe_storing() == {"storing": ""}, "no message is refused yet"
    for command, code in ((("status",), 0), (("status", "--check"), 1), (("doctor", "--installation"), 1)):
        text, ended = said(*command)
        assert "campaigns_message refuses messages by a constraint that a cut has left behind" in text, command
        assert "campaigns_partition_forget_bounds() takes it away" in text and ended == code, (command, text)
    [warning] = [one for one in checks.check_database() if one.id == "mailhub.W005"]
    assert not warning.is_serious() and "message_until: CHECK ((id < '9000000000'::bigint))" in warning.msg
    assert "refuses messages by a constraint" in admin_client.get("/admin/operations/audit/").content.decode()
    psql("SELECT campaigns_partition_forget_bounds();\n")
    assert "constraint" not in said("status", "--check")[0]
    assert "refuses messages" not in said("doctor", "--installation")[0]
    assert [one for one in checks.check_database() if one.id == "mailhub.W005"] == []


def test_to_try_a_store_uses_up_no_number_and_leaves_no_message() -> None:
    first = allocate_ids(1)
    assert probes.probe_storing() == {"storing": ""}
    assert allocate_ids(1) == first + 1 and not Message.objects.exists()


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
