"""Hypothesis writes lives of a parent and its children: dispatched, cut, claimed, answered, lost, stopped, sent again,
settled by operators, delivery reports and look-ups, with every verb there is, in whatever order.

After each step the audit finds nothing, and neither does the judge, who knows what the vendor has; every life comes to
its end. The short form runs with the tests, MAILHUB_NIGHTLY=1 searches for longer.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from campaigns.engine import delivery_reports, ground_truth
from campaigns.engine.casting import mailcaster
from campaigns.engine.claiming import claims
from campaigns.engine.connections import open_connection
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.doubts.resolve import CannotResolve
from campaigns.engine.finishing import finalizer, sweep
from campaigns.engine.lifecycle import merge_answers
from campaigns.engine.sending import recording
from campaigns.engine.sending.sender import drain_job, put_back
from campaigns.models import AnswerBatch, Campaign, Claim, CostEntry, Job, Message, MessageEvent, Resolution
from campaigns.operations import actions
from tests import calling, factories
from tests.interleaving import judging
from tests.interleaving.pairs import to_the_end
from tests.interleaving.starts import State
from tests.interleaving.verbs import ANN, NEVER, VERBS
from vendors.adapters.reports import Reported
from vendors.models import Minute, RateLimit, Vendor
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

pytestmark = [pytest.mark.slow("many"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(3600)]
NIGHTLY = os.environ.get("MAILHUB_NIGHTLY") == "1"
RECIPIENTS = 4
ANY = st.integers(0, 99)
FATES = ["accepted", "lost", "refused", "not sent", "error"]


@dataclass
class Sender:
    """What a sender holds: messages that it claimed, by reference, and how far it has let go."""

    lease: claims.Lease
    first: int
    end: int
    cursor: int = 0
    claimed: dict[int, tuple[claims.OpenClaim, str]] = field(default_factory=dict)


class Here:
    """Like a thread of tests/interleaving, but in the current thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.rows = self.loop.run_until_complete(open_connection())

    def run(self, step: Callable[[Any], Any]) -> Any:
        return self.loop.run_until_complete(step(self.rows))

    @staticmethod
    def raw() -> Any:
        connection.ensure_connection()
        return connection.connection

    def close(self) -> None:
        self.loop.run_until_complete(self.rows.close())
        self.loop.close()


