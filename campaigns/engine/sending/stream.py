"""Sends one job. Permit, claim, call and record overlap in one event loop, so nothing waits for a slow answer.

Every call starts in this order: permits for the vendor's limits, one commit of claim and ledger, the call. It ends once
its result is stored and its permit is returned.
"""

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from django.conf import settings
from psycopg import Error as RowsError

from campaigns.engine import sending_hours
from campaigns.engine.claiming import claims, comparison, limits, receiver_waits
from campaigns.engine.claiming.confirming import FRESH, ClaimTerms, read_ticks
from campaigns.engine.claiming.contexts import FIND_OUT, Followed
from campaigns.engine.claiming.joint import JointClaims
from campaigns.engine.claiming.letters import LeasedJob
from campaigns.engine.claiming.limits import PATIENCE
from campaigns.engine.claiming.permits import Permits
from campaigns.engine.claiming.pricing import ByCost
from campaigns.engine.claiming.rebuild import rebuild_lost
from campaigns.engine.claiming.receiving import ByReceiver
from campaigns.engine.claiming.waiting import NotGranted, Permitted, WantedClaim
from campaigns.engine.connections import Connections
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.failover import guard
from campaigns.engine.journal import NoMarks
from campaigns.engine.lifecycle import merge_answers
from campaigns.engine.quiet_hours import QuietWatch
from campaigns.engine.refusal_runs import run_rows
from campaigns.engine.refusal_runs.run_rows import RunKey
from campaigns.engine.sending import recording
from campaigns.engine.sending.call_pool import CallPool
from campaigns.engine.sending.recording import NO_DATABASE, CallResult, Recorder
from campaigns.engine.threads import cut_off
from vendors import alarms, health
from vendors.adapters.base import one_unit
from vendors.condition import brake
from vendors.limits.throttle import ThrottleUnreachable
from vendors.limits.values import Lost, Never, Paused, Skewed, Wait
from vendors.outcomes import InDoubt, NotSent
from vendors.said import Said

log = logging.getLogger(__name__)

DAY = 86_400.0  # seconds
SLACK = 2.0  # seconds between a grant and the start of the last call under it
LOOK_AGAIN = 60.0  # seconds at most until a job whose receivers wait is looked at again: somebody may end the wait
RECEIVER_HELD = "waits: bulk mail there is paused, too many complained"
RECEIVER_FULL = "waits: its limit is used up"
RECEIVER_ASKED = "waits: it asked us to slow down"
MOVED = Said("its vendor is called elsewhere, or as somebody else, by now")
GO_BACK_SECONDS = 1.0  # seconds that a stream waits for its open calls to go back to what was given back
# Seconds after which more is claimed than there are connections, if no limit binds and nothing is given back meanwhile.
UNBOUND_AFTER = 1.0
GIVES_WAY = "waits for its turn at the vendor"
REFUSED_ALIKE = "refused in a row with the same words: its campaign pauses"
BRAKED = "the vendor gives no clear answer: a single call tries it again"
READING = 30.0  # seconds more, for reading the files that letters carry
# Seconds between a stream's tries while Redis is away, and until it gives its job back. No other job could be sent
# meanwhile, as there is one Redis for all. A job given back comes again only by the broker. The broker may be away
# together with Redis, and longer: Celery's workers reconnect to it at growing intervals.
TRY_REDIS, REDIS_PATIENCE = 0.5, 60.0


def _one_message() -> int:
    return 1


