"""The story of `manage.py demo --channels all`: letters, SMS and e-mail side by side, with their vendors' reports.

Its vendors look like Lob, Twilio, Amazon SES and Mailgun. mailhub calls them like the real ones, with the descriptions
and adapters that it ships, but at another address.
"""

import csv
import json
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from campaigns.models import MessageEvent, Suppression
from sandbox.demo.processes import DemoLimits, Processes, SandboxVendor
from sandbox.demo.screen import bar, grid, panel, word
from sandbox.demo.setup import HERE, SPONSOR, run, send
from sandbox.demo.snapshot import Facts, JobView
from sandbox.demo.story import Point, Scenario, Story
from vendors.models import Vendor

LOB, TWILIO, SES, MAILGUN = "lob", "twilio", "amazon-ses", "mailgun"
REPORTS_AFTER = 1.5  # seconds
PATIENT = 20.0  # seconds for an answer, so that a slow machine causes no doubts
ListRow = Sequence[str]


@dataclass(frozen=True, slots=True)
class ChannelVendor:
    """A vendor of this story. `looks_like`, `login`: the sandbox's. `settings`, `secret`: those in mailhub.

    `signing`: the secret that a person enters for its reports, or "". `campaign`, `rows`, `body`: the mail to send.
    """

    name: str
    channel: str
    looks_like: str
    login: str
    limit: DemoLimits
    adapter: str
    settings: Sequence[str]
    secret: dict[str, str]
    signing: str
    campaign: str
    rows: Callable[[], Iterator[ListRow]]
    body: Sequence[str]


def _letters() -> Iterator[ListRow]:
    yield "address", "name", "address_line1", "address_city", "address_country"
    with (HERE / "letters.csv").open(newline="") as file:
        known = [(one["name"], *one["address"].split(", ")[1:]) for one in csv.DictReader(file)]
    odd = [("Una Told", "Undeliverable House", "Exeter"), ("Rita Turn", "Returned Street 2", "Dorchester")]
    for name, line, city in [*known, *odd]:
        yield f"{name}, {line}, {city}", name, line, city, "GB"


def _numbers() -> Iterator[ListRow]:
    yield "phone", "name"
    yield from ((f"+447700900{number:03}", f"reader {number}") for number in range(100))
    yield "+15005550004", "who said stop"
    yield "+15005550030", "who is out of reach"


def _news() -> Iterator[ListRow]:
    yield "email", "name"
    yield from ((f"news{number}@members.example", f"Reader {number}") for number in range(200))
    yield from ((f"{word}@sandbox.example", word) for word in ("bounce1", "bounce2", "complains1", "lost1"))


def _members() -> Iterator[ListRow]:
    yield "email", "name"
    yield from ((f"m{number}@members.example", f"Member {number}") for number in range(300))
    yield from ((f"{word}@sandbox.example", word) for word in ("bounce3", "complains2"))


ACCOUNT, TOKEN, PASSWORD = "AC" + "0" * 31 + "7", secrets.token_hex(16), secrets.token_urlsafe(12)
VENDORS = {
    LOB: ChannelVendor(
        "Lob", "print", "lob", "test_key:", DemoLimits(10, 1), "described",
        ("description=lob", "return_address=adr_210a8d4b0b76d77b", "use_type=operational"),
        {"api_key": "test_key"}, secrets.token_hex(16), "Spring letter", _letters,
        (f"--body={HERE / 'letter.html'}", "--html", "--subject=Spring letter"),
    ),
    TWILIO: ChannelVendor(
        "Twilio", "sms", "twilio", f"{ACCOUNT}:{TOKEN}", DemoLimits(17, 1), "described",
        ("description=twilio", f"account={ACCOUNT}", "from=+15005550006"),
        {"auth_token": TOKEN}, "", "Reminder", _numbers,
        (f"--body={HERE / 'reminder.txt'}",),
    ),
    SES: ChannelVendor(
        "Amazon SES", "email", "ses", "AKIDSANDBOX:a-secret-key", DemoLimits(35, 1), "anymail",
        ("service=amazon_ses", "more=region:eu-west-1"),
        {"aws_access_key_id": "AKIDSANDBOX", "aws_secret_access_key": "a-secret-key"}, f"demo:{PASSWORD}",
        "Spring news", _news, (f"--body={HERE / 'news.txt'}", "--subject=Spring news"),
    ),
    MAILGUN: ChannelVendor(
        "Mailgun", "email", "mailgun", "api:a-key", DemoLimits(50, 1), "described",
        ("description=mailgun", "domain=mail.sandbox.example"),
        {"api_key": "a-key"}, secrets.token_hex(16), "Members", _members,
        (f"--body={HERE / 'news.txt'}", "--subject=For our members"),
    ),
}  # fmt: skip


