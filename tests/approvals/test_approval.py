"""A campaign that needs a second person's approval calls nobody before, whatever door stored it."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone

from campaigns.approvals import frozen_parts
from campaigns.engine import audit
from campaigns.engine.casting import mailcaster
from campaigns.engine.decisions import Verdict
from campaigns.engine.dispatch import dispatcher, nightly
from campaigns.engine.finishing import finalizer
from campaigns.engine.pausing import pauses
from campaigns.engine.sending import send_claimed_job
from campaigns.lists import intake
from campaigns.lists.intake import BadInput
from campaigns.models import Approval, Campaign, Identity, Job, Message, Route, RouteEntry, Sponsor
from campaigns.operations import actions, approving, pausing
from campaigns.operations.approving import CannotDecide
from tests import factories
from tests.campaigns.rows import manage, sound, statuses
from tests.faults.sending import login
from tests.sandbox import Sandbox
from vendors.history import Actor

pytestmark = pytest.mark.django_db
APPROVED, REFUSED = Approval.Verdict.APPROVED, Approval.Verdict.REFUSED


def approver(name: str, *sponsors: Sponsor) -> User:
    made = User.objects.create_user(name)
    made.groups.add(Group.objects.get(name="campaign approver"))
    for one in sponsors:
        one.users.add(made)
    return made


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("olga"))
    return client


def demanding(above: int | None = 0) -> Sponsor:
    made = factories.sponsor()
    Sponsor.objects.filter(pk=made.pk).update(approval_above=above)
    made.refresh_from_db()
    return made


def stored(of: Sponsor, by: Actor | None = None, number: int = 3, **more: Any) -> Job:
    facts = {"name": "Winter", "subject": "Hello", "body": "Good day", "html": False, "at": "now", **more}
    facts.setdefault("credential", None)
    facts["credential"] = facts["credential"] or factories.credential()
    factories.entitle([of], [facts["credential"].vendor])
    recipients = [(f"r{one}@sandbox.example", {"n": one}) for one in range(number)]
    job = intake.store_campaign(sponsor=of, recipients=recipients, by=by, **facts)
    dispatcher.dispatch_ready([job.pk])
    job.refresh_from_db()
    return job


def different(row: Approval) -> list[str]:
    return [one.part for one in frozen_parts.list_changes(row)]


def night(job: Job, days: int) -> datetime:
    """A moment of the night, so many days ahead, or more on a weekend, when the job's vendor dispatches."""
    due = nightly.latest_due_run(job.vendor, timezone.now() + timedelta(days=days + 4))
    assert due
    return due[1] + timedelta(minutes=1)


def as_actor(user: User) -> Actor:
    return Actor(user.get_username(), user.pk)


@pytest.mark.django_db(transaction=True)
def test_nobody_is_called_before_another_person_has_approved_and_then_everybody_once(sandbox: Sandbox) -> None:
    of = demanding()
    ann, bob = approver("ann", of), approver("bob", of)
    job = stored(of, as_actor(ann), 12, credential=login(sandbox.url))
    caster = factories.caster(job.vendor)
    assert (job.status, job.paused_at is not None) == ("DISPATCHED", True)
    assert mailcaster.claim_next_job(caster.pk, timezone.now()) is None
    (answer,) = pausing.resume_jobs([job.pk], Actor("operator"))
    assert answer.verdict == Verdict.BUSY and "waits for approval: ann has asked for it" in answer.message
    with transaction.atomic():
        assert not pauses.resume_campaign(job.campaign_id, None)  # not even the verb below the doors
    assert mailcaster.claim_next_job(caster.pk, timezone.now()) is None and not sandbox.books().entries
    with pytest.raises(CannotDecide, match="ann has asked for it: another person approves it"):
        approving.decide_approval(job.campaign_id, APPROVED, ann)
    assert approving.decide_approval(job.campaign_id, APPROVED, bob, "well written").message.endswith(
        "approved: it goes on"
    )
    claimed = mailcaster.claim_next_job(caster.pk, timezone.now())
    assert claimed is not None
    send_claimed_job(claimed.job_id, claimed.fence)
    finalizer.finalise_job(claimed.job_id)
    assert (len(sandbox.books().recipients), sandbox.books().duplicates()) == (12, {}) and sound()


