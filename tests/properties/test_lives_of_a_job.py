"""Hypothesis writes lives of a job: several senders claim, call, answer late, die or are thought dead; operators stop
and resume; the finaliser comes at any time. The real statements on real rows; the vendor is a list in this file.

The vendor neither deduplicates nor can it be relied on for what it does not find (the hardest kind). In whatever order
things happen, the judge of tests/faults finds nothing, and every life can be brought to its end.
"""

import asyncio
import os
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models import F, Sum
from django.db.models.functions import Now
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from campaigns.engine import audit, delivery_reports, ground_truth
from campaigns.engine.claiming import claims
from campaigns.engine.connections import open_connection
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.finishing import finalizer
from campaigns.engine.lifecycle import merge_answers, move
from campaigns.engine.sending.sender import drain_job, put_back
from campaigns.models import AnswerBatch, Campaign, Claim, CostEntry, Job, Message, MessageEvent
from campaigns.operations import actions
from sandbox.vendor.books import BookEntry, Books
from tests import calling, factories
from tests.faults.checker import judge, sums
from vendors.adapters.reports import Reported
from vendors.models import Minute
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

pytestmark = [pytest.mark.slow("many"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
NIGHTLY = os.environ.get("MAILHUB_NIGHTLY") == "1"
RECIPIENTS = 2
NEVER = timedelta()
ANY = st.integers(0, 99)
FATES = ["accepted", "lost", "refused", "not sent", "error", "later"]


@dataclass
class Sender:
    """What a sender holds: messages that it claimed, outcomes not stored yet, outcomes stored before.

    claims: of all these messages. cursor: where it claims next.
    """

    lease: claims.Lease
    cursor: int = 0
    claims: dict[int, Any] = field(default_factory=dict)
    claimed: dict[int, str] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    recorded: dict[int, Outcome] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        return not self.claimed and not self.outcomes


class Lives(RuleBasedStateMachine):
    """The rules are coarse, each a whole event: a random search finds no long stories."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.rows = self.loop.run_until_complete(open_connection())
        self.job: Any = factories.campaign_with_job(RECIPIENTS, of=factories.credential(), status="DISPATCHED")
        self.senders: list[Sender] = []
        self.vendor: list[BookEntry] = []

    def now(self) -> str:
        self.job.refresh_from_db()
        return str(self.job.status)

    @rule(most=st.integers(0, 2))
    def another_sender(self, most: int) -> None:
        """Claims and has made no call yet. The earlier sender is thought dead; it may only be slow, and is kept."""
        finalizer.recover_job(self.job.pk, NEVER)
        dispatcher.dispatch_ready()
        waiting = Job.objects.filter(pk=self.job.pk)
        move(waiting, "enqueue", fence=F("fence") + 1, heartbeat_at=Now())
        if started := claims.start_job(self.job.pk, waiting.get().fence):
            self.senders.append(Sender(started.lease))
            self.claim_and_call(len(self.senders) - 1, ["later"] * most, tell=False)

    @precondition(lambda self: self.senders)
    @rule(which=ANY, fates=st.lists(st.sampled_from(FATES), min_size=1, max_size=2), tell=st.booleans())
    def claim_and_call(self, which: int, fates: list[str], tell: bool) -> None:
        sender = self.senders[which % len(self.senders)]
        for message in self.loop.run_until_complete(self._claim(sender, len(fates))) if fates else ():
            sender.claimed[message.id] = message.reference
            sender.recorded.pop(message.id, None)  # results are stored before a message is claimed again
        for fate in fates:
            self._call(sender, fate)
        if tell:
            self._record(sender)

    async def _claim(self, sender: Sender, most: int) -> list[claims.ClaimedMessage]:
        """Claims forward; from the first message again if all calls are answered."""
        if sender.idle:
            sender.cursor = await claims.new_pass(self.rows, sender.lease, self.job.first_message, self.job.end)
        units = {id: calling.costs(id) for id in range(sender.cursor, self.job.end)}
        messages, claim, *_ = await calling.claim(
            self.rows, self.job, sender.lease, most, cursor=sender.cursor, units=units
        )
        for one in messages:
            sender.cursor = one.id + 1
            sender.claims[one.id] = claim
        return messages

    def _call(self, sender: Sender, fate: str) -> None:
        """Its call reaches the vendor now, however long ago it was allowed; or it proves that it never called."""
        if fate == "later" or not sender.claimed:
            return
        message_id, reference = sender.claimed.popitem()
        seq = len(self.vendor) + 1
        verdict: Any = {"accepted": "accepted", "lost": "accepted", "refused": "refused", "error": "failed"}.get(fate)
        if verdict:
            self.vendor.append(BookEntry(seq, seq, seq, reference, reference, "", verdict, None, "", f"v-{seq}"))
        sender.outcomes[message_id] = {
            "accepted": Accepted(f"v-{seq}"),
            "refused": Refused("bounce"),
            "not sent": NotSent("no connection"),
        }.get(fate) or InDoubt("no answer")

    @precondition(lambda self: any(sender.claimed for sender in self.senders))
    @rule(which=ANY, fate=st.sampled_from(FATES), tell=st.booleans())
    def a_late_call(self, which: int, fate: str, tell: bool) -> None:
        busy = [sender for sender in self.senders if sender.claimed]
        self._call(busy[which % len(busy)], fate)
        if tell:
            self._record(busy[which % len(busy)])

    @precondition(lambda self: any(sender.outcomes or sender.recorded for sender in self.senders))
    @rule(which=ANY)
    def record(self, which: int) -> None:
        full = [sender for sender in self.senders if sender.outcomes or sender.recorded]
        self._record(full[which % len(full)])

    def _record(self, sender: Sender) -> None:
        """What it has already stored is stored again with it: the answer to that commit may have been lost."""
        news = set(sender.outcomes)
        sender.recorded |= sender.outcomes
        sender.outcomes.clear()
        for message_id, outcome in sender.recorded.items():
            self.loop.run_until_complete(self._append(sender, message_id, outcome, message_id in news))

    async def _append(self, sender: Sender, message_id: int, outcome: Outcome, new: bool) -> None:
        claim = sender.claims[message_id]
        if new:
            sender.claims[message_id] = replace(claim)
            claim.left -= 1
        await calling.append(self.rows, sender.lease, sender.claims[message_id], [(message_id, outcome)])

    @rule(all_of_it=st.booleans())
    def merge(self, all_of_it: bool) -> None:
        """By a sender, or by the sweep."""
        if all_of_it:
            finalizer.merge_answers(NEVER)
        else:
            self.loop.run_until_complete(merge_answers(self.rows, [self.job.pk]))

    @precondition(lambda self: any(sender.idle for sender in self.senders))
    @rule(which=ANY, drained=st.booleans())
    def let_go(self, which: int, drained: bool) -> None:
        idle = [sender for sender in self.senders if sender.idle]
        sender = idle[which % len(idle)]
        if not (drained and drain_job(sender.lease, self.job.first_message, self.job.end).done):
            put_back(sender.lease.job_id, sender.lease.fence)

    @rule()
    def the_rest_goes_out(self) -> None:
        """The last sender is quick and sends all that is left."""
        self.another_sender(0)
        while self._sends_one():
            pass
        if self.senders and self.senders[-1].idle:
            drain_job(self.senders[-1].lease, self.job.first_message, self.job.end)

    def _sends_one(self) -> bool:
        if not self.senders or not self.senders[-1].idle:
            return False
        before = len(self.vendor)
        self.claim_and_call(len(self.senders) - 1, ["accepted"], tell=True)
        return len(self.vendor) > before

    @rule(recovered=st.booleans())
    def finalise(self, recovered: bool) -> None:
        if recovered:
            finalizer.recover_job(self.job.pk, NEVER)
        finalizer.finalise_job(self.job.pk)

    @rule(verb=st.sampled_from(["stop_jobs", "retry_jobs", "look up"]))
    def a_person(self, verb: str) -> None:
        if verb == "look up":
            self._look_up()
        else:
            getattr(actions, verb)([self.job.pk])

    def _look_up(self) -> None:
        found = {entry.reference: entry.id for entry in self.vendor if entry.verdict == "accepted"}
        doubts = Message.objects.filter(in_doubt_at__isnull=False)
        hits = [
            (message.pk, found[message.reference], message.resend_no)
            for message in doubts
            if message.reference in found
        ]
        if hits:
            self.loop.run_until_complete(ground_truth.accept_messages(self.rows, hits))

    @rule(which=ANY, kind=st.sampled_from(["delivered", "bounced"]), minute=st.integers(0, 3))
    def the_vendor_reports(self, which: int, kind: Any, minute: int) -> None:
        """What became of a letter that it has, perhaps before the answer of the call is stored, perhaps long after."""
        letters = [entry.reference for entry in self.vendor if entry.verdict == "accepted"]
        if letters:
            at = datetime(2026, 3, 1, 12, minute, tzinfo=UTC)
            reported = Reported(letters[which % len(letters)], kind, at)
            assert delivery_reports.store_reports(self.job.vendor_id, [reported]).unknown == ()

    def teardown(self) -> None:
        """In the middle of everything nothing is wrong; and everything comes to an end."""
        if not hasattr(self, "job"):
            return
        try:
            assert judge(Books(self.vendor), final=False) == [] and broken() == [] and charged_as_called()
            self._to_the_end()
            assert judge(Books(self.vendor)) == [] and sums().total() == RECIPIENTS and broken() == []
            assert charged_as_called()
        finally:
            self.loop.run_until_complete(self.rows.close())
            self.loop.close()
            for table in (AnswerBatch, Claim, Job, MessageEvent, Message, Campaign, CostEntry, Minute):
                table.objects.all().delete()

    def _to_the_end(self) -> None:
        self.senders.clear()
        for _ in range(10):
            self.finalise(recovered=True)
            if self.now() == "LOGGED":
                finalizer.merge_answers(NEVER)
                return
            self.the_rest_goes_out()
        raise AssertionError(f"it comes to no end: {self.now()}")


def charged_as_called() -> bool:
    """The accounts have the units of each accepted message once, whoever learned of it, in whatever order."""
    accepted = Message.objects.filter(message_id__isnull=False).values_list("pk", flat=True)
    entered = CostEntry.objects.aggregate(messages=Sum("messages", default=0), units=Sum("units", default=0))
    return entered == {"messages": len(accepted), "units": sum(map(calling.costs, accepted))}


def broken() -> list[Any]:
    return [check for check in audit.ask_all_questions() if not check.is_kept and check.promise in ("P1", "P3", "P7")]


def test_whatever_happens_in_whatever_order_every_promise_is_kept() -> None:
    run_state_machine_as_test(
        Lives,
        settings=settings(
            max_examples=1000 if NIGHTLY else 30,
            stateful_step_count=30,
            derandomize=not NIGHTLY,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
