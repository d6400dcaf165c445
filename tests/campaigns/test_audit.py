"""manage.py audit finds and names each breach that is planted, and reports none in sound rows."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.postgres.functions import TransactionNow
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from campaigns import tasks
from campaigns.approvals import approval_rules
from campaigns.engine import audit, ground_truth
from campaigns.engine import sending as sender
from campaigns.engine.audit.calls import FRESH
from campaigns.engine.audit.questions import QUESTIONS
from campaigns.engine.finishing import finalizer
from campaigns.engine.lifecycle import move
from campaigns.models import (
    AnswerBatch,
    Campaign,
    CostEntry,
    DispatchRun,
    Entitlement,
    Job,
    Message,
    Resolution,
    RouteMove,
    Store,
)
from campaigns.operations import actions
from tests import factories
from tests.campaigns.rows import accepted, charged, family, in_doubt, logged, recount, refused
from tests.sandbox import Sandbox
from vendors.models import Credential, Minute, RateLimit, Usage, Vendor

pytestmark = pytest.mark.django_db
LONG_AGO = timedelta(hours=1)


def broken() -> dict[str, tuple[str, ...]]:
    return {check.question: check.examples for check in audit.ask_all_questions() if not check.is_kept}


def without(statement: str) -> None:
    """Drops a constraint of the database in this test's transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(statement)


def called(vendor: Vendor, *seconds: float, units: int = 1) -> None:
    """Writes rows of the ledger, so many seconds after now."""
    login = vendor.credentials.first() or factories.credential(vendor)
    for second in seconds:
        at = timezone.now() + timedelta(seconds=second)
        Usage.objects.create(vendor=vendor, credential=login, at=at, until=at, units=units)


def test_sound_rows_have_no_breach_in_any_state() -> None:
    login = factories.credential(factories.vendor(limits=[(3, 60)]))
    for status in ("RENDERED", "READY", "DISPATCHED", "ENQUEUED", "SENDING", "SENT", "STOPPED", "RECOVERING"):
        factories.campaign_with_job(2, of=login, status=status)
    sending = factories.campaign_with_job(4, of=login, status="SENDING", refused=1)
    factories.claim(sending, [0, 1])
    called(login.vendor, 1)
    factories.claim(sending, [1], fence=0)  # of a sender that was lost; the message has its end
    Message.objects.filter(id=sending.first_message + 1).update(dequeued_at=timezone.now(), **refused())
    answers(sending)
    logged(3, [accepted(), refused(), in_doubt()])
    logged(3, [accepted()], stopped_at=timezone.now())
    family(parent="P_ASSIGNING", remaining=3, children=["SENDING", "DISPATCHED"], each=2)
    family(parent="P_ASSIGNED", remaining=0, children=["SENDING", "DISPATCHED"], each=2)
    called(login.vendor, 2, 3, 61.5, 62.5, 63.5)
    Job.objects.filter(status="SENT").update(heartbeat_at=timezone.now(), accepted=2)
    for job in Job.objects.filter(status="SENT"):
        for id in range(job.first_message, job.end):
            Message.objects.filter(id=id).update(dequeued_at=timezone.now(), **accepted(f"v-{id}"))
    charged()
    assert broken() == {}


def answers(job: Job, **fields: Any) -> AnswerBatch:
    """Answers that are not merged yet."""
    fields = {"fence": job.fence, "called_at": timezone.now(), **fields}
    return AnswerBatch.objects.create(job=job, claim_id=0, last=True, messages=[], kinds="", **fields)


def claim_twice() -> str:
    job = factories.campaign_with_job(3, status="SENDING")
    called(job.vendor, 1, units=4)
    factories.claim(job, [0, 1])
    factories.claim(job, [1, 2])
    return f"message {job.first_message + 1} of job {job.pk}"


def call_again_after_a_sender_was_lost() -> str:
    job = factories.campaign_with_job(1, status="DISPATCHED", fence=2)
    called(job.vendor, 1)
    factories.claim(job, fence=1)
    return f"message {job.first_message} of job {job.pk}"


def overlap() -> str:
    job = factories.campaign_with_job(4, size=3)
    other = factories.job(job.campaign, first_message=job.first_message + 2, size=1)
    return f"jobs {job.pk} and {other.pk} of campaign {job.campaign_id}"


