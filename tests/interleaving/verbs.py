"""The actions of users, senders, casters, sweeps and vendors on rows, each through its real interface."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone

from campaigns.engine import delivery_reports, ground_truth
from campaigns.engine.casting import mailcaster
from campaigns.engine.claiming import claims, contexts, leases
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.doubts import queries
from campaigns.engine.finishing import finalizer
from campaigns.engine.routes import moving
from campaigns.engine.sending import recording, sender
from campaigns.integrations.results import writer
from campaigns.models import Campaign, Claim, Job, Route, RouteEntry, Session
from campaigns.operations import actions, pausing
from tests import calling
from tests.interleaving.starts import State
from tests.interleaving.verb_thread import VerbThread
from vendors.adapters.reports import Reported
from vendors.history import Actor
from vendors.models import Credential, RateLimit, Vendor
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

NEVER = timedelta()
ANN = Actor("ann")
ANY = frozenset({"accepted", "refused", "none"})
TAKEN, REFUSED, NOT_MADE = (frozenset({fate}) for fate in ("accepted", "refused", "none"))


@dataclass(frozen=True, slots=True)
class Verb:
    """fates: what can have come of the open call, for this to happen. of: the part of a sender that does it.

    frees: something may be sent again after it. stops: the job that sends no more after it.
    """

    name: str
    act: Callable[[State, VerbThread], Any]
    starts: frozenset[str]
    fates: frozenset[str] = ANY
    of: str = ""
    frees: bool = False
    stops: Callable[[State], int] | None = None


VERBS: dict[str, Verb] = {}


def meet(one: Verb, two: Verb, start: str) -> bool:
    """Return True if both can overlap. A sender claims and lets go one after the other, and lets go at the end."""
    same_sender = {one.of, two.of} in ({"claims"}, {"lets go"}, {"claims", "lets go"}, {"tells", "lets go"})
    return start in one.starts & two.starts and not same_sender and bool(one.fates & two.fates)


def verb(
    starts: str, **facts: Any
) -> Callable[[Callable[[State, VerbThread], Any]], Callable[[State, VerbThread], Any]]:
    def register(act: Callable[[State, VerbThread], Any]) -> Callable[[State, VerbThread], Any]:
        name = act.__name__.replace("_", " ").strip()
        VERBS[name] = Verb(name, act, frozenset(starts.split()), **facts)
        return act

    return register


CHILD = "assigning dispatched enqueued sending sent proved stopped finished halfway"
HELD = "assigning sending drained"
ENDED = "logged finished halfway"


# -- what goes out


@verb("ready " + ENDED)
def dispatch(state: State, thread: VerbThread) -> Any:
    return dispatcher.dispatch_ready()


@verb("ready queued assigning dispatched halfway finished")
def cast(state: State, thread: VerbThread) -> Any:
    """A caster takes the leaf, or cuts a child."""
    return mailcaster.claim_next_job(state.casters[thread.name], timezone.now())


@verb("enqueued", of="claims")
def start(state: State, thread: VerbThread) -> Any:
    return claims.start_job(state.leaf, state.lease.fence)


@verb("assigning sending stopped", of="claims")
def claim(state: State, thread: VerbThread) -> Any:
    """The sender goes on after what it has claimed. And the calls are made: the vendor takes the letters."""
    return claim_all(state, state.lease, thread, cursor=state.waits)


def claim_all(state: State, lease: claims.Lease, thread: Any, cursor: int = 0) -> claims.Claimed:
    job = Job.objects.get(pk=lease.job_id)
    begin = max(cursor, job.first_message)
    claimed: claims.Claimed = thread.run(lambda rows: calling.claim(rows, job, lease, most=10, cursor=begin))
    if claimed.claim:
        place = Claim.objects.values_list("destination", flat=True).get(pk=claimed.claim.id) or 0
        for message in claimed.messages:
            state.call(message.reference, place=place)
    return claimed


@verb(HELD)
def heartbeat(state: State, thread: VerbThread) -> Any:
    return thread.run(lambda rows: leases.renew_leases(rows, [state.lease]))


# -- what calls come to


ANSWERED = "assigning sending drained sent stopped"


def _answer(state: State, thread: VerbThread, outcome: Outcome) -> None:
    """The open call has come to this, or the one that is in doubt: its sender appends it and merges."""
    message, lease = (state.called, state.lease) if state.called else (state.doubt, state.lost)
    thread.run(lambda rows: calling.answer(rows, lease, state.open_claim, [(message, outcome)]))
    if isinstance(outcome, Accepted):
        state.reported.add(message)


@verb(ANSWERED + " logged finished halfway", fates=TAKEN, of="tells")
def answer_accepted(state: State, thread: VerbThread) -> None:
    _answer(state, thread, Accepted(f"v-{state.called or state.doubt}"))


@verb(ANSWERED, fates=REFUSED, of="tells")
def answer_refused(state: State, thread: VerbThread) -> None:
    _answer(state, thread, Refused("bounce"))


@verb(ANSWERED, fates=NOT_MADE, of="tells")
def answer_not_sent(state: State, thread: VerbThread) -> None:
    _answer(state, thread, NotSent("no connection"))


@verb(ANSWERED, of="tells")
def answer_in_doubt(state: State, thread: VerbThread) -> None:
    _answer(state, thread, InDoubt("read timeout"))


# -- how a sender lets go


@verb("assigning enqueued sending drained stopped", fates=NOT_MADE, of="lets go")
def put_back(state: State, thread: VerbThread) -> Any:
    return sender.put_back(state.leaf, state.lease.fence)


@verb("drained sending", fates=NOT_MADE, of="lets go")
def drain(state: State, thread: VerbThread) -> Any:
    return sender.drain_job(state.lease, state.first, state.end)


@verb("drained sending", fates=NOT_MADE, of="lets go")
def drain_and_log(state: State, thread: VerbThread) -> Any:
    """As a worker's task does: in one transaction, if no call is open."""
    return sender.drain_job(state.lease, state.first, state.end, finalizer.log_drained)


