"""How many seconds it takes until every door says that a vendor is down, and that it is back: end to end, by the clock.

A real worker sends to a real sandbox vendor, and pages and the API are read by HTTP. The verdict is that every door
says so; the seconds are printed: `tests/run.py -s tests/mailhub/test_doors_in_time.py`.
"""

import io
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.request import Request, urlopen

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.models import Job
from tests import factories, programs
from tests.browser.every_page import make_draft
from tests.front.program import Program, fresh
from tests.mailhub.test_conditions_at_doors import plain
from tests.sandbox import Sandbox
from tests.waiting import DEADLINE, wait_until
from vendors.models import VendorCondition

__all__ = ["fresh"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow("processes")]
DOWN = 5.0  # seconds for which the vendor stays down after all doors have said so
Doors = Mapping[str, Callable[[], str]]


@pytest.fixture
def sending(sandbox: Sandbox, fresh: None) -> Iterator[Job]:
    """A campaign that is sent by a worker for some minutes, ten messages a second."""
    settings = {"url": sandbox.url, "concurrency": 4, "timeout": 2}
    vendor = factories.vendor("good", settings=settings, limits=[(10, 1)], casters=["small-only", "small-priority"])
    job = factories.campaign_with_job(30_000, of=factories.credential(vendor, "acc-7"), status="DISPATCHED")
    with programs.worker(queues=f"{vendor.queue},hub"), programs.sweeping(every=2.0):
        notify_vendors([vendor.pk])
        worked = VendorCondition.objects.filter(good_at__isnull=False)
        wait_until(worked.exists, "it works", log=lambda: str(Job.objects.values("status", "waits_for").get(pk=job.pk)))
        yield job


def output(*arguments: str, **options: Any) -> str:
    """What a command says, also if it ends with an error."""
    out = io.StringIO()
    with suppress(CommandError):
        call_command(*arguments, stdout=out, stderr=out, **options)
    return " ".join(out.getvalue().split())


def doors_of(job: Job, server: str, admin: Client) -> Doors:
    """The doors that show a vendor's condition, by name."""
    session, key = admin.cookies["sessionid"].value, Program(job.sponsor).token
    draft = make_draft(admin, job.sponsor, job.credential, "email,first_name\nann@example.org,Ann\n")

    def read(path: str, **headers: str) -> str:
        with urlopen(
            Request(server + path, headers={"Cookie": f"sessionid={session}", **headers}), timeout=DEADLINE
        ) as it:
            return str(it.read().decode())

    def page(path: str) -> Callable[[], str]:
        return lambda: plain(read(path))

    def command(*arguments: str, **options: Any) -> Callable[[], str]:
        return lambda: output(*arguments, **options)

    return {
        "home": page("/"),
        "campaign page": page(f"/campaigns/{job.campaign_id}/"),
        "wizard": page("/campaigns/new/?sponsor=" + str(job.sponsor_id)),
        "check page": page(reverse("draft_check", args=[draft.pk])),
        "jobs": page("/admin/campaigns/job/?date=any"),
        "job": page(f"/admin/campaigns/job/{job.pk}/change/"),
        "operations": page("/admin/operations/pulse/"),
        "vendor, live": page(f"/admin/operations/vendors/{job.vendor_id}/"),
        "vendors": page("/admin/vendors/vendor/"),
        "credentials": page("/admin/vendors/credential/"),
        "services": lambda: read("/api/v1/services", Authorization=f"Bearer {key}"),
        "metrics": lambda: _condition_in_metrics(),
        "forecast": command("forecast", "good"),
        "list_jobs": command("list_jobs", json=True),
        "status": command("status"),
        "status --check": command("status", check=True),
        "vendor list": command("vendor", "list", json=True),
        "vendor status": command("vendor", "status", "good"),
        "credential list": command("credential", "list", json=True),
    }


def _condition_in_metrics() -> str:
    from mailhub.monitoring import metrics

    lines = [
        line for line in metrics.metrics_text().decode().splitlines() if line.startswith("mailhub_vendor_condition{")
    ]
    return " ".join(line.partition("condition=")[2].partition(",")[0] for line in lines if line.endswith(" 1.0"))


def says_failing(text: str) -> bool:
    """Tell whether a sentence, or a word of JSON or a metric, says so."""
    return "failing since" in text.lower() or '"failing"' in text


def says_nothing_bad(text: str) -> bool:
    return not says_failing(text) and "cannot send now" not in text


def measure(doors: Doors, says: Callable[[str], bool], since: float) -> dict[str, float]:
    """How long after `since` (seconds of time.time) each door says so, at the end of its answer."""
    found: dict[str, float] = {}

    def look() -> bool:
        for name in doors.keys() - found.keys():
            if says(doors[name]()):
                found[name] = time.time() - since
        return len(found) == len(doors)

    wait_until(look, "every door says so", log=lambda: f"not yet: {sorted(doors.keys() - found.keys())}")
    return found


def show(what: str, found: dict[str, float]) -> None:
    last = max(found, key=lambda name: found[name])
    print(f"\n{what}: the last of {len(found)} doors ({last}) after {found[last]:.1f} s; {json.dumps(found)}")


@pytest.mark.parametrize(
    ("down", "up"),
    [({"down": "closed"}, {"down": ""}), ({"lost_rate": 1.0}, {"lost_rate": 0.0})],
    ids=["down", "hangs"],
)
def test_every_door_says_so_and_that_it_is_back(
    sending: Job, sandbox: Sandbox, live_server: Any, admin_client: Client, down: Any, up: Any
) -> None:
    doors = doors_of(sending, live_server.url, admin_client)
    measure(doors, says_nothing_bad, time.time())  # all are warm
    began = time.time()
    sandbox.settings(**down)
    found = measure(doors, says_failing, began)
    failing_since = VendorCondition.objects.get().failing_since
    assert failing_since is not None
    show(f"{down}", found)
    print(f"  the first call without a good answer had ended {failing_since.timestamp() - began:.1f} s after that")
    until = time.monotonic() + DOWN
    while time.monotonic() < until:
        assert all(says_failing(door()) for door in doors.values()), "nothing comforts meanwhile"
    sandbox.settings(**up)
    back = time.time()
    good = wait_until(lambda: VendorCondition.objects.filter(failing_since=None).first(), "a call is answered well")
    found = measure(doors, says_nothing_bad, good.good_at.timestamp())
    show(f"{up}, from the good answer on", found)
    print(f"  the good answer came {good.good_at.timestamp() - back:.1f} s after it was up")
    served = (one for one in threading.enumerate() if "process_request_thread" in one.name)
    wait_until(lambda: not any(one.is_alive() for one in served), "the server's threads have ended")