class ChannelStory(Story):
    """A campaign for each vendor. It ends when each accepted letter is reported."""

    limits = {slug: vendor.limit for slug, vendor in VENDORS.items()}
    tries = (
        "list_jobs",
        f"suppression export --sponsor {SPONSOR}",
        f"vendor limit {LOB} 2/1",
        "vendor describe twilio",
        "audit",
    )
    counted = "received"

    def options(self, slug: str) -> list[str]:
        of = VENDORS[slug]
        known = [f"--looks-like={of.looks_like}", f"--login={of.login}", f"--receipts-after={REPORTS_AFTER}"]
        return [*known, "--latency-ms=20", "--jitter-ms=10"]

    def make_vendors(self, processes: Processes) -> None:
        assert processes.hub is not None
        run("identity", "add", SPONSOR, "news", "--from=Velma <news@sandbox.example>", "--new-sponsor")
        for slug, vendor in processes.vendors.items():
            to = f"{processes.hub.api}api/v1/receipts/{slug}"
            _make(slug, vendor, to)
            if VENDORS[slug].signing:
                vendor.change(receipts_to=to, receipts_secret=VENDORS[slug].signing)
        self._vendors = processes.vendors

    def load_lists(self) -> None:
        self.jobs: dict[str, int] = {}
        for slug, of in VENDORS.items():
            run("vendor", "pause", slug, "--reason=until the demo begins")
            self.jobs[slug] = send(list(of.rows()), slug, f"--name={of.campaign}", "--at=now", *of.body)

    def scenarios(self) -> Sequence[Scenario]:
        for slug in VENDORS:
            run("vendor", "resume", slug)
        self.tell("Four campaigns begin: letters by Lob, SMS by Twilio, e-mail by Amazon SES and by Mailgun")
        return [self._campaign(slug, id) for slug, id in self.jobs.items()]

    def _campaign(self, slug: str, id: int) -> Scenario:
        name = VENDORS[slug].name
        yield
        while not self._job(id).delivered:
            yield
        self.tell(f"{name} reports the first as delivered, of {self._job(id).accepted:,} that it has taken")
        yield from self._until_done(id)
        job = self._job(id)
        self.tell(f"{name} has taken {job.accepted:,}" + (f" and refused {job.refused}" if job.refused else ""))
        yield from self._until_sure(id)
        while not self._all_reported(slug, self._job(id)):
            yield
        done = self._job(id)
        self.tell(f"{name} has reported all: {done.delivered:,} delivered, {done.bounced} came back{_spam(slug)}")

    def _all_reported(self, slug: str, job: JobView) -> bool:
        reports = self.facts.vendors[slug].reports if slug in self.facts.vendors else {}
        same = (reports.get("delivered", 0), reports.get("bounced", 0)) == (job.delivered, job.bounced)
        return (
            same and job.delivered + job.bounced == job.accepted and reports.get("complained", 0) == _complaints(slug)
        )

    def summary(self, facts: Facts) -> str:
        jobs = ((VENDORS[slug].name, facts.jobs[id]) for slug, id in self.jobs.items())
        return ", ".join(f"{name} {job.accepted:,}/{job.size:,}, {job.delivered:,} delivered" for name, job in jobs)

    def panels(self, facts: Facts) -> Sequence[RenderableType]:
        drawn = grid(6, 10, 13, 11, 10, 9, 9, 9, 9)
        heads = ("", "vendor", "campaign", "status", "", "taken", "refused", "delivered", "returned")
        drawn.add_row(*(Text(head, "grey50") for head in heads))
        for slug, id in self.jobs.items():
            if job := facts.jobs.get(id):
                of = VENDORS[slug]
                counts = [f"{count:,}" for count in (job.accepted, job.refused, job.delivered, job.bounced)]
                drawn.add_row(Vendor.Channel(of.channel).label, of.name, of.campaign, word(job), bar(job, 10), *counts)
        return [panel("Letters, SMS and e-mail, with what their vendors report", drawn, 99)]

    def points(self) -> Sequence[Point]:
        whole = all(self._all_reported(slug, self._job(id)) for slug, id in self.jobs.items())
        jobs = [self._job(id) for id in self.jobs.values()]
        counts = f"{sum(job.delivered for job in jobs):,} delivered, {sum(job.bounced for job in jobs)} came back"
        counts = f"{counts}, {sum(map(_complaints, VENDORS))} called it spam"
        kinds = (MessageEvent.Kind.HARD_BOUNCE, MessageEvent.Kind.COMPLAINT)
        gone = MessageEvent.objects.filter(kind__in=kinds).count()
        reasons = (Suppression.Reason.BOUNCED, Suppression.Reason.COMPLAINED)
        suppressed = Suppression.objects.filter(reason__in=reasons).count()
        return [
            (whole, f"Every report of the vendors is in the rows: {counts}", f"REPORTS ARE MISSING: {counts}"),
            (
                suppressed == gone > 0,
                f"Nobody writes again to the {suppressed} who do not exist or called it spam",
                f"{suppressed} OF {gone} ARE SUPPRESSED",
            ),
        ]


def _make(slug: str, vendor: SandboxVendor, to: str) -> None:
    of = VENDORS[slug]
    address = f"{'url' if of.adapter == 'anymail' else 'server'}={vendor.url}"
    more = [f"reports_to={to}"] if slug == TWILIO else []
    options = [f"--name={of.name}", f"--channel={of.channel}", f"--limit={of.limit.typed}", f"--adapter={of.adapter}"]
    run("vendor", "add", slug, *options, "--set", *of.settings, *more, f"timeout={PATIENT}", address)
    with tempfile.NamedTemporaryFile("w+") as file:
        _write(file, json.dumps(of.secret))
        run("credential", "set", slug, "default", f"--secret-file={file.name}")
        if of.signing:
            _write(file, of.signing)
            run("vendor", "receipts", slug, f"--secret-file={file.name}")
    run("entitlement", "add", SPONSOR, slug)


def _write(file: Any, text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


def _complaints(slug: str) -> int:
    return MessageEvent.objects.filter(
        campaign__credential__vendor__slug=slug, kind=MessageEvent.Kind.COMPLAINT
    ).count()


def _spam(slug: str) -> str:
    complaints = _complaints(slug)
    return f", {complaints} called it spam" if complaints else ""
