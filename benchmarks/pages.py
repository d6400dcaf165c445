"""Server times of every page and poll with a million jobs and ten million messages.

`python -m benchmarks.pages [jobs] [messages] [requests] [rounds]`. Whole requests go through Django's handler with all
middleware, including the log-in, without a socket; PostgreSQL and Redis are real and its own. BENCH_KEEP=FOLDER keeps
the database in that folder for the next measurement.

Each page is requested once to warm up, then this many times in a row. Of several rounds a page's fastest counts, since
other load makes a page slower but never faster. A cloud machine may run at half speed for seconds; the loop before each
page shows that.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.claims import PAGES
from benchmarks.find import processor
from benchmarks.operators_rows import seed
from benchmarks.results import keep
from benchmarks.stage import console, kept_stage, numbers, stage

PAGE, POLL = 100, 30  # milliseconds, the promised limits
MANY = 60  # sponsors of one owner
SLOWEST = 20  # shown on the page
LOOP = "a loop of 100,000 additions in Python"
Query = dict[str, str]
WHO = ("everything", "owner of one", "owner of many")


class PageTimes(NamedTuple):
    """Milliseconds of each request, and mean processor milliseconds of this process and of the database's.

    For one request: statements, bytes, the slowest statement.
    """

    each: list[float]
    own: float
    database: float
    statements: int
    size: int
    slowest: float
    statement: str

    @property
    def middle(self) -> float:
        return statistics.median(self.each)


class Statements:
    """Counts statements and remembers the slowest."""

    def __init__(self) -> None:
        self.count, self.slowest, self.text = 0, 0.0, ""

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            took = 1000 * (time.perf_counter() - began)
            self.count += 1
            if took > self.slowest:
                self.slowest, self.text = took, " ".join(sql.split())


def loop() -> float:
    """Return processor milliseconds of 100,000 additions, a measure of the machine's current speed."""
    began, sum_ = time.process_time(), 0
    for number in range(100_000):
        sum_ += number
    return 1000 * (time.process_time() - began)


def ask(client: Any, address: str, query: Query, polled: bool, posted: bool, requests: int) -> PageTimes:
    from django.db import connection

    headers = {"HX-Request": "true"} if polled else {}
    times: list[float] = []
    own = database = 0.0
    seen, size, backend = Statements(), 0, connection.connection.info.backend_pid
    for number in range(requests + 1):
        if number == 1:
            own, database = time.process_time(), processor(backend)
        seen = Statements()
        with connection.execute_wrapper(seen):
            began = time.perf_counter()
            answer = (client.post if posted else client.get)(address, query, headers=headers)
            size = len(answer.content)
            took = 1000 * (time.perf_counter() - began)
        if answer.status_code not in (200, 204, 286):
            raise LookupError(f"{address} is answered {answer.status_code}")
        if number:
            times.append(took)
        if number and sum(times) > 5000:  # a page this slow needs no more rounds
            break
    own, database = (1000 * (now - then) / len(times) for now, then in
        ((time.process_time(), own), (processor(backend), database)))  # fmt: skip
    return PageTimes(times, own, database, seen.count, size, seen.slowest, seen.text)


