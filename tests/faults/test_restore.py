"""PostgreSQL is restored from a backup that is older than what the vendor has accepted: docs/operations.md's block.

As on that day: no process runs, the block is executed, then all goes on by itself.
"""

import pytest
from django.db import connection

from campaigns import dispatcher
from campaigns.models import Job, Message
from campaigns.settle import settle
from tests import factories
from tests.copies import backup, blocks, psql, restore
from tests.faults.checker import judge, sums
from tests.faults.sending import login, send_the_rest, sent, take_again
from tests.programs import wait_until
from tests.sandbox import Sandbox

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
[RESTORED] = blocks("operations.md")


def now() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()::text")
        return str(cursor.fetchone()[0])


def asked(of: Job) -> bool:
    """The vendor has been asked about all of the job's messages in doubt."""
    Message.objects.filter(in_doubt_at__isnull=False).update(settle_at="2000-01-01T00:00Z")
    settle()
    return not Message.objects.filter(id__gte=of.first_message, id__lt=of.end, in_doubt_at__isnull=False).exists()


def test_what_was_sent_after_the_backup_is_found_at_the_vendor_and_only_the_rest_is_sent(sandbox: Sandbox) -> None:
    account = login(sandbox.url, lookup="strong", timeout=2)
    whole = factories.campaign_with_job(20, of=account, status="DISPATCHED")
    later = factories.campaign_with_job(10, of=account, status="RENDERED")
    with backup() as name:
        at = now()
        sent(take_again(whole))
        restore(name)
        assert sums() == {"waiting": 30}, "they would all be sent, twenty of them again"
        psql(RESTORED, backup=at)
        dispatcher.dispatch()
        for job in (whole, later):
            send_the_rest(job)
            wait_until(lambda job=job: asked(job), "the vendor was asked")  # type: ignore[misc]
        assert sums() == {"accepted": 30} and judge(sandbox.books()) == []


def test_a_job_that_was_half_sent_at_the_backup_keeps_what_is_known_of_it(sandbox: Sandbox) -> None:
    """Answers that stood in ops at the backup are not lost by the block; calls that were open are in doubt."""
    account = login(sandbox.url, lookup="strong", timeout=2)
    half = factories.campaign_with_job(10, of=account, status="SENDING")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE campaigns_opsmessage SET sent_at = now(), delivered_at = now(), message_id = 'v' WHERE id = %s",
            [half.first_message],
        )
    with backup() as name:
        restore(name)
        psql(RESTORED, backup=now())
        assert sums() == {"accepted": 1, "in doubt": 9}
        Job.objects.filter(pk=half.pk).update(heartbeat_at="2000-01-01T00:00Z")
        send_the_rest(half)
        assert sums() == {"accepted": 1, "in doubt": 9}, "nothing is called before the vendor was asked"
        wait_until(lambda: asked(half), "the vendor was asked")
        assert sums() == {"accepted": 10}
