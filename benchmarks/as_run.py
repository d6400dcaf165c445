"""Messages a second as people run mailhub: `up` with the shipped Procfile, a list from a file, an external receiver.

`python -m benchmarks.as_run [messages] [rounds] [mails]`. A command adds the vendor, with its default mailcasters and
connections and a limit that never binds. `send_campaign --at now` sends the list, a CSV file. The receiver
(benchmarks/sink.py) must have had every recipient exactly once. The clock starts when the campaign is dispatched. It
stops at the last arrival, and once more at the campaign's end.

Yardsticks in the same rounds, to the same receiver:

- a bare aiohttp loop;
- River, which fetches at its highest rate, with its jobs stored before;
- one Celery task a message, with connections kept and the queue full before the worker starts;
- for SMTP, smtp-source -d, which sends one mail at a time over each connection to the same smtp-sink;
- listmonk, if installed (benchmarks/listmonk.py), from its campaign's start and from its first mail.
"""

import csv
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import uvloop

from benchmarks import listmonk, river_queue, sink, smtp, smtp_sink
from benchmarks.installation import Installation, end_at_sigterm, wall_to_monotonic
from benchmarks.processes_seen import process_seconds
from benchmarks.recipients import BODY, SUBJECT
from benchmarks.results import keep
from benchmarks.stage import console, in_turns, numbers, ratio, show, stage
from benchmarks.yardsticks import bare_aiohttp
from tests.waiting import wait_until

WARM = 500  # messages before the measured ones, to a vendor of the same kind
NEVER_BINDS = "1000000/1"
SHARE = 20  # a task a message gets a twentieth of the messages, or the run would take an hour
POOL = ("threads", 50)  # the fastest pool for a task a message (benchmarks.sending)
LOOK = 0.05  # seconds between two checks for the campaign's end
LONGEST = 600.0  # seconds that a campaign may take
MAILHUB, ENDED, ONE = "mailhub", "mailhub, to the campaign's end", "mailhub, one sender process"
BARE, RIVER, USUAL, SOURCE = "bare aiohttp loop", "River", "a task a message", "smtp-source -d"
LISTMONK, SENDING = "listmonk", "the same, from its first mail"
Costs = dict[str, list[float]]


@dataclass(slots=True)
class Measured:
    """The results of mailhub's rounds besides the rate. costs: microseconds of processor time a message, by part."""

    to_end: list[float] = field(default_factory=list)
    times: Costs = field(default_factory=dict)
    costs: Costs = field(default_factory=dict)

    def keep(self, title: str) -> None:
        for what, unit, rows in (("times", "s", self.times), ("processor time of a message", "us", self.costs)):
            keep(f"{title}: {what}", unit, rows)
            console.print(f"{title}: {what}")
            for name, values in rows.items():
                console.print(f"  {name:55} {statistics.median(values):8.2f} {unit}")


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign that has ended. Times are on the monotonic clock. seconds: processor time by part."""

    typed: float
    began: float
    ended: float
    seconds: dict[str, float]


def write_list(file: Path, recipients: list[str]) -> None:
    with file.open("w", newline="") as rows:
        writer = csv.writer(rows)
        writer.writerow(["email", "name"])
        writer.writerows((recipient, "Ann") for recipient in recipients)


class Lists:
    """The files a person would have: a body, and a list of each size."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.body = folder / "body.txt"
        self.body.write_text(BODY)

    def of(self, messages: int) -> Path:
        file = self._folder / f"{messages}.csv"
        if not file.exists():
            write_list(file, [f"person{number}@example.org" for number in range(messages)])
        return file

    def to(self, recipient: str) -> Path:
        write_list(file := self._folder / "single.csv", [recipient])
        return file

    def order(self, vendor: str, file: Path, when: str = "now") -> list[str]:
        """Return the command that stores the campaign."""
        content = ["--subject", SUBJECT, "--body", str(self.body)]
        return ["send_campaign", str(file), "--sponsor", "Velma", "--vendor", vendor, *content, "--at", when]


