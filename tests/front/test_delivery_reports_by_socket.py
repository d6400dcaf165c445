"""A vendor that reports, over real sockets: it accepts, says so or not, and posts later what became of the letters."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from campaigns.engine import audit
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.models import Job, Message
from tests import factories
from tests.campaigns.rows import messages
from tests.programs import sweeping, wait_until, worker
from tests.sandbox import Sandbox
from vendors import report_keys

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]


@pytest.fixture
def vendor(sandbox: Sandbox) -> Any:
    """Can be asked nothing and deduplicates nothing: what is in doubt only a receipt settles."""
    settings = {"url": f"{sandbox.url}/letters", "receipts": True, "timeout": 5, "settle_delay": 1}
    return factories.vendor(adapter="sandbox", settings=settings, casters=["small-priority"])


@pytest.fixture
def reports(vendor: Any, sandbox: Sandbox, live_server: Any) -> Iterator[None]:
    """The vendor knows where to report to, and with which secret."""
    secret = report_keys.rotate_key(vendor, timezone.now())
    address = f"{live_server.url}/api/v1/receipts/{vendor.slug}"
    sandbox.settings(receipts_to=address, receipts_secret=secret)
    yield
    sandbox.settings(receipts_to="")


def test_what_a_vendor_accepted_is_delivered_or_comes_back_and_no_doubt_remains(vendor: Any, reports: None) -> None:
    addresses = [f"{who}@sandbox.example" for who in ("ann", "returned", "lost", "bounce", "bob")]
    job = factories.campaign_with_job(addresses, of=factories.credential(vendor), status="READY")
    with worker(queues=f"hub,celery,{vendor.queue}"), sweeping():
        notify_vendors(dispatcher.dispatch_ready([job.pk]).vendors)
        wait_until(lambda: counters(job) == ("LOGGED", 4, 1, 0, 3, 1), "all are reported")
    assert [row.report for row in messages(job)] == ["delivered", "bounced", "delivered", None, "delivered"]
    assert Message.objects.get(recipient="lost@sandbox.example").resend_no == 0
    assert [check for check in audit.ask_all_questions() if not check.is_kept] == []


def counters(job: Job) -> tuple[Any, ...]:
    names = ("status", "accepted", "refused", "in_doubt", "delivered", "bounced")
    return Job.objects.filter(pk=job.pk).values_list(*names).get()
