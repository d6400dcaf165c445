"""Mails a second over 20 kept SMTP connections, against smtp-source -d of Postfix to the same smtp-sink.

`python -m benchmarks.smtp [mails] [rounds]`. On Debian and Ubuntu both programs are in the package postfix. The whole
worker is timed by its own ledger, from the first mail allowed to start to the last answer, with mails of equal size.
"""

import asyncio
import time
from typing import TYPE_CHECKING

import uvloop

from benchmarks import recipients, smtp_sink
from benchmarks.sending import deliver_all
from benchmarks.smtp_sink import CONNECTIONS, ORIGIN
from benchmarks.stage import in_turns, numbers, show, stage

if TYPE_CHECKING:
    from vendors.adapters.base import Letter
    from vendors.models import Credential

ROUND = 20  # mails given to a connection at a time, in the row that says so
BARE = "smtp-source -d"


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
    """Return the bytes of one of our mails."""
    from vendors.adapters import mime

    letter = letters(1)[0]
    return sum(map(len, mime.compose_mail(mime.parse_sender(ORIGIN), letter.recipient, letter)))


def adapter(port: int, mails: int) -> float:
    """Measure the adapter alone: no database, throttle or worker."""
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


def worker(port: int, mails: int, batch: int) -> float:
    from django.db.models import Max, Min

    from campaigns.models import Message

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
    with stage(), smtp_sink.running() as relay:
        if relay is None:
            return
        rows = {
            "mailhub, one process": lambda: worker(relay.port, mails, 1),
            f"mailhub, one process, rounds of {ROUND}": lambda: worker(relay.port, mails, ROUND),
            "its SMTP adapter alone": lambda: adapter(relay.port, mails),
            BARE: lambda: smtp_sink.source(relay, mails, size()),
        }
        rates = in_turns(rows, rounds)
    show(f"SMTP over {CONNECTIONS} connections, mails of {size()} bytes", rates, BARE)


if __name__ == "__main__":
    main()
