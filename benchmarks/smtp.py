"""Mails a second over 20 kept SMTP connections, against smtp-source -d of Postfix to the same smtp-sink.

`python -m benchmarks.smtp [mails] [rounds]`. On Debian and Ubuntu the two programs are part of the package postfix. The
whole worker is timed by its own ledger, from the first mail allowed to start to the last answer; mails of equal size.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvloop

from benchmarks import recipients
from benchmarks.sending import deliver_all
from benchmarks.stage import console, in_turns, numbers, show, stage
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from vendors.adapters.base import Letter
    from vendors.models import Credential

CONNECTIONS = 20
ROUND = 20  # mails that a connection is given at a time, in the row that says so
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
SINK, SOURCE = shutil.which("smtp-sink", path=PATH), shutil.which("smtp-source", path=PATH)
ORIGIN = "us@example.org"
BARE = "smtp-source -d"


@contextmanager
def sink() -> Iterator[int]:
    """The port of a relay that takes everything and keeps nothing."""
    port = free_port()
    assert SINK is not None
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    with subprocess.Popen([SINK, *user, f"127.0.0.1:{port}", "1000"]) as process:
        try:
            wait_until(lambda: answers(port), "smtp-sink listens")
            yield port
        finally:
            process.terminate()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def settings(port: int, batch: int = 1) -> dict[str, object]:
    options = {"host": "127.0.0.1", "tls": "none", "sender": ORIGIN, "mails": 1_000_000}
    return {**options, "port": port, "concurrency": CONNECTIONS, "batch": batch}


def letters(mails: int) -> "list[Letter]":
    from vendors.adapters.base import Letter

    body = recipients.BODY.replace("{{ name }}", "Ann")
    reference = "00000000-0000-4000-8000-{:012}-0"
    ids = range(1, mails + 1)
    return [Letter(reference.format(n), f"person{n}@example.org", recipients.SUBJECT, body) for n in ids]


def size() -> int:
    """Bytes of one of our mails."""
    from vendors.adapters import mime

    letter = letters(1)[0]
    return len(mime.compose(mime.sender(ORIGIN), letter.recipient, letter))


def source(mails: int) -> float:
    assert SOURCE is not None
    options = ["-d", "-s", str(CONNECTIONS), "-m", str(mails), "-l", str(size()), "-f", ORIGIN, "-t", "you@example.org"]
    with sink() as port:
        began = time.perf_counter()
        subprocess.run([SOURCE, *options, f"127.0.0.1:{port}"], check=True)
        return mails / (time.perf_counter() - began)


def adapter(mails: int) -> float:
    """The adapter alone: no database, no throttle, no worker."""
    with sink() as port:
        ready = letters(mails)
        began = time.perf_counter()
        uvloop.run(call_all(port, ready))
        return mails / (time.perf_counter() - began)


async def call_all(port: int, ready: "list[Letter]") -> None:
    from vendors.adapters.smtp import Smtp
    from vendors.outcomes import Accepted

    smtp = Smtp(settings(port), {})

    async def caller() -> None:
        while ready:
            [outcome] = await smtp.send([ready.pop()])
            assert isinstance(outcome, Accepted), outcome

    await smtp.open()
    await asyncio.gather(*(caller() for _ in range(CONNECTIONS)))
    await smtp.close()


def worker(mails: int, batch: int) -> float:
    from django.db.models import Max, Min

    from campaigns.models import Message

    with sink() as port:
        credential = login(port, batch)
        deliver_all(credential, mails)
    sent = Message.objects.filter(campaign_id__in=credential.campaigns.values("pk"), message_id__isnull=False)
    assert sent.count() == mails
    first, last = sent.aggregate(a=Min("sent_at"), b=Max("delivered_at")).values()
    return mails / (last - first).total_seconds()


def login(port: int, batch: int = 1) -> "Credential":
    from benchmarks.sending import LIMIT, WHOLE
    from tests import factories

    known = {"adapter": "smtp", "settings": settings(port, batch), "casters": ["small-only"]}
    return factories.credential(factories.vendor(**known, limits=[LIMIT], small_audience_threshold=WHOLE))


def main() -> None:
    mails, rounds = numbers(20_000, 3)
    if not SINK or not SOURCE:
        console.print("no measurement of SMTP: Postfix's smtp-sink and smtp-source are not installed")
        return
    with stage():
        rows = {
            "mailhub, one process": lambda: worker(mails, 1),
            f"mailhub, one process, rounds of {ROUND}": lambda: worker(mails, ROUND),
            "its SMTP adapter alone": lambda: adapter(mails),
            BARE: lambda: source(mails),
        }
        rates = in_turns(rows, rounds)
    show(f"SMTP over {CONNECTIONS} connections, mails of {size()} bytes", rates, BARE)


if __name__ == "__main__":
    main()