def deliver(at: Installation, lists: Lists, vendor: str, messages: int) -> Campaign:
    from campaigns.models import Job

    before, typed = at.seconds(), time.monotonic()
    job_id = at.asked(*lists.order(vendor, lists.of(messages)))["job"]
    ours = Job.objects.filter(pk=job_id, finished_at__isnull=False)
    job = wait_until(ours.first, "the campaign ends", LONGEST, LOOK)
    after = at.seconds()
    assert job.accepted == messages, f"{job.status}: {job.accepted} accepted of {messages}"
    assert job.finished_at
    shift, began = wall_to_monotonic(), job.dispatched_at or job.created_at
    seconds = {part: after[part] - spent for part, spent in before.items()}
    return Campaign(typed, began.timestamp() + shift, job.finished_at.timestamp() + shift, seconds)


def mailhub(
    lists: Lists,
    vendor: str,
    messages: int,
    result: Measured,
    receiver: "HttpReceiver | SmtpReceiver",
    **variables: str,
) -> float:
    """Return messages a second. variables: for the environment of `up`."""
    at = Installation()
    with at.up(**variables):
        deliver(at, lists, vendor, WARM)
        receiver.forget()
        busy = receiver.seconds()
        campaign = deliver(at, lists, vendor, messages)
        spent = {**campaign.seconds, "receiver": receiver.seconds() - busy}
    first, most, last = receiver.arrivals(messages)
    result.to_end.append(messages / (campaign.ended - campaign.began))
    times = {
        "from the command's start to the campaign's": campaign.began - campaign.typed,
        "from the campaign's start to the first call": first - campaign.began,
        "from the arrival of 99 % to the last arrival": last - most,
        "from the last arrival to the campaign's end": campaign.ended - last,
        "from the command's start to the last arrival": last - campaign.typed,
    }
    for name, value in times.items():
        result.times.setdefault(name, []).append(value)
    for name, value in {**spent, "all parts": sum(spent.values())}.items():
        result.costs.setdefault(name, []).append(1e6 * value / messages)
    return messages / (last - campaign.began)


class HttpReceiver:
    """The sink, for mailhub's vendor of this name."""

    def __init__(self, where: sink.Sink, name: str) -> None:
        self._where, self._name = where, name
        self.fullest: list[float] = []

    def forget(self) -> None:
        self._where.forget(self._name)

    def seconds(self) -> float:
        return process_seconds(self._where.process.pid)

    def arrivals(self, messages: int) -> tuple[float, float, float]:
        """Return the times of the first arrival, of 99 %, and of the last.

        Raises unless each recipient had exactly one.
        """
        facts = self._where.facts(self._name, messages)
        self.fullest.append(facts["fullest_second"])
        return facts["first"], facts["most"], facts["last"]


class SmtpReceiver:
    """smtp-sink. Every row is accepted, so a count of mails equal to the rows proves one mail for each recipient."""

    def __init__(self, relay: smtp_sink.SmtpSink) -> None:
        self._relay = relay

    def forget(self) -> None:
        self._relay.begin()

    def seconds(self) -> float:
        return process_seconds(self._relay.process.pid)

    def arrivals(self, messages: int) -> tuple[float, float, float]:
        if self._relay.count != messages:
            raise SystemExit(f"{messages:,} mails were accepted, but {self._relay.count:,} arrived")
        most = next(at for count, at in self._relay.times if count >= 0.99 * messages)
        return self._relay.first(), most, self._relay.last()


Receiver = HttpReceiver | SmtpReceiver


def aiohttp_loop(where: sink.Sink, messages: int) -> float:
    send, began = bare_aiohttp(messages), time.monotonic()
    uvloop.run(send(where.url("aiohttp")))
    facts = where.facts("aiohttp", messages)
    where.forget("aiohttp")
    return messages / (facts["last"] - began)


