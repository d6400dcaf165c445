"""Where a pair begins: rows in the middle of a story, made once, and put back by one statement for each pair."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.db import connection
from django.utils import timezone

from campaigns.engine.claiming.claims import Lease, OpenClaim
from campaigns.engine.merging import ACCEPTED
from campaigns.models import AnswerBatch, Claim, Job, Message, Session
from campaigns.models.states import Status as S
from sandbox.vendor.books import BookEntry
from tests import factories
from tests.campaigns.rows import recount
from vendors import history
from vendors.models import Usage, Vendor

# Rows that verbs write. Limits come first: taking one away is an edit of the vendor, which follows.
TABLES = (
    "vendors_ratelimit", "vendors_vendor", "vendors_credential", "vendors_mailcaster", "vendors_usage",
    "vendors_minute", "vendors_causecount",
    "campaigns_entitlement", "campaigns_campaign", "campaigns_message", "campaigns_claim",
    "campaigns_answerbatch", "campaigns_job", "campaigns_route", "campaigns_routeentry", "campaigns_routemove",
    "campaigns_session", "campaigns_sponsorturn", "campaigns_classturn", "campaigns_classcredit",
    "campaigns_resolution", "campaigns_costentry", "django_admin_log",
)  # fmt: skip
AGO = timedelta(minutes=5)  # of the last thing that happened before the start
CALLED = timedelta(minutes=6)  # of the calls before the start
FENCE = 2


@dataclass
class State:
    """One start. By their ids: called: the message whose answer is still to come; waits: the first that was never
    claimed; doubt: the one in doubt. open_claim: of that call.

    letters: what the vendor has been called for, wherever; places: by number, where it was called for those that were
    not called where all began (vendors/destinations.py). references: as they were at the start. reported: acceptances
    that a verb has reported.
    """

    vendor_id: int
    credential_id: int
    casters: dict[str, int]
    top: int
    leaf: int
    first: int
    end: int
    called: int = 0
    waits: int = 0
    doubt: int = 0
    open_claim: Any = None
    letters: list[BookEntry] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    references: dict[int, tuple[str, int]] = field(default_factory=dict)
    reported: set[int] = field(default_factory=set)

    @property
    def lease(self) -> Lease:
        return Lease(self.leaf, FENCE)

    @property
    def lost(self) -> Lease:
        """The lease of the former sender, lost in the call now in doubt."""
        return Lease(self.leaf, FENCE - 1)

    def reference(self, message_id: int) -> str:
        """The message's reference at the start."""
        uuid, resend_no = self.references[message_id]
        return f"{uuid}-{resend_no}"

    def call(self, reference: str, verdict: Any = "accepted", place: int = 0) -> str:
        """Call the vendor now and return its id of the letter. A letter already taken there gets no second number."""
        known = self.has_at(place, reference)
        seq = len(self.letters) + 1
        if known and verdict == "accepted":
            verdict = "repeat"
        id = known or f"w-{seq}"
        if place:
            self.places[seq] = place
        self.letters.append(
            BookEntry(seq, seq, timezone.now().timestamp(), reference, reference, "", verdict, None, "", id)
        )
        return id

    def has_at(self, place: int, reference: str) -> str | None:
        """The same, of what it accepted there."""
        here = [one for one in self.letters if self.places.get(one.seq, 0) == place]
        return next((one.id for one in here if one.reference == reference and one.verdict == "accepted"), None)

    def has(self, reference: str) -> str | None:
        """The vendor's id of the letter that it accepted under this reference."""
        return next((one.id for one in self.letters if one.reference == reference and one.verdict == "accepted"), None)


# Else answers that a start leaves to be merged look forgotten, once the process has run for some minutes.
FRESH = "UPDATE campaigns_answerbatch SET at = clock_timestamp()"


