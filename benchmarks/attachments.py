"""Memory of a sender of mails with a file of some megabytes, and what the database keeps of the file.

`python -m benchmarks.attachments [megabytes] [mails] ...`: one campaign for each number of mails, over 8 connections to
Postfix's smtp-sink. This process is the sender; its memory is the peak that Linux reports since the campaign began.
"""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import smtp_sink
from benchmarks.stage import console, numbers, stage

if TYPE_CHECKING:
    from vendors.models import Credential

PEAK, NOW = "VmHWM", "VmRSS"
CONNECTIONS = 8
STORED = "SELECT pg_total_relation_size('campaigns_storedfile')"


def memory(what: str) -> float:
    """Return megabytes of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) / 1000


def login(port: int) -> "Credential":
    from tests import factories

    known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": smtp_sink.ORIGIN, "mails": 1_000_000}
    return factories.credential(factories.vendor(adapter="smtp", settings={**known, "concurrency": CONNECTIONS}))


def campaign(of: "Credential", mails: int, content: bytes) -> int:
    """Return the id of a job that a mailcaster has claimed."""
    from django.utils import timezone

    from campaigns.engine.lifecycle import move
    from campaigns.lists import intake
    from campaigns.lists.intake.files import CampaignFiles, NewFile
    from campaigns.models import Job
    from tests import factories

    files = CampaignFiles([NewFile("report.pdf", len(content), lambda: content)])
    to = [(f"person{n}@example.org", {"name": f"Person {n}"}) for n in range(mails)]
    made = {"name": "report", "subject": "For {{ name }}", "body": "Dear {{ name }},\n", "html": False}
    job = intake.store_campaign(
        sponsor=factories.sponsor(), credential=of, files=files, recipients=to, at="now", **made
    )
    Job.objects.filter(pk=job.pk).update(status="DISPATCHED")
    move(Job.objects.filter(pk=job.pk), "enqueue", fence=1, heartbeat_at=timezone.now())
    return int(job.pk)


def send(of: "Credential", mails: int, content: bytes, relay: smtp_sink.SmtpSink) -> None:
    from django.db import connection

    from campaigns.engine import sending
    from campaigns.models import Message

    job = campaign(of, mails, content)
    before = memory(NOW)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    relay.begin()
    began = time.monotonic()
    sending.send_claimed_job(job, 1)
    took = time.monotonic() - began
    accepted = Message.objects.filter(campaign__credential=of, campaign__jobs=job, message_id__isnull=False).count()
    with connection.cursor() as cursor:
        cursor.execute(STORED)
        stored = cursor.fetchone()[0] / 1e6
    console.print(
        f"{mails:,} mails of {len(content) / 1e6:g} MB: {accepted:,} accepted in {took:.1f} s; "
        f"memory before {before:.0f} MB, peak {memory(PEAK):.0f} MB; all files in the database {stored:.1f} MB"
    )


def main() -> None:
    megabytes, *mails = numbers(5, 100, 1_000)
    with stage(), smtp_sink.running() as relay:
        if relay is None:
            return
        of, content = login(relay.port), os.urandom(megabytes * 1_000_000)
        for number in mails:
            send(of, number, content, relay)


if __name__ == "__main__":
    main()
