"""The demo's vendors, casters and lists, created by the ordinary commands."""

import csv
import io
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from sandbox.demo.processes import DemoLimits
from vendors.models import Mailcaster, Vendor

HERE = Path(__file__).parent
SPONSOR = "Velma"
BULK, PRINT, POST = "bulk-mail", "amazing-mail", "post-office"


LIMITS = {
    PRINT: DemoLimits(5, 2),  # document 000: 5 letters in any 60 s, here in any 2 s
    BULK: DemoLimits(1500, 1),  # document 003: seven mailcasters
    POST: DemoLimits(60, 1),  # bounces, lost answers, stop and resume
}
# Document 003's example: name, kind, minimum, maximum. It names no maximum for MC1.
CASTERS = (
    ("MC1", "small-only", 1, 2000),
    *((f"MC{n}", "small-priority", 200, 2000) for n in (2, 3)),
    *((f"MC{n}", "large-priority", 2000, 5000) for n in (4, 5, 6, 7)),
)
PERCENTAGE, THRESHOLD = 4, 2000
DOCUMENT = {101: 11_000, 102: 135, 103: 200_000}  # document 003's jobs and their recipients


@dataclass(frozen=True, slots=True)
class Jobs:
    """Ids of the loaded jobs other than document 003's 101, 102 and 103."""

    letters: tuple[int, ...]
    spring: int
    members: int


def sandbox_options(slug: str) -> list[str]:
    """Return options of the sandbox vendor; the post office deduplicates our references."""
    return ["--latency-ms=20", "--jitter-ms=10"] + (["--dedupe"] if slug == POST else [])


def make_vendors(urls: dict[str, str]) -> None:
    """Create vendors and casters. The print vendor's night is over for today; `open_night` sets the next one."""
    past = timezone.now() - timedelta(minutes=1)
    _vendor(PRINT, urls, "--channel=print", f"--dispatch-at={past:%H:%M}", "--time-zone=UTC")
    _vendor(BULK, urls, f"--threshold={THRESHOLD}")
    _vendor(POST, urls, "--threshold=1000")
    for name, kind, low, high in CASTERS:
        _caster(BULK, name, kind, low, high)
    for slug in (PRINT, POST):
        for name in ("MC1", "MC2"):
            _caster(slug, name, "small-only", 1, 2000)
    Mailcaster.objects.filter(vendor__slug=BULK).update(enabled=False)  # the scenario enables them one by one
    run("vendor", "pause", POST, "--reason=until the demo begins")


def load_lists(last: int) -> Jobs:
    """Load all campaigns. `last`: recipients of job 103. Document 003's jobs get its numbers, from 101 on."""
    letters = tuple(_letters())
    spring = _send("spring-news.csv", POST, "Spring news", "news.txt", "now")
    members = _send("members.csv", POST, "Members", "news.txt", "now")
    with connection.cursor() as cursor:
        cursor.execute("ALTER SEQUENCE campaigns_job_id_seq RESTART WITH 101")
    for number, size in (DOCUMENT | {103: last}).items():
        rows = [("email", "name"), *((f"r{n}.{number}@sandbox.example", f"Reader {n}") for n in range(1, size + 1))]
        found = _send(rows, BULK, f"Broadcast {number}", "news.txt", "now")
        if found != number:
            raise RuntimeError(f"document 003's job {number} became job {found}")
    return Jobs(letters, spring, members)


def open_post_office() -> None:
    run("vendor", "resume", POST)


def open_night(seconds: float) -> datetime:
    """Set the print vendor's dispatch to `seconds` from now, for the sweep to find. Returns the time (UTC)."""
    vendor = Vendor.objects.get(slug=PRINT)
    due = timezone.now() + timedelta(seconds=seconds)
    vendor.dispatch_at = due.time()
    vendor.save(update_fields=["dispatch_at"])
    return due


def _vendor(slug: str, urls: dict[str, str], *more: str) -> None:
    set_up = [f"url={urls[slug]}", "timeout=30", "lookup=weak"]
    if slug == POST:
        set_up = [f"url={urls[slug]}", "timeout=8", "settle_delay=1", "dedupe=true"]
    options = [f"--name={slug.replace('-', ' ').title()}", "--no-casters", f"--limit={LIMITS[slug].typed}", *more]
    run("vendor", "add", slug, "--adapter=http", *options, "--set", *set_up)
    run("entitlement", "add", SPONSOR, slug, "--new-sponsor")


def _caster(slug: str, name: str, kind: str, low: int, high: int) -> None:
    sizes = [f"--min={low}", f"--max={high}", f"--percentage={PERCENTAGE}"]
    run("mailcaster", "add", slug, name, f"--kind={kind}", *sizes)


def _letters() -> Iterator[int]:
    """Load one print job for each row of the file, as in document 000; they wait for the night."""
    with (HERE / "letters.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    for row in rows:
        yield _send([header, row], PRINT, f"Statement of {row[1]}", "letter.txt", "nightly")


def _send(recipients: str | Sequence[Iterable[Any]], vendor: str, name: str, body: str, at: str) -> int:
    return send(recipients, vendor, f"--name={name}", f"--at={at}", f"--subject={name}", f"--body={HERE / body}")


def send(recipients: str | Sequence[Iterable[Any]], vendor: str, *options: str) -> int:
    """Send a shipped file, or rows, with `send_campaign`. Returns the job's id."""
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="") as made:
        if isinstance(recipients, str):
            file = str(HERE / recipients)
        else:
            csv.writer(made).writerows(recipients)
            made.flush()
            file = made.name
        output = run("send_campaign", file, f"--vendor={vendor}", f"--sponsor={SPONSOR}", *options, "--json")
    return int(json.loads(output)["job"])


def run(command: str, *options: str) -> str:
    """Run a management command and return its output. Raises CommandError."""
    output = io.StringIO()
    call_command(command, *options, stdout=output)
    return output.getvalue()
