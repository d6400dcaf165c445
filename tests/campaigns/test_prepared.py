"""Statements that are planned once a connection (campaigns/engine/prepared.py)."""

from typing import Any

import pytest
from django.db import DatabaseError, ProgrammingError, connection, transaction
from django.forms.models import model_to_dict

from campaigns.engine import prepared
from campaigns.models import Entitlement, Job
from campaigns.models.states import Status
from campaigns.reporting.forecast import streams
from campaigns.senders import entitlements
from campaigns.senders.entitlements import held_reason_expression
from tests import factories

PLANNED = """
SELECT count(*), coalesce(sum(generic_plans + custom_plans), 0) FROM pg_prepared_statements WHERE statement LIKE %s
"""


def planned(like: str) -> tuple[int, int]:
    with connection.cursor() as cursor:
        cursor.execute(PLANNED, [like])
        count, runs = cursor.fetchone()
        return count, int(runs)


@pytest.mark.django_db
def test_a_statement_is_parsed_once_and_run_as_often_as_it_is_asked() -> None:
    statement = "SELECT %(left)s::int + %(right)s::int AS of_this_test"
    assert [prepared.fetch_prepared(statement, {"left": number, "right": 1}) for number in (1, 2, 3)] == [
        [(2,)],
        [(3,)],
        [(4,)],
    ]
    assert planned("%AS of_this_test") == (1, 3)


@pytest.mark.django_db
def test_an_error_is_one_of_djangos_and_the_connection_goes_on() -> None:
    with pytest.raises(ProgrammingError), transaction.atomic():
        prepared.fetch_prepared("SELECT nothing_of_that_name", {})
    assert prepared.fetch_prepared("SELECT 1", {}) == [(1,)]


@pytest.mark.django_db(transaction=True)
def test_a_lost_connection_is_an_error_of_djangos_and_the_next_request_has_a_new_one() -> None:
    pid = prepared.fetch_prepared("SELECT pg_backend_pid()", {})[0][0]
    assert connection.connection is not None
    other = connection.copy("default")
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    other.close()
    with pytest.raises(DatabaseError):
        prepared.fetch_prepared("SELECT pg_backend_pid()", {})
    connection.close_if_unusable_or_obsolete()
    assert prepared.fetch_prepared("SELECT pg_backend_pid()", {})[0][0] != pid


@pytest.mark.django_db(transaction=True)
def test_streams_are_read_on_while_an_upgrade_adds_a_column() -> None:
    vendor = factories.vendor(limits=[(5, 60)])
    streams.streams_of_vendors()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE campaigns_job ADD COLUMN of_an_upgrade int")
    try:
        assert vendor.slug in {one.slug for one in streams.streams_of_vendors()}
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE campaigns_job DROP COLUMN of_an_upgrade")


@pytest.mark.django_db
def test_by_key_says_what_the_queryset_says_of_each_row() -> None:
    free, barred = factories.campaign_with_job(status=Status.READY), factories.campaign_with_job(status=Status.READY)
    Entitlement.objects.filter(sponsor=barred.sponsor_id).delete()
    other = factories.campaign_with_job(status=Status.READY)
    asked = [free.pk, barred.pk]
    by_orm = dict(Job.objects.filter(pk__in=asked).order_by().values_list("pk", held_reason_expression()))
    assert entitlements.held_reasons(asked) == {pk: why for pk, why in by_orm.items() if why}
    assert set(entitlements.held_reasons([*asked, other.pk])) == {barred.pk}
    assert entitlements.held_reasons([]) == {}


@pytest.mark.django_db
def test_it_is_counted_as_djangos_statements_are(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        prepared.fetch_prepared("SELECT %(number)s::int", {"number": 1})


@pytest.mark.django_db
def test_rows_by_key_are_those_of_their_queryset_with_the_rows_beside_them(django_assert_num_queries: Any) -> None:
    jobs = [factories.campaign_with_job(3, status=status, messages=False) for status in ("DISPATCHED", "LOGGED")]
    whole = prepared.RowsByKey(
        lambda: Job.objects.select_related("campaign__sponsor", "mailcaster").defer("stopped_by")
    )
    of_campaign = prepared.RowsByKey(lambda: Job.objects.filter(status="LOGGED").order_by(), "campaign_id")
    for keys in ([job.pk for job in jobs], [jobs[0].pk], [], [2**62]):
        with django_assert_num_queries(1):
            found = whole.of(keys)
            names = {job.campaign.sponsor.name for job in found}
        assert {job.pk for job in found} == {*keys} - {2**62}
        assert names == {job.campaign.sponsor.name for job in Job.objects.filter(pk__in=keys)}
    assert [job.pk for job in of_campaign.of([job.campaign_id for job in jobs])] == [jobs[1].pk]
    assert list(map(model_to_dict, whole.of([jobs[0].pk]))) == [model_to_dict(Job.objects.get(pk=jobs[0].pk))]
    for found in (Job.objects.all()[:1], of_campaign.of([jobs[1].campaign_id])):
        assert found[0]._state.db == "default" and not found[0]._state.adding