class Family(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.here: Any = Here()
        vendor = factories.vendor(small_audience_threshold=2)
        casters = [factories.caster(vendor, min_size=1, max_size=size, percentage=50) for size in (1, 2)]
        self.login = factories.credential(vendor)
        self.senders: list[Sender] = []
        top = factories.campaign_with_job(RECIPIENTS, of=self.login)
        self.casters = [caster.pk for caster in casters]
        self.state = State(vendor.pk, self.login.pk, {}, top.pk, top.pk, top.first_message, top.end)

    def job(self, which: int) -> int:
        """A job of the family."""
        ids = list(Job.objects.order_by("pk").values_list("pk", flat=True))
        return ids[which % len(ids)]

    @rule(recipients=st.integers(1, 2))
    def another_campaign(self, recipients: int) -> None:
        if Campaign.objects.count() < 2:
            factories.campaign_with_job(recipients, of=self.login)

    @rule(which=ANY, most=st.integers(0, 2))
    def a_caster_takes_or_cuts_and_its_sender_claims(self, which: int, most: int) -> None:
        """No call is made yet. Earlier senders are kept: they may only be slow."""
        dispatcher.dispatch_ready()
        claimed = mailcaster.claim_next_job(self.casters[which % 2], timezone.now())
        if claimed is None:
            return
        started, job = claims.start_job(claimed.job_id, claimed.fence), Job.objects.get(pk=claimed.job_id)
        if started:
            sender = Sender(started.lease, job.first_message, job.end)
            self.senders.append(sender)
            self._claim(sender, most)

    def _claim(self, sender: Sender, most: int) -> None:
        """Claims forward; from the first message again if all calls are answered."""
        if not most:
            return
        job = Job.objects.get(pk=sender.lease.job_id)

        async def step(rows: Any) -> claims.Claimed:
            if not sender.claimed:
                sender.cursor = await claims.new_pass(rows, sender.lease, sender.first, sender.end)
            units = {id: calling.costs(id) for id in range(sender.cursor, sender.end)}
            return await calling.claim(rows, job, sender.lease, most, cursor=sender.cursor, units=units)

        messages, claim, *_ = self.here.run(step)
        for one in messages:
            sender.cursor = one.id + 1
            sender.claimed[one.id] = claim, one.reference

    @precondition(lambda self: self.senders)
    @rule(which=ANY, fate=st.sampled_from(FATES), twice=st.booleans(), merged=st.booleans())
    def a_sender_goes_on(self, which: int, fate: str, twice: bool, merged: bool) -> None:
        """Claims, calls, and appends the answer, perhaps twice; however long ago it was thought dead."""
        sender = self.senders[which % len(self.senders)]
        if not sender.claimed:
            self._claim(sender, 1)
        if not sender.claimed:
            return
        id, (claim, reference) = sender.claimed.popitem()
        outcome = self._call(reference, fate)
        for _ in range(1 + twice):
            self.here.run(lambda rows: calling.append(rows, sender.lease, claim, [(id, outcome)]))
        claim.left -= 1
        if merged:
            self.here.run(lambda rows: merge_answers(rows, [sender.lease.job_id]))
        if isinstance(outcome, Accepted):
            self.state.reported.add(id)

    def _call(self, reference: str, fate: str) -> Outcome:
        if fate in ("accepted", "lost"):
            vendor_id = self.state.call(reference)
            return Accepted(vendor_id) if fate == "accepted" else InDoubt("no answer")
        if fate == "refused":
            self.state.call(reference, "refused")
            return Refused("bounce")
        return NotSent("no connection") if fate == "not sent" else InDoubt("error")

    @precondition(lambda self: any(not sender.claimed for sender in self.senders))
    @rule(which=ANY, how=st.sampled_from(["drains", "is put back", "expires"]))
    def a_sender_lets_go(self, which: int, how: str) -> None:
        idle = [sender for sender in self.senders if not sender.claimed]
        sender = idle[which % len(idle)]
        if how == "expires":
            self.here.run(lambda rows: recording.expire_uncalled(rows, sender.lease, sender.first, sender.end))
        if how == "is put back" or not drain_job(sender.lease, sender.first, sender.end).done:
            put_back(sender.lease.job_id, sender.lease.fence)

    @rule()
    def the_sweep_comes_by(self) -> None:
        """The sweep runs when all leases are over."""
        sweep.run_sweep(NEVER)

    @rule(which=ANY)
    def one_is_finalised(self, which: int) -> None:
        job_id = self.job(which)
        finalizer.finalise_job(job_id)
        finalizer.finish_parent(job_id)

    @rule(which=ANY, verb=st.sampled_from(["stop", "retry", "retry expired"]))
    def a_person_decides_about_a_job(self, which: int, verb: str) -> None:
        if verb == "stop":
            actions.stop_jobs([self.job(which)], ANN)
        else:
            actions.retry_jobs([self.job(which)], by=ANN, expired=verb == "retry expired")

    @rule(which=ANY, decision=st.sampled_from(["sent", "failed", "resend"]), whole=st.booleans())
    def a_person_settles_doubts(self, which: int, decision: str, whole: bool) -> None:
        doubts = self._doubts()
        try:
            if whole:
                actions.settle_jobs([self.job(which)], decision, ANN, "so I say")
            elif doubts:
                actions.settle_doubts([doubts[which % len(doubts)].pk], decision, "so I say", "ann")
        except CannotResolve:
            pass

    def _doubts(self) -> list[Message]:
        return list(Message.objects.filter(in_doubt_at__isnull=False).order_by("pk"))

    @rule(verb=st.sampled_from(["repeat", "repeat what is not there", "look up"]))
    def doubts_are_settled(self, verb: str) -> None:
        found = [(one.pk, id, one.resend_no) for one in self._doubts() if (id := self.state.has(one.reference))]
        if verb == "look up" and found:
            self.here.run(lambda rows: ground_truth.accept_messages(rows, found))
            self.state.reported |= {id for id, *_ in found}
        elif verb != "look up":
            VERBS[verb].act(self.state, self.here)

    @rule(which=ANY, kind=st.sampled_from(["delivered", "bounced"]), minute=st.integers(0, 3))
    def the_vendor_reports(self, which: int, kind: Any, minute: int) -> None:
        letters = [one.reference for one in self.state.letters if one.verdict == "accepted"]
        if letters:
            reported = Reported(letters[which % len(letters)], kind, datetime(2026, 3, 1, 12, minute, tzinfo=UTC))
            assert delivery_reports.store_reports(self.state.vendor_id, [reported]).unknown == ()

    @rule(paused=st.booleans(), units=st.integers(1000, 1001))
    def limits_are_edited(self, paused: bool, units: int) -> None:
        Vendor.objects.filter(pk=self.state.vendor_id).update(paused=paused)
        RateLimit.objects.update_or_create(vendor_id=self.state.vendor_id, seconds=1.0, defaults={"units": units})

    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "state"):
            assert judging.now(self.state) == []
            assert Message.objects.count() == sum(Campaign.objects.values_list("size", flat=True))

    def teardown(self) -> None:
        if not hasattr(self, "state"):
            return
        try:
            self.senders.clear()
            to_the_end(self.state, self.here)
            assert judging.at_the_end(self.state) == []
        finally:
            self.here.close()
            children = Job.objects.filter(parent__isnull=False)
            jobs = (children, Job.objects)
            for rows in (
                AnswerBatch.objects,
                Claim.objects,
                *jobs,
                Resolution.objects,
                MessageEvent.objects,
                Message.objects,
                Campaign.objects,
                CostEntry.objects,
            ):
                rows.all().delete()
            Minute.objects.all().delete()


def test_whatever_happens_to_a_family_every_promise_is_kept_after_each_step() -> None:
    run_state_machine_as_test(
        Family,
        settings=settings(
            max_examples=500 if NIGHTLY else 5,
            stateful_step_count=40 if NIGHTLY else 20,
            derandomize=not NIGHTLY,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