@verb("assigning sending", fates=NOT_MADE, of="lets go")
def new_pass(state: State, thread: VerbThread) -> Any:
    """All calls are answered; the sender begins again at the first message that waits."""
    return thread.run(lambda rows: claims.new_pass(rows, state.lease, state.first, state.end))


@verb("assigning sending", fates=NOT_MADE, of="lets go")
def release(state: State, thread: VerbThread) -> Any:
    """The stream was cut off before it heard of its claim."""
    return thread.run(lambda rows: claims.delete_claim(rows, state.lease, state.open_claim))


@verb("assigning sending", of="claims")
def expire(state: State, thread: VerbThread) -> Any:
    return thread.run(lambda rows: recording.expire_uncalled(rows, state.lease, state.first, state.end))


# -- the sweep


@verb("assigning enqueued sending drained sent proved stopped")
def recover(state: State, thread: VerbThread) -> Any:
    return finalizer.recover_job(state.leaf, NEVER)


@verb("drained sent proved stopped")
def finalise(state: State, thread: VerbThread) -> Any:
    return finalizer.finalise_job(state.leaf)


@verb(ANSWERED + " " + ENDED)
def merge_answers(state: State, thread: VerbThread) -> None:
    finalizer.merge_answers(NEVER)


@verb("sent finished")
def finish_parent(state: State, thread: VerbThread) -> Any:
    return finalizer.finish_parent(state.top)


@verb("logged finished sent")
def consume(state: State, thread: VerbThread) -> Any:
    """Writes the session's result."""
    return writer.write_result(Session.objects.get(job=state.top).pk)


# -- users


@verb("ready queued logged drained " + CHILD, stops=lambda state: state.top)
def stop(state: State, thread: VerbThread) -> Any:
    return actions.stop_jobs([state.top], ANN)


@verb("assigning dispatched enqueued sending halfway")
def pause_campaign(state: State, thread: VerbThread) -> Any:
    return pausing.pause_jobs([state.top], ANN)


@verb("assigning dispatched enqueued sending halfway")
def resume_campaign(state: State, thread: VerbThread) -> Any:
    return pausing.resume_jobs([state.top], ANN)


@verb(CHILD, stops=lambda state: state.leaf)
def stop_child(state: State, thread: VerbThread) -> Any:
    return actions.stop_jobs([state.leaf], ANN)


@verb("sent " + ENDED, frees=True)
def retry(state: State, thread: VerbThread) -> Any:
    return actions.retry_jobs([state.top], by=ANN)


@verb("sent finished halfway", frees=True)
def retry_child(state: State, thread: VerbThread) -> Any:
    return actions.retry_jobs([state.leaf], by=ANN, expired=True)


@verb(ENDED)
def resolve_sent(state: State, thread: VerbThread) -> Any:
    return actions.settle_doubts([state.doubt], "sent", "seen at the vendor", "ann")


@verb(ENDED)
def resolve_failed(state: State, thread: VerbThread) -> Any:
    return actions.settle_doubts([state.doubt], "failed", "given up", "ann")


@verb(ENDED, frees=True)
def resend(state: State, thread: VerbThread) -> Any:
    return actions.settle_doubts([state.doubt], "resend", "not there", "ann")


@verb(ENDED, frees=True)
def resend_job(state: State, thread: VerbThread) -> Any:
    return actions.settle_jobs([state.top], "resend", ANN, "not there")


@verb("assigning sending dispatched")
def pause(state: State, thread: VerbThread) -> Any:
    return Vendor.objects.filter(pk=state.vendor_id).update(paused=True, paused_reason="by hand")


@verb("assigning sending")
def limit(state: State, thread: VerbThread) -> Any:
    seconds = 1.0 if thread.name == "halted" else 2.0
    return RateLimit.objects.create(vendor_id=state.vendor_id, units=10_000, seconds=seconds).pk


