"""Whom a vendor refused as unknown, or because of a STOP, is suppressed by that, and called by no retry."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.engine import sending
from campaigns.engine.casting import mailcaster
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.doubts import reconciler
from campaigns.engine.finishing import finalizer, sweep
from campaigns.integrations.results.reader import message_facts
from campaigns.models import Job, Message, Suppression
from campaigns.operations import actions
from campaigns.suppression import for_engine, lists, refused
from tests import factories
from tests.campaigns.rows import family, logged, messages
from tests.campaigns.rows import refused as bounce
from tests.campaigns.test_rounds_of_mails import relay
from tests.faults.sending import login, sent, take_again, taken
from tests.faults.test_42_settling import in_doubt as lost
from tests.suppression.test_suppression import breaches, ends, lifted, stored, suppress
from vendors.testing.smtp_relay import MisbehavingSmtp, say

pytestmark = pytest.mark.django_db(transaction=True)


def refused_with(code: str, sub_type: str | None = None) -> dict[str, Any]:
    return bounce() | {"error_code": code, "error_sub_type": sub_type}


def ended(shapes: list[dict[str, Any]], **fields: Any) -> Job:
    """A job that was sent and that nobody has finalised."""
    job = logged(len(shapes), shapes, **fields)
    Job.objects.filter(pk=job.pk).update(status="SENT", finished_at=None)
    return job


def suppressed() -> list[tuple[Any, ...]]:
    return list(Suppression.objects.order_by("address").values_list("address", "reason", "until"))


class TestFinalising:
    def test_a_relays_unknown_recipient_is_suppressed_for_the_sponsor_and_a_full_mailbox_is_not(self) -> None:
        says = {"rcpt": say("550 5.1.1 <x@example.org>: User unknown"), "dot": say("552 5.2.2 full")}
        unknown, over = (MisbehavingSmtp({phase: says[phase]}) for phase in ("rcpt", "dot"))
        with relay(unknown) as gone, relay(over) as full:
            jobs = []
            for port in (gone, full):
                known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "us@example.org"}
                account = factories.credential(factories.vendor(adapter="smtp", settings=known))
                jobs.append(sent(taken(["good@example.org", "Bad@example.org"], account)))
        (row,) = Suppression.objects.all()
        assert (row.address, row.reason, row.until) == ("Bad@example.org", "bounced", None)
        assert row.sponsor_id == jobs[0].sponsor_id
        assert row.source == f"campaign {jobs[0].campaign_id}, refused: 550 5.1.1"
        assert row.since == messages(jobs[0])[1].delivered_at
        assert [job.refused for job in jobs] == [1, 1]

    def test_an_sms_vendors_stop_is_a_stop_and_a_policy_or_a_persons_word_is_nothing(self) -> None:
        shapes = [("21610", None), ("http_400", "opt_out"), ("550", "5.7.1"), ("person", "stop"), ("rejected", "x")]
        vendor = factories.vendor(channel="sms")
        job = ended([refused_with(*shape) for shape in shapes], of=factories.credential(vendor))
        assert finalizer.finalise_job(job.pk)
        assert [(address, reason) for address, reason, _ in suppressed()] == [
            ("r1@sandbox.example", "stop"),
            ("r2@sandbox.example", "stop"),
        ]
        assert set(Suppression.objects.values_list("channel", flat=True)) == {"sms"}

    def test_the_next_campaign_and_one_that_waits_since_before_do_not_call_them(self, sandbox: Any) -> None:
        by, account = factories.sponsor(), login(sandbox.url)
        waits = stored(["bounce@sandbox.example", "ann@sandbox.example"], sponsor=by, credential=account)
        sent(taken_of(stored(["bounce@sandbox.example"], sponsor=by, credential=account)))
        calls = len(sandbox.books().entries)
        assert stored(["bounce@sandbox.example"], sponsor=by, credential=account).suppressed == 1
        assert sent(taken_of(waits)).suppressed == 1 and len(sandbox.books().entries) == calls + 1

    def test_a_sandbox_vendor_suppresses_nobody_and_a_retry_leaves_them_out_all_the_same(self) -> None:
        vendor = factories.vendor(sandbox=True)
        job = ended([refused_with("550", "5.1.1")], of=factories.credential(vendor))
        assert finalizer.finalise_job(job.pk) and not Suppression.objects.exists()
        (answer,) = actions.retry_jobs([job.pk])
        assert answer.verdict == "already" and "1 refused" in answer.message

    def test_finalisers_at_once_and_a_second_time_suppress_once(self) -> None:
        job = ended([refused_with("550", "5.1.1")] * 3)
        together = threading.Barrier(4)

        def finalise(_: int) -> bool:
            try:
                together.wait()
                return finalizer.finalise_job(job.pk)
            finally:
                connection.close()

        with ThreadPoolExecutor(4) as threads:
            assert sorted(threads.map(finalise, range(4))) == [False] * 3 + [True]
        last = Suppression.objects.latest("position").position
        assert refused.suppress_refused(job.pk) == 0
        assert Suppression.objects.count() == 3 and Suppression.objects.latest("position").position == last
        assert breaches() == []

    def test_who_dies_between_merging_and_suppressing_is_completed_by_the_sweep(
        self, sandbox: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = taken(["bounce@sandbox.example"], login(sandbox.url))
        sending.send_claimed_job(job.pk, job.fence)

        def die(_: int) -> int:
            raise SystemExit

        with monkeypatch.context() as dying:
            dying.setattr(for_engine, "suppress_refused", die)
            with pytest.raises(SystemExit):
                finalizer.finalise_job(job.pk)
        job.refresh_from_db()
        assert job.status == "SENT" and messages(job)[0].error_code == "bounce" and not Suppression.objects.exists()
        assert sweep.run_sweep(timedelta(hours=1)).finalised == [job.pk]
        assert Suppression.objects.get().reason == "bounced"

    def test_a_doubt_that_turns_out_to_be_refused_so_suppresses_before_the_refusal_is_stored(
        self, sandbox: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = lost(1, login(sandbox.url, lookup="strong"))
        Message.objects.update(recipient="bounce@sandbox.example")

        async def die(*_: Any) -> None:
            raise RuntimeError("killed")

        with monkeypatch.context() as dying:
            dying.setattr(reconciler.ground_truth, "refuse_doubted", die)
            reconciler.reconcile_due_doubts()
        assert Suppression.objects.get().source == f"campaign {job.campaign_id}, refused: bounce mailbox_unknown"
        Message.objects.update(settle_at=timezone.now(), sent_at=timezone.now() - timedelta(hours=1))
        reconciler.reconcile_due_doubts()
        job.refresh_from_db()
        assert (job.suppressed, job.in_doubt) == (1, 0) and breaches() == []

    def test_the_results_say_that_nobody_may_write_to_them(self) -> None:
        job = logged(2, [refused_with("550", "5.1.1"), refused_with("550", "5.2.2")])
        reasons = [message_facts(row, None, set(), stopped=False)["reason"] for row in messages(job)]
        assert reasons == [
            {"code": "550", "text": "5.1.1; nobody may write to this recipient any more: Hard bounce"},
            {"code": "550", "text": "5.2.2"},
        ]


class TestRetry:
    def test_who_was_lifted_is_called_again_and_is_suppressed_again_only_by_a_new_refusal(self, sandbox: Any) -> None:
        job = sent(taken(["bounce@sandbox.example", "r2@sandbox.example"], login(sandbox.url)))
        assert actions.retry_jobs([job.pk])[0].verdict == "already"
        assert lifted("bounce@sandbox.example", sponsor=job.sponsor_id) == 1
        assert refused.suppress_refused(job.pk) == 0, "the old refusal is older than the lifting"
        (answer,) = actions.retry_jobs([job.pk])
        assert (answer.messages, messages(job)[0].resend_no) == (1, 1)
        job = sent(take_again(job))
        assert (job.refused, job.accepted, Suppression.objects.get().until) == (1, 1, None)
        assert actions.retry_jobs([job.pk])[0].verdict == "already" and breaches() == []

    def test_one_of_two_suppressions_that_is_lifted_frees_nobody(self) -> None:
        job = ended([refused_with("550", "5.1.1")])
        assert finalizer.finalise_job(job.pk)
        suppress("r1@sandbox.example")
        lifted("r1@sandbox.example", sponsor=job.sponsor_id)
        assert actions.retry_jobs([job.pk])[0].verdict == "already" and ends(job) == ["550"]

    def test_the_lifting_of_another_suppression_frees_nobody_of_whom_there_was_none(self) -> None:
        """As of a sandbox vendor, or of a version that suppressed nobody by a refusal."""
        job = logged(1, [refused_with("550", "5.1.1")])
        suppress("r1@sandbox.example")
        lifted("r1@sandbox.example")
        assert actions.retry_jobs([job.pk])[0].verdict == "already" and ends(job) == ["550"]

    def test_a_stopped_parents_uncut_rest_is_counted_without_the_suppressed_and_with_the_lifted(self) -> None:
        vendor = factories.vendor(small_audience_threshold=2)
        caster = factories.caster(vendor, min_size=4, max_size=4, percentage=100)
        suppress(*[f"r{n}@sandbox.example" for n in (2, 6, 7, 8)])
        job = stored([f"r{n}@sandbox.example" for n in range(1, 9)], credential=factories.credential(vendor))
        dispatcher.dispatch_ready([job.pk])
        claimed = mailcaster.claim_next_job(caster.pk, timezone.now())
        assert claimed
        actions.stop_jobs([job.pk])
        assert finalizer.finalise_job(claimed.job_id) and finalizer.finish_parent(job.pk)
        lifted("r2@sandbox.example", "r7@sandbox.example")
        (answer,) = actions.retry_jobs([job.pk])
        job.refresh_from_db()
        assert answer.messages == 6, "r1, r3, r4 and the lifted r2 of the child; of the rest r5 and the lifted r7"
        assert (job.status, job.remaining, job.remaining_suppressed) == ("P_ASSIGNING", 4, 2)
        assert ends(job) == [None] * 5 + ["suppressed", None, "suppressed"] and breaches() == []

    def test_a_stopped_parent_of_which_only_suppressed_are_left_has_nothing_to_send(self) -> None:
        job, _ = family(parent="P_STOPPED", remaining=2, children=[])
        suppress("r1@sandbox.example", "r2@sandbox.example")
        rest = Message.objects.filter(id__gte=job.first_message)
        rest.update(error_code="suppressed", error_sub_type="stop", dequeued_at=timezone.now())
        Job.objects.filter(pk=job.pk).update(remaining_suppressed=2, finished_at=timezone.now())
        (answer,) = actions.retry_jobs([job.pk])
        assert (answer.verdict, answer.messages) == ("already", 0) and "2 suppressed" in answer.message


def test_the_pattern_means_the_same_to_the_database_and_to_python() -> None:
    answers = [
        "STOP",
        "21610",
        "opted-out",
        "OptOut",
        "unknown_recipient",
        "No such recipient",
        "mailbox-not found",
        "5.1.1",
    ]
    answers += [
        "5.1.10",
        "5.1.1 (unclear)",
        "5.2.1",
        "nonstop",
        "unknown",
        "mailbox full",
        "invalid_user",
        "user unknown",
        "invalid_address",
        "x stop",
        "stop\nx",
    ]
    job = logged(len(answers), [refused_with("x", word) for word in answers])
    with connection.cursor() as cursor:
        cursor.execute(refused.READ, {"low": job.first_message, "high": job.end})
        found = {row[2] for row in cursor.fetchall()}
    assert found == {word for word in answers if refused.reason_of("x", word)} and len(found) == 9
    assert lists.add_suppressions(job.sponsor_id, "email", refused._refused_addresses(job), again=False) == 9


def taken_of(job: Job) -> Job:
    """Takes a job that was accepted to go at once."""
    dispatcher.dispatch_ready([job.pk])
    return take_again(job)