class Snapshots:
    """Snapshots of each start's rows: `restore` puts them back by one statement."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], State] = {}
        history.record_changes(history.Actor("ann"), Job, [])  # makes the log's user
        connection.cursor().execute("CREATE SCHEMA IF NOT EXISTS starts")

    def restore(self, name: str, fate: str) -> State:
        """fate: what came of the call whose answer is still to come: accepted, refused or none."""
        known = self._kept.get((name, fate))
        if known is None:
            self._empty()
            known = self._kept[name, fate] = _finished(STARTS[name](fate))
            for table in TABLES:
                self._run(f"CREATE TABLE starts.{name}_{fate}_{table} AS SELECT * FROM {table}")
        else:
            steps = (f"INSERT INTO {table} SELECT * FROM starts.{name}_{fate}_{table}" for table in TABLES)
            self._run("BEGIN", *self._deletes(), *steps, FRESH, "COMMIT")
        return replace(known, letters=list(known.letters), places={}, reported=set(known.reported))

    def drop(self) -> None:
        self._empty()
        self._run("DROP SCHEMA starts CASCADE")

    def vacuum(self) -> None:
        """Thousands of pairs leave dead rows, which every look would walk by."""
        self._run(*(f"VACUUM {table}" for table in TABLES), apart=True)

    def _empty(self) -> None:
        self._run("BEGIN", *self._deletes(), "COMMIT")

    @staticmethod
    def _deletes() -> list[str]:
        return [f"DELETE FROM {table}" for table in TABLES]

    @staticmethod
    def _run(*statements: str, apart: bool = False) -> None:
        with connection.cursor() as cursor:
            for statement in statements if apart else ["; ".join(statements)]:
                cursor.execute(statement)


def _finished(state: State) -> State:
    rows = Message.objects.values_list("id", "uuid", "resend_no")
    state.references = {id: (str(uuid), resend_no) for id, uuid, resend_no in rows}
    for message in Message.objects.filter(message_id__isnull=False):
        state.letters.append(_entry(state, message.pk, "accepted", message.message_id or ""))
    called = Message.objects.filter(sent_at__isnull=False).count() + sum(map(len, _claimed()))
    if called:
        at = timezone.now() - CALLED + timedelta(seconds=30)
        facts = {"vendor_id": state.vendor_id, "credential_id": state.credential_id}
        Usage.objects.create(at=at, until=at, units=called, **facts)
    for one in Message.objects.filter(error_code="bounce"):
        state.letters.append(_entry(state, one.pk, "refused"))
    return state


def _claimed() -> list[list[int]]:
    return list(Claim.objects.values_list("messages", flat=True))


def _entry(state: State, id: int, verdict: Any, vendor_id: str = "") -> BookEntry:
    seq = len(state.letters) + 1
    reference = state.reference(id)
    wall = (timezone.now() - CALLED).timestamp()
    return BookEntry(seq, seq, wall, reference, reference, "", verdict, None, "", vendor_id or f"v-{id}")


# -- rows


def _shape(shape: str, id: int) -> dict[str, Any]:
    at = timezone.now() - CALLED
    return {
        "accepted": {"sent_at": at, "delivered_at": at, "message_id": f"v-{id}"},
        "refused": {"sent_at": at, "delivered_at": at, "error_code": "bounce"},
        "doubt": {"sent_at": at, "in_doubt_at": at, "error_sub_type": "read timeout"},
        "expired": {"error_code": "expired"},
    }[shape]


def _campaign(recipients: int) -> Any:
    login = factories.credential(factories.vendor(small_audience_threshold=2, casters=["large-priority"] * 3))
    return factories.campaign(recipients, of=login)


def _begun(top: Job, leaf: Job, shapes: list[str], fate: str) -> State:
    casters = list(top.vendor.mailcasters.order_by("pk").values_list("pk", flat=True))
    names = dict(zip(("halted", "other", "later"), casters, strict=True))
    state = State(top.vendor_id, top.credential_id, names, top.pk, leaf.pk, leaf.first_message, leaf.end)
    ids = {shape: leaf.first_message + n for n, shape in reversed(list(enumerate(shapes)))}
    state.called, state.doubt, state.waits = (ids.get(shape, 0) for shape in ("called", "doubt", "waits"))
    rows = Message.objects.values_list("id", "uuid", "resend_no")
    state.references = {id: (str(uuid), resend_no) for id, uuid, resend_no in rows}
    known = Claim.objects.filter(messages=[state.called or state.doubt]).first()
    state.open_claim = OpenClaim(known.pk, known.at, 1) if known else OpenClaim(0, timezone.now() - CALLED, 1)
    if "told" in ids:
        state.letters.append(_entry(state, ids["told"], "accepted"))
        state.reported.add(ids["told"])
    for id in (state.called, state.doubt):  # the vendor took the letter, or refused it, or was never called
        if id and fate != "none":
            state.letters.append(_entry(state, id, fate, f"v-{id}"))
    return state


def _fill(leaf: Job, shapes: list[str]) -> None:
    """Its messages in these shapes; its counters follow."""
    at = timezone.now() - AGO
    for n, shape in enumerate(shapes):
        id = leaf.first_message + n
        called = timezone.now() - CALLED
        if shape in ("called", "told") or (shape == "doubt" and leaf.status != S.LOGGED):
            fence = FENCE - 1 if shape == "doubt" else FENCE
            claim = Claim.objects.create(job=leaf, fence=fence, at=called, messages=[id])
            if shape == "told":
                AnswerBatch.objects.create(
                    job=leaf, claim=claim, fence=FENCE, called_at=called, last=True, messages=[id], kinds=ACCEPTED,
                    codes=[f"v-{id}"],
                )  # fmt: skip
        if shape not in ("called", "told", "waits"):
            facts = _shape(shape, id)
            if shape == "doubt":
                facts |= {"settle_at": at, "sent_at": called}
            Message.objects.filter(id=id).update(dequeued_at=at, **facts)
    recount(leaf)


HELD = (S.ENQUEUED, S.SENDING, S.SENT, S.STOPPED)
ENDED = (S.LOGGED,)


def _leaf(campaign: Any, status: S, shapes: list[str], **fields: Any) -> Job:
    at = timezone.now() - AGO
    fields = {
        "first_message": campaign.first_message, "size": len(shapes), "fence": FENCE, "dispatched_at": at,
        "created_at": at, **fields,
    }  # fmt: skip
    if status in HELD:
        fields |= {"heartbeat_at": at, "started_at": at}
    if status in ENDED:
        fields |= {"finished_at": at}
    made = Job.objects.create(
        campaign=campaign, sponsor_id=campaign.sponsor_id, credential=campaign.credential,
        vendor=campaign.credential.vendor, status=S.RENDERED, **fields,
    )  # fmt: skip
    made.status = status
    made.save()
    _fill(made, shapes)
    if status in (S.ENQUEUED, S.SENDING):
        caster = Vendor.objects.get(pk=made.vendor_id).mailcasters.order_by("-pk")[0]
        Job.objects.filter(pk=made.pk).update(mailcaster=caster)
    return Job.objects.get(pk=made.pk)


def _session(job: Job, **fields: Any) -> None:
    Session.objects.create(
        id=uuid4(), sponsor_id=job.sponsor_id, job=job, key_prefix="k", idempotency_key=factories.unique("key"),
        fingerprint=b"", answer="{}", **fields,
    )  # fmt: skip


def _alone(status: S, shapes: list[str], fate: str, **fields: Any) -> State:
    """Makes a leaf without a parent."""
    job = _leaf(_campaign(len(shapes)), status, shapes, **fields)
    _session(job)
    return _begun(job, job, shapes, fate)


def _family(
    parent: S, status: S, shapes: list[str], fate: str, *, remaining: int = 0, sibling: bool = True, **fields: Any
) -> State:
    """Create a parent with a child already logged, a child in this state, and a rest not yet cut."""
    at = timezone.now() - AGO
    before = 1 if sibling else 0
    campaign = _campaign(before + len(shapes) + remaining)
    marks = _by_ann() if parent == S.P_STOPPED else {}
    ended = {"finished_at": at} if parent == S.P_FINISHED else {}
    top = factories.job(campaign, parent, remaining=remaining, started_at=at, dispatched_at=at, **marks, **ended)
    if sibling:
        _leaf(campaign, S.LOGGED, ["accepted"], parent=top)
    first = campaign.first_message + before
    leaf = _leaf(campaign, status, shapes, parent=top, first_message=first, **fields)
    if parent == S.P_FINISHED:
        children = Job.objects.filter(parent=top)
        counters = ("accepted", "refused", "in_doubt", "expired")
        Job.objects.filter(pk=top.pk).update(**{c: sum(getattr(k, c) for k in children) for c in counters})
    _session(top, **({"finished_at": at, "in_doubt": shapes.count("doubt")} if parent == S.P_FINISHED else {}))
    return _begun(top, leaf, shapes, fate)


ALL_ENDS = ["accepted", "refused", "doubt", "doubt", "expired"]


def _by_ann() -> dict[str, Any]:
    return {"stopped_at": timezone.now() - AGO, "stopped_by": "ann"}


STARTS: dict[str, Callable[[str], State]] = {
    "ready": lambda fate: _alone(S.READY, ["waits"], fate, fence=0, dispatched_at=None),
    "queued": lambda fate: _queued(),
    "assigning": lambda fate: _family(
        S.P_ASSIGNING, S.SENDING, ["accepted", "called", "told", "waits"], fate, remaining=2
    ),
    "dispatched": lambda fate: _family(S.P_ASSIGNED, S.DISPATCHED, ["waits", "waits"], fate),
    "enqueued": lambda fate: _family(S.P_ASSIGNED, S.ENQUEUED, ["waits", "waits"], fate),
    "sending": lambda fate: _family(S.P_ASSIGNED, S.SENDING, ["accepted", "called", "told", "waits"], fate),
    "drained": lambda fate: _alone(S.SENDING, ["told", "refused", "doubt"], fate),
    "sent": lambda fate: _family(S.P_ASSIGNED, S.SENT, ["accepted", "doubt", "refused"], fate),
    "proved": lambda fate: _family(S.P_ASSIGNED, S.SENT, ["accepted", "waits"], fate),
    "stopped": lambda fate: _family(
        S.P_STOPPED, S.STOPPED, ["accepted", "called", "doubt", "told", "waits"], fate, **_by_ann()
    ),
    "logged": lambda fate: _alone(S.LOGGED, [*ALL_ENDS, "waits"], fate, **_by_ann()),
    "finished": lambda fate: _family(S.P_FINISHED, S.LOGGED, ALL_ENDS, fate),
    "halfway": lambda fate: _family(S.P_STOPPED, S.LOGGED, [*ALL_ENDS, "waits"], fate, remaining=2, **_by_ann()),
}


def _queued() -> State:
    campaign = _campaign(3)
    top = factories.job(campaign, S.P_QUEUED, dispatched_at=timezone.now() - AGO)
    _session(top)
    return _begun(top, top, [], "none")