def operators_pages() -> Iterator[tuple[str, str, Query]]:
    """Yield (name, address, query); a poll's name ends with "poll"."""
    from campaigns.models import Campaign, Job, Sponsor
    from vendors.models import Vendor

    jobs, messages = "/admin/campaigns/job/", "/admin/campaigns/message/"
    yield "operations", "/admin/", {}
    for name in ("pulse", "halt"):
        yield f"operations: {name} poll", f"/admin/operations/{name}/", {}
    yield "operations: throughput of an hour, poll", "/admin/operations/throughput/", {"minutes": "60"}
    yield "operations: throughput of a day", "/admin/operations/throughput/", {"minutes": "1440"}
    yield "operations: audit", "/admin/operations/audit/", {}
    vendor = Vendor.objects.earliest("pk")
    yield "vendor", f"/admin/vendors/vendor/{vendor.pk}/change/", {}
    yield "vendor: poll", f"/admin/operations/vendors/{vendor.pk}/", {}
    yield "vendor: forecast", f"/admin/operations/vendors/{vendor.pk}/forecast/", {"limit": "5/60"}
    for status in ("", "Rendered", "Dispatched", "Sending", "Failed", "Needs attention", "Sent", "Stopped"):
        yield f"jobs: {status or 'All'}", jobs, {"status": status}
        yield f"jobs: {status or 'All'}, any date, poll", jobs, {"status": status, "date": "any"}
    sponsor = str(Sponsor.objects.earliest("pk").pk)
    yield "jobs: of a sponsor", jobs, {"sponsor": sponsor, "date": "any"}
    yield "jobs: search", jobs, {"q": "Campaign 4"}
    yield "jobs: search, poll", jobs, {"q": "Campaign 4"}
    yield "jobs: last page", jobs, {"p": "20", "date": "any"}
    large = Campaign.objects.get(name="Large 5")
    of = {
        "small": Job.objects.filter(status="LOGGED", parent=None).earliest("pk"),
        "waiting": Job.objects.filter(status="DISPATCHED").latest("pk"),
        "large": large.jobs.get(),
        "ended parent": Job.objects.get(status="P_FINISHED"),
        "sending parent": Job.objects.get(status="P_ASSIGNING"),
    }
    for name, job in of.items():
        yield f"job, {name}", f"{jobs}{job.pk}/change/", {}
        yield f"job, {name}: poll", f"{jobs}{job.pk}/live/", {}
        yield f"job, {name}: messages", messages, {"job": str(job.pk)}
    parent = of["sending parent"]
    yield "job: parts, poll", f"{jobs}{parent.pk}/parts/", {}
    yield "job: reasons", f"{jobs}{of['large'].pk}/change/", {"reasons": "1"}
    yield "job: history", f"{jobs}{of['small'].pk}/history/", {}
    for state in ("Sent", "Delivered", "Bounced", "Failed", "Needs attention"):
        yield f"messages of the largest: {state}", messages, {"job": str(parent.pk), "state": state}
    yield "messages", messages, {}
    yield "message", f"{messages}{large.first_message}/change/", {}
    yield "needs attention", "/admin/campaigns/message/attention/", {}
    yield "campaigns", "/admin/campaigns/campaign/", {}
    yield "campaigns: search", "/admin/campaigns/campaign/", {"q": "campaign 4"}
    yield "campaign", f"/admin/campaigns/campaign/{large.pk}/change/", {}
    yield from every_table()
    yield "operations: recover", "/admin/operations/recover/", {}


def every_table() -> Iterator[tuple[str, str, Query]]:
    """Yield for each table in the admin its list, a row, and the row's history."""
    from django.contrib import admin

    for model in admin.site._registry:
        name, of = model._meta.model_name, f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        yield f"list: {name}", of, {}
        row = model._default_manager.order_by("pk").first()
        if row is not None:
            yield f"row: {name}", f"{of}{row.pk}/change/", {}
            yield f"history: {name}", f"{of}{row.pk}/history/", {}


