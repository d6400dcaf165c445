"""The calls in flight of one job: makes them, and records their results in batches.

A message counts as in flight from its claim until its result is stored. A slow answer blocks only its own connection.

Where calls are quick, more is claimed than there are connections (`claim_reach`), so that a claim is worth its price.
What waits for a connection is called only while it is confirmed (claiming/confirming.py). After doubts, and in a row of
refusals, no more calls are without a stored answer than there are connections, as if nothing was claimed ahead. If the
vendor cannot be called, all that waits is given back.
"""

import asyncio
import logging
import math
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple, TypeGuard

from django.conf import settings

from campaigns.engine import failpoints, ports
from campaigns.engine.claiming.claims import PermittedCall
from campaigns.engine.claiming.confirming import FRESH, ClaimTerms, Confirmations, read_ticks
from campaigns.engine.claiming.letters import LeasedJob, letters_in_turn, split_by_size
from campaigns.engine.journal import MarkedAnswer, NoMarks
from campaigns.engine.letter_outcomes import follow_answer, spare_for_sender
from campaigns.engine.refusal_runs.run_rows import SeenRun
from campaigns.engine.sending.receiver_runs import ReceiverRun
from campaigns.engine.sending.recording import KINDS, CallResult, answer_columns
from campaigns.engine.suppressed.recent import SuppressedRecipient
from campaigns.engine.threads import wait_for_event
from vendors import alarms, histograms, log_ids
from vendors.adapters.base import Letter
from vendors.adapters.call_progress import progress, tells_progress
from vendors.adapters.transport import Deadlines
from vendors.condition.feeding import ConditionFeed
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused
from vendors.receivers import domain_of, known_groups, waiting_part

log = logging.getLogger(__name__)

Write = Callable[[list[CallResult], list[str]], Awaitable[None]]

PATIENCE = 0.02  # share of a call's duration for which its answer may wait for those of other streams
PATIENCE_LEAST, PATIENCE_MOST = 0.001, 0.2  # seconds
MOMENT_MOST = 0.02  # seconds at most for which answers and freed connections wait for others
POUR_SECONDS = 2.0  # between two additions to the histograms
LOOK_SECONDS = 0.02  # seconds between two looks whether a waiting call may start
UNCONFIRMED_MOST = 0.5  # seconds without a confirmation after which what waits is given back: the database is slow
AHEAD_MOST = 1_000  # messages of a job that are claimed and have no stored answer
RUN_LEAST = 3  # refusals in a row that may be about us, from which on calls wait for those before to be stored
ADDED_SECONDS = 0.5  # that an added call waits for the one before it while a connection is free
ADDING_SECONDS = 0.5  # for which a call takes further letters: less than WIND_UP, which its deadline has left
Refusal = NotSent | InDoubt
SERVED = (Accepted, Refused)  # outcomes that show the vendor serves us


def heavier_refusal(one: Refusal | None, other: Refusal) -> Refusal:
    """Return the refusal that holds more for longer: of the credential a pause, of the sender, then a stated wait."""

    def refusal_weight(refusal: Refusal) -> tuple[bool, bool, float]:
        wait, scope = (refusal.retry_after, refusal.scope) if isinstance(refusal, NotSent) else (None, "")
        return refusal.pause, scope != "sender", -1.0 if wait is None else wait

    return other if one is None or refusal_weight(other) >= refusal_weight(one) else one


def mark_answer(marks: NoMarks, call: PermittedCall, outcome: Outcome) -> None:
    """Keep the answer in the journal of calls until it is stored."""
    if isinstance(outcome, Accepted) and outcome.vendor_id.isascii():
        marks.accepted(call, outcome.vendor_id)
    else:
        marks.keep_answer(call, MarkedAnswer(KINDS[type(outcome)], *answer_columns(outcome)))


