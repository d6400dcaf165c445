"""Hypothesis writes lives of a job: several senders claim, call, answer late, die or are thought dead; people stop and
resume; the finaliser comes at any time. The real statements on real rows; the vendor is a list in this file.

The vendor neither deduplicates nor can it be relied on for what it does not find (the hardest kind). In whatever order
things happen, the judge of tests/faults finds nothing, and every life can be brought to its end.
"""

import asyncio
import os
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from campaigns import dispatcher
from campaigns.claims import finalising, people, sending, truth
from campaigns.models import Campaign, Job, Message, OpsMessage
from campaigns.sender import standing
from campaigns.sender.sending import connect
from campaigns.states import move
from tests import factories
from tests.faults.checker import judge, sums
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused
from vendors.sandbox.books import Books, Entry

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
NIGHTLY = os.environ.get("MAILHUB_NIGHTLY") == "1"
RECIPIENTS = 4
NEVER = timedelta()


@dataclass
class Sender:
    """What a sender has in its hands: claimed messages, and the outcomes of those that it called."""

    lease: sending.Lease
    claimed: dict[int, str] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        return not self.claimed and not self.outcomes


class Lives(RuleBasedStateMachine):
    """The rules are coarse: each is one thing that happens in the world."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.rows = self.loop.run_until_complete(connect())
        login = factories.credential()
        self.job: Any = factories.campaign_with_job(RECIPIENTS, of=login, status="DISPATCHED")
        self.senders: list[Sender] = []
        self.vendor: list[Entry] = []

    def now(self) -> str:
        self.job.refresh_from_db()
        return str(self.job.status)

    @rule()
    def dispatch(self) -> None:
        dispatcher.dispatch_ready()

    @rule()
    def a_sender_takes_it(self) -> None:
        taken = Job.objects.filter(pk=self.job.pk)
        move(taken, "enqueue", fence=taken.get().fence + 1, heartbeat_at=factories.timezone.now())
        lease = sending.take(self.job.pk, taken.get().fence)
        if lease and sending.enqueue(raw(), lease, self.job.first_message, self.job.end) and sending.start(lease):
            self.senders.append(Sender(lease))

    @precondition(lambda self: self.senders)
    @rule(which=st.integers(0, 99), most=st.integers(1, 3))
    def claim(self, which: int, most: int) -> None:
        sender = self.senders[which % len(self.senders)]
        for message in self.loop.run_until_complete(self._claim(sender.lease, most)):
            sender.claimed[message.id] = message.reference

    async def _claim(self, lease: sending.Lease, most: int) -> list[sending.Claimed]:
        job = self.job
        world = await standing.read(self.rows, lease, job.vendor_id, job.credential_id)
        words = {
            "job": job.pk, "fence": lease.fence, "vendor": job.vendor_id, "terms": world.terms, "hold": 1.0,
            "credential": job.credential_id, "generation": world.scope.generation, "cursor": 0, "end": job.end,
            "most": most,
        }  # fmt: skip
        return await sending.claim(self.rows, words)

    @precondition(lambda self: any(sender.claimed for sender in self.senders))
    @rule(which=st.integers(0, 99), fate=st.sampled_from(["accepted", "lost", "refused", "not sent", "error"]))
    def call(self, which: int, fate: str) -> None:
        """Or the proof that none was made. Also by a sender that was thought dead: its call was on the way."""
        busy = [sender for sender in self.senders if sender.claimed]
        sender = busy[which % len(busy)]
        message_id, reference = sender.claimed.popitem()
        seq = len(self.vendor) + 1
        verdict: Any = {"accepted": "accepted", "lost": "accepted", "refused": "refused", "error": "failed"}.get(fate)
        if verdict:
            self.vendor.append(Entry(seq, seq, seq, reference, reference, "", verdict, None, "", f"v-{seq}"))
        sender.outcomes[message_id] = {
            "accepted": Accepted(f"v-{seq}"),
            "refused": Refused("bounce"),
            "not sent": NotSent("no connection"),
        }.get(fate) or InDoubt("no answer")

    @precondition(lambda self: any(sender.outcomes for sender in self.senders))
    @rule(which=st.integers(0, 99), twice=st.booleans())
    def record(self, which: int, twice: bool) -> None:
        full = [sender for sender in self.senders if sender.outcomes]
        sender = full[which % len(full)]
        answers = list(sender.outcomes.items())
        for _ in range(1 + twice):
            self.loop.run_until_complete(sending.record(self.rows, sender.lease, answers))
        sender.outcomes.clear()

    @precondition(lambda self: any(sender.idle for sender in self.senders))
    @rule(which=st.integers(0, 99), drained=st.booleans())
    def let_go(self, which: int, drained: bool) -> None:
        idle = [sender for sender in self.senders if sender.idle]
        sender = idle[which % len(idle)]
        if not (drained and sending.drain(raw(), sender.lease, self.job.first_message, self.job.end)):
            finalising.put_back(sender.lease.job_id, sender.lease.fence)
        self.senders.remove(sender)

    @precondition(lambda self: self.senders)
    @rule(which=st.integers(0, 99))
    def die(self, which: int) -> None:
        self.senders.pop(which % len(self.senders))

    @rule()
    def recover(self) -> None:
        """Those who held it may be dead, or only slow."""
        finalising.recover(self.job.pk, NEVER)

    @rule()
    def finalise(self) -> None:
        finalising.finalise(self.job.pk)

    @rule()
    def stop(self) -> None:
        people.stop([self.job.pk])

    @rule()
    def retry(self) -> None:
        people.retry([self.job.pk])

    @rule()
    def look_up(self) -> None:
        found = {entry.reference: entry.id for entry in self.vendor if entry.verdict == "accepted"}
        doubts = Message.objects.filter(in_doubt_at__isnull=False)
        hits = [(message.pk, found[message.reference]) for message in doubts if message.reference in found]
        if hits:
            self.loop.run_until_complete(truth.accept(self.rows, hits))

    def teardown(self) -> None:
        """In the middle of everything nothing is wrong; and everything comes to an end."""
        if not hasattr(self, "job"):
            return
        try:
            assert judge(Books(self.vendor), final=False) == []
            self._to_the_end()
            assert judge(Books(self.vendor)) == [] and sums().total() == RECIPIENTS
        finally:
            self.loop.run_until_complete(self.rows.close())
            self.loop.close()
            for table in (OpsMessage, Job, Message, Campaign):
                table.objects.all().delete()

    def _to_the_end(self) -> None:
        self.senders.clear()
        for _ in range(10):
            self.recover()
            self.finalise()
            self.dispatch()
            self.a_sender_takes_it()
            while self.senders and self._sends_one():
                pass
            if self.senders:
                self.let_go(0, drained=True)
            if self.now() == "LOGGED":
                return
        raise AssertionError(f"it comes to no end: {self.now()}")

    def _sends_one(self) -> bool:
        self.claim(0, 1)
        if not self.senders[0].claimed:
            return False
        self.call(0, "accepted")
        self.record(0, False)
        return True


def raw() -> Any:
    connection.ensure_connection()
    return connection.connection


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