@verb("assigning sending sent drained " + ENDED)
def settings_change(state: State, thread: VerbThread) -> Any:
    """While doubts are open, and calls: the vendor is called elsewhere from now on."""
    settings = {"url": f"http://127.0.0.1:{1 if thread.name == 'halted' else 2}/letters"}
    return Vendor.objects.filter(pk=state.vendor_id).update(settings=settings)


@verb("assigning sending sent drained " + ENDED)
def key_changes(state: State, thread: VerbThread) -> Any:
    """It may be that of another account."""
    return Credential.objects.filter(pk=state.credential_id).update(secret={"X-Account": thread.name})


@verb("ready queued assigning dispatched enqueued sending sent proved halfway finished stopped")
def reroute(state: State, thread: VerbThread) -> Any:
    """Its credential takes no work for a while, and the campaign has a route with another one."""
    other, _ = Credential.objects.get_or_create(vendor_id=state.vendor_id, name="other")
    job = Job.objects.get(pk=state.top)
    route, new = Route.objects.get_or_create(name="both", channel="email")
    if new:
        RouteEntry.objects.create(route=route, position=1, credential_id=state.credential_id)
        RouteEntry.objects.create(route=route, position=2, credential=other)
    Campaign.objects.filter(pk=job.campaign_id).update(route=route, routed=True)
    mine = Credential.objects.filter(pk=state.credential_id)
    mine.update(paused=True, paused_reason="the login is refused")
    moved = moving.reroute_parent(state.top)
    mine.update(paused=False, paused_reason="")
    return moved.messages


# -- the vendor


def _reports(state: State, kind: Any) -> Any:
    message = state.called or state.doubt
    at = datetime(2026, 3, 1, 12, 1 if kind == "bounced" else 0, tzinfo=UTC)
    reported = Reported(state.reference(message), kind, at, vendor_id=f"v-{message}")
    taken = delivery_reports.store_reports(state.vendor_id, [reported])
    assert taken.unknown == (), "a reference of ours is unknown"
    if kind == "delivered":
        state.reported.add(message)
    return taken


@verb(ANSWERED + " " + ENDED, fates=TAKEN)
def delivered(state: State, thread: VerbThread) -> Any:
    return _reports(state, "delivered")


@verb(ANSWERED + " " + ENDED, fates=TAKEN)
def bounced(state: State, thread: VerbThread) -> Any:
    return _reports(state, "bounced")


@verb("sent " + ENDED, fates=TAKEN)
def look_up(state: State, thread: VerbThread) -> None:
    found = [(state.doubt, f"v-{state.doubt}", 0)]
    thread.run(lambda rows: ground_truth.accept_messages(rows, found))
    state.reported.add(state.doubt)


@verb(ENDED, fates=REFUSED)
def refused_at_look_up(state: State, thread: VerbThread) -> None:
    answers = [(state.doubt, Refused("bounce", "look-up"))]
    thread.run(lambda rows: ground_truth.refuse_doubted(rows, answers))


@verb(ENDED, fates=TAKEN | NOT_MADE)
def repeat(state: State, thread: VerbThread) -> Any:
    """With the same key, to a vendor that deduplicates; it has the letter then, at the latest."""
    return thread.run(lambda rows: _repeat(state, rows))


async def _repeat(state: State, rows: Any) -> Any:
    scope = await contexts.read_vendor(rows, state.vendor_id, state.credential_id)
    if scope is None:
        return None
    due = await queries.lease_due_doubts(rows, state.credential_id, 1, 300.0)
    for doubt in due:
        if await queries.allow_repeat(rows, scope, doubt, 1.0, units=1, young=queries.FOR_EVER, closes=None):
            await _take(state, rows, doubt, scope.destination)
    return due


@verb(ENDED, fates=NOT_MADE)
def repeat_what_is_not_there(state: State, thread: VerbThread) -> Any:
    """The look-up finds nothing, which proves that the vendor has not got it: it is called again, and takes it."""
    return thread.run(lambda rows: _repeat_what_is_not_there(state, rows))


async def _repeat_what_is_not_there(state: State, rows: Any) -> Any:
    scope = await contexts.read_vendor(rows, state.vendor_id, state.credential_id)
    if scope is None:
        return None
    due = await queries.lease_due_doubts(rows, state.credential_id, 1, 300.0)
    for doubt in due:
        asked = await queries.allow_look_up(rows, scope, doubt, 1.0)
        if asked and not state.has_at(scope.destination, doubt.vendor_reference):
            await queries.record_disproved(rows, doubt)
            if await queries.allow_repeat(rows, scope, doubt, 1.0, units=1, young=None, closes=None):
                await _take(state, rows, doubt, scope.destination)
    return due


async def _take(state: State, rows: Any, doubt: queries.Doubt, place: int) -> None:
    id = state.call(doubt.vendor_reference, place=place)
    await ground_truth.accept_messages(rows, [(doubt.id, id, doubt.resend_no)])
    state.reported.add(doubt.id)