def owners_pages(user: Any) -> Iterator[tuple[str, str, Query]]:  # noqa: C901
    from campaigns.models import (
        ApiKey,
        Approval,
        Campaign,
        Draft,
        Identity,
        Sponsor,
        Suppression,
        Template,
        Topic,
        Webhook,
    )
    from campaigns.models.campaigns import sponsors_of

    mine = sponsors_of(user)

    def of(model: Any, **which: Any) -> Any:
        return model.objects.of_sponsors(mine).filter(**which).latest("pk").pk

    for asked in ({}, {"q": "large"}, {"q": "campaign 4"}, {"sponsor": str(of(Sponsor))}):
        name = ", ".join(f"{key}={value}" for key, value in asked.items())
        yield f"home {name}".strip(), "/", asked
        yield f"home {name}: poll", "/campaigns/live/", asked
    for state in ("going", "night", "paused", "attention", "stopped"):
        yield f"home: {state}", "/", {"state": state}
        yield f"home: {state}, poll", "/campaigns/live/", {"state": state}
    yield "home: older", "/", {"before": "500000"}
    campaigns = {"small": of(Campaign, name__startswith="Campaign", jobs__status="LOGGED")}
    campaigns["waiting"] = of(Campaign, jobs__status="DISPATCHED")
    for name in ("Large 5", "Large 30", "Largest"):
        found = Campaign.objects.of_sponsors(mine).filter(name=name).first()
        if found:
            campaigns[name] = found.pk
    for name, pk in campaigns.items():
        yield f"campaign, {name}", f"/campaigns/{pk}/", {}
        yield f"campaign, {name}: poll", f"/campaigns/{pk}/live/", {}
        yield f"campaign, {name}: recipients", f"/campaigns/{pk}/recipients/", {}
        yield f"campaign, {name}: bounced", f"/campaigns/{pk}/recipients/", {"state": "bounced"}
        yield f"campaign, {name}: failed", f"/campaigns/{pk}/recipients/", {"state": "failed"}
        yield f"campaign, {name}: failures", f"/campaigns/{pk}/failures/", {}
        yield f"campaign, {name}: parts", f"/campaigns/{pk}/parts/", {}
        yield f"campaign, {name}: report", f"/campaigns/{pk}/report/", {}
        for verb in ("pause", "stop", "retry"):
            yield f"campaign, {name}: {verb}, asked", f"/campaigns/{pk}/{verb}/", {}
    for name, asked in {"address": "person7919@example.org", "many letters": "again4@example.org"}.items():
        yield f"find: {name}, post", "/find/", {"what": asked}
    yield "find: nobody, post", "/find/", {"what": "nobody@example.org"}
    yield "find: number", "/find/", {"message": "5000000"}
    yield "approvals", "/approvals/", {}
    undecided = Approval.objects.get(pk=of(Approval, verdict=None, campaign__jobs__finished_at=None))
    yield "approval", f"/campaigns/{undecided.campaign_id}/approval/", {}
    yield "approval: cost", f"/campaigns/{undecided.campaign_id}/approval/cost/", {}
    template, webhook = of(Template), of(Webhook)
    if mine is None or Sponsor.objects.earliest("pk").users.filter(pk=user.pk).exists():
        template, webhook = Template.objects.earliest("pk").pk, Webhook.objects.earliest("pk").pk
    identity, topic, key = of(Identity), of(Topic), of(ApiKey)
    yield "sender", f"/senders/{identity}/", {}
    yield "sender: edit", f"/senders/{identity}/edit/", {}
    yield "topic: rename", f"/senders/topics/{topic}/rename/", {}
    yield "topic: remove", f"/senders/topics/{topic}/remove/", {}
    yield "key: make", "/keys/make/", {}
    yield "key: extend", f"/keys/{key}/extend/", {}
    yield "key: revoke", f"/keys/{key}/revoke/", {}
    yield "suppressions: import", "/suppressions/import/", {}
    yield "template: version", f"/templates/{template}/versions/1/", {}
    yield "webhook: remove", f"/webhooks/{webhook}/remove/", {}
    yield "templates", "/templates/", {}
    yield "template", f"/templates/{template}/", {}
    yield "template: differences", f"/templates/{template}/differences/", {}
    yield "template: edit", f"/templates/{template}/edit/", {}
    yield "template: new", "/templates/new/", {}
    yield "webhooks", "/webhooks/", {}
    yield "webhook", f"/webhooks/{webhook}/", {}
    yield "webhook: add", "/webhooks/add/", {}
    yield "keys", "/keys/", {}
    yield "suppressions", "/suppressions/", {}
    yield "suppressions: look up, post", "/suppressions/", {"address": "person5@example.org"}
    yield "suppressions: add", "/suppressions/add/", {}
    yield "suppressions: export", "/suppressions/export/", {}
    if user.is_superuser:
        yield "suppression: lift", f"/suppressions/{of(Suppression)}/lift/", {}
    yield "senders", "/senders/", {}
    yield "topics", "/senders/topics/", {}
    draft = of(Draft)
    yield "drafts", "/drafts/", {}
    yield "wizard: new", "/campaigns/new/", {}
    for step in ("message", "recipients", "check"):
        yield f"wizard: {step}", f"/drafts/{draft}/{step}/", {}
    yield "wizard: progress, poll", f"/drafts/{draft}/progress/", {}


def not_asked(addresses: Iterable[str]) -> list[str]:
    """Return the names of pages without an address here: those that only take a POST, files, and the rest."""
    from django.urls import URLPattern, get_resolver, resolve

    asked = {resolve(address).view_name for address in addresses}

    def names(patterns: Iterable[Any], within: str = "") -> Iterator[str]:
        for one in patterns:
            if not isinstance(one, URLPattern):
                yield from names(one.url_patterns, f"{within}{one.namespace}:" if one.namespace else within)
            elif one.name:
                yield f"{within}{one.name}"

    return sorted({name for name in names(get_resolver().url_patterns) if name not in asked})


def users() -> dict[str, Any]:
    """Return a user who sees everything, and campaign owners of one sponsor and of many."""
    from django.contrib.auth.models import Group, User

    from campaigns.models import Sponsor

    every = User.objects.get_or_create(username="bench", defaults={"is_staff": True, "is_superuser": True})[0]
    found = {"everything": every}
    for name, count in (("owner of one", 1), ("owner of many", MANY)):
        user, _made = User.objects.get_or_create(username=name.replace(" ", "-"))
        user.groups.set(Group.objects.filter(name__in=["campaign owner", "integrator", "campaign approver"]))
        user.sponsors.set(Sponsor.objects.order_by("pk")[:count])
        found[name] = User.objects.get(pk=user.pk)
    return found