def test_what_exactly_is_frozen_stands_with_who_asked_and_who_decided() -> None:
    of = demanding(2)
    ann, bob = approver("ann", of), approver("bob", of)
    assert not Approval.objects.filter(campaign=stored(of, as_actor(ann), 2).campaign_id).exists()
    job = stored(of, as_actor(ann), 3, text="", subject="Prices")
    row = Approval.objects.get(campaign=job.campaign_id)
    assert (row.asked_kind, row.asked_by, row.asked_user, row.recipients) == ("user", "ann", ann.pk, 3)
    assert (row.frozen["subject"], row.frozen["recipients"], row.frozen["when"]) == ("Prices", 3, "at once")
    with connection.cursor() as cursor:
        cursor.execute("SELECT encode(sha256(convert_to(frozen::text, 'UTF8')), 'hex') FROM campaigns_approval")
        assert cursor.fetchone() == (row.digest,)
    assert job.campaign.paused_reason == "waits for approval, asked for by ann"
    with pytest.raises(DatabaseError, match="never changed or deleted"), transaction.atomic():
        Approval.objects.filter(pk=row.pk).update(sponsor=factories.sponsor())
    approving.decide_approval(job.campaign_id, APPROVED, bob, "fine")
    row.refresh_from_db()
    assert (row.verdict, row.decided_by, row.decided_user, row.remark) == ("approved", "bob", bob.pk, "fine")
    for change in ({"remark": "no"}, {"verdict": None, "decided_at": None}, {"recipients": 1}):
        with pytest.raises(DatabaseError, match="never changed or deleted"), transaction.atomic():
            Approval.objects.filter(pk=row.pk).update(**change)
    with pytest.raises(DatabaseError, match="never changed or deleted"), transaction.atomic():
        row.delete()


def test_a_digest_is_of_each_message_in_its_order_and_of_who_sends() -> None:
    of = demanding()
    bob = approver("bob", of)
    job = stored(of, Actor("ann", 0))
    row = Approval.objects.get()
    assert different(row) == []
    first, second = Message.objects.filter(campaign=job.campaign_id).order_by("id")[:2]
    for one, other in ((first, second), (second, first)):
        Message.objects.filter(pk=one.pk).update(recipient=other.recipient, params=other.params)
    assert different(row) == ["messages"]
    identity = Identity.objects.create(sponsor=of, name="other", from_address="other@sandbox.example")
    Campaign.objects.filter(pk=job.campaign_id).update(body="Buy!", identity=identity)
    assert different(row) == ["body", "from", "identity", "messages", "reply to"]
    with pytest.raises(CannotDecide, match="not as it was when its approval was asked for: body, from"):
        approving.decide_approval(job.campaign_id, APPROVED, bob)
    assert approving.decide_approval(job.campaign_id, REFUSED, bob, "changed").changed


def test_a_refusal_stops_it_for_good() -> None:
    of = demanding()
    ann, bob = approver("ann", of), approver("bob", of)
    job = stored(of, as_actor(ann))
    with pytest.raises(CannotDecide, match="give a reason"):
        approving.decide_approval(job.campaign_id, REFUSED, bob, " ")
    assert approving.decide_approval(job.campaign_id, REFUSED, bob, "a wrong link").changed
    assert statuses(job) == ["STOPPED"]
    finalizer.finalise_job(job.pk)
    assert statuses(job) == ["LOGGED"]
    for answer in (actions.retry_jobs([job.pk], by=as_actor(ann))[0], pausing.resume_jobs([job.pk], as_actor(bob))[0]):
        assert answer.verdict == Verdict.BUSY and "refused by bob: a wrong link; it never goes out" in answer.message
    again = approving.decide_approval(job.campaign_id, APPROVED, bob)
    assert not again.changed and "was refused by" in again.message and sound()


def test_a_stop_leaves_the_question_open_and_an_approval_then_starts_nothing() -> None:
    of = demanding()
    job = stored(of, Actor("ann", 0))
    actions.stop_jobs([job.pk], Actor("operator"))
    finalizer.finalise_job(job.pk)
    assert actions.retry_jobs([job.pk])[0].verdict == Verdict.BUSY
    assert not Approval.objects.filter(*approving.waiting_conditions()).exists()
    approving.decide_approval(job.campaign_id, APPROVED, approver("bob", of))
    assert statuses(job) == ["LOGGED"]
    assert actions.retry_jobs([job.pk])[0].verdict == Verdict.DONE