def decide_without_a_new_reference() -> str:
    job = logged(1, [in_doubt()])
    Resolution.objects.create(message_id=job.first_message, decision="resend", reason="x", decided_by="ann")
    return f"message {job.first_message}: 1 decisions"


def change_a_reference() -> str:
    job = logged(1, [accepted()])
    Message.objects.filter(id=job.first_message).update(resend_no=1)
    return f"message {job.first_message} of job {job.pk}"


def share_a_letter() -> str:
    job = logged(2, [accepted("v-7"), accepted("v-7")])
    return f"messages {job.first_message} and {job.first_message + 1}: v-7"


def lose_a_recipient() -> str:
    job = factories.campaign_with_job(3)
    Message.objects.filter(id=job.first_message + 1).delete()
    return f"campaign {job.campaign_id}: 2 of 3"


def forget_a_slice() -> str:
    job = factories.campaign_with_job(3, size=2)
    return f"campaign {job.campaign_id}: 2 of 3"


def cut_wrongly() -> str:
    top, cut = family(parent="P_ASSIGNING", remaining=3, children=["DISPATCHED"], each=2)
    Job.objects.filter(pk=cut[0].pk).update(size=1)
    return f"parent {top.pk}: 1 and 3 of 5"


def count_too_much() -> str:
    return f"job {factories.campaign_with_job(1, status='SENDING', accepted=1, in_doubt=1).pk}"


def claim_what_is_not_of_the_job() -> str:
    job = factories.campaign_with_job(1, status="SENDING")
    factories.claim(job, [1])
    return f"message {job.end} of job {job.pk}"


def leave_an_answer() -> str:
    job = factories.campaign_with_job(1, status="SENDING")
    left = answers(job, at=timezone.now() - LONG_AGO)
    return f"answers {left.pk} of job {job.pk}"


def end_without_a_message() -> str:
    job = logged(2, [accepted()])
    return f"message {job.first_message + 1} of job {job.pk}"


def claim_a_person_said_so() -> str:
    job = logged(1, [accepted("person:ann")])
    return f"message {job.first_message} of job {job.pk}"


def forget_an_acceptance() -> str:
    job = logged(2, [accepted("v-1"), accepted("v-2")])
    now = timezone.now().replace(second=0, microsecond=0)
    facts = {"vendor": job.vendor, "sponsor": job.sponsor_id, "share": job.pk % 16}
    Minute.objects.create(at=now, accepted=2, **facts)
    Message.objects.filter(id=job.first_message).update(message_id=None, error_code="bounce")
    recount(job)
    return f"vendor {job.vendor_id}: 1 accepted of 2"


def lose_an_entry() -> str:
    job = logged(1, [accepted() | {"sent_at": timezone.now() - timedelta(days=3)}])
    CostEntry.objects.all().delete()
    return f"sponsor {job.sponsor_id}, credential {job.credential_id}: 0 of 1"


def enter_too_few_units() -> str:
    job = logged(1, [accepted() | {"sent_at": TransactionNow(), "units": 3}])  # of the day of which the audit asks
    called(job.vendor, 0, units=3)
    CostEntry.objects.update(units=2)
    return f"sponsor {job.sponsor_id}, credential {job.credential_id}: 2 units of 3"


def report_what_never_was() -> str:
    job = logged(1, [{**accepted(), "report": "delivered", "report_at": timezone.now(), "report_no": 1}])
    return f"message {job.first_message} of job {job.pk}"


def drop_a_rule() -> str:
    without("ALTER TABLE campaigns_message DROP CONSTRAINT message_accepted")
    return "message_accepted"


def send_too_fast() -> str:
    vendor = factories.vendor("hasty", limits=[(3, 60)])
    called(vendor, 1, 30, units=2)
    return "vendor hasty: 4 calls, not 3, in 60 s"


def call_outside_of_the_ledger() -> str:
    job = factories.campaign_with_job(2, status="SENDING")
    called(job.vendor, 1)
    factories.claim(job)
    return f"credential {job.credential_id}: 2 called, 1 in the ledger"


def call_after_the_stop() -> str:
    job = factories.campaign_with_job(1, status="SENDING")
    called(job.vendor, 1)
    actions.stop_jobs([job.pk])
    factories.claim(job, at=timezone.now() + timedelta(seconds=1))
    return f"message {job.first_message} of job {job.pk}"


