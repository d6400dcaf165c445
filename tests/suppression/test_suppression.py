"""Nobody who is suppressed is written to: at the import, at the claim, at a retry, at a doubt's repeat."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from campaigns.doors import labels
from campaigns.engine import audit, progress
from campaigns.engine.casting import mailcaster
from campaigns.engine.claiming.claims import Lease
from campaigns.engine.connections import Connections
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.doubts import reconciler
from campaigns.engine.finishing import finalizer
from campaigns.engine.sending import recording
from campaigns.engine.suppressed import digests, recent
from campaigns.lists.intake import store_campaign
from campaigns.models import AnswerBatch, Claim, Job, Message, Suppression, SuppressionKey
from campaigns.operations import actions
from campaigns.suppression import comparing, lists
from campaigns.suppression.lists import NewSuppression
from tests import calling, factories
from tests.campaigns.rows import accepted, in_doubt, logged, messages, refused, suppressed
from tests.campaigns.test_claims_and_answers import sending, while_it_waits
from tests.faults.sending import being_sent, login, sent, take_again, taken
from tests.faults.test_42_settling import in_doubt as lost
from tests.waiting import wait_until
from vendors.models import Vendor
from vendors.outcomes import Refused

pytestmark = pytest.mark.django_db(transaction=True)


def suppress(*addresses: str, sponsor: int | None = None, reason: str = "unsubscribed", **fields: Any) -> int:
    return lists.add_suppressions(sponsor, "email", [NewSuppression(one, reason, **fields) for one in addresses])


def stored(recipients: list[str], **fields: Any) -> Job:
    fields = {"sponsor": factories.sponsor(), "credential": factories.credential(), **fields}
    to = [(one, {}) for one in recipients]
    return store_campaign(name="News", subject="Hello", body="Good day", html=False, recipients=to, at="now", **fields)


def ends(job: Job) -> list[str | None]:
    return [message.error_code for message in messages(job)]


def breaches() -> list[audit.Check]:
    return [check for check in audit.ask_all_questions() if not check.is_kept]


def lifted(*addresses: str, sponsor: int | None = None) -> int:
    return lists.lift_suppressions(lists.ids_of_addresses("email", addresses, sponsor))


class TestLists:
    def test_adding_twice_adds_once_whatever_the_case_and_the_first_source_stays(self) -> None:
        assert suppress("Ann@Example.com", "bob@example.com", source="list A") == 2
        assert suppress("ann@example.com", "ANN@EXAMPLE.COM", "Bob@example.com", source="list B") == 0
        assert list(Suppression.objects.order_by("id").values_list("address", "source")) == [
            ("Ann@Example.com", "list A"),
            ("bob@example.com", "list A"),
        ]

    def test_each_reason_and_each_sponsor_has_a_row_of_its_own_and_lifting_one_leaves_the_others(self) -> None:
        one = factories.sponsor()
        suppress("ann@example.com")
        suppress("ann@example.com", sponsor=one.pk)
        suppress("ann@example.com", sponsor=one.pk, reason="bounced")
        assert lifted("ann@example.com", sponsor=one.pk) == 2
        assert Suppression.objects.filter(until=None).count() == 1

    def test_one_that_was_lifted_can_be_added_again_and_one_with_an_end_is_made_longer_never_shorter(self) -> None:
        now = timezone.now()
        suppress("ann@example.com", until=now + timedelta(days=1))
        assert suppress("ann@example.com", until=now + timedelta(hours=1)) == 0
        assert suppress("ann@example.com", until=now + timedelta(days=2)) == 1
        assert suppress("ann@example.com") == 1
        assert suppress("ann@example.com", until=now + timedelta(days=9)) == 0
        assert lifted("ann@example.com") == 1 and lifted("ann@example.com") == 0
        assert suppress("ann@example.com", source="again") == 1
        row = Suppression.objects.get()
        assert (row.until, row.source) == (None, "again")

    def test_what_has_ended_already_is_not_stored(self) -> None:
        assert suppress("ann@example.com", until=timezone.now() - timedelta(days=1)) == 0
        assert not Suppression.objects.exists()

    def test_positions_grow_with_each_change_and_the_vendors_of_the_channel_know_the_last(self) -> None:
        letters, texts = factories.vendor(channel="email"), factories.vendor(channel="sms")
        suppress("ann@example.com")
        suppress("bob@example.com")
        first, second = Suppression.objects.order_by("id").values_list("position", flat=True)
        assert first < second
        letters.refresh_from_db(), texts.refresh_from_db()
        assert (letters.suppressions, texts.suppressions) == (second, 0)
        lifted("ann@example.com")
        letters.refresh_from_db()
        assert letters.suppressions > second

    def test_an_erased_address_is_still_suppressed_and_nowhere_to_be_read(self) -> None:
        suppress("ann@example.com")
        assert lists.erase_addresses(lists.ids_of_addresses("email", ["ann@example.com"], None)) == 1
        assert Suppression.objects.get().address is None
        assert ends(stored(["ann@example.com", "bob@example.com"])) == ["suppressed", None]

    def test_many_are_added_in_slices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lists, "AT_ONCE", 10)
        assert suppress(*[f"r{n}@example.com" for n in range(95)]) == 95
        assert Suppression.objects.count() == 95

    def test_a_new_secret_key_changes_no_digest(self, settings: Any) -> None:
        suppress("ann@example.com")
        before = digests.digest_address(digests.digest_key() or b"", "email", "ann@example.com")
        settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another one", [settings.SECRET_KEY]
        call_command("rotate_keys")
        settings.SECRET_KEY_FALLBACKS = []
        digests.known.forget_value()
        after = digests.digest_address(digests.made_key(), "email", "Ann@example.com")
        assert Suppression.objects.get().digest == before == after
        assert SuppressionKey.objects.count() == 1

    def test_two_who_add_at_once_add_one_row_and_one_key(self) -> None:
        gate = threading.Barrier(4)

        def add() -> None:
            gate.wait()
            suppress("ann@example.com", "bob@example.com")
            connection.close()

        threads = [threading.Thread(target=add) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert (Suppression.objects.count(), SuppressionKey.objects.count()) == (2, 1)


class TestImport:
    def test_suppressed_recipients_are_stored_with_their_end_and_counted(self) -> None:
        sponsor = factories.sponsor()
        suppress("R1@sandbox.example")
        suppress("r2@sandbox.example", sponsor=sponsor.pk, reason="bounced")
        suppress("r3@sandbox.example", sponsor=factories.sponsor().pk)
        job = stored([f"r{n}@sandbox.example" for n in (1, 2, 3, 4)], sponsor=sponsor)
        assert ends(job) == ["suppressed", "suppressed", None, None]
        assert [m.error_sub_type for m in messages(job)][:2] == ["unsubscribed", "bounced"]
        sums = progress.progress_of_jobs([job])[job.pk]
        assert (job.suppressed, sums.suppressed, sums.waiting) == (2, 2, 2)
        assert [labels.label_of_message(m) for m in messages(job)][1:3] == ["Suppressed", "Waiting"]

    def test_it_is_done_in_slices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(comparing, "AT_ONCE", 3)
        suppress(*[f"r{n}@sandbox.example" for n in range(0, 10, 2)])
        assert stored([f"r{n}@sandbox.example" for n in range(10)]).suppressed == 5

    def test_where_the_suppression_has_ended_or_is_of_another_channel_the_message_waits(self) -> None:
        suppress("r1@sandbox.example", until=timezone.now() + timedelta(days=1))
        lists.add_suppressions(None, "sms", [NewSuppression("r2@sandbox.example", "stop")])
        Suppression.objects.filter(address="r1@sandbox.example").update(until=timezone.now())
        assert stored(["r1@sandbox.example", "r2@sandbox.example"]).suppressed == 0

    def test_a_campaign_of_suppressed_recipients_only_ends_without_a_call(self, sandbox: Any) -> None:
        suppress("r1@sandbox.example", "r2@sandbox.example")
        job = stored(["r1@sandbox.example", "r2@sandbox.example"], credential=login(sandbox.url))
        Job.objects.filter(pk=job.pk).update(status="DISPATCHED")
        job = sent(take_again(job))
        assert (job.status, job.suppressed, job.units) == ("LOGGED", 2, 0) and not sandbox.books().recipients
        assert labels.label_of_sum(progress.progress_of_jobs([job])[job.pk]) == "Suppressed"
        assert breaches() == []

    def test_children_are_cut_with_the_suppressed_among_them(self) -> None:
        suppress(*[f"r{n}@sandbox.example" for n in (1, 2, 7)])
        vendor = factories.vendor(small_audience_threshold=5, casters=())
        caster = factories.caster(vendor, min_size=4, max_size=4)
        job = stored([f"r{n}@sandbox.example" for n in range(1, 11)], credential=factories.credential(vendor))
        dispatcher.dispatch_ready([job.pk])
        claimed = mailcaster.claim_next_job(caster.pk, timezone.now())
        assert claimed
        child = Job.objects.get(pk=claimed.job_id)
        job.refresh_from_db()
        assert (child.size, child.suppressed, job.remaining_suppressed) == (4, 2, 1)
        sums = progress.progress_of_jobs([job])[job.pk]
        assert (sums.size, sums.suppressed, sums.waiting) == (10, 3, 7)


class TestClaim:
    def test_who_is_suppressed_after_the_import_gets_nothing_from_the_next_claim_on(self, sandbox: Any) -> None:
        job = taken([f"r{n}@sandbox.example" for n in range(20)], login(sandbox.url))
        suppress("R7@sandbox.example", "r13@sandbox.example", reason="complained")
        suppress("r9@sandbox.example", sponsor=factories.sponsor().pk)
        job = sent(job)
        assert (job.accepted, job.suppressed, job.refused, job.units) == (18, 2, 0, 18)
        called = {one.split("@")[0] for one in sandbox.books().recipients}
        assert called == {f"r{n}" for n in range(20)} - {"r7", "r13"}
        gone = Message.objects.filter(error_code="suppressed")
        assert {(m.sent_at, m.delivered_at, m.error_sub_type) for m in gone} == {(None, None, "complained")}
        assert not Claim.objects.exists() and not AnswerBatch.objects.exists() and breaches() == []

    def test_who_is_suppressed_while_the_job_is_being_sent_gets_nothing_either(self, sandbox: Any) -> None:
        """Four at a time: the first answers are there long before the last claim."""
        job = taken([f"r{n}@sandbox.example" for n in range(400)], login(sandbox.url))
        with being_sent(job):
            wait_until(lambda: bool(sandbox.books().recipients), "the first one is called")
            suppress("r399@sandbox.example")
        assert finalizer.finalise_job(job.pk)
        job.refresh_from_db()
        assert (job.accepted, job.suppressed) == (399, 1)

    def test_where_letters_are_priced_first_nobody_suppressed_is_called(self, sandbox: Any) -> None:
        job = taken([f"r{n}@sandbox.example" for n in range(20)], login(sandbox.url, unit="segment"))
        suppress("r7@sandbox.example")
        assert (sent(job).suppressed, len(sandbox.books().recipients)) == (1, 19)

    def test_a_claim_waits_for_a_suppression_that_is_being_stored_and_knows_of_it(self) -> None:
        job = sending(2)

        def claim() -> Any:
            return calling.by_sender(lambda rows: calling.claim(rows, job, Lease(job.pk, job.fence), most=2))

        with while_it_waits(claim) as found:
            suppress("r1@sandbox.example")
        assert found[0].suppressions == Suppression.objects.get().position

    def test_a_lifted_one_is_called(self, sandbox: Any) -> None:
        job = taken(["r1@sandbox.example", "r2@sandbox.example"], login(sandbox.url))
        suppress("r1@sandbox.example")
        lifted("r1@sandbox.example")
        assert sent(job).accepted == 2

    def test_a_job_that_is_older_than_what_is_kept_asks_the_table(
        self, sandbox: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recent, "MOST", 5)
        job = taken([f"r{n}@sandbox.example" for n in range(20)], login(sandbox.url))
        suppress(*[f"other{n}@example.com" for n in range(20)], "r7@sandbox.example")
        assert (sent(job).suppressed, len(sandbox.books().recipients)) == (1, 19)


class TestRecent:
    """What a process keeps, without a sender."""

    def find(self, kept: recent.RecentSuppressions, asked: int, *addresses: str, sponsor: int = 0) -> dict[int, str]:
        newest = Suppression.objects.order_by("-position").values_list("position", flat=True).first() or 0
        asker = recent.Asker(sponsor, "email", asked)
        return calling.by_sender(lambda rows: kept.find_reasons(rows, asker, newest, addresses))

    def test_what_the_import_has_asked_is_not_asked_again(self) -> None:
        suppress("ann@example.com")
        first = Suppression.objects.get().position
        suppress("bob@example.com")
        kept = recent.RecentSuppressions()
        assert self.find(kept, first, "ann@example.com", "bob@example.com") == {1: "unsubscribed"}
        assert self.find(kept, 0, "ann@example.com", "bob@example.com") == {0: "unsubscribed", 1: "unsubscribed"}

    def test_a_flood_of_new_ones_is_not_kept_and_what_comes_after_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recent, "MOST", 3)
        kept = recent.RecentSuppressions()
        suppress("ann@example.com")
        assert self.find(kept, 0, "ann@example.com") == {0: "unsubscribed"}
        suppress(*[f"r{n}@example.com" for n in range(9)])
        assert self.find(kept, 0, "ann@example.com", "r3@example.com", "x@example.com") == {
            0: "unsubscribed",
            1: "unsubscribed",
        }
        newest = Suppression.objects.order_by("-position").values_list("position", flat=True)[0]
        suppress("bob@example.com")
        assert self.find(kept, newest, "r3@example.com", "bob@example.com") == {1: "unsubscribed"}
        lifted("bob@example.com")
        assert self.find(kept, newest, "bob@example.com") == {}


class TestRetry:
    def test_a_suppressed_message_is_sent_only_if_it_was_lifted_and_somebody_retries(self) -> None:
        suppress("r1@sandbox.example", "r2@sandbox.example")
        job = logged(3, [suppressed(), suppressed(), accepted()])
        (answer,) = actions.retry_jobs([job.pk])
        assert answer.verdict == "already" and "2 suppressed" in answer.message
        lifted("r1@sandbox.example")
        assert ends(job) == ["suppressed", "suppressed", None]
        (answer,) = actions.retry_jobs([job.pk])
        job.refresh_from_db()
        assert (answer.messages, job.suppressed, ends(job)) == (1, 1, [None, "suppressed", None])

    @pytest.mark.parametrize(
        ("code", "note"),
        [("21610", None), ("STOP", None), ("550", "5.1.1"), ("550", "5.1.10"), ("bounce", "mailbox_unknown")],
    )
    def test_whom_the_vendor_refused_as_unknown_or_because_of_a_stop_is_never_called_again(
        self, code: str, note: str | None
    ) -> None:
        never = refused() | {"error_code": code, "error_sub_type": note}
        job = logged(2, [never, refused() | {"error_code": "552", "error_sub_type": "5.3.4"}])
        (answer,) = actions.retry_jobs([job.pk])
        job.refresh_from_db()
        assert (answer.messages, job.refused, ends(job)) == (1, 1, [code, None])
        (alone,) = actions.retry_jobs([logged(1, [never]).pk])
        assert alone.verdict == "already"

    def test_whom_a_retry_would_call_and_who_was_suppressed_meanwhile_is_not_called(self, sandbox: Any) -> None:
        job = sent(taken(["reject@sandbox.example", "r2@sandbox.example"], login(sandbox.url)))
        suppress("reject@sandbox.example")
        actions.retry_jobs([job.pk])
        calls = len(sandbox.books().entries)
        job = sent(take_again(job))
        assert (job.accepted, job.refused, job.suppressed) == (1, 0, 1)
        assert len(sandbox.books().entries) == calls

    def test_who_was_suppressed_before_the_import_and_waits_again_all_the_same_is_not_called(
        self, sandbox: Any
    ) -> None:
        """As after a recovery of the store, when a person settles a doubt: the import's look counts no more."""
        job = sent(taken(["reject@sandbox.example", "r2@sandbox.example"], login(sandbox.url)))
        suppress("reject@sandbox.example")
        Job.objects.update(suppressions=Suppression.objects.get().position)
        calls = len(sandbox.books().entries)
        actions.retry_jobs([job.pk])
        job = sent(take_again(job))
        assert (job.accepted, job.suppressed) == (1, 1) and len(sandbox.books().entries) == calls


