"""Senders of print files are killed again and again: at the vendor each letter is in one batch, and none is lost."""

from __future__ import annotations

import csv
import signal
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from campaigns.engine.doubts import reconciler
from campaigns.engine.finishing import finalizer
from campaigns.models import Job, Message
from tests.faults.checker import sums
from tests.faults.sending import open_again, send_the_rest, take_again
from tests.print.printed_once import printed_once
from tests.print.sftp_server import SftpVendor
from tests.print.test_acknowledgements import broken, fetched, file_of, job, program, pytestmark, references, server
from tests.waiting import wait_until

__all__ = ["printed_once", "pytestmark", "server"]
LETTERS = 10
# After how many steps of the server (open, write, rename, remove) each sender of a story is killed.
STORIES = [(1, 3, 5), (4, 2, 9), (7, 6, 4), (5, 5, 1)]


def at_the_vendor(server: SftpVendor) -> Counter[str]:
    """How often each recipient is in a batch that the vendor prints."""
    found: Counter[str] = Counter()
    for path in server.manifests():
        with path.open(newline="") as file:
            found.update(row["address_1"] for row in csv.DictReader(file))
    return found


def is_under_way(made: Job) -> bool:
    return Job.objects.filter(pk=made.pk, status__in=("ENQUEUED", "SENDING")).exists()


def killed_after(server: SftpVendor, made: Job, steps: int) -> None:
    before = len(server.steps)
    sender = program(f"from campaigns.engine import sending; sending.send_claimed_job({made.pk}, {made.fence})")
    try:
        reached: Any = lambda: len(server.steps) >= before + steps or not is_under_way(made)  # noqa: E731
        wait_until(reached, f"{steps} steps at the vendor", every=0.001)
    finally:
        sender.send_signal(signal.SIGKILL)
        sender.wait()
    closed: Any = lambda: all(one.is_closed() for one in server.connections)  # noqa: E731
    wait_until(closed, "the server has done all that the sender asked of it")


@pytest.mark.parametrize("steps", STORIES)
def test_each_letter_is_in_one_batch_however_often_its_sender_is_killed(
    server: SftpVendor, steps: tuple[int, ...]
) -> None:
    made = job(server, LETTERS, batch="3", manifests_stay="yes", timeout="20", making="120", uploading="60")
    everybody = [f"Ann {number}" for number in range(LETTERS)]
    for number in steps:
        killed_after(server, made, number)
        finalizer.recover_job(made.pk, timedelta())
        made.refresh_from_db()
        if made.status not in ("DISPATCHED", "RECOVERING"):
            break
        wait_until(lambda: open_again(made), "it may go on")
        take_again(made)
    made = send_the_rest(made)
    assert max(at_the_vendor(server).values(), default=1) == 1, "a letter is in two batches"
    assert sum(sums().values()) == sums()["in doubt"] == LETTERS, "nothing is lost, and no acceptance is invented"

    Message.objects.update(settle_at=timezone.now(), sent_at=timezone.now() - timedelta(hours=1))
    while Message.objects.filter(settle_at__lte=timezone.now()).exists():
        reconciler.reconcile_due_doubts()
    there = at_the_vendor(server)
    assert sums() == {"in doubt": LETTERS} and at_the_vendor(server) == there, "nobody brings one again by himself"

    # The vendor acknowledges what it has; a person, who has asked it for the rest, has that sent again.
    named = {row.recipient.partition("\n")[0]: row for row in Message.objects.all()}
    server.acknowledge("a.csv", file_of(*[(named[name].reference, "accepted") for name in there]))
    fetched()
    if missing := [row.pk for name, row in named.items() if name not in there]:
        call_command("resolve", *missing, decision="resend", reason="the vendor has no such letters", by="ann")
        made.refresh_from_db()
        assert made.status == "DISPATCHED", "the command gives the job to its mailcaster"
        send_the_rest(made)
    assert at_the_vendor(server) == Counter(everybody) and set(server.visible.values()) == {1}
    server.acknowledge("b.csv", file_of(*[(name, "accepted") for name in references()]))
    fetched()
    assert sums() == {"accepted": LETTERS} and broken() == []
