"""E-mail services from the campaign to the report: real workers, services on loopback as in their documents."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from campaigns.engine import audit
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.models import Identity, Job
from tests import factories
from tests.campaigns.rows import messages
from tests.contracts.services import SERVICES, Service
from tests.contracts.test_anymail import PATHS, answering, cut
from tests.programs import sweeping, wait_until, worker
from tests.waiting import result_of
from vendors import report_keys
from vendors.testing import http_server

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
RECIPIENTS = [f"{who}@example.com" for who in ("ann", "nobody", "lost", "bob")]


class Shop(http_server.MisbehavingHttp):
    """The service: it refuses nobody@, and loses its answer to lost@."""

    def __init__(self, service: Service) -> None:
        super().__init__(None)
        self._service, self.references = service, dict[str, str]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            facts, answer = self._service.take(*await http_server.read_request(reader))
            self.references[facts["to"]] = facts["reference"]
            behaviour = {"nobody@example.com": answering(*self._service.refused), "lost@example.com": cut}
            await behaviour.get(facts["to"], answering(*answer))(reader, writer)


@contextlib.contextmanager
def open_shops() -> Iterator[dict[str, Shop]]:
    """One of each service, in an event loop of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    shops = {service.name: Shop(service) for service in SERVICES}
    try:
        for shop in shops.values():
            result_of(asyncio.run_coroutine_threadsafe(shop.__aenter__(), loop), "the shop opens")
        yield shops
    finally:
        for shop in shops.values():
            result_of(asyncio.run_coroutine_threadsafe(shop.__aexit__(None, None, None), loop), "it closes")
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def prepared(service: Service, port: int) -> Job:
    url = f"http://127.0.0.1:{port}{PATHS.get(service.name, '')}"
    settings = {"service": service.name, "url": url, "more": service.more, "timeout": 30}
    vendor = factories.vendor(adapter="anymail", settings=settings, channel="email", casters=["small-priority"])
    report_keys.enter_key(vendor, service.signing, timezone.now())
    job = factories.campaign_with_job(RECIPIENTS, of=factories.credential(vendor, secret=dict(service.secret)))
    fields = {"from_address": "news@example.org", "from_name": "News"}
    job.campaign.identity = Identity.objects.create(sponsor=job.sponsor, name=service.name, **fields)
    job.campaign.save()
    return job


def counters(job: Job) -> tuple[Any, ...]:
    names = ("status", "accepted", "refused", "in_doubt", "delivered", "bounced")
    return Job.objects.filter(pk=job.pk).values_list(*names).get()


def test_a_campaign_by_each_service_ends_with_what_the_service_reports(settings: Any) -> None:
    settings.PUBLIC_URL = "https://mail.example.com"
    with open_shops() as shops:
        jobs = {service.name: prepared(service, shops[service.name].port) for service in SERVICES}
        queues = ",".join(job.vendor.queue for job in jobs.values())
        with worker(queues=f"hub,celery,{queues}", PUBLIC_URL=settings.PUBLIC_URL), sweeping():
            notify_vendors(dispatcher.dispatch_ready([job.pk for job in jobs.values()]).vendors)
            for name, job in jobs.items():
                wait_until(lambda job=job: counters(job) == ("LOGGED", 2, 1, 1, 0, 0), f"{name} has ended")
        for service in SERVICES:
            job, said = jobs[service.name], shops[service.name].references
            assert {row.recipient: row.reference for row in messages(job)} == said
            for kind, to in (("delivered", "lost@example.com"), ("hard", "bob@example.com")):
                body = service.packed(kind, said[to])
                path = f"/api/v1/receipts/{job.vendor.slug}"
                answer = Client().post(path, body, content_type="application/json", headers=service.sign(body))
                assert answer.json() == {"changed": 1, "unknown": []}
            assert counters(job) == ("LOGGED", 3, 1, 0, 1, 1), "the report has settled the doubt"
    assert [check for check in audit.ask_all_questions() if not check.is_kept] == []