def call_in_a_pause_of_the_credential() -> str:
    login = factories.credential(name="main")
    Credential.objects.filter(pk=login.pk).update(paused=True)
    called(login.vendor, 1)
    return f"credential {login.vendor.slug}/main: 1 units at "


def call_in_a_brake() -> str:
    job = factories.campaign_with_job(3, status="SENDING", of=factories.credential(name="main"))
    called(job.vendor, 1, 2, 3)
    now = timezone.now()
    taken = {"brake_no": 4, "probe_no": 6, "probed_at": now}  # two probes
    Credential.objects.filter(pk=job.credential_id).update(braked_at=now, **taken)
    factories.claim(job, at=now + timedelta(seconds=1))
    return f"credential {job.vendor.slug}/main: 3 calls, 2 probes"


def call_unapproved() -> str:
    job = factories.campaign_with_job(1, status="SENDING")
    called(job.vendor, 1)
    with connection.cursor() as cursor:
        approval_rules.ask_for_approval(cursor, {job.pk: approval_rules.Party("user", "ann", 1)})
    Job.objects.filter(pk=job.pk).update(paused_at=None)  # by a hand that knows of no approvals
    factories.claim(job)
    return f"message {job.first_message} of campaign {job.campaign_id}"


def hide_a_child() -> str:
    top, cut = family(parent="P_STOPPED", remaining=1, children=["LOGGED", "DISPATCHED"], each=1)
    Message.objects.filter(id=cut[0].first_message).update(dequeued_at=timezone.now(), **accepted())
    recount(cut[0])
    return f"parent {top.pk}: child {cut[1].pk} is DISPATCHED"


def run_twice_a_night() -> str:
    without("ALTER TABLE campaigns_dispatchrun DROP CONSTRAINT one_run_a_night")
    vendor, now = factories.vendor(), timezone.now()
    for _ in range(2):
        DispatchRun.objects.create(vendor=vendor, local_date=now.date(), due_at=now)
    return f"vendor {vendor.pk} on {now.date()}"


def miscount_a_night() -> str:
    job, now = factories.campaign_with_job(1, status="DISPATCHED"), timezone.now()
    run = DispatchRun.objects.create(vendor=job.vendor, local_date=now.date(), due_at=now, started_at=now, dispatched=2)
    Job.objects.filter(pk=job.pk).update(run=run)
    return f"run {run.pk}: 1, not 2"


def leave_a_claim_to_a_logged_job() -> str:
    job = logged(1, [accepted()])
    return f"claim {factories.claim(job).pk} of job {job.pk}"


def miscount_a_job() -> str:
    job = logged(2, [accepted(), refused()])
    Job.objects.filter(pk=job.pk).update(accepted=2, refused=0)
    return f"job {job.pk}"


def miscount_a_parent() -> str:
    top, cut = family(parent="P_FINISHED", remaining=0, children=["LOGGED"], each=1)
    Job.objects.filter(pk=top.pk).update(finished_at=timezone.now())
    Message.objects.filter(id=cut[0].first_message).update(dequeued_at=timezone.now(), **accepted())
    recount(cut[0])
    return f"parent {top.pk}"


def share_an_exclusive_login() -> str:
    login = factories.credential(exclusive=True)
    for _ in range(2):
        factories.campaign_with_job(1, of=login, status="SENDING")
    return f"credential {login.pk}"


def double_a_caster() -> str:
    without("DROP INDEX caster_has_one_job")
    login = factories.credential()
    caster = factories.caster(login.vendor)
    for _ in range(2):
        factories.campaign_with_job(1, of=login, status="SENDING", mailcaster=caster)
    return f"mailcaster {caster.pk}"


def fall_silent() -> str:
    job = factories.campaign_with_job(1, status="SENDING", heartbeat_at=timezone.now() - LONG_AGO)
    return f"job {job.pk}: SENDING"


def leave_a_doubt_to_nobody() -> str:
    vendor = factories.vendor(settings={"url": "http://127.0.0.1:9/", "dedupe": "yes"})
    job = logged(1, [in_doubt()], of=factories.credential(vendor))
    return f"message {job.first_message} of campaign {job.campaign_id}"


