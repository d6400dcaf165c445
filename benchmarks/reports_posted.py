"""Reports a second that the API takes from a vendor posting each event separately, also while mail goes out.

`python -m benchmarks.reports_posted [seconds] [rounds] [messages a second]`. granian runs the API with two workers.
Each request is signed and reports the delivery of another letter of one large campaign. Beside it one worker sends
another campaign to a vendor limited to that many messages a second. The client posts over kept connections, from this
process, on the same cores. The last row has a hundred events a request, as from services that collect them.
"""

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from standardwebhooks import Webhook as Signer

from benchmarks.front import call, connect, servers, serving
from benchmarks.ledger import execute
from benchmarks.reports import ACCEPT
from benchmarks.sending import login
from benchmarks.stage import console, numbers, show, stage
from tests import sandbox

CONNECTIONS = 48
MOST = 4_000  # events a second for which letters are prepared
ALONE, BESIDE, TOGETHER = "one event a request", "the same beside sending", "a hundred events a request beside sending"


def reporting(letters: int) -> tuple[Any, str, list[str]]:
    """Return a vendor, the secret of its reports, and references of letters it has accepted."""
    from django.utils import timezone

    from campaigns.models import Message
    from tests import factories
    from vendors import report_keys

    vendor = factories.vendor(settings={"url": "http://127.0.0.1:9/letters", "receipts": True}, casters=())
    fields = {"status": "LOGGED", "fence": 1, "accepted": letters, "finished_at": timezone.now()}
    job = factories.campaign_with_job(letters, of=factories.credential(vendor), **fields)
    execute(ACCEPT, [job.first_message, job.end])
    execute("VACUUM ANALYZE campaigns_message")
    rows = Message.objects.filter(id__gte=job.first_message, id__lt=job.end)
    names = [f"{uuid}-0" for uuid in rows.values_list("uuid", flat=True)]
    return vendor, report_keys.rotate_key(vendor, timezone.now()), names


def requests(slug: str, secret: str, names: list[str], each: int) -> list[bytes]:
    """Return signed requests, each with this many events."""
    now, made, signer = datetime.now(UTC), [], Signer(secret)
    for low in range(0, len(names), each):
        events = [{"reference": name, "status": "delivered", "at": now.isoformat()} for name in names[low : low + each]]
        body = json.dumps({"receipts": events})
        signature = signer.sign(f"msg_{low}", now, body)
        head = f"POST /api/v1/receipts/{slug} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += (
            f"webhook-id: msg_{low}\r\nwebhook-timestamp: {int(now.timestamp())}\r\nwebhook-signature: {signature}\r\n"
        )
        made.append(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return made


def rate(path: str, made: list[bytes], each: int, seconds: float) -> float:
    """Return events a second answered with 202."""
    waiting, lock, taken = iter(made), threading.Lock(), [0] * CONNECTIONS
    end = time.perf_counter() + seconds

    def client(number: int) -> None:
        with connect(path) as line:
            while time.perf_counter() < end:
                with lock:
                    request = next(waiting, None)
                if request is None:
                    raise SystemExit("there are not enough letters: raise MOST")
                head = call(line, request)
                if b" 202 " not in head.split(b"\r\n")[0]:
                    raise SystemExit(head.decode())
                taken[number] += each

    began = time.perf_counter()
    threads = [threading.Thread(target=client, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(taken) / (time.perf_counter() - began)


def sending(url: str, a_second: int, seconds: float) -> Iterator[float]:
    """Start sending; then yield messages a second since the last time, by the rows."""
    from campaigns.engine.dispatch import dispatcher
    from campaigns.engine.dispatch.dispatcher import notify_vendors
    from campaigns.models import Job
    from tests import factories
    from tests.programs import sweeping, worker
    from vendors.models import RateLimit

    of = login(url)
    RateLimit.objects.filter(vendor=of.vendor).update(units=a_second, seconds=1.0)
    job = factories.campaign_with_job(int(a_second * seconds), of=of, status="READY")
    with worker(queues=f"hub,celery,{of.vendor.queue}"), sweeping():
        notify_vendors(dispatcher.dispatch_ready([job.pk]).vendors)
        before, at = 0, time.perf_counter()
        while True:
            accepted, now = Job.objects.get(pk=job.pk).accepted, time.perf_counter()
            yield (accepted - before) / (now - at)
            before, at = accepted, now


def main() -> None:
    seconds, rounds, a_second = numbers(5, 3, 300)
    rates: dict[str, list[float]] = {ALONE: [], BESIDE: [], TOGETHER: []}
    sent: list[float] = []
    with stage(), sandbox.running() as books, serving(servers()["granian"]) as path:
        for name, each in ((ALONE, 1), (BESIDE, 1), (TOGETHER, 100)):
            meanwhile = sending(books.url, a_second, 60 + 4 * rounds * seconds) if name != ALONE else None
            if meanwhile:
                next(meanwhile)
                time.sleep(5)  # until it has begun
            for _ in range(rounds):
                vendor, secret, names = reporting(MOST * seconds * (1 if each == 1 else 4))
                made = requests(vendor.slug, secret, names, each)
                if meanwhile:
                    next(meanwhile)
                rates[name].append(rate(path, made, each, seconds))
                if meanwhile:
                    sent.append(next(meanwhile))
            if meanwhile:
                meanwhile.close()  # type: ignore[attr-defined]
    show("Reports of a vendor over HTTP, two workers of granian", rates, ALONE, "events/s")
    console.print(f"sent meanwhile, of {a_second}: " + ", ".join(f"{one:,.0f}" for one in sent) + " messages/s")


if __name__ == "__main__":
    main()
