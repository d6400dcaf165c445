"""A message from dispatch to LOGGED with real workers and notifications; only the vendor is a sandbox."""

import pytest
from django.db.models import Sum

from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.models import AnswerBatch, Claim, Job
from tests import factories
from tests.programs import sweeping, wait_until, worker
from vendors.models import Minute

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True)]


def test_a_large_job_is_cut_over_the_casters_and_everyone_gets_it_once(sandbox):
    vendor = factories.vendor(settings={"url": sandbox.url}, limits=[(200, 0.5)], small_audience_threshold=100)
    for number in (1, 2, 3):
        factories.caster(vendor, f"MC{number}", "large-priority", min_size=100, max_size=400, percentage=10)
    parent = factories.campaign_with_job(1000, of=factories.credential(vendor), status="RENDERED")
    small = factories.campaign_with_job(["ann@sandbox.example", "bounce@sandbox.example"], of=parent.credential)
    from campaigns.engine.dispatch import dispatcher

    with worker(queues=f"hub,{vendor.queue}"), sweeping():
        dispatcher.dispatch_rendered()
        dispatcher.dispatch_ready()
        notify_vendors([vendor.pk])
        wait_until(lambda: Job.objects.get(pk=parent.pk).status == "P_FINISHED", "the parent is finished")
        wait_until(lambda: Job.objects.get(pk=small.pk).status == "LOGGED", "the small job is logged")
    parent.refresh_from_db()
    small.refresh_from_db()
    assert (parent.accepted, parent.remaining) == (1000, 0)
    assert (small.accepted, small.refused) == (1, 1)
    children = Job.objects.filter(parent=parent)
    assert sum(child.size for child in children) == 1000 and all(child.size <= 400 for child in children)
    books = sandbox.books()
    assert not books.duplicates() and len(books.recipients) == 1001
    assert books.worst_window(0.5) <= 200
    assert not Claim.objects.exists() and not AnswerBatch.objects.exists()
    plotted = Minute.objects.filter(vendor=vendor).aggregate(accepted=Sum("accepted"), refused=Sum("refused"))
    assert plotted == {"accepted": 1001, "refused": 1}