def ask_elsewhere() -> str:
    job = logged(1, [in_doubt()])
    Message.objects.filter(pk=job.first_message).update(destination=1, asked_destination=2)
    return f"message {job.first_message} of job {job.pk}"


def moved(at: datetime) -> Job:
    """A child with an accepted message, of a campaign that went to its vendor at that time."""
    login, other = factories.credential(), factories.credential()
    child = logged(1, [accepted()], of=login)
    parent = factories.job(child.campaign, "P_FINISHED", finished_at=timezone.now(), accepted=1)
    Job.objects.filter(pk=child.pk).update(parent=parent)
    RouteMove.objects.create(
        campaign=child.campaign, parent=parent, job=child, first_message=child.first_message, size=1, messages=1,
        came_from=other, went_to=login, at=at, reason="paused",
    )  # fmt: skip
    return child


def move_what_was_called() -> str:
    return f"message {moved(timezone.now()).first_message}"


def lose_the_way() -> str:
    child = moved(timezone.now() - timedelta(days=2))
    RouteMove.objects.update(went_to=F("came_from"))
    return f"job {child.pk}"


def take_the_store_over() -> str:
    Store.objects.update(timeline="FFFFFFFF")
    return "the store was taken over"


def break_off_a_cut() -> str:
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE campaigns_message ADD CONSTRAINT message_until CHECK (id < 1000000000000) NOT VALID"
        )
    return "constraint of campaigns_message: CHECK ("


def lose_commits() -> str:
    """The server of the tests has it so; test_a_planted_breach... says that it may not."""
    return "fsync is off: a crash of the machine loses commits"


PLANTS: dict[str, Callable[[], str]] = {
    "no message is in two claims of one sender": claim_twice,
    "no message waits for a call that a lost sender may have made": call_again_after_a_sender_was_lost,
    "no message belongs to two jobs": overlap,
    "each time that a person sent again has a reference of its own": decide_without_a_new_reference,
    "no reference has changed but by a decision to send again": change_a_reference,
    "no two messages have one letter of the vendor": share_a_letter,
    "what is in doubt is asked about, and called again, only where and as whom it was called": ask_elsewhere,
    "the rows are in the PostgreSQL that wrote them (else: recover_store)": take_the_store_over,
    "no message was called before it went to another vendor": move_what_was_called,
    "each campaign has as many messages as recipients": lose_a_recipient,
    "the jobs of a campaign add up to its recipients": forget_a_slice,
    "the children of a parent and what is not cut yet add up to its size": cut_wrongly,
    "no job counts more messages than it has": count_too_much,
    "each claimed message belongs to its job": claim_what_is_not_of_the_job,
    "each answer is merged into its message": leave_an_answer,
    "no job ends without some of its messages": end_without_a_message,
    "what went to another vendor is in jobs of that vendor": lose_the_way,
    "no constraint of a cut that was broken off refuses messages": break_off_a_cut,
    "no setting of PostgreSQL lets a crash take back what was committed (else: doctor)": lose_commits,
    "what is accepted has evidence": claim_a_person_said_so,
    "what was recorded as accepted still is": forget_an_acceptance,
    "the accounts of what vendors charge are the messages that were accepted": lose_an_entry,
    "the accounts of today have the units of all messages that were called today and accepted": enter_too_few_units,
    "a message reported as delivered or bounced is accepted, and that sending took place": report_what_never_was,
    "the database still refuses rows that contradict themselves": drop_a_rule,
    "no window holds more calls than its limit": send_too_fast,
    "each call is in the ledger": call_outside_of_the_ledger,
    "no call was allowed after a stop or in a pause": call_after_the_stop,
    "no call was allowed while its vendor or credential was paused": call_in_a_pause_of_the_credential,
    "no call was allowed in a brake of its credential but one for each probe": call_in_a_brake,
    "no message of a campaign was called before somebody had approved it": call_unapproved,
    "no parent that is over hides a child that is not": hide_a_child,
    "each vendor has at most one dispatch run a night": run_twice_a_night,
    "each run counted the jobs that it dispatched, all of its own vendor": miscount_a_night,
    "a logged job has no claims": leave_a_claim_to_a_logged_job,
    "the counters of a logged job are those of its messages": miscount_a_job,
    "the counters of a finished parent are those of its children": miscount_a_parent,
    "no exclusive credential serves two campaigns": share_an_exclusive_login,
    "no mailcaster has two jobs": double_a_caster,
    "every job that is not final has been moved within its deadline": fall_silent,
    "each doubt that the vendor can settle waits for its turn": leave_a_doubt_to_nobody,
}