class SoleCall(NamedTuple):
    """The single call over a braked credential that this stream may make.

    began: seconds of time.monotonic; calls: those that the stream had made before.
    """

    number: int
    began: float
    calls: int


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The reason for the end of a stream.

    drained: nothing was left. until: the job may go on then; reason: shown to users. held: the job itself waits until
    then. Otherwise its credential does, and an operator may open that earlier. cursor: where the next sender begins.
    sender: the vendor's reason to reject the campaign's sender, which pauses the campaign; "" if it takes it.
    """

    drained: bool = False
    until: datetime | None = None
    reason: str = ""
    held: bool = False
    cursor: int | None = None
    sender: str = ""


class Stream:
    """Sends the rest of a job until it is drained, stopped, lost to another sender, or has to wait."""

    def __init__(
        self,
        job: LeasedJob,
        connections: Connections,
        joint: JointClaims,
        followed: Followed,
        recorder: Recorder,
        lives: Callable[[], None],
        stopping: Callable[[], bool],
        marks: NoMarks | None = None,
    ) -> None:
        self._marks = marks or NoMarks()
        self._job, self._followed, self._recorder, self._stopping = job, followed, recorder, stopping
        self._refusals, self._connections, self._lives = recorder.refusals, connections, lives
        self._claims: Any = connections.claims  # executes statements like a connection
        self._locking = partial(self._claims.run_with_rows, over=stopping)
        self._throttle, self._health = connections.redis_stores()
        self._joint, self._served = joint, time.monotonic()
        self._counts = job.adapter.capabilities.cost is one_unit
        self._usual = claims.ByCount() if self._counts else ByCost(job, connections.attachments)
        self._claimer: claims.Claimer = self._usual
        self._hold = job.adapter.deadline + SLACK + (READING if job.campaign.has_files else 0.0)
        self._permits = Permits(self._throttle, self._claims)
        self._condition = recorder.conditions.feed_of(job.credential_id, job.destination)
        run = recorder.receiver_runs.run_of_credential(job.credential_id)
        self._receiving: ByReceiver | None = None  # for the rest of this pass, if receivers wait
        self._confirmations = followed.confirmations
        self._pool = CallPool(
            job, self._write_results, connections.attachments, self._condition, run, self._marks,
            self._confirmations, self._runs_are_full,
        )  # fmt: skip
        self._asked_for = 0  # messages of the last claim
        self._bound_at = -math.inf  # seconds of time.monotonic: a claim got fewer permits than it asked for
        self._claim_took = math.inf  # seconds of the last one, with its permits
        self._probe: SoleCall | None = None
        self._run_key = RunKey(job.credential_id, job.campaign.sponsor_id)
        self._closes: datetime | None = None
        self._closes_asked: datetime | None = None
        self._quiet = QuietWatch(job.lease.job_id, job.lease.fence, job.campaign, job.asker.channel)
        self._health_noted = time.monotonic()
        self._redis_away_since: float | None = None
        self._sender_refused = ""

    async def run_stream(self) -> StreamEnd:
        """Run until the job ends or has to wait. After an error the open calls are cut off and become in doubt."""
        self._context = await self._followed.read_now()
        self._followed.place.wake = partial(self._joint.leave_queue, self._job.lease)
        self._adoptions = self._context.adoptions
        self._marks.note_store(self._adoptions)
        self._suppressions = self._connections.recent_suppressions(self._adoptions)
        self._cursor = self._context.next_message
        serving, feeding = asyncio.create_task(self._pool.run_calls()), asyncio.create_task(self._feed_pool())
        self._confirmations.begin_stream(self._pool, self._recheck_suppressed)
        try:
            await asyncio.wait((serving, feeding), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()  # it ends only with an error
            return feeding.result()
        finally:
            self._confirmations.end_stream(self._pool)
            await cut_off(feeding, serving)
            self._pool.settle_health()
            await self._tell_health()

    async def _feed_pool(self) -> StreamEnd:
        """Claim whenever more calls can start, until there is a reason to end; then wait for the open calls."""
        end: StreamEnd | None = None
        while True:
            try:
                if end is None:
                    end = await self._claim_step()
                else:
                    await self._pool.wait_for_result(0.2)
                    await self._report_alive()
                end = await self._apply_refusals(end)
            except NO_DATABASE as error:  # calls in flight go on; their answers are stored once it is back
                alarms.NO_DATABASE.log(log, self._job.lease.job_id, error)
                self._probe = None  # its lease expires
                end = self._end_for_now(5, "the database could not be reached")
            except RowsError as error:
                end = self._end_for_now(10, recording.tables_refuse(error))
            except ThrottleUnreachable as error:
                end = await self._await_redis(error)
            if end is not None:
                self._pool.give_back_calls()
            if end is None or self._pool.in_flight or self._probe:
                continue
            if end.drained:
                end = await self._drain_or_repeat(end)
            if end is not None:
                self._charge_in_vain(end)
                return replace(end, cursor=min(self._cursor, self._pool.first_given_back or self._cursor))

    async def _await_redis(self, error: ThrottleUnreachable) -> StreamEnd | None:
        """Wait for the next try, or return an end if Redis has been away for long. Nothing is called meanwhile."""
        now = time.monotonic()
        if self._redis_away_since is None:
            self._redis_away_since = now
            alarms.REDIS_AWAY.log(log, self._job.lease.job_id, error)
        if now - self._redis_away_since >= REDIS_PATIENCE:
            return self._end_for_now(5, f"the throttle's Redis cannot be reached: {error}")
        await asyncio.sleep(TRY_REDIS)
        return None

    def _charge_in_vain(self, end: StreamEnd) -> None:
        """Charge a unit for a turn without a call, or a job that comes back at once would take every turn."""
        if not (end.drained or end.until or end.reason == GIVES_WAY or self._pool.calls_made):
            self._followed.place.charge_units(1)

    async def _apply_refusals(self, end: StreamEnd | None) -> StreamEnd | None:
        """Apply refusals that concern the credential before other reasons to wait; they hold even if the job ends."""
        if self._pool.receivers_refused:
            await self._put_off_receivers()
        while refusal := self._pool.refusal:
            ended = await self._handle_refusal(refusal)
            if self._pool.refusal is refusal:
                self._pool.refusal = None
            if ended and not (end and end.drained):
                end = ended
        return end

    async def _put_off_receivers(self) -> None:
        """Let the receivers wait that answered about us or our rate. Others are called meanwhile."""
        refused, self._pool.receivers_refused = self._pool.receivers_refused, {}
        for receiver, answer in refused.items():
            if await receiver_waits.put_off_receiver(self._claims, self._job.credential_id, receiver, answer):
                alarms.RECEIVER_WAITS.log(log, self._job.vendor_id, receiver, answer.reason)
        self._context = await self._followed.read_now()

    async def _drain_or_repeat(self, end: StreamEnd) -> StreamEnd | None:
        """End the drained job, or return None for another pass if some messages were certainly not sent.

        Messages that the vendor put off wait for their time; those put off for too long expire.
        """
        job, pool = self._job, self._pool
        try:
            if pool.put_off:
                await self._locking(
                    lambda to: recording.expire_uncalled(to, job.lease, job.first, job.end, settings.PUT_OFF)
                )
            if pool.not_sent:
                self._cursor = await self._locking(lambda rows: claims.new_pass(rows, job.lease, job.first, job.end))
        except NO_DATABASE:
            return self._end_for_now(5, "the database could not be reached")
        pool.put_off = 0
        if not pool.not_sent:
            return end
        pool.not_sent, pool.first_given_back, self._quiet.until, self._receiving = 0, None, None, None
        return None

    async def _claim_step(self) -> StreamEnd | None:
        await self._report_alive()
        if not self._context.ours or self._stopping():
            return StreamEnd()
        if self._recorder.refusals > self._refusals:
            return self._end_for_now(10, guard.OTHER_TABLES)
        if halted := self._context.halted_since(self._adoptions):
            if halted != guard.CRASHED:
                return self._end_for_now(10, halted)
            await self._look_for_loss()
            return None
        if self._probe:
            await self._pool.wait_for_result(0.2)
            return None
        if (deadline := self._job.deadline) is not None and self._context.now >= deadline:
            return await self._expire_campaign()
        if end := await self._reason_to_end():
            return end
        return await (self._await_runs() if self._runs_are_full() else self._claim_if_open())

    async def _claim_if_open(self) -> StreamEnd | None:
        if self._context.closed_for:
            await self._pool.wait_for_result(min(0.2, self._context.closed_for))
        elif self._context.braked_at:
            return await self._try_alone()
        else:
            if self._pool.first_given_back is not None and not await self._went_back(self._pool.first_given_back):
                return None
            if self._cursor >= self._job.end:  # what waits may still be given back
                await self._pool.wait_for_result(0.2)
                return None
            if self._followed.place.awaits_look:
                await self._followed.place.wait_for_look()
                return None
            self._pool.claims_ahead = self._may_claim_ahead()
            await self._pool.wait_for_free()
        ready = self._pool.free_places and not self._pool.has_enough
        ready = ready and not self._context.closed_for and not self._pool.refusal
        return await self._claim_messages() if ready else None

    async def _went_back(self, first: int) -> bool:
        """Go back to the first message that was given back, once no call is open. Slow calls are not waited for."""
        if not self._pool.in_flight:
            job = self._job
            self._cursor = await self._locking(lambda rows: claims.new_pass(rows, job.lease, first, job.end))
            self._pool.first_given_back = None
        elif time.monotonic() - self._pool.given_back_at < GO_BACK_SECONDS:
            await self._pool.wait_for_result(0.05)
            return False
        return True

    def _may_claim_ahead(self) -> bool:
        """Tell whether only the connections limit the stream: no limit of the vendor or a receiver binds it."""
        seen = self._context
        apart = seen.receivers or seen.held or seen.scope.receivers or self._receiving or self._job.campaign.has_files
        unbound = time.monotonic() - max(self._bound_at, self._pool.given_back_at) > UNBOUND_AFTER
        leaves = seen.braked_at or self._probe or self._followed.place.gives_way
        quick = self._claim_took < FRESH  # so a confirmation comes in time, too
        return self._marks.are_kept and self._counts and unbound and quick and not (apart or leaves)

    async def _recheck_suppressed(self, suppressions: int) -> None:
        """Take out the waiting calls to recipients that were suppressed after their claim."""
        calls = list(self._pool.waiting)
        recipients = [call.message.recipient for call in calls]
        found = await self._suppressions.find_reasons(self._claims, self._job.asker, suppressions, recipients)
        if found:
            self._pool.give_back_calls(but={calls[number].message.id: reason for number, reason in found.items()})

    async def _await_runs(self) -> StreamEnd | None:
        """Apply a confirmed full run of equal refusals, or await confirmation. Returns an end for a sponsor's run."""
        run, sponsor_run = self._context.run, self._context.sponsor_run
        if run and run.is_confirmed:
            self._pool.refuse_run(run)
        elif sponsor_run and sponsor_run.is_confirmed:
            self._pool.forget_undecided()
            return self._end_for_now(PATIENCE, REFUSED_ALIKE)  # the sweep pauses the campaign
        else:
            await self._pool.wait_for_result(0.2)
        return None

    def _runs_are_full(self) -> bool:
        """Tell whether claims wait, because equal refusals over the credential are not contradicted yet."""
        runs, seen, key = self._recorder.runs, self._context, self._run_key
        of_all = runs.holds_claims(key.credential_key, seen.run, seen.asked)
        return of_all or runs.holds_claims(key, seen.sponsor_run, seen.asked)

    async def _look_for_loss(self) -> None:
        """Compare the store after a crash of PostgreSQL. The stream continues if nothing proves lost."""
        if await comparison.compare_once() is not None:
            await self._pool.wait_for_result(FIND_OUT)
        self._context = await self._followed.read_now()

    async def _report_alive(self) -> None:
        """Take over the newest context and report the stream alive, so that its lease is renewed."""
        self._context = await self._followed.newest_context()
        now = time.monotonic()
        if now - self._health_noted > FIND_OUT:
            self._health_noted = now
            await self._tell_health()
        await self._tell_reached()
        self._pool.receivers_watched = self._context.receivers
        self._pool.receivers_known = self._context.receivers_known
        if self._pool.receivers_served:
            served, self._pool.receivers_served = self._pool.receivers_served, set()
            await receiver_waits.end_receiver_waits(self._claims, self._job.credential_id, served)
        await self._mind_brake()
        self._lives()

    async def _tell_reached(self) -> None:
        if self._context.reached_at(self._pool.answered_at):
            await limits.record_reached(self._claims, self._job.credential_id, self._context.now)
        if self._context.served_at(self._pool.served_at):
            await limits.record_good_answer(self._claims, self._job.credential_id)
        ended = False
        for key, run in ((self._run_key.credential_key, self._context.run), (self._run_key, self._context.sponsor_run)):
            if run and self._recorder.runs.has_contradiction(key, self._context.monotonic_seconds(run.since)):
                await run_rows.end_run(self._claims, key, run.since)
                ended = True
        if ended:
            self._context = await self._followed.read_now()

    async def _mind_brake(self) -> None:
        """End a probe whose call is over; release the brake after a clear answer, or put it on after many doubts."""
        feed, seen, login = self._condition, self._context, self._job.credential_id
        if seen.brake_released_at:
            feed.note_release(seen.monotonic_seconds(seen.brake_released_at))
        if seen.braked_at and feed.clear_at > seen.monotonic_seconds(seen.braked_at):
            age = time.monotonic() - feed.clear_at
            if slug := await self._locking(lambda rows: brake.release_brake(rows, login, age)):
                log.info("credential %s: its vendor answers again, the brake is released", login)
                dispatcher.wake_vendor(self._job.vendor_id, slug)  # jobs put back may continue
            self._probe = None
        elif self._probe and not self._pool.in_flight:
            await self._end_probe(self._probe)
        elif (
            not seen.braked_at
            and not seen.closed_for
            and feed.doubts_running >= min(self._job.adapter.concurrency, brake.DOUBTS_MOST)
        ):
            age = min(time.monotonic() - feed.doubt_at, DAY)  # the time of others' doubts is unknown here
            if await self._locking(lambda rows: brake.put_on(rows, login, age)):
                alarms.BRAKE_PUT_ON.log(log, login, feed.doubts_running)
        else:
            return
        self._context = await self._followed.read_now()

    async def _end_probe(self, probe: SoleCall) -> None:
        """Put the next probe off after a bad one; if nobody was called, it is due again."""
        login, number = self._job.credential_id, probe.number
        if self._pool.calls_made > probe.calls:
            await self._locking(lambda rows: brake.put_off_probe(rows, login, number))
        else:
            await self._locking(lambda rows: brake.give_back_probe(rows, login, number))
        self._probe = None

    async def _try_alone(self) -> StreamEnd | None:
        """Call one message over a braked credential if its next probe is due and nobody else makes it."""
        if self._pool.in_flight:
            await self._pool.wait_for_result(0.2)
            return None
        number = await self._locking(lambda rows: brake.take_probe(rows, self._job.credential_id, self._hold))
        if number is None:
            self._context = await self._followed.read_now()
            return None
        self._probe = SoleCall(number, time.monotonic(), self._pool.calls_made)
        return await self._claim_messages()

    async def _tell_health(self) -> None:
        """Report good and bad answers to the vendor's health. Sending continues if that store is away."""
        good, bad, self._pool.well, self._pool.ill = self._pool.well, self._pool.ill, 0, 0
        try:
            if good or bad:
                await self._health.note(self._job.vendor_id, self._context.health, good, bad, self._pool.trouble)
        except health.HealthStoreUnreachable:
            alarms.ANSWERS_NOT_COUNTED.log(log, self._job.lease.job_id, good, bad)

    async def _reason_to_end(self) -> StreamEnd | None:
        seen = self._context
        if self._sender_refused:
            return StreamEnd(reason=f"paused: {self._sender_refused}", sender=self._sender_refused)
        if seen.paused is not None:
            return StreamEnd(reason=seen.paused)
        if seen.scope.destination != self._job.destination:  # its adapter still calls the former address or account
            return StreamEnd(reason=MOVED)
        if seen.closed_for > PATIENCE and seen.braked_at:
            is_tried = seen.probed_at and (seen.now - seen.probed_at).total_seconds() < PATIENCE
            return None if is_tried else StreamEnd(until=seen.retry_after_until, reason=BRAKED)
        if seen.closed_for > PATIENCE:
            return StreamEnd(until=seen.retry_after_until, reason="the vendor asked to wait")
        if seen.closed_for and seen.given_up:
            return StreamEnd(until=seen.retry_after_until, reason="the vendor is not reached")
        if opening := sending_hours.campaign_opens_at(self._job.campaign, seen.now):
            why = sending_hours.describe_opening(self._job.campaign, opening)
            return StreamEnd(until=opening, reason=why, held=True)
        if self._cursor >= self._job.end and not self._pool.waiting:
            return StreamEnd(drained=True)
        return StreamEnd(reason=GIVES_WAY) if self._followed.place.gives_way else None

    async def _expire_campaign(self) -> StreamEnd | None:
        """Expire all uncalled messages: the deadline has passed."""
        job = self._job
        await self._locking(lambda rows: recording.expire_uncalled(rows, job.lease, job.first, job.end))
        return StreamEnd(drained=True)

    async def _handle_refusal(self, refusal: NotSent | InDoubt) -> StreamEnd | None:
        """Pause or close the credential after a call that could not be made. A refused sender pauses the campaign.

        A closed credential stays closed for the time that the vendor asked for, or with a growing backoff. Returns an
        end if the stream must wait.
        """
        if isinstance(refusal, NotSent) and refusal.scope == "sender":
            self._sender_refused = refusal.reason
            return await self._reason_to_end()
        if refusal.pause or isinstance(refusal, InDoubt):
            await limits.pause_credential(self._claims, self._job.credential_id, refusal.reason)
            self._context = await self._followed.read_now()
            return StreamEnd(reason=f"paused: {refusal.reason}")
        if refusal.retry_after is None and self._context.braked_at:
            return None  # no connection: the brake sets the time of the next call
        if refusal.retry_after is None:
            await self._tell_reached()
            await limits.back_off(self._claims, self._job.credential_id, 2 * PATIENCE * self._context.given_up)
        else:
            await limits.close_credential(self._claims, self._job.credential_id, refusal.retry_after)
        self._context = await self._followed.read_now()
        until, why = self._context.retry_after_until, f"waits for the vendor: {refusal.reason}"
        return StreamEnd(until=until, reason=why) if self._context.closed_for > PATIENCE else None

    async def _claim_messages(self) -> StreamEnd | None:
        """Claim what permits and free connections allow. Returns an end if the stream must wait for long."""
        job, seen = self._job, self._context
        await self._quiet.put_quiet_off(self._locking, range(self._cursor, job.end), seen.now)
        most, probe = (_one_message, self._probe.number) if self._probe else (self._messages_to_ask, None)
        self._pool.claims_ahead &= self._probe is None
        self._choose_claimer()
        await self._claimer.read_ahead(self._claims, seen.scope, self._cursor, most())
        if self._receiving is not None:
            self._cursor = self._receiving.read_position
            if not self._receiving.is_ready:
                return await self._await_receivers(self._receiving)
        ask = WantedClaim(
            job.lease, self._cursor, job.end, self._closing_time(), self._claimer, self._served, most, self._may_claim,
            job.destination, probe, self._callable_later, self._followed.place.note_bound,
        )  # fmt: skip
        asked = read_ticks()
        answer = await self._joint.claim_together(seen, self._adoptions, self._hold, ask)
        self._redis_away_since = None
        if not isinstance(answer, Permitted):
            self._bound_at = time.monotonic()
            return await self._await_permits(answer)
        self._served = time.monotonic()
        self._claim_took = read_ticks() - asked
        if len(answer.permits) < self._asked_for:
            self._bound_at = self._served
            self._followed.place.note_bound()
        await self._start_claimed_calls(answer, ask.closes, asked)
        return None

    async def _await_permits(self, answer: NotGranted) -> StreamEnd | None:
        """Return an end if the stream must wait for long."""
        match answer.why:
            case Wait(seconds) if seconds > PATIENCE:
                return StreamEnd(until=answer.until, reason="rate limit reached")
            case Paused():
                return StreamEnd(reason="paused: the limit is 0")
            case Never(units):
                return StreamEnd(reason=f"a message costs more than the limit of {units}")
            case Lost():
                return await self._mend_window()
            case Skewed(seconds):
                return self._end_for_now(10, f"the clock of Redis differs by {seconds:.1f} s")
        return None

    def _choose_claimer(self) -> None:
        """Claim by receiver while receivers wait; in order again once nothing is left behind the others."""
        receiving, seen = self._receiving, self._context
        apart = seen.receivers or seen.held or seen.scope.receivers
        if apart and receiving is None:
            pricing = self._usual.pricing if isinstance(self._usual, ByCost) else None
            receiving = self._receiving = ByReceiver(self._cursor, self._job.end, pricing)
        if receiving is not None:
            receiving.note_context(seen)
            if not apart and not receiving.count_queued and not receiving.passed_groups:
                receiving = self._receiving = None
        self._claimer = receiving or self._usual

    async def _await_receivers(self, receiving: ByReceiver) -> StreamEnd | None:
        """Wait for receivers, if no message to another one is left. Returns an end if that lasts."""
        job, pool = self._job, self._pool
        opening = receiving.find_next_receiver()
        if opening is None and not receiving.passed_groups:
            return None  # nothing is left of this pass
        receiver, at = opening or (", ".join(receiving.passed_groups), math.inf)
        wait = at - time.monotonic()
        if pool.in_flight or wait <= PATIENCE:
            await pool.wait_for_result(min(0.2, max(wait, 0.01)))
            return None
        if pool.not_sent or receiving.asks_for_pass:  # messages to others may be among them
            self._cursor = await self._locking(lambda rows: claims.new_pass(rows, job.lease, job.first, job.end))
            pool.not_sent, self._receiving = 0, None
            return None
        until = self._context.now + timedelta(seconds=min(wait, LOOK_AGAIN))
        why = RECEIVER_ASKED if receiver in self._context.receivers else RECEIVER_FULL if opening else RECEIVER_HELD
        return StreamEnd(until=until, reason=f"{receiver} {why}", held=True)

    def _may_claim(self) -> bool:
        """Tell if the stream may still claim: nothing ended or halted it while it waited for its turn."""
        halted = self._pool.refusal or self._runs_are_full()
        return self._recorder.refusals == self._refusals and not halted and not self._stopping()

    def _messages_to_ask(self) -> int:
        """Return how many messages to ask permits for, at most those left: spare permits would delay other jobs."""
        self._asked_for = max(1, min(self._pool.free_places, self._count_unclaimed))
        self._asked_for = self._followed.place.cut(self._asked_for)
        return self._asked_for

    def _callable_later(self, asked: int) -> int:
        """Return how many more messages than these could be called once all calls have ended."""
        more = max(0, min(self._pool.in_flight + asked, self._count_unclaimed - asked))
        return max(0, self._followed.place.cut(asked + more) - asked)

    @property
    def _count_unclaimed(self) -> int:
        return min(self._job.end - self._cursor, self._context.left - self._pool.in_flight)

    async def _mend_window(self) -> StreamEnd | None:
        try:
            await rebuild_lost(self._context.scope)
        except ThrottleUnreachable:
            raise
        except Exception as error:
            alarms.WINDOW_LOST.log(log, self._job.lease.job_id, error)
            return self._end_for_now(5, f"the vendor's window cannot be rebuilt: {error}")
        self._context = await self._followed.read_now()
        return None

    def _end_for_now(self, wait: float, reason: str) -> StreamEnd:
        return StreamEnd(until=self._context.now + timedelta(seconds=wait), reason=reason, held=True)

    def _closing_time(self) -> datetime | None:
        """Return the end of the campaign's current hours: from then on nothing is claimed and no call starts."""
        now, asked = self._context.now, self._closes_asked
        if self._closes is None or self._closes <= now or (asked and now < asked):  # or the clock was set back
            self._closes, self._closes_asked = sending_hours.closes_at(self._job.campaign, now), now
        return min((at for at in (self._closes, self._quiet.until) if at), default=None)

    async def _start_claimed_calls(self, got: Permitted, closes: datetime | None, asked: float) -> None:
        """Start the calls for the claimed messages. asked: a time before the claim (confirming.read_ticks)."""
        seen, job, claimed = self._context, self._job, got.claimed
        latest = got.deadline - job.adapter.deadline
        for ends in (closes, job.deadline):
            latest = min(latest, seen.monotonic_seconds(ends)) if ends else latest
        calls = self._claimer.calls(claimed, got.permits, latest)
        recipients = (call.message.recipient for call in calls)
        found = await self._suppressions.find_reasons(self._claims, job.asker, claimed.suppressions, recipients)
        scope = seen.scope
        terms = ClaimTerms(
            job.lease.job_id, job.lease.fence, job.vendor_id, job.credential_id, scope.generation, seen.limits_version,
            job.destination, self._adoptions, claimed.suppressions,
        )  # fmt: skip
        self._pool.submit_calls(calls, found, terms, asked)
        self._followed.place.charge_units(len(got.permits))
        if calls or claimed.nothing_waits:
            self._cursor = self._claimer.cursor_after(calls, job.end)
        else:  # unmerged answers of an earlier sender may block the claim
            await self._locking(lambda rows: merge_answers(rows, [job.lease.job_id]))
            self._context = await self._followed.read_now()

    async def _write_results(self, answers: list[CallResult], permits: list[str]) -> None:
        """Store results and return permits.

        A refusal applies immediately: it takes the stream out of the queue for permits.
        """
        if self._pool.refusal:
            self._joint.leave_queue(self._job.lease)
        receivers = defaultdict[str, list[str]](list)
        for answer in answers:
            if answer.call.receiver:
                receivers[answer.call.receiver] += answer.call.permits
        await asyncio.gather(
            self._permits.done(self._context.scope, permits, receivers),
            self._recorder.store_results(self._job.lease, answers, self._pool.store_patience, self._run_key),
        )