def a_task_a_message(lists: Lists, where: sink.Sink, messages: int) -> float:
    """Measure from the first arrival, so that starting the worker and filling its queue do not count."""
    from django.utils import timezone

    from benchmarks import naive
    from campaigns.models import Job

    never = (timezone.now() + timedelta(days=30)).isoformat()  # mailhub must not send these rows
    stored = Installation().asked(*lists.order("letters", lists.of(messages), never))
    job = Job.objects.get(pk=stored["job"])
    naive.publish(range(job.first_message, job.end), where.url("tasks"))
    with naive.worker(*POOL) as lives:
        wait_until(lambda: lives() and where.count("tasks") == messages, "all is sent", LONGEST, LOOK)
    facts = where.facts("tasks", messages)
    where.forget("tasks")
    return messages / (facts["last"] - facts["first"])


def main() -> None:
    messages, rounds, mails = numbers(50_000, 5, 20_000)
    end_at_sigterm()
    http, alone, relayed, river = Measured(), Measured(), Measured(), Measured()
    with stage(), sink.running() as where, smtp_sink.running() as relay, tempfile.TemporaryDirectory() as folder:
        lists, program = Lists(Path(folder)), river_queue.build(Path(folder))
        letters = HttpReceiver(where, "letters")
        at = Installation()
        order = ["vendor", "add", "letters", "--adapter", "http", "--limit", NEVER_BINDS]
        at.manage(*order, "--set", f"url={where.url('letters')}")
        rows: dict[str, Callable[[], float]] = {
            MAILHUB: lambda: mailhub(lists, "letters", messages, http, letters),
            ONE: lambda: mailhub(lists, "letters", messages, alone, letters, VENDOR_PROCESSES="1"),
            BARE: lambda: aiohttp_loop(where, messages),
            USUAL: lambda: a_task_a_message(lists, where, messages // SHARE),
        }
        if program:
            rows[RIVER] = lambda: river_queue.run(program, where, messages, river.costs)
        rates = in_turns(rows, rounds)
        http_rates = {MAILHUB: rates.pop(MAILHUB), ENDED: http.to_end, **rates}
        if relay:
            login = ["host=127.0.0.1", f"port={relay.port}", "tls=none", f"sender={smtp_sink.ORIGIN}"]
            at.manage("vendor", "add", "mails", "--adapter", "smtp", "--limit", NEVER_BINDS, "--set", *login)
            at.manage("entitlement", "add", "Velma", "mails")
            mail = {
                MAILHUB: lambda: mailhub(lists, "mails", mails, relayed, SmtpReceiver(relay)),
                SOURCE: lambda: smtp_sink.source(relay, mails, smtp.size()),
            }
            with listmonk.running(relay, mails) as other:
                if other:
                    mail[LISTMONK] = lambda: other.send(mails)
                rates = in_turns(mail, rounds)
            smtp_rates = {MAILHUB: rates.pop(MAILHUB), ENDED: relayed.to_end, **rates}
            if other:
                smtp_rates[SENDING] = other.since_first
    show(f"As people run it, HTTP, {messages:,} messages", http_rates, BARE)
    http.keep("As people run it, HTTP")
    keep("As people run it, HTTP: fullest second at the receiver", "calls", {"calls": letters.fullest})
    console.print(f"two sender processes send {ratio(http_rates[MAILHUB], http_rates[ONE]):.2f} x as fast as one")
    if program:
        keep("River: processor time of a message", "us", river.costs)
        console.print(f"mailhub sends {ratio(http_rates[MAILHUB], http_rates[RIVER]):.2f} x as fast as River")
        console.print({part: round(statistics.median(spent)) for part, spent in river.costs.items()})
    console.print(f"and {ratio(http_rates[MAILHUB], http_rates[USUAL]):.1f} x as fast as one Celery task a message")
    if relay:
        show(f"As people run it, SMTP, {mails:,} mails of {smtp.size()} bytes", smtp_rates, SOURCE)
        relayed.keep("As people run it, SMTP")


if __name__ == "__main__":
    main()