def test_each_question_has_its_planted_breach() -> None:
    assert list(PLANTS) == [question.text for question in QUESTIONS]


@pytest.mark.parametrize("question", PLANTS)
def test_a_planted_breach_is_found_and_named(question: str, settings: Any) -> None:
    settings.STORES_MAY_LOSE = PLANTS[question] is not lose_commits
    example = PLANTS[question]()
    if "accounts" not in question:
        charged()  # of rows that no sender has written
    found = broken()
    assert set(found) == {question}, found
    assert found[question][0].startswith(example)


class TestLimits:
    def test_a_window_is_half_open_and_of_one_credential_where_the_limit_is(self) -> None:
        vendor = factories.vendor()
        one, two = factories.credential(vendor), factories.credential(vendor)
        RateLimit.objects.create(vendor=vendor, credential=one, units=1, seconds=10)
        start = timezone.now() + timedelta(seconds=1)
        for login, second in ((one, 0), (two, 1), (two, 2), (one, 10)):
            at = start + timedelta(seconds=second)
            Usage.objects.create(vendor=vendor, credential=login, at=at, until=at, units=1)
        assert broken() == {}
        Usage.objects.create(vendor=vendor, credential=one, at=start, until=start, units=1)
        assert set(broken()) == {"no window holds more calls than its limit"}

    def test_calls_before_an_edit_are_not_judged_by_the_new_limit(self) -> None:
        vendor = factories.vendor(limits=[(50, 60)])
        called(vendor, *[-1] * 40)
        RateLimit.objects.filter(vendor=vendor).update(units=3)
        called(vendor, 1, 1, 1)
        assert broken() == {}
        called(vendor, 2)
        assert set(broken()) == {"no window holds more calls than its limit"}


class TestStuck:
    @pytest.mark.parametrize("status", ["READY", "STOPPED", "P_ASSIGNED", "P_STOPPED"])
    def test_what_a_sweep_should_have_moved_long_ago_is_stuck(self, status: str) -> None:
        past = timezone.now() - LONG_AGO
        if status in ("P_ASSIGNED", "P_STOPPED"):
            job, cut = family(parent=status, remaining=0, children=["LOGGED"], each=1)
            Job.objects.filter(pk=cut[0].pk).update(finished_at=past, stopped_at=past)
            Job.objects.filter(pk=job.pk, status="P_STOPPED").update(stopped_at=past)
        else:
            job = factories.campaign_with_job(1, status=status, created_at=past)
            Job.objects.filter(pk=job.pk, status="STOPPED").update(stopped_at=past)
        assert broken() == {
            "every job that is not final has been moved within its deadline": (f"job {job.pk}: {status}",)
        }

    def test_what_nobody_may_send_is_stuck_from_its_deadline_on(self) -> None:
        past = timezone.now() - LONG_AGO
        job = factories.campaign_with_job(1, created_at=past)
        Entitlement.objects.filter(sponsor=job.sponsor).delete()
        assert broken() == {}
        Campaign.objects.filter(pk=job.campaign_id).update(deadline=past)
        assert set(broken()) == {"every job that is not final has been moved within its deadline"}

    def test_what_waits_for_its_time_is_not_stuck(self) -> None:
        past, later = timezone.now() - LONG_AGO, timezone.now() + LONG_AGO
        factories.campaign_with_job(1, created_at=past, not_before=later)
        job = factories.campaign_with_job(1, created_at=past)
        Campaign.objects.filter(pk=job.campaign_id).update(send_at=later)
        factories.campaign_with_job(1, status="RENDERED", created_at=past)
        family(parent="P_ASSIGNED", remaining=0, children=["DISPATCHED"], each=1)
        assert broken() == {}

    @pytest.mark.parametrize("of_login", [False, True])
    def test_a_doubt_that_nobody_may_ask_about_while_a_limit_is_0_is_not_stuck(self, of_login: bool) -> None:
        leave_a_doubt_to_nobody()
        login = Credential.objects.get()
        RateLimit.objects.create(vendor=login.vendor, credential=login if of_login else None, units=0, seconds=60)
        assert broken() == {}


