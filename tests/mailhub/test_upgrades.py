"""`migrate` tells what stands still: of each migration the tables it names, their rows, and how long that takes."""

import importlib

import pytest
from django.db import connection

from mailhub import upgrades
from mailhub.upgrades import MigrationEffect
from tests import factories


def migration(app: str, name: str):
    return importlib.import_module(f"{app}.migrations.{name}").Migration(name, app)


@pytest.mark.django_db
def test_the_tables_that_a_migration_names_are_counted_and_functions_are_not() -> None:
    factories.campaign(40)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE campaigns_message, campaigns_campaign, campaigns_store")
    store, jobs = upgrades.find_effects(
        [migration("campaigns", "0083_store_applied"), migration("campaigns", "0082_class_of_jobs")]
    )
    assert store.is_additive and store.rows == {"campaigns_store": 1} and store.expected_seconds == 0
    assert not jobs.is_additive and not jobs.is_declared and jobs.expected_seconds >= 1
    assert set(jobs.rows) == {"campaigns_job", "campaigns_campaign", "campaigns_session"}, "and no index"
    (messages,) = upgrades.find_effects([migration("campaigns", "0064_message_cause")])
    assert messages.rows["campaigns_message"] >= 40, "with those of its partitions"


def test_what_stops_calls_is_told_with_its_time_and_what_does_not_is_told_too() -> None:
    adds = MigrationEffect("campaigns.0098_adds", True, True, {"campaigns_job": 1_000}, "")
    fills = MigrationEffect("campaigns.0099_fills", False, True, {"campaigns_message": 2_000_000}, "")
    old = [MigrationEffect(f"vendors.000{n}_old", False, False, {}, "") for n in (1, 2)]
    assert list(upgrades.describe_effects([adds])) == [
        "campaigns.0098_adds: additive, mail goes on; campaigns_job (1,000 rows)",
        "Nothing stands still. Processes of the version before go on until you restart them",
    ]
    assert list(upgrades.describe_effects([*old, adds, fills])) == [
        "2 migrations up to vendors.0002_old: not declared additive, calls stop for about 2 s",
        "campaigns.0098_adds: additive, mail goes on; campaigns_job (1,000 rows)",
        "campaigns.0099_fills: calls stop for about 20 s; campaigns_message (2,000,000 rows)",
        "Calls stand still until the open ones have ended, and then for about 22 s; programs' work is accepted "
        "meanwhile. Then restart all processes",
    ]
    assert list(upgrades.describe_effects([])) == []
