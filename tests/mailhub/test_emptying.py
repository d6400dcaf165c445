"""After a test with transactions the rows are those that Django's own way would leave."""

from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from campaigns.models import Claim, Message, Store
from tests import factories
from tests.emptying import Emptying
from tests.faults.sending import meanwhile
from tests.lock_waits import count_lock_waits
from tests.programs import environment
from tests.waiting import result_of, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def rows() -> dict[str, int]:
    """How many rows each table has."""
    every = [model for model in apps.get_models(include_auto_created=True) if model._meta.managed]
    return {model._meta.db_table: model._default_manager.count() for model in every}


def contents() -> dict[str, Any]:
    """What stands in the tables that are never empty, whatever numbers the rows have."""
    with_permissions = Group.objects.values_list(
        "name", "permissions__content_type__app_label", "permissions__codename"
    )
    return {
        "types": sorted(ContentType.objects.values_list("app_label", "model")),
        "permissions": sorted(Permission.objects.values_list("content_type__app_label", "codename")),
        "groups": sorted(with_permissions),
        "beat": sorted(PeriodicTask.objects.values_list("name", "task", "enabled")),
        "store": Store.objects.values("system", "relation", "timeline", "adoptions", "noticed_at", "tables").get(),
    }


@pytest.fixture
def emptying(django_db_setup: Emptying) -> Emptying:
    return django_db_setup


def test_what_one_test_left_is_gone_and_what_it_took_away_is_there(emptying: Emptying) -> None:
    before = factories.vendor().pk
    call_command("flush", verbosity=0, interactive=False, reset_sequences=False)  # as Django's own tests do
    by_django = rows(), contents()
    emptying.put_back()
    kept = rows(), contents()
    assert kept == by_django
    factories.campaign_with_job(3, status="SENDING")
    Group.objects.filter(name="viewer").delete()
    ContentType.objects.filter(model="job").delete()
    Store.objects.update(tables="")
    assert rows() != kept[0] and contents() != kept[1]
    emptying.put_back()
    assert (rows(), contents()) == kept
    assert factories.vendor().pk > before, "numbers go on: Redis has keys of the vendors that there were"


def used(jobs: int) -> None:
    """Tables with pages in which all rows are deleted."""
    for _ in range(jobs):
        factories.claim(factories.campaign_with_job(3 if jobs == 1 else 300, status="SENDING"))
    Claim.objects.all().delete()
    Message.objects.all().delete()
    assert pages() > 0


def test_a_table_that_has_many_pages_is_as_short_as_a_new_one(emptying: Emptying) -> None:
    used(3)
    emptying.put_back()
    assert pages() == 0


def test_a_table_of_which_there_are_statistics_is_as_a_new_one(emptying: Emptying) -> None:
    emptying.put_back()
    new = plans()
    used(1)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE campaigns_message, campaigns_claim")
    assert plans() != new
    emptying.put_back()
    assert plans() == new


def test_a_table_with_few_pages_is_planned_as_a_new_one(emptying: Emptying) -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE campaigns_message, campaigns_claim CASCADE")
    new = plans()
    used(1)
    emptying.put_back()
    assert plans() == new


def test_an_insert_that_is_still_to_be_committed_is_waited_for(emptying: Emptying) -> None:
    """As of a process that was killed while PostgreSQL commits for it."""
    with psycopg.connect(environment()["DATABASE_URL"]) as other:
        other.execute("INSERT INTO django_session VALUES ('key', 'data', now())")
        with meanwhile(emptying.put_back) as emptied:
            wait_until(lambda: count_lock_waits() or emptied.done(), "it waits, or does not")
            assert not emptied.done()
            other.commit()
    assert emptied.result() is None and not Session.objects.exists()


def test_whoever_locks_in_another_order_goes_on_and_the_tables_are_emptied_then(emptying: Emptying) -> None:
    factories.credential()
    Session.objects.create(session_key="key", expire_date=timezone.now())
    url = environment()["DATABASE_URL"]
    with psycopg.connect(url) as first, psycopg.connect(url) as other:
        first.execute("LOCK TABLE vendors_credential IN ROW EXCLUSIVE MODE")
        other.execute("SET deadlock_timeout = '1h'")  # the other one finds out
        other.execute("LOCK TABLE vendors_vendor IN ROW EXCLUSIVE MODE")
        with meanwhile(emptying.put_back) as emptied:
            wait_until(lambda: count_lock_waits() == 1, "it has sessions, and waits for credentials")
            with meanwhile(other.execute, "SELECT FROM django_session") as reads:
                wait_until(lambda: count_lock_waits() == 2, "sessions are waited for")
                first.commit()
                result_of(reads, "they are read")
            assert not emptied.done()
            other.commit()
            assert result_of(emptied, "the tables are emptied") is None
    assert not Session.objects.exists()


def plans() -> list[Any]:
    """Of all rows of two tables: how many the planner expects, and what they cost."""
    with connection.cursor() as cursor:
        found = []
        for table in ("campaigns_message", "campaigns_claim"):
            cursor.execute(f"EXPLAIN SELECT * FROM {table}")
            found += cursor.fetchall()
    return found


def pages() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_size('campaigns_message') + pg_relation_size('campaigns_claim')")
        return int(cursor.fetchone()[0])