class TestCommand:
    def test_kept_promises_are_one_line_each_and_exit_code_0(self, capsys: pytest.CaptureFixture) -> None:
        call_command("audit")
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == len(QUESTIONS)
        assert lines[0] == "P1    ok      no message is in two claims of one sender"

    def test_a_breach_is_named_and_ends_with_exit_code_1(self, capsys: pytest.CaptureFixture) -> None:
        for _ in range(7):
            lose_a_recipient()
        with pytest.raises(CommandError, match=f"1 of {len(QUESTIONS)} checks found a breach") as error:
            call_command("audit")
        assert error.value.returncode == 1
        (line,) = [line for line in capsys.readouterr().out.splitlines() if "BREACH" in line]
        assert line.startswith("P2    BREACH  each campaign has as many messages as recipients: 7 (campaign ")
        assert line.count("2 of 3") == audit.EXAMPLES and line.endswith(", ...)")

    def test_json_is_one_object_a_question(self, capsys: pytest.CaptureFixture) -> None:
        call_command("audit", json=True)
        rows: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [row["promise"] for row in rows] == [question.promise for question in QUESTIONS]
        assert all(row["ok"] and row["breaches"] == 0 for row in rows)


@pytest.mark.parametrize("finalised", [False, True])
def test_an_acceptance_that_comes_while_a_message_waits_again_is_no_call_of_now(finalised: bool) -> None:
    """Its earlier call was allowed before the stop, and is in a part of the ledger that may be deleted."""
    if finalised:
        job = logged(1, [], stopped_at=timezone.now())
    else:
        job = factories.campaign_with_job(1, status="STOPPED", stopped_at=timezone.now(), started_at=timezone.now())
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.01)")  # only the database's clock tells what comes after the stop
        cursor.execute(ground_truth.ACCEPT, {"ids": [job.first_message], "codes": ["v-1"], "notes": [None], "nos": [0]})
    assert Message.objects.get(id=job.first_message).message_id == "v-1"
    assert broken() == {}


@pytest.mark.parametrize("status", ["P_FINISHED", "P_STOPPED"])
def test_the_month_of_a_parent_that_has_ended_may_leave_however_it_ended(status: str) -> None:
    left = 0 if status == "P_FINISHED" else 2
    top, [cut] = family(parent=status, remaining=left, children=["LOGGED"], each=1)
    Message.objects.filter(id=cut.first_message).update(dequeued_at=timezone.now(), **accepted())
    Job.objects.filter(pk=top.pk).update(accepted=1)
    recount(cut)
    Job.objects.filter(campaign=top.campaign_id).update(finished_at=timezone.now() - timedelta(days=2))
    assert broken() == {}
    Message.objects.filter(campaign=top.campaign_id).delete()  # as by a partition that is detached
    assert broken() == {}


IN_A_PAUSE = "no call was allowed while its vendor or credential was paused"


def pause(row: Vendor | Credential, paused: bool = True) -> None:
    type(row).objects.filter(pk=row.pk).update(paused=paused)


def of_ledger(login: Credential, at: datetime) -> None:
    Usage.objects.create(vendor=login.vendor, credential=login, at=at, until=at + timedelta(minutes=10), units=2)


@pytest.mark.parametrize("of_vendor", [True, False])
def test_a_call_in_a_pause_is_found_also_when_the_pause_is_over(of_vendor: bool) -> None:
    login = factories.credential()
    row: Any = login.vendor if of_vendor else login
    before = timezone.now()
    pause(row)
    within = timezone.now()
    pause(row)  # once more: it is paused since the first time
    pause(row, False)
    after = timezone.now()
    of_ledger(login, before)
    of_ledger(login, after)
    assert broken() == {}
    of_ledger(login, within)
    [example] = broken()[IN_A_PAUSE]
    assert example.startswith(f"{'vendor' if of_vendor else 'credential'} {row}: 2 units at ")