class OngoingCall:
    """A call whose adapter tells of its letters. Letters that wait for a connection are added, one by one.

    One is added while the one before it is on its way, so that the adapter can write both together. Until it is kept it
    can be given back; it is kept when it may begin, or is answered without. since: when the last answer came.
    """

    def __init__(self, pool: "CallPool", calls: list[PermittedCall], began: float) -> None:
        self._pool, self._calls, self._given = pool, calls, len(calls)
        self.since, self._ends = began, began + ADDING_SECONDS
        self.answers = self._begun = 0
        self._kept = len(calls)

    def began(self, number: int) -> None:
        self._begun = number + 1
        self._pool.mark_called(self._calls[number])

    def answered(self, number: int, outcome: Outcome) -> None:
        self.answers = number + 1
        if self._keep(number):
            self._pool.take_answers(self._calls[number : number + 1], (outcome,), self.since)
        self.since = time.monotonic()

    def next_letter(self) -> Letter | None:
        return self._pool.add_letter(self._calls) if self.since < self._ends else None

    def may_begin(self, number: int) -> bool:
        return number < self._given or (self._pool.may_begin(self._calls[number]) and self._keep(number))

    def take_uncalled(self) -> list[PermittedCall]:
        """Take out the added calls that have not begun, and return those that were not given back."""
        first = max(self._given, self._begun, self.answers)
        kept = [call for number, call in enumerate(self._calls[first:], first) if self._keep(number)]
        del self._calls[first:]
        return kept

    def _keep(self, number: int) -> bool:
        """Keep a letter, which cannot be given back then. Returns False if it was. Asked for one after the other."""
        if number >= self._kept and self._pool.keep_added(self._calls[number], self._calls):
            self._kept = number + 1
        return number < self._kept


class AddedCall(NamedTuple):
    """A call added to these others at a time, in seconds of time.monotonic, and not begun."""

    call: PermittedCall
    to: list[PermittedCall]
    at: float


class ObservedCalls:
    """A pool's notes for the histograms, kept in lists because these are cheap."""

    def __init__(self) -> None:
        self.claims: list[tuple[datetime, int]] = []  # time of each, and its messages
        self.durations: list[float] = []  # of calls, in seconds
        self.stored: list[tuple[float, int]] = []  # seconds from an answer to its commit, and answers

    def pour_into(self, counts: histograms.ObservedCounts, vendor_id: int, due: datetime) -> None:
        """Count it all. due: the earliest possible time of the messages' calls."""
        for at, messages in self.claims:
            counts.observe_value(histograms.ACCEPT_TO_CALL, vendor_id, max(0.0, (at - due).total_seconds()), messages)
        counts.observe_all(histograms.CLAIM_SIZE, vendor_id, [messages for _, messages in self.claims])
        counts.observe_all(histograms.CALL, vendor_id, self.durations)
        for seconds, answers in self.stored:
            counts.observe_value(histograms.CALL_TO_STORED, vendor_id, seconds, answers)