def test_the_night_leaves_what_is_undecided_and_the_next_one_takes_it() -> None:
    of = demanding()
    job, late = (stored(of, Actor("ann", 0), at="nightly", credential=None) for _ in range(2))
    Campaign.objects.filter(pk=late.campaign_id).update(deadline=timezone.now())
    for one in (job, late):
        assert nightly.run_night(one.vendor, night(one, 2)).jobs == (one == late)
    assert statuses(job, late) == ["RENDERED", "DISPATCHED"]  # the one past its deadline, so that it expires
    assert not dispatcher.dispatch_rendered(Job.objects.filter(pk=job.pk)).jobs
    (answer,) = actions.dispatch_jobs([job.pk], Actor("operator"))
    assert answer.verdict == Verdict.BUSY and "waits for approval" in answer.message
    approving.decide_approval(job.campaign_id, APPROVED, approver("bob", of))
    assert statuses(job) == ["RENDERED"]
    assert nightly.run_night(job.vendor, night(job, 12)).jobs == 1
    assert statuses(job) == ["DISPATCHED"] and not Job.objects.get(pk=job.pk).paused_at


def test_who_decides_has_the_permission_sees_the_sponsor_and_has_not_asked() -> None:
    of, other = demanding(), demanding()
    job = stored(of, Actor("deploy"))
    stranger, nobody = approver("bob", other), User.objects.create_user("carl")
    of.users.add(nobody)
    namesake = approver("deploy", of)
    for user, why in (
        (stranger, "or bob does not see it"),
        (nobody, "carl has not the permission"),
        (namesake, "deploy has asked for it"),
    ):
        with pytest.raises(CannotDecide, match=why):
            approving.decide_approval(job.campaign_id, APPROVED, user)
    with pytest.raises(CannotDecide, match="asked for at a shell, so somebody approves it on its page"):
        approving.decide_approval(job.campaign_id, APPROVED, approver("dora", of), shell="root")
    assert Approval.objects.get().verdict is None


def test_a_door_that_does_not_know_who_asks_is_refused_and_a_test_send_needs_none() -> None:
    of = demanding()
    with pytest.raises(BadInput, match="it must be known who asks"):
        stored(of)
    with pytest.raises(BadInput, match="needs no approval has one recipient"):
        stored(of, number=2, without_approval=True)
    assert stored(of, number=1, without_approval=True).paused_at is None


def test_what_waits_after_its_first_recipients_waits_there_also_when_approved() -> None:
    of = demanding()
    job = stored(of, Actor("ann", 0), 10, pauses=intake.storage.PauseRules(2))
    approving.decide_approval(job.campaign_id, APPROVED, approver("bob", of))
    job.refresh_from_db()
    assert (job.status, job.wait_after, job.paused_at) == ("P_QUEUED", 2, None)


def test_a_sponsor_that_lost_its_vendor_keeps_what_is_approved_paused() -> None:
    of = demanding()
    job = stored(of, Actor("ann", 0))
    of.entitlements.all().delete()
    answer = approving.decide_approval(job.campaign_id, APPROVED, approver("bob", of))
    assert "it stays paused, held" in answer.message and Job.objects.get(pk=job.pk).paused_at
    factories.entitle([of], [job.vendor])
    assert pausing.resume_jobs([job.pk], Actor("operator"))[0].verdict == Verdict.DONE


def test_the_audit_asks_whether_anything_was_called_unapproved() -> None:
    of = demanding()
    job = stored(of, Actor("ann", 0))
    question = "no message of a campaign was called before somebody had approved it"

    def breaches() -> int:
        return next(check.breaches for check in audit.ask_all_questions() if check.question == question)

    assert not breaches()
    called = {"sent_at": timezone.now(), "dequeued_at": timezone.now(), "delivered_at": timezone.now() + timedelta(1)}
    Message.objects.filter(pk=job.first_message).update(**called, message_id="v-1")
    assert breaches() == 1
    approving.decide_approval(job.campaign_id, APPROVED, approver("bob", of))
    assert breaches() == 1  # called before that
    Message.objects.filter(pk=job.first_message).update(sent_at=timezone.now() + timedelta(seconds=1))
    assert not breaches()


@pytest.mark.django_db(transaction=True)
def test_of_two_who_decide_at_once_one_does() -> None:
    of = demanding()
    job = stored(of, Actor("ann", 0))
    users = [approver(name, of) for name in ("bob", "carl")]

    def decide(asked: tuple[User, str]) -> bool:
        try:
            return approving.decide_approval(job.campaign_id, asked[1], asked[0], "so").changed
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        changed = list(pool.map(decide, zip(users, (APPROVED, REFUSED), strict=True)))
    row = Approval.objects.get()
    assert sorted(changed) == [False, True]
    assert (row.verdict == APPROVED) == changed[0] == (statuses(job) == ["DISPATCHED"])