class TestRecentChanges:
    def test_one_that_is_changed_between_the_claim_and_the_reading_is_found(self) -> None:
        suppress("older@sandbox.example")
        asked = Suppression.objects.get().position
        suppress("r1@sandbox.example", until=timezone.now() + timedelta(days=1))
        claimed = Suppression.objects.latest("position").position
        suppress("r1@sandbox.example")  # for good: it has another position now
        asker = recent.Asker(factories.sponsor().pk, "email", asked)
        known = recent.RecentSuppressions()
        assert calling.by_sender(lambda rows: known.find_reasons(rows, asker, claimed, ["r1@sandbox.example"]))

    def test_older_ones_that_are_read_later_are_found_wherever_they_are_now(self) -> None:
        suppress("r1@sandbox.example", until=timezone.now() + timedelta(days=1))
        first = Suppression.objects.get().position
        suppress("somebody@sandbox.example")
        last = Suppression.objects.latest("position").position
        sponsor, known = factories.sponsor().pk, recent.RecentSuppressions()

        async def late(rows: Any) -> Any:
            await known.find_reasons(rows, recent.Asker(sponsor, "email", first), last, ["x@sandbox.example"])
            await sync_to_async(extend)()
            older = recent.Asker(sponsor, "email", first - 1)
            return await known.find_reasons(rows, older, last, ["r1@sandbox.example"])

        def extend() -> None:
            suppress("r1@sandbox.example")
            connection.close()

        assert calling.by_sender(late)

    def test_what_was_known_before_a_takeover_of_the_store_is_forgotten(self) -> None:
        kept = Connections()
        assert kept.recent_suppressions(1) is kept.recent_suppressions(1) is not kept.recent_suppressions(2)