def test_a_brake_allows_a_call_for_each_probe_and_says_nothing_of_calls_before_it() -> None:
    call_in_a_brake()
    login = Credential.objects.filter(braked_at__isnull=False)
    login.update(probe_no=7)
    assert broken() == {}
    login.update(brake_no=7)
    assert len(broken()) == 1
    login.update(braked_at=timezone.now() + timedelta(seconds=5))
    assert broken() == {}
    login.update(braked_at=timezone.now() - LONG_AGO)
    Store.objects.update(adopted_at=timezone.now())
    assert broken() == {}, "calls from before a takeover may be better known than the probes"


def test_a_pause_of_another_credential_or_vendor_forbids_no_call() -> None:
    login = factories.credential()
    pause(factories.credential(login.vendor))
    pause(factories.vendor())
    of_ledger(login, timezone.now())
    assert broken() == {}


def test_calls_before_a_takeover_are_not_judged_by_pauses_whose_end_the_rows_may_have_lost() -> None:
    login = factories.credential()
    pause(login)
    of_ledger(login, timezone.now())
    assert IN_A_PAUSE in broken()
    Store.objects.update(adopted_at=timezone.now())
    assert broken() == {}


def test_jobs_of_the_last_day_are_found_by_an_index() -> None:
    """All questions ask for them, and there may be a million of others."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT i.indexrelid::regclass::text FROM pg_index i WHERE i.indrelid = 'campaigns_job'::regclass"
            " AND NOT i.indisprimary AND i.indexrelid <> 'job_finished'::regclass"
        )
        for (other,) in cursor.fetchall():  # in a table of few rows any of them may be as good
            without(f"DROP INDEX {other}")
        for whole in ("seqscan", "indexscan", "indexonlyscan"):  # without a condition on the index
            cursor.execute(f"SET LOCAL enable_{whole} = off")
        cursor.execute(f"EXPLAIN SELECT j.id FROM campaigns_job j WHERE {FRESH}")
        plan = [line for (line,) in cursor.fetchall()]
    assert len([line for line in plan if "Bitmap Index Scan on job_finished" in line]) == 2, plan


def test_beats_audit_writes_each_breach_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    tasks.audit()
    assert not caplog.records
    example = lose_a_recipient()
    tasks.audit()
    (record,) = caplog.records
    assert record.levelname == "ERROR" and example in record.getMessage()


def test_a_message_that_was_counted_late_is_seen_on_the_row() -> None:
    job = logged(1, [accepted()])
    Job.objects.filter(pk=job.pk).update(accepted=F("accepted") - 1)
    assert broken() == {
        "the counters of a logged job are those of its messages": (f"job {job.pk}",),
        "the accounts of what vendors charge are the messages that were accepted": (
            f"sponsor {job.sponsor_id}, credential {job.credential_id}: 1 of 0",
        ),
    }


def test_what_is_entered_twice_is_found() -> None:
    logged(1, [accepted()])
    assert broken() == {}
    CostEntry.objects.update(messages=2)
    assert len(broken()) == 1


@pytest.mark.django_db(transaction=True)
def test_while_mail_goes_out_nothing_is_broken(sandbox: Sandbox) -> None:
    """Also between a claim and its answer, and during finalising, a stop and a retry."""
    login = factories.credential(factories.vendor(settings={"url": sandbox.url, "concurrency": 16}))
    names = [f"{kind}-{number}" for number in range(60) for kind in ("reject", "lost", "error", "a", "b", "c", "d")]
    addresses = [f"{name.replace('-', '+')}@sandbox.example" for name in names]
    jobs = [factories.campaign_with_job(addresses, of=login, status="DISPATCHED") for _ in range(3)]

    def send() -> None:
        try:
            for job in jobs:
                one(job)
            actions.stop_jobs([jobs[0].pk])
            for job in jobs:
                actions.retry_jobs([job.pk])
                one(job)
        finally:
            connection.close()

    def one(job: Job) -> None:
        mine = Job.objects.filter(pk=job.pk)
        move(mine, "enqueue", fence=F("fence") + 1, heartbeat_at=Now())
        sender.send_claimed_job(job.pk, mine.get().fence)
        finalizer.finalise_job(job.pk)

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        rounds = 0
        while not sending.done():
            assert broken() == {}
            rounds += 1
        sending.result()
    assert rounds > 3 and broken() == {}
    assert Job.objects.filter(status="LOGGED").count() == 3 and Message.objects.filter(resend_no=1).count() == 180