def test_commands_tell_decide_and_set_the_rule(tmp_path: Path) -> None:
    of = factories.sponsor()
    vendor = factories.vendor()
    factories.credential(vendor)
    factories.entitle([of], [vendor])
    manage("sponsor", "set", of.name, "--approval-above", "1")
    (facts,) = [json.loads(line) for line in manage("sponsor", "list", "--json").splitlines()]
    assert facts["approval_above"] == 1
    with pytest.raises(CommandError, match="no number of recipients"):
        manage("sponsor", "set", of.name, "--approval-above", "-1")
    (tmp_path / "list.csv").write_text("to\na@sandbox.example\nb@sandbox.example\n")
    (tmp_path / "body.txt").write_text("Good day")
    send = ("send_campaign", str(tmp_path / "list.csv"), "--sponsor", of.name, "--vendor", vendor.slug)
    content = ("--subject", "Hello", "--body", str(tmp_path / "body.txt"), "--at", "now")
    assert "waits for approval" in manage(*send, *content)
    row = Approval.objects.get()
    assert row.asked_kind == "shell"
    assert row.asked_by in manage("approve_campaign", "list")
    approver("bob", of)
    decide = ("approve_campaign", "approve", str(row.campaign_id), "--by")
    for name, why in (("bob", "asked for at a shell"), ("nobody", "is no user of mailhub")):
        with pytest.raises(CommandError, match=why):
            manage(*decide, name, "--yes")
    refuse = ("approve_campaign", "refuse", str(row.campaign_id), "--by", "bob", "--remark", "no", "--yes")
    assert "it never goes out" in manage(*refuse)
    assert "already" in manage(*refuse)
    row.refresh_from_db()
    assert row.decided_kind == "shell" and row.decided_by.startswith("bob (at the shell of ")
    assert manage("approve_campaign", "list", "--json") == ""
    test_send = manage(*send, *content, "--test-to", "me@sandbox.example")
    assert "is on its way" in test_send
    manage("sponsor", "set", of.name, "--approval-above", "")
    assert Sponsor.objects.get(pk=of.pk).approval_above is None


def test_who_pauses_what_waits_for_approval_has_it_stay_paused_when_it_is_approved() -> None:
    of = demanding()
    job = stored(of, Actor("ann", 0))
    before = job.revision
    (paused,) = pausing.pause_jobs([job.pk], Actor("olga"), "a wrong link")
    assert (paused.verdict, paused.message.endswith("stays paused after it until it is resumed")) == ("done", True)
    (again,) = pausing.pause_jobs([job.pk], Actor("carl"), "too")
    assert again.verdict == Verdict.ALREADY and "then it stays paused: a wrong link" in again.message
    job.refresh_from_db()
    assert job.revision == before + 1 and pausing.resume_jobs([job.pk], "carl")[0].verdict == Verdict.BUSY
    answer = approving.decide_approval(job.campaign_id, APPROVED, approver("bob", of))
    assert answer.message.endswith("approved: it stays paused, as olga has paused it: a wrong link")
    job.refresh_from_db()
    campaign = Campaign.objects.get()
    assert job.paused_at and (campaign.paused_by, campaign.paused_reason) == ("olga", "a wrong link")
    assert pausing.resume_jobs([job.pk], Actor("olga"))[0].verdict == Verdict.DONE
    assert not Job.objects.get(pk=job.pk).paused_at


def test_a_name_that_reads_like_a_pause_is_none_and_a_long_reason_is_kept() -> None:
    of = demanding()
    job = stored(of, Actor("ann; then it stays paused: by ann", 0))
    approving.decide_approval(job.campaign_id, APPROVED, approver("bob", of))
    assert not Job.objects.get(pk=job.pk).paused_at
    other, why = stored(of, Actor("a" * 150, 0)), "w" * 255
    pausing.pause_jobs([other.pk], Actor("olga"), why)
    assert Campaign.objects.get(pk=other.campaign_id).why_paused.endswith(f"then it stays paused: {why}")
    approving.decide_approval(other.campaign_id, APPROVED, User.objects.get(username="bob"))
    assert Campaign.objects.get(pk=other.campaign_id).why_paused == why


