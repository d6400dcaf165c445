"""The documents' story: the night of document 000, the mailcasters of 003 and the stopped job of 001, side by side."""

from collections.abc import Sequence

from django.db import transaction
from django.utils import timezone
from rich.console import RenderableType

from campaigns.engine import decisions
from campaigns.engine.casting import mailcaster
from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.models import DispatchRun
from campaigns.operations import actions
from campaigns.tasks import send_job
from sandbox.demo import document_panels, setup, verify
from sandbox.demo.processes import Processes
from sandbox.demo.snapshot import Facts
from sandbox.demo.story import Point, Scenario, Story
from vendors.models import Mailcaster, Vendor

NIGHT_SECONDS = 2.0
BREATH = 0.6  # seconds between two casters, so that people can follow
REST = 2.0  # seconds that a stopped job is left alone
STOP_AT = 100  # messages
# The sizes of document 003's children.
CHILDREN = {104: 2000, 105: 2000, 106: 2000, 107: 2000, 108: 200, 109: 200, 110: 2000, 111: 600}


class DocumentStory(Story):
    """The documents' story. `recipients`: those of job 103."""

    limits = setup.LIMITS
    tries = (
        f"list_jobs --vendor {setup.BULK}",
        f"vendor limit {setup.POST} 10/1",
        f"send_campaign sandbox/demo/spring-news.csv --vendor {setup.POST} --sponsor {setup.SPONSOR} "
        "--subject Again --body sandbox/demo/news.txt --at now --wait",
        "audit",
    )

    def __init__(self, recipients: int) -> None:
        super().__init__()
        self._recipients = recipients

    def options(self, slug: str) -> list[str]:
        return setup.sandbox_options(slug)

    def make_vendors(self, processes: Processes) -> None:
        setup.make_vendors({slug: vendor.url for slug, vendor in processes.vendors.items()})

    def load_lists(self) -> None:
        self.jobs = setup.load_lists(self._recipients)

    def summary(self, facts: Facts) -> str:
        return document_panels.summary(facts, self.jobs)

    def panels(self, facts: Facts) -> Sequence[RenderableType]:
        return document_panels.panels(facts, self.jobs)

    def points(self) -> Sequence[Point]:
        children = verify.children()
        sizes = " ".join(map(str, children.values()))
        good, bad = f"Document 003's children 104 to 111: {sizes}", f"NOT DOCUMENT 003'S CHILDREN: {sizes}"
        return [(children == CHILDREN, good, bad)]

    def remark(self) -> str:
        last, theirs = self._recipients, setup.DOCUMENT[103]
        smaller = f"job 103 has {last:,} recipients, not {theirs:,}; " if last < theirs else ""
        window = f"the printer's window is {setup.LIMITS[setup.PRINT].seconds:g} s, not 60 s"
        return f"  Unlike the documents: {smaller}{window}"

    def scenarios(self) -> Sequence[Scenario]:
        return [self._night(), self._mailcasters(), self._post()]

    def _night(self) -> Scenario:
        """Document 000: in the evening all rendered jobs go out, as fast as the printer takes them."""
        limit = setup.LIMITS[setup.PRINT]
        due = setup.open_night(NIGHT_SECONDS)
        self.tell(f"{len(self.jobs.letters)} letters are rendered; the nightly dispatch is due at {due:%H:%M:%S} UTC")
        runs = DispatchRun.objects.filter(vendor__slug=setup.PRINT, finished_at__isnull=False)
        while not (run := runs.first()):
            yield
        self.tell(f"The night has dispatched {run.dispatched} letters; {limit.units} go in any {limit.seconds:g} s")
        yield from self._until_done(*self.jobs.letters)
        yield from self._until_sure(*self.jobs.letters)
        self.tell("All letters are with the printer")

    def _mailcasters(self) -> Scenario:
        """Document 003, step by step, in the order in which its casters wake."""
        self.tell("Document 003: jobs 101, 102 and 103 wait; seven mailcasters wake one by one")
        for name in ("MC1", "MC4", "MC5", "MC6", "MC7", "MC2", "MC3"):
            self._wake(name)
            yield from self._pause(BREATH)
        yield from self._until_done(102)
        self._wake("MC1")
        yield from self._until_done(104)
        self._wake("MC4")
        yield from self._until_done(106)
        self._wake("MC6")
        yield from self._until_done(101, 102)
        self.tell(f"Job 101 is finished: {sum(CHILDREN.values()):,} in {len(CHILDREN)} children")
        Mailcaster.objects.filter(vendor__slug=setup.BULK).update(enabled=True)
        notify_vendors(Vendor.objects.filter(slug=setup.BULK).values_list("pk", flat=True))
        self.tell("Now the casters stay awake: the workers cut and send job 103 by themselves")
        yield from self._until_done(103)
        yield from self._until_sure(*setup.DOCUMENT)
        self.tell(f"Job 103 is finished, in {len(self.facts.children(103))} children")

    def _wake(self, name: str) -> None:
        """Let the caster claim one job by a worker's rules, then disable it. A worker sends the job."""
        casters = Mailcaster.objects.filter(vendor__slug=setup.BULK, name=name)
        with transaction.atomic():  # workers must not see it enabled: one might be faster than the document
            casters.update(enabled=True)
            claimed = mailcaster.claim_next_job(casters.get().pk, timezone.now())
            casters.update(enabled=False)
        if claimed is None:
            self.tell(f"{name} wakes and finds nothing")
            return
        queue = casters.select_related("vendor").get().vendor.queue
        send_job.si(claimed.job_id, claimed.fence).set(queue=queue).apply_async(ignore_result=True)
        cut = f" and cuts job {claimed.job_id} from {claimed.parent_id}" if claimed.parent_id else ""
        self.tell(f"{name} wakes{cut or f' and takes job {claimed.job_id}'}")

    def _post(self) -> Scenario:
        """Document 001: a job is stopped midway and sends the rest later; refusals differ from doubts."""
        members, spring = self.jobs.members, self.jobs.spring
        setup.open_post_office()
        while self._job(members).answered < STOP_AT and not self._job(members).done:
            yield
        actions.stop_jobs([members], by="demo")
        while not self._job(members).done:
            yield
        sent = self._job(members).answered
        self.tell(f"Members (job {members}) is stopped after {sent:,} of {self._job(members).size:,}")
        yield from self._pause(REST)
        idle = self._job(members).answered == sent
        self.tell(f"{'Nothing moved' if idle else 'Late answers came in'} meanwhile; Members goes on")
        while actions.retry_jobs([members])[0].verdict is decisions.Verdict.BUSY:
            yield
        yield from self._until_done(members, spring)
        refused, doubts = self._job(spring).refused, self._job(spring).in_doubt
        self.tell(f"Spring news: {refused} bounced; {doubts} answers were lost, so the vendor is asked again")
        yield from self._until_sure(members, spring)
        self.tell("No e-mail is in doubt any more")