def looks() -> Iterator[tuple[str, Any, str, str, Query]]:
    """Yield (who, client, name, address, query) of everything."""
    from django.test import Client

    for who, user in users().items():
        client = Client(SERVER_NAME="localhost")
        client.force_login(user)
        pages = [*operators_pages(), *owners_pages(user)] if user.is_superuser else owners_pages(user)
        for name, address, asked in pages:
            yield who, client, name, address, asked


def main(jobs: int, messages: int, requests: int, rounds: int) -> None:
    folder = os.environ.get("BENCH_KEEP")
    on: AbstractContextManager[None] = kept_stage(Path(folder)) if folder else stage()
    with on:
        import_module("mailhub.wsgi")  # like the web server: its files and its garbage collection
        from campaigns.models import Job

        if not Job.objects.exists():
            began = time.perf_counter()
            seed(jobs, messages, console.print)
            console.print(f"seeded in {time.perf_counter() - began:.0f} s")
        size = f"{jobs:,} jobs, {messages:,} messages"
        loops: list[float] = []
        measured: dict[str, PageTimes] = {}
        for _ in range(rounds):
            for name, one in times(requests, loops):
                measured[name] = min(one, measured.get(name, one), key=lambda seen: seen.middle)
        late = [name for name, one in measured.items() if one.middle > (POLL if name.endswith("poll") else PAGE)]
        console.print(f"{len(measured)} pages and polls; {len(late)} later than {PAGE} ms (polls {POLL} ms):")
        for name in late:
            one = measured[name]
            console.print(f"{name}: {one.middle:.0f} ms, {one.own:.1f}+{one.database:.1f}", highlight=False)
        if loops:
            low, middle, high = min(loops), statistics.median(loops), max(loops)
            console.print(f"{LOOP} before each of them: {middle:.1f} ms, {low:.1f} to {high:.1f}", highlight=False)
        if "BENCH_ONLY" not in os.environ:
            unasked = not_asked({address for _who, _client, _name, address, _asked in looks()})
            console.print("not asked for:", ", ".join(unasked), soft_wrap=True)
        kept(size, measured, late, loops)


def kept(size: str, measured: dict[str, PageTimes], late: list[str], loops: list[float]) -> None:
    """Store the rows for the page of benchmarks: every poll, and the slowest pages."""
    slowest = sorted((name for name in measured if not name.endswith("poll")), key=lambda name: -measured[name].middle)
    shown = [name for name in measured if name.endswith("poll") or name in slowest[:SLOWEST]]
    late_polls = [name for name in late if name.endswith("poll")]
    counts = {
        "polls": len(measured) - len(slowest), f"polls later than {POLL} ms": len(late_polls),
        "pages": len(slowest), f"pages later than {PAGE} ms": len(late) - len(late_polls),
    }  # fmt: skip
    keep(f"{PAGES}: {size}", "", {name: [float(count)] for name, count in counts.items()})
    rows = {name: measured[name].each for name in shown}
    keep(f"Server time of every poll and of the {SLOWEST} slowest pages: {size}", "ms", rows)
    busy = {LOOP: loops} | {name: [measured[name].own + measured[name].database] for name in shown}
    keep(f"Processor time of them in Python and in the database: {size}", "ms", busy)


def times(requests: int, loops: list[float]) -> Iterator[tuple[str, PageTimes]]:
    """Yield the times of each page, printed once measured. loops: receives the loop's time before each page."""
    only = os.environ.get("BENCH_ONLY", "")
    console.print("ms, worst, processor: own + database, statements, KB, slowest statement")
    for who, client, name, address, asked in looks():
        if only not in f"{who}: {name}":
            continue
        polled, posted = name.endswith("poll"), name.endswith("post")
        loops.append(loop())
        try:
            seen = ask(client, address, asked, polled, posted, requests)
        except LookupError as why:  # the page shows this user nothing, or nothing by GET
            console.print(f"{who}: {name}: {why}", highlight=False, soft_wrap=True)
            continue
        yield f"{who}: {name}", seen
        over = seen.middle > (POLL if polled else PAGE)
        console.print(
            f"{who + ': ' + name:58}{seen.middle:6.0f}{max(seen.each):6.0f}{seen.own:6.1f}+{seen.database:5.1f}"
            f"{seen.statements:4}{seen.size / 1024:5.0f}{seen.slowest:6.0f} {seen.statement[:60] if over else ''}",
            highlight=False, soft_wrap=True,
        )  # fmt: skip


if __name__ == "__main__":
    main(*numbers(1_000_000, 10_000_000, 20, 1))