def test_what_was_paused_longer_before_the_column_is_so_after_the_migration() -> None:
    of = demanding()
    together = "waits for approval, asked for by ann; then it stays paused: a wrong link; then it stays paused: too"
    waits, decided = (stored(of, Actor("ann", 0)).campaign_id for _ in range(2))
    approving.decide_approval(decided, REFUSED, approver("bob", of), "no")
    Campaign.objects.update(paused_reason=together)
    migration = import_module("campaigns.migrations.0043_campaign_stays_paused")
    with connection.cursor() as cursor:
        cursor.execute(migration.APART)
        apart = Campaign.objects.get(pk=waits)
        assert apart.paused_reason == "waits for approval, asked for by ann"
        assert apart.stays_paused == "a wrong link; then it stays paused: too" and apart.why_paused == together
        assert Campaign.objects.get(pk=decided).paused_reason == together
        cursor.execute(migration.APART)
        assert Campaign.objects.get(pk=waits).stays_paused == apart.stays_paused, "a second time changes nothing"
        cursor.execute(migration.TOGETHER)
        assert Campaign.objects.get(pk=waits).paused_reason == together


def test_the_command_pauses_what_waits_too_and_a_refusal_ends_the_wish() -> None:
    of = demanding()
    job = stored(of, Actor("ann", 0))
    assert "stays paused after it" in manage("pause_job", str(job.pk), "--reason", "wait for Velma")
    approving.decide_approval(job.campaign_id, REFUSED, approver("bob", of), "no")
    assert Campaign.objects.get().why_paused == "refused by bob: no" and statuses(job) == ["STOPPED"]


def test_a_jobs_page_offers_to_pause_what_waits_for_approval_once_and_never_to_resume_it(operator: Client) -> None:
    of = demanding()
    job = stored(of, Actor("ann", 0))

    def offered() -> list[str]:
        page = operator.get(f"/admin/campaigns/job/{job.pk}/change/").content.decode()
        return [name for name in ("pause", "resume") if f'value="{name}"' in page]

    assert offered() == ["pause"]
    pausing.pause_jobs([job.pk], "olga")
    assert offered() == []
    approving.decide_approval(job.campaign_id, APPROVED, approver("bob", of))
    assert offered() == ["resume"]


def test_who_changes_its_sender_or_its_route_meanwhile_has_it_looked_at_again() -> None:
    of = demanding()
    bob = approver("bob", of)
    first, second = factories.credential(), factories.credential()
    factories.entitle([of], [first.vendor, second.vendor])
    route = Route.objects.create(sponsor=of, name="mails", channel="email")
    RouteEntry.objects.create(route=route, position=1, credential=first)
    identity = Identity.objects.create(sponsor=of, name="news", from_address="news@sandbox.example")
    job = stored(of, Actor("ann", 0), credential=first, identity="news", route=route)
    row = Approval.objects.get()
    Identity.objects.filter(pk=identity.pk).update(from_address="other@sandbox.example", dkim_selector="m1", name="n")
    RouteEntry.objects.create(route=route, position=2, credential=second)
    assert different(row) == ["from", "identity", "route entries", "signed by"]
    seen = frozen_parts.changes_token(frozen_parts.list_changes(row, whole=False))
    with pytest.raises(CannotDecide, match=f"from was news@sandbox.example and is .*decide again .as {seen}"):
        approving.decide_approval(job.campaign_id, APPROVED, bob)
    Identity.objects.filter(pk=identity.pk).update(reply_to="boss@sandbox.example")
    with pytest.raises(CannotDecide, match="reply to was nothing and is boss@"):
        approving.decide_approval(job.campaign_id, APPROVED, bob, seen=seen)
    now = frozen_parts.changes_token(frozen_parts.list_changes(row))
    assert approving.decide_approval(job.campaign_id, APPROVED, bob, seen=now).message.endswith("approved: it goes on")
    row.refresh_from_db()
    assert row.frozen["from"].strip() == "news@sandbox.example" and row.changed["reply to"] == "boss@sandbox.example"


def test_what_changes_and_changes_back_is_approved_as_it_was_asked_for() -> None:
    of = demanding()
    bob, job = approver("bob", of), stored(of, Actor("ann", 0))
    with pytest.raises(CannotDecide, match="all is again as it was"):
        approving.decide_approval(job.campaign_id, APPROVED, bob, seen="abc")
    assert approving.decide_approval(job.campaign_id, APPROVED, bob).changed