class CallPool:
    """Makes the calls of one job. `write(answers, permits)` stores results in batches.

    cache: of files that letters carry. If a letter is not called after all, its permit still counts as used, as it does
    in the ledger.
    """

    def __init__(
        self,
        job: LeasedJob,
        write: Write,
        cache: Any = None,
        condition: ConditionFeed | None = None,
        run: ReceiverRun | None = None,
        marks: NoMarks | None = None,
        confirmations: Confirmations | None = None,
        is_held: Callable[[], bool] = bool,
    ) -> None:
        self.size = job.adapter.concurrency * job.adapter.capabilities.batch_max
        self.in_flight = 0
        self._busy = 0  # connections with a call
        self.refusal: Refusal | None = None  # the vendor could not be called, or asked to wait
        self.answered_at = 0.0  # seconds of time.monotonic: the last answer other than a refusal to be called
        self.served_at = 0.0  # the same for the last accepted or refused message
        self.not_sent = 0  # messages that wait again and may be called right away
        self.put_off = 0  # messages put off by the vendor
        self.receivers_refused: dict[str, NotSent] = {}  # receivers that asked to wait, with their last answer
        self.receivers_watched: Mapping[str, float] = {}  # as SendContext.receivers
        self.receivers_known = True  # as SendContext.receivers_known
        self.receivers_served: set[str] = set()  # those of them that accepted a message after their wait
        self._run = run or ReceiverRun()
        self._marks = marks or NoMarks()  # in the journal of calls
        self._tells = marks is not None and tells_progress(job.adapter)
        self._undecided = 0  # good answers that may turn out to belong to a run of equal refusals
        self.well = self.ill = 0  # unreported answers for and against the vendor's health
        self._login_refused = False
        self.trouble = ""  # the text of the last bad answer, without the recipient
        self._job, self._write = job, write
        self._ids = {"job": str(job.lease.job_id), "vendor": str(job.vendor_id)}
        self._files = ports.letters.files_of(job.campaign, cache) if cache else None
        self._deadlines = Deadlines(job.adapter.deadline)
        self._waiting: deque[PermittedCall] = deque()
        self._added: dict[int, AddedCall] = {}  # by message
        self._callers = 0  # tasks, one for each connection in use
        self._fit = job.adapter.capabilities.batch_max  # letters that fit into a call by their size, by the last ones
        self._group: asyncio.TaskGroup | None = None
        self._took = self._storing = 0.0  # moving averages in seconds: of a call, and of storing answers
        self._answers: list[CallResult] = []
        self._noted, self._poured_at = ObservedCalls(), 0.0  # seconds of time.monotonic
        self._oldest = 0.0  # seconds of time.monotonic: arrival of the first of these answers
        self._permits: list[str] = []
        self._condition = condition
        self.calls_made = 0
        self.claims_ahead = False  # whether more may be claimed than there are connections
        self._ahead = False  # whether some of the waiting calls had no free connection at their claim
        self._is_held = is_held  # tells whether a row of refusals is full
        self.first_given_back: int | None = None  # the first message that was claimed ahead and not called
        self.given_back_at = -math.inf  # seconds of time.monotonic: the last time
        self.terms: ClaimTerms | None = None  # under which the waiting calls were claimed
        self._confirmations = confirmations
        self._confirmed_until = -math.inf if confirmations else math.inf  # in ticks: calls start before then
        self._confirmed = asyncio.Event()
        self._gives_up = math.inf  # in ticks: without a confirmation until then, what waits is given back
        self._answered, self._all_answered, self._freed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @property
    def claim_reach(self) -> int:
        """How many messages may be in flight: what can be called in CLAIM_AHEAD_SECONDS, at least `size`.

        At the first sign of trouble it is `size`, so that no more calls fail than there are connections.
        """
        if not self.claims_ahead or not self._took or self._cannot_be_called or self._is_troubled:
            return self.size
        return max(self.size, min(AHEAD_MOST, int(self.size * settings.CLAIM_AHEAD_SECONDS / self._took)))

    @property
    def is_ahead(self) -> bool:
        """Whether calls wait for a connection, and none of these waits for an answer to be stored."""
        return bool(self._waiting) and self.claim_reach > self.size

    @property
    def free_places(self) -> int:
        """How many more messages can be claimed now. Permits for more would grow too old.

        Each doubt since the last clear answer takes a connection away, so a vendor that fails cannot turn more calls
        into doubts than there are connections.
        """
        if (reach := self.claim_reach) > self.size:
            return max(0, reach - self.in_flight)
        adapter = self._job.adapter
        batch, doubts = adapter.capabilities.batch_max, self._doubted_runs
        idle = (adapter.concurrency - self._busy - doubts) * batch - len(self._waiting)
        return max(0, min(self.size - self.in_flight - doubts * batch, idle))

    @property
    def store_patience(self) -> float:
        """Seconds for which answers may wait for others, since storing them together costs less."""
        patience = min(PATIENCE_MOST, PATIENCE * self._took)
        return patience if patience > PATIENCE_LEAST else 0.0

    def submit_calls(
        self,
        calls: list[PermittedCall],
        suppressed: Mapping[int, str],
        terms: ClaimTerms | None = None,
        asked: float = 0.0,
    ) -> None:
        """Start these calls. suppressed: {index: reason} of those that must not be called.

        terms, asked: what the claim has checked, and a time before that (confirming.read_ticks).
        """
        self._marks.mark_claimed(calls)
        if terms is not None:
            self._take_terms(terms, asked, len(calls) - len(suppressed))
        self.in_flight += len(calls)
        if calls:
            self._noted.claims.append((calls[0].claim.at, len(calls)))
        for number, reason in suppressed.items():
            self._finish_call(calls[number], SuppressedRecipient(reason), called=False)
        self._waiting.extend(call for number, call in enumerate(calls) if number not in suppressed)
        if self._group is not None:
            self._call_those_that_wait(self._group)
        if self._ahead:
            self._watch_calls()
        if (self._ahead or self.claims_ahead) and self._cannot_be_called:  # it was refused while this was claimed
            self.give_back_calls()

    def _watch_calls(self) -> None:
        if self._confirmations is not None:
            self._confirmations.watch_calls(self)

    def _take_terms(self, terms: ClaimTerms, asked: float, calls: int) -> None:
        """Take over the terms of a new claim with so many calls. Under other terms, what waits is given back."""
        if self.terms and self.waiting and not terms.allows_calls_of(self.terms):
            self.give_back_calls()
        adapter = self._job.adapter
        idle = (adapter.concurrency - self._busy) * adapter.capabilities.batch_max
        self._ahead = bool(self._ahead and (self._waiting or self._added)) or len(self._waiting) + calls > idle
        if self.terms and self.terms.suppressions < terms.suppressions and self.waiting:
            terms = terms._replace(suppressions=self.terms.suppressions)  # of older claims: they are checked first
        else:
            self._confirmed_until = max(self._confirmed_until, asked + FRESH)
        self._gives_up = read_ticks() + UNCONFIRMED_MOST
        self.terms = terms

    @property
    def waiting(self) -> Sequence[PermittedCall]:
        """The calls that have not begun."""
        return [*(one.call for one in self._added.values()), *self._waiting]

    @property
    def has_enough(self) -> bool:
        """Whether enough is claimed ahead for the connections not to wait for the next claim."""
        return len(self._waiting) > self.size and self._few_are_free

    def confirm_calls(self, asked: float) -> None:
        """Let the waiting calls start: at this time (confirming.read_ticks) or later nothing spoke against it."""
        self._confirmed_until = max(self._confirmed_until, asked + FRESH)
        if (now := read_ticks()) < self._confirmed_until:
            self._gives_up = now + UNCONFIRMED_MOST
        self._confirmed.set()
        if self._added and self._group is not None and self._callers < self._job.adapter.concurrency:
            self._take_back_added(self._group)

    def _take_back_added(self, group: asyncio.TaskGroup) -> None:
        """Let calls that wait behind a slow reply go over the connections that are free by now."""
        before = time.monotonic() - ADDED_SECONDS
        slow = [one.call for one in self._added.values() if one.at <= before]
        for call in slow:
            del self._added[call.message.id]
        self._let_wait_again(slow)
        self._call_those_that_wait(group)

    def give_back_calls(self, *, but: Mapping[int, str] | None = None) -> None:
        """Let the messages of the calls that have not begun wait again.

        but: {message: reason}: keep the others, and these are not called, because their recipients are suppressed.
        """
        waiting, kept = self.waiting, list[PermittedCall]()
        for call in waiting:
            if but is None:
                self._give_call_back(call, "it was claimed ahead, and not called")
            elif reason := but.get(call.message.id):
                self._finish_call(call, SuppressedRecipient(reason), called=False)
            else:
                kept.append(call)
        left = {call.message.id for call in kept}
        added, self._added = self._added, {number: one for number, one in self._added.items() if number in left}
        self._waiting.clear()
        self._waiting.extend(call for call in kept if call.message.id not in added)
        self._confirmed.set()

    def _give_call_back(self, call: PermittedCall, why: str) -> None:
        first = self.first_given_back
        self.first_given_back = call.message.id if first is None else min(first, call.message.id)
        if self._ahead:
            self.given_back_at = time.monotonic()
        self._finish_call(call, NotSent(why), called=False)

    @property
    def _is_troubled(self) -> bool:
        """Whether the last answers were doubts, or refusals in a row that may be about us.

        No more calls may then be without a stored answer than there are connections.
        """
        return self._doubted_runs > 0 or self._undecided >= RUN_LEAST

    @property
    def _doubted_runs(self) -> int:
        return self._condition.doubts_running if self._condition else 0

    @property
    def _may_start(self) -> bool:
        """Whether a waiting call may start now. Those with a free connection at their claim need no confirmation."""
        if not self._ahead:
            return True
        if read_ticks() > self._confirmed_until or self._is_held():
            return False
        if not self._is_troubled:
            return True
        unstored = self.in_flight - len(self._waiting)
        return unstored < self.size - self._doubted_runs * self._job.adapter.capabilities.batch_max

    async def _wait_to_start(self) -> bool:
        """Wait until a waiting call may start; return False if none is left."""
        while self._waiting and not self._may_start:
            self._watch_calls()
            if read_ticks() > max(self._gives_up, self._confirmed_until):
                self.give_back_calls()
                break
            self._confirmed.clear()
            await wait_for_event(self._confirmed, LOOK_SECONDS)
        return bool(self._waiting)

    def _pour_histograms(self) -> None:
        """Hand over the notes for the histograms since the last time."""
        noted, self._noted, self._poured_at = self._noted, ObservedCalls(), time.monotonic()
        campaign = self._job.campaign
        if noted.claims or noted.stored:
            due = max(campaign.created_at, campaign.send_at or campaign.created_at)
            noted.pour_into(histograms.counts, self._job.vendor_id, due)

    @property
    def _moment_seconds(self) -> float:
        """Seconds for which answers and freed connections wait for others: the time to store answers."""
        return min(self._storing, MOMENT_MOST)

    @property
    def _few_are_free(self) -> bool:
        """Whether connections limit the stream, not permits or messages."""
        return self.free_places <= self.claim_reach // 2

    async def wait_for_free(self) -> None:
        """Wait briefly until enough connections are free to be worth a claim."""
        if not self._few_are_free:
            return
        if self.has_enough or not self.free_places:
            await self.wait_for_result(0.2)
        if self.claims_ahead and self._waiting:  # no connection is idle meanwhile
            return
        until = time.monotonic() + self._moment_seconds
        while self._few_are_free and not self.refusal and (left := until - time.monotonic()) > 0:
            await self.wait_for_result(left)

    async def wait_for_result(self, seconds: float) -> None:
        """Wait until a result is stored, for `seconds` at most."""
        self._freed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._freed.wait()
        except TimeoutError:
            pass

    async def run_calls(self) -> None:
        """Make calls until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._call_those_that_wait(group)
                await self._record_answers()
        finally:
            self._pour_histograms()

    def _call_those_that_wait(self, group: asyncio.TaskGroup) -> None:
        adapter = self._job.adapter
        most = min(adapter.concurrency - self._callers, -(-len(self._waiting) // adapter.capabilities.batch_max))
        for _ in range(most):
            self._callers += 1
            group.create_task(self._call_waiting())

    async def _call_waiting(self) -> None:
        """Make calls until none waits, then end, so that the hundreds of waiting jobs in a process cost no tasks."""
        log_ids.IDS.set(self._ids)  # of this task alone
        waiting, most = self._waiting, self._job.adapter.capabilities.batch_max
        while waiting:
            if not self._may_start and not await self._wait_to_start():
                break
            self._busy += 1
            if most == 1 and self._files is None:  # the usual case: a single letter delays no other task
                call = waiting.popleft()
                await self._call_vendor((call,), [call.letter or self._job.letter(call.message)])
            else:
                batch = [waiting.popleft() for _ in range(min(self._fit, len(waiting)))]
                together, *later = split_by_size(list(zip(batch, await self._make_letters(batch), strict=True)))
                self._fit = len(together) if later else min(most, 2 * self._fit)
                self._let_wait_again([call for part in later for call, _ in part])
                await self._call_vendor(*zip(*together, strict=True))
            self._busy -= 1
            if not self._busy:
                self._all_answered.set()
        self._callers -= 1

    async def _make_letters(self, calls: list[PermittedCall]) -> Sequence[Letter | Outcome]:
        made = [call.letter for call in calls if call.letter]  # either all are made or none
        made = made or await letters_in_turn(self._job, [call.message for call in calls])
        return made if self._files is None else await self._files.enclose(made)

    async def _call_vendor(self, calls: Sequence[PermittedCall], letters: Sequence[Letter | Outcome]) -> None:
        """Make one call for these messages, leaving out those that must not be called."""
        now = time.monotonic()
        called: list[PermittedCall] = []
        sent: list[Letter] = []
        for call, letter in zip(calls, letters, strict=True):
            if self._may_be_called(letter, call, now):
                called.append(call)
                sent.append(letter)
        if not called:
            return
        ongoing = OngoingCall(self, called, now) if self._tells else None
        if ongoing is not None:
            progress.set(ongoing)
        else:
            self._marks.called(called)
        outcomes: list[Outcome]
        try:
            with self._deadlines:
                failpoints.here("before_call")
                outcomes = await self._job.adapter.send(sent)
                failpoints.here("after_call")
        except TimeoutError:
            outcomes = [InDoubt("no answer before the deadline")] * len(called)
        except Exception as error:  # an adapter's bug must not pass for an answer
            alarms.ADAPTER_FAILED.log(log, exc_info=True)
            outcomes = [InDoubt(f"{type(error).__name__} in the adapter")] * len(called)
        self.calls_made += 1
        if ongoing is None:
            self.take_answers(called, outcomes, now)
            return
        self._let_wait_again(ongoing.take_uncalled())  # such as those whose confirmation came late
        self.take_answers(called[ongoing.answers :], outcomes[ongoing.answers : len(called)], ongoing.since)

    def _let_wait_again(self, calls: Sequence[PermittedCall]) -> None:
        """Let calls that were taken start before all others, once they are confirmed."""
        if calls:
            self._waiting.extendleft(reversed(calls))
            self._ahead = True
            self._watch_calls()

    def _may_be_called(self, letter: Letter | Outcome, call: PermittedCall, now: float) -> TypeGuard[Letter]:
        """Tell whether the call may start now; record why it may not."""
        if not isinstance(letter, Letter):
            self._finish_call(call, letter, called=False)
        elif now > call.latest:
            self._give_call_back(call, "its permit was too old to start a call")
        else:
            return True
        return False

    def mark_called(self, call: PermittedCall) -> None:
        self._marks.called((call,))

    def take_answers(self, calls: Sequence[PermittedCall], outcomes: Iterable[Outcome], began: float) -> None:
        """Take in the answers to all letters of a call, or to some. began: seconds of time.monotonic."""
        followed = [follow_answer(one, self._job.campaign) for one in outcomes]
        if not calls and not followed:
            return
        took = time.monotonic() - began
        self._took += (took - self._took) / 8
        self._noted.durations.append(took)
        if self._condition is not None:
            self._condition.note_call(followed, began)
        for call, outcome in zip(calls, followed, strict=True):
            self._finish_call(call, outcome, called=True)
        if self._ahead and self._cannot_be_called:
            self.give_back_calls()

    def add_letter(self, to: list[PermittedCall]) -> Letter | None:
        """Add the next waiting call to these and return its letter; None if none may start or needs to."""
        while self.is_ahead and self._files is None and self._goes_on:
            letter = self._waiting[0].letter or self._job.letter(self._waiting[0].message)
            call = self._waiting.popleft()
            if self._may_be_called(letter, call, time.monotonic()):
                to.append(call)
                self._added[call.message.id] = AddedCall(call, to, time.monotonic())
                if not self._ahead:  # it had a free connection, and waits for its turn over another one now
                    self._ahead = True
                    self._watch_calls()
                return letter
        return None

    def keep_added(self, call: PermittedCall, to: list[PermittedCall]) -> bool:
        """Keep a call added to these: it is not given back any more. Returns False if it was, or has another place."""
        added = self._added.get(call.message.id)
        if added is None or added.to is not to:
            return False
        del self._added[call.message.id]
        return True

    def may_begin(self, call: PermittedCall) -> bool:
        """Tell whether an added call may begin now."""
        return self._goes_on and time.monotonic() <= call.latest

    @property
    def _goes_on(self) -> bool:
        return self._may_start and not self._cannot_be_called

    @property
    def _cannot_be_called(self) -> bool:
        return bool(self.refusal or self.receivers_refused)

    def _finish_call(self, call: PermittedCall, outcome: Outcome | SuppressedRecipient, *, called: bool) -> None:
        self._permits.extend(call.permits)
        if not self._answers:
            self._oldest = time.monotonic()
        self._answers.append(CallResult(call, outcome))
        if called and not isinstance(outcome, SuppressedRecipient):
            mark_answer(self._marks, call, outcome)
            self._count_outcome(outcome, call.message.recipient)
        if isinstance(outcome, NotSent):
            self._not_sent(outcome, call.message.recipient, called=called)
        elif called and isinstance(outcome, InDoubt) and outcome.pause:
            self.refusal = heavier_refusal(self.refusal, outcome)
        elif called and not (isinstance(outcome, InDoubt) and not outcome.answered):
            self.answered_at = time.monotonic()
            if isinstance(outcome, SERVED):
                self.served_at = self.answered_at
            if isinstance(outcome, Accepted) and (self._run.receivers or self.receivers_watched):
                self._note_receiver(call)
        self._answered.set()

    def _note_receiver(self, call: PermittedCall) -> None:
        self._run.note_acceptance()
        if self.receivers_watched:
            receiver = waiting_part(domain_of(call.message.recipient))
            unknown = math.inf if self.receivers_known or receiver in known_groups() else 0.0
            if self.receivers_watched.get(receiver, unknown) <= call.claim.at.timestamp():
                self.receivers_served.add(receiver)

    def _not_sent(self, outcome: NotSent, recipient: str, *, called: bool) -> None:
        if outcome.puts_off:
            self.put_off += 1
            return
        self.not_sent += 1
        if called and outcome.scope == "receiver":
            receiver, outcome = self._run.note_refusal(recipient, outcome)
            outcome = spare_for_sender(outcome, self._job.campaign)
            if outcome.scope == "receiver":
                self.receivers_refused[receiver] = replace(outcome, reason=_mask_recipient(recipient, outcome.reason))
                return
        if called and (outcome.pause or outcome.scope == "credential" or outcome.retry_after is None):
            self.refusal = heavier_refusal(self.refusal, outcome)

    def refuse_run(self, run: SeenRun) -> None:
        """Take equal refusals over the credential for a refusal of ours."""
        self.ill += self._undecided
        self._undecided = 0
        self.refusal = heavier_refusal(self.refusal, run.pause_outcome())

    def forget_undecided(self) -> None:
        """Count undecided answers neither as good nor as bad: one sponsor's mail says nothing about the vendor."""
        self._undecided = 0

    def settle_health(self) -> None:
        """Count the undecided answers for the vendor's health: no more answers will come."""
        self.well += self._undecided
        self._undecided = 0

    def _count_outcome(self, outcome: Outcome, recipient: str) -> None:
        good = self._job.adapter.is_good(outcome)
        if self._condition is not None:
            text = _mask_recipient(recipient, outcome.reason) if good is False and isinstance(outcome, Refusal) else ""
            self._condition.note_outcome(outcome, good, text)
        if good and isinstance(outcome, Refused) and outcome.may_be_ours and settings.EQUAL_REFUSALS:
            self._undecided += 1
            return
        if isinstance(outcome, Accepted):
            self.settle_health()
        self.well += good is True
        self.ill += good is False and not self._is_known_login(outcome)
        if good is False and isinstance(outcome, NotSent | InDoubt):
            self.trouble = _mask_recipient(recipient, outcome.reason)

    def _is_known_login(self, outcome: Outcome) -> bool:
        """Return True if the login was refused before. All calls under way then get that answer.

        It is one bad sign, or a sponsor's wrong login would close the vendor to programs of all others.
        """
        if not (isinstance(outcome, NotSent) and outcome.pause and outcome.scope == "credential"):
            return False
        before, self._login_refused = self._login_refused, True
        return before

    async def _record_answers(self) -> None:
        while True:
            await self._answered.wait()
            await self._wait_for_others()
            self._answered.clear()
            answers, self._answers = self._answers, []
            permits, self._permits = self._permits, []
            oldest, began = self._oldest, time.monotonic()
            await self._write(answers, permits)
            self._marks.free_stored(answer.call for answer in answers)
            now = time.monotonic()
            self._noted.stored.append((now - oldest, len(answers)))
            if now - self._poured_at > POUR_SECONDS:
                self._pour_histograms()
            self._storing += (time.monotonic() - began - self._storing) / 8
            self.in_flight -= len(answers)
            self._freed.set()
            self._confirmed.set()

    async def _wait_for_others(self) -> None:
        """Wait a moment for the answers of the calls under way.

        Results stored together free their connections together, and those share a claim. If permits or messages are the
        limit rather than connections, this does not wait.
        """
        if self._busy and not self.refusal and (self.is_ahead or self._few_are_free):
            self._all_answered.clear()
            await wait_for_event(self._all_answered, MOMENT_MOST if self.is_ahead else self._moment_seconds)


def _mask_recipient(recipient: str, text: str) -> str:
    """Return the text without the recipient: vendors often repeat the address, or the part before its @."""
    for known in (recipient, recipient.partition("@")[0]):
        if len(known) > 2:
            text = re.sub(re.escape(known), "…", text, flags=re.IGNORECASE)
    return text
