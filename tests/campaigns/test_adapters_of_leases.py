"""A sender's adapter is made from the settings, the secret and the destination that the rows have at one moment."""

import json
from typing import Any

import pytest
from django.db import connection

from campaigns.engine.claiming import letters
from campaigns.engine.claiming.letters import Lease
from tests import factories
from tests.faults.sending import taken
from vendors import configuration, history
from vendors.models import Vendor

pytestmark = pytest.mark.django_db(transaction=True)


def at(port: int) -> str:
    return f"http://127.0.0.1:{port}/letters"


def move(vendor_id: int, port: int) -> None:
    """A person says that it is the same account, so the number of the destination stays."""
    row = Vendor.objects.get(pk=vendor_id)
    row.settings = {"url": at(port)}
    configuration.save_vendor(row, ["settings"], history.Actor("somebody"), same_account=True)


def test_settings_that_change_while_they_are_read_are_not_kept_for_those_of_before() -> None:
    job = taken(1, factories.credential(factories.vendor(settings={"url": at(1)})))
    moved: list[int] = []

    def change_between(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not moved and 'FROM "vendors_credential"' in sql:  # the job's row was read before
            moved.append(2)
            move(job.vendor_id, 2)
        return execute(sql, params, many, context)

    def url() -> str:
        _, settings, _ = json.loads(letters.load_leased_job(Lease(job.pk, job.fence)).connection_key)
        return str(settings["url"])

    with connection.execute_wrapper(change_between):
        assert url() == at(2) and moved
    move(job.vendor_id, 1)
    assert url() == at(1)