class TestDoubts:
    def doubts(self, sandbox: Any, **means: Any) -> Job:
        job = lost(2, login(sandbox.url, **means))
        suppress("r1@sandbox.example")
        return job

    def test_what_the_vendor_does_not_have_ends_as_suppressed_and_the_others_are_repeated(self, sandbox: Any) -> None:
        job = self.doubts(sandbox, lookup="strong")
        reconciler.reconcile_due_doubts()
        job.refresh_from_db()
        assert (job.suppressed, job.accepted, job.in_doubt) == (1, 1, 0)
        assert list(sandbox.books().recipients) == ["r2@sandbox.example"] and breaches() == []

    def test_it_is_not_repeated_where_the_vendor_would_recognise_the_repeat(self, sandbox: Any) -> None:
        job = self.doubts(sandbox, dedupe=True)
        reconciler.reconcile_due_doubts()
        job.refresh_from_db()
        assert (job.suppressed, job.accepted, job.in_doubt) == (0, 1, 1)
        waits = Message.objects.get(recipient="r1@sandbox.example")
        assert waits.in_doubt_at and waits.settle_at is None, "a person decides"
        assert list(sandbox.books().recipients) == ["r2@sandbox.example"]

    def test_what_the_vendor_has_is_accepted_whoever_was_suppressed_since(self, sandbox: Any) -> None:
        job = sent(taken(["lost@sandbox.example"], login(sandbox.url, lookup="strong")))
        Message.objects.update(settle_at=timezone.now(), sent_at=timezone.now() - timedelta(hours=1))
        suppress("lost@sandbox.example")
        reconciler.reconcile_due_doubts()
        job.refresh_from_db()
        assert (job.accepted, job.suppressed, job.in_doubt) == (1, 0, 0)

    def test_one_who_is_suppressed_after_the_look_is_not_called_either(
        self, sandbox: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = lost(1, login(sandbox.url, dedupe=True))
        suppress("somebody@example.com")
        before = reconciler.queries.allow_repeat

        def unsubscribe() -> None:
            suppress("r1@sandbox.example")
            connection.close()  # of a thread that nobody ends

        async def late(*args: Any, **more: Any) -> Any:
            await sync_to_async(unsubscribe)()
            return await before(*args, **more)

        monkeypatch.setattr(reconciler.queries, "allow_repeat", late)
        reconciler.reconcile_due_doubts()
        job.refresh_from_db()
        assert job.in_doubt == 1 and not sandbox.books().entries


class TestStates:
    def test_a_vendors_own_code_is_never_taken_for_ours(self) -> None:
        assert recording.answer_columns(Refused("suppressed"))[0] == "vendor: suppressed"

    def test_the_database_refuses_a_suppressed_message_that_was_called(self) -> None:
        job = logged(1, [in_doubt()])
        with pytest.raises(IntegrityError), transaction.atomic():
            Message.objects.filter(pk=job.first_message).update(in_doubt_at=None, error_code="suppressed")

    def test_vendors_made_later_know_the_suppressions_by_the_import(self) -> None:
        suppress("r1@sandbox.example")
        vendor = factories.vendor()
        last = Suppression.objects.get().position
        assert vendor.suppressions == Vendor.objects.get(pk=vendor.pk).suppressions == last > 0
        assert stored(["r1@sandbox.example"], credential=factories.credential(vendor)).suppressed == 1
