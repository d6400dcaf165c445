"""Whoever follows one letter from send_campaign to LOGGED opens at most 51 of our files: 4 of a stage, 7 of the claim.

A file counts if one of its functions runs, wherever: in the command, in the task that casts, in the one that sends. It
is the second letter of a worker. With the first, connections are opened and the throttle's log is made, which a worker
does once; what happens at import counts for no letter.
"""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from campaigns import tasks
from campaigns.models import Job
from campaigns.sending import Sender
from tests import factories
from vendors.models import RateLimit

ROOT = Path(__file__).parents[2]
OURS = tuple(f"{ROOT / package}/" for package in ("mailhub", "campaigns", "vendors", "waiter"))
STAGES = ("intake", "dispatch", "casting", "claiming", "sending", "finishing")
MOST, MOST_OF_A_STAGE = 51, 4
# The claim is where all streams of a process meet: their queue, permits and leases have files of their own.
MOST_OF = {"claiming": 7}


class Files:
    """Those of ours of which a function was called within the block, in this thread or in one begun in such a block."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._open = False

    def __enter__(self) -> None:
        self._open = True
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def __exit__(self, *_: Any) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        self._open = False

    def _note(self, frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if self._open and event == "call" and code.co_name != "<module>" and code.co_filename.startswith(OURS):
            self.found.add(code.co_filename[len(str(ROOT)) + 1 :])


def send_one(vendor: str, folder: Path, number: int) -> None:
    """By the command and the tasks, called as a worker calls them."""
    recipients, body = folder / f"{number}.csv", folder / "body.txt"
    recipients.write_text(f"email,name\nann{number}@sandbox.example,Ann\n")
    body.write_text("Dear {{ name }}")
    options = {"sponsor": "Velma", "new_sponsor": True, "vendor": vendor, "subject": "News", "body": str(body)}
    call_command("send_campaign", str(recipients), at="now", **options)
    job = Job.objects.latest("pk")
    tasks.cast(job.vendor_id)
    job.refresh_from_db()
    tasks.send_job(job.pk, job.fence)
    job.refresh_from_db()
    assert (job.status, job.accepted) == ("LOGGED", 1)


@pytest.fixture
def kept_sender(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As in a worker's process."""
    sender = Sender()
    monkeypatch.setattr(tasks, "_kept", sender)
    yield
    sender.close()


@pytest.mark.django_db(transaction=True)
def test_one_letter_passes_at_most_51_files_and_few_of_each_stage(sandbox, kept_sender, tmp_path) -> None:
    vendor = factories.vendor(settings={"url": sandbox.url}, casters=["small-only"], channel="email")
    factories.credential(vendor)
    RateLimit.objects.create(vendor=vendor, units=100, seconds=1)
    files = Files()
    with files:
        send_one(vendor.slug, tmp_path, 1)
    first, files.found = files.found, set()
    with files:
        send_one(vendor.slug, tmp_path, 2)
    found = sorted(files.found)
    assert files.found < first and "campaigns/sending/stream.py" in found, "also what runs in the sender's thread"
    for stage in STAGES:
        of_stage = [name for name in found if name.startswith(f"campaigns/{stage}/")]
        assert 1 <= len(of_stage) <= MOST_OF.get(stage, MOST_OF_A_STAGE), "\n".join(of_stage)
    assert len(found) <= MOST, "\n".join((f"{len(found)} files:", *found))
