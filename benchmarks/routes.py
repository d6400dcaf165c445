"""A vendor dies in the middle of a large campaign: the time until the rest is with the next one of its route.

`python -m benchmarks.routes [messages] [rounds]`. `up` runs the shipped Procfile. A forwarder in front of the first
vendor is killed (SIGKILL) after a tenth of the messages: open connections break, new ones are refused. From then on it
measures three times: to the first call at the second vendor, to the moment when only called messages are left with the
first one, and to the last arrival. No recipient may have two messages, by the receiver's own books of both vendors.
None may be lost: a message that did not arrive must be in doubt and called before the first vendor's end.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import sink
from benchmarks.as_run import LONGEST, Lists
from benchmarks.installation import Installation, end_at_sigterm
from benchmarks.results import keep
from benchmarks.slow_vendors import command
from benchmarks.stage import console, numbers, stage
from tests.waiting import wait_until

PART = 10  # a tenth is called before the first vendor dies
FIRST, ALL, LAST = "first call at the second vendor", "nothing uncalled is left with the first", "last arrival"
CHUNK = 65_536


async def forward(to: int) -> None:
    """Print a port, and forward everything that arrives there."""

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while content := await source.read(CHUNK):
                target.write(content)
                await target.drain()
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(pump(reader, back), pump(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def forwarder(to: int) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    order = [sys.executable, "-m", "benchmarks.routes", "forward", str(to)]
    with subprocess.Popen(order, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def route(number: int, where: sink.Sink, port: int) -> tuple[str, str]:
    """Add two vendors and a route of both by command. Returns their names."""
    urls = {f"first{number}": f"http://127.0.0.1:{port}/first{number}", f"second{number}": where.url(f"second{number}")}
    for slug, url in urls.items():
        command("vendor", "add", slug, "--adapter", "http", "--set", f"url={url}")
        command("entitlement", "add", "Velma", slug, "--new-sponsor")
    command("route", "add", f"both{number}", *urls)
    first, second = urls
    return first, second


UNCALLED = """
SELECT count(*) FROM campaigns_message m JOIN campaigns_job j ON j.campaign_id = m.campaign_id
    AND m.id >= j.first_message AND m.id < j.first_message + j.size AND j.status NOT IN ('P_FINISHED', 'P_ASSIGNED')
JOIN vendors_vendor v ON v.id = j.vendor_id
WHERE v.slug = %s AND m.dequeued_at IS NULL
    AND (j.parent_id IS NOT NULL OR m.id >= j.first_message + j.size - j.remaining)
"""


def uncalled(slug: str) -> int:
    """Return the number of messages waiting for this vendor, including those in a call."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(UNCALLED, [slug])
        return int(cursor.fetchone()[0])


def once(at: Installation, lists: Lists, where: sink.Sink, number: int, messages: int) -> dict[str, float]:
    """Return times in seconds since the first vendor's death."""
    from campaigns.models import Job, Message

    with forwarder(where.port) as (process, port):
        first, second = route(number, where, port)
        order = lists.order("-", lists.of(messages))
        order[order.index("--vendor") : order.index("--vendor") + 2] = ["--route", f"both{number}"]
        job_id = at.asked(*order)["job"]
        wait_until(lambda: where.count(first) >= messages // PART, "the first tenth", LONGEST, 0.02)
        process.kill()
        died = time.monotonic()
        wait_until(lambda: not uncalled(first), "all that was not called is with the second", LONGEST, 0.1)
        with_second = time.monotonic() - died
        ended = Job.objects.filter(pk=job_id, finished_at__isnull=False)
        job = wait_until(ended.first, "the campaign ends", LONGEST, 0.1)
    one, other = dict(where.each(first)), dict(where.each(second))
    calls = where.count(first) + where.count(second)
    twice = calls - len(one.keys() | other.keys())
    nobody = messages - len(one.keys() | other.keys())
    doubts = Message.objects.filter(campaign=job.campaign_id, in_doubt_at__isnull=False).count()
    console.print(
        f"{len(one):,} by the first, {len(other):,} by the second, {twice} twice, {nobody} nobody has got, "
        f"{doubts} in doubt, {job.accepted:,} accepted"
    )
    if twice or nobody > doubts or job.accepted + doubts != messages:
        raise SystemExit("a promise is broken")
    times = list(other.values())
    return {FIRST: times[0] - died, ALL: with_second, LAST: times[-1] - died}


def judge() -> None:
    """Run the audit on the rows, but for one question: this receiver gives all its letters one id."""
    from campaigns.engine import audit

    broken = [
        one
        for one in audit.ask_all_questions()
        if not one.is_kept and one.question != "no two messages have one letter of the vendor"
    ]
    if broken:
        raise SystemExit(f"the audit found {broken}")


def main() -> None:
    messages, rounds = numbers(100_000, 3)
    end_at_sigterm()
    measured: dict[str, list[float]] = {FIRST: [], ALL: [], LAST: []}
    with stage(), sink.running() as where, tempfile.TemporaryDirectory() as folder:
        at, lists = Installation(), Lists(Path(folder))
        with at.up():
            for number in range(rounds):
                for name, seconds in once(at, lists, where, number, messages).items():
                    measured[name].append(seconds)
            judge()
    title = f"A vendor dies in a campaign of {messages:,}: seconds until"
    keep(title, "s", measured)
    for name, values in measured.items():
        console.print(f"{name:45} {' '.join(f'{value:7.1f}' for value in values)} s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["forward"]:
        asyncio.run(forward(int(sys.argv[2])))
    else:
        main()
