"""A run of equal refusals over a credential pauses it, and puts back what was refused, instead of refusing the list."""

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from campaigns.audience import finding
from campaigns.engine import audit, refusal_runs, sending
from campaigns.engine.connections import connect
from campaigns.engine.finishing import finalizer
from campaigns.engine.finishing.sweep import sweep
from campaigns.engine.refusal_runs import KnownRuns, RunKey, RunPart, RunStatements
from campaigns.models import Job, Message, RefusalRun, RefusalTail, Resolution, SponsorRefusalRun
from campaigns.models.states import Status
from campaigns.operations import actions
from tests import factories
from tests.ageing import make_older
from tests.campaigns.rows import accepted, family, recount
from tests.faults.sending import login, meanwhile, take_again
from tests.programs import wait_until
from vendors.causes import AnswerCause
from vendors.health import HealthPolicy, at
from vendors.models import Credential
from vendors.outcomes import Accepted, InDoubt, Refused, follow_cause

CONCURRENCY = 4
LEASE = timedelta(minutes=5)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Account(http.server.BaseHTTPRequestHandler):
    """A vendor whose answers are the test's: an id for who begins with `good`, else its refusal while suspended."""

    protocol_version = "HTTP/1.1"
    suspended = True
    refusal = {"code": "E_7113", "sub_type": "state 4"}
    calls = 0
    answers_slow: threading.Event  # who begins with `slow` waits for it

    def do_POST(self) -> None:
        letter = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).calls += 1
        if letter["recipient"].startswith("slow"):
            self.answers_slow.wait()
        taken = not self.suspended or letter["recipient"].startswith("good")
        answer = {"id": letter["reference"]} if taken else self.refusal
        body = json.dumps(answer).encode()
        self.send_response(200 if taken else 422)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def vendor() -> Iterator[Any]:
    handler: Any = type("Handler", (Account,), {"answers_slow": threading.Event()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        handler.url = f"http://127.0.0.1:{server.server_port}"
        yield handler
        handler.answers_slow.set()
        server.shutdown()


@pytest.fixture(autouse=True)
def no_other_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else sends over the credential, so nobody has to be waited for."""
    waits, now = f">= {refusal_runs.CONFIRMED}", ">= 0"
    monkeypatch.setattr(refusal_runs, "FULL", refusal_runs.FULL.replace(waits, now))
    for name in ("messages", "whole"):
        asked = getattr(RunStatements, name)
        monkeypatch.setattr(RunStatements, name, property(lambda of, asked=asked: asked.fget(of).replace(waits, now)))


def taken(recipients: int | list[str], of: Credential) -> Job:
    """A leaf of the only sponsor, which a mailcaster has taken."""
    only = factories.sponsor("House")
    return take_again(factories.campaign_with_job(recipients, of=of, by=only, status="DISPATCHED"))


def paused(account: Credential) -> str:
    account.refresh_from_db()
    return account.paused_reason if account.paused else ""


def resume(account: Credential) -> None:
    Credential.objects.filter(pk=account.pk).update(paused=False, paused_reason="")


def failed(job: Job) -> int:
    job.refresh_from_db()
    return job.refused


def swept() -> None:
    """Sweeps until every run is put back."""
    runs = RefusalRun.objects, SponsorRefusalRun.objects
    wait_until(lambda: sweep(LEASE) and not any(of.filter(full_at__isnull=False).exists() for of in runs), "put back")


@pytest.mark.django_db(transaction=True)
def test_the_list_waits_the_reason_is_shown_and_health_suffers(vendor: Any, settings: Any) -> None:
    account = login(vendor.url)
    job = taken(200, account)
    assert sending.send(job.pk, job.fence).left
    assert "in a row were refused with the same words: E_7113 state 4: check the account" in paused(account)
    assert 20 <= failed(job) <= 20 + CONCURRENCY and job.accepted == 0 and vendor.calls == job.refused
    health = at(settings.REDIS_URL).look(account.vendor_id, HealthPolicy.of(account.vendor))
    assert (health.good, health.bad) == (0, job.refused) and not health.accepting
    refused = job.refused
    swept()
    assert failed(job) == 0 and Message.objects.filter(resend_no=1, error_code=None).count() == refused
    vendor.suspended = False
    resume(account)
    assert not sending.send(job.pk, take_again(job).fence).left
    assert finalizer.finalise(job.pk)
    job.refresh_from_db()
    assert (job.accepted, job.refused) == (200, 0)
    once = Resolution.objects.filter(decided_by="mailhub").first()
    assert once is not None and once.evidence == "E_7113 state 4"
    [found] = finding.look_for(str(once.message_id), None).messages
    assert "Refused in a row of equal refusals, so it waits again" in [one.what for one in found.happenings]
    assert not [check for check in audit.run() if not check.ok]


@pytest.mark.django_db(transaction=True)
def test_it_is_counted_over_all_jobs_and_a_logged_one_sends_again(vendor: Any) -> None:
    account = login(vendor.url)
    jobs = []
    for _ in range(4):
        job = taken(5, account)
        assert not sending.send(job.pk, job.fence).left and finalizer.finalise(job.pk)
        jobs.append(job)
    assert [failed(job) for job in jobs] == [5] * 4
    swept()
    assert paused(account).startswith("20 messages in a row")
    assert [(failed(job), job.status) for job in jobs] == [(0, Status.DISPATCHED)] * 4
    vendor.suspended = False
    resume(account)
    for job in jobs:
        assert not sending.send(job.pk, take_again(job).fence).left and finalizer.finalise(job.pk)
    assert sum(Job.objects.values_list("accepted", flat=True)) == 20


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_resumed", [False, True])
def test_calls_that_were_open_when_a_run_was_put_back_belong_to_it(vendor: Any, is_resumed: bool) -> None:
    account = login(vendor.url)
    early = taken([f"slow{n}@example.org" for n in range(3)], account)
    job = taken(40, account)
    with meanwhile(sending.send, early.pk, early.fence) as open_calls:
        wait_until(lambda: vendor.calls == 3, "the calls are open")
        assert sending.send(job.pk, job.fence).left
        swept()
        assert failed(job) == 0 and RefusalTail.objects.get().messages
        if is_resumed:
            resume(account)
        vendor.answers_slow.set()
        open_calls.result()
    finalizer.finalise(early.pk)
    assert failed(early) == 3, "refused in the same words, and far too few for a run"
    wait_until(lambda: sweep(LEASE) and not RefusalTail.objects.exists(), "the tail is put back")
    assert failed(early) == 0 and early.status == Status.DISPATCHED
    assert bool(paused(account)) != is_resumed, "what was called before pauses nothing anew"
    assert Resolution.objects.filter(message_id__gte=early.first_message, message_id__lt=early.end).count() == 3
    assert not [check for check in audit.run() if not check.ok]


@pytest.mark.django_db(transaction=True)
def test_open_calls_that_end_otherwise_stay_as_they_are(vendor: Any) -> None:
    account = login(vendor.url)
    job = factories.campaign_with_job(22, of=account, status="SENDING")
    claim = factories.claim(job, [20, 21])
    first, last = job.first_message, job.first_message + 20
    Message.objects.filter(id__gte=first, id__lt=last).update(**refused_so("E_7113", "state 4"))
    run = full_run(account, job, 20)
    assert refusal_runs.put_runs_back() == [RunKey(account.pk)] and paused(account)
    assert RefusalTail.objects.get().messages == [last, last + 1] and not RefusalRun.objects.exists()
    refusal_runs.put_runs_back()
    assert RefusalTail.objects.get().messages == [last, last + 1], "they are open"
    claim.delete()
    Message.objects.filter(id=last).update(**refused_so("E_7114", ""))
    Message.objects.filter(id=last + 1).update(dequeued_at=run.since, **accepted())
    refusal_runs.put_runs_back()
    assert not RefusalTail.objects.exists()
    assert Message.objects.get(id=last).error_code == "E_7114" and Message.objects.get(id=last + 1).message_id == "v-1"


@pytest.mark.django_db(transaction=True)
def test_who_is_refused_again_in_a_persons_retry_pauses_nothing(vendor: Any) -> None:
    account = login(vendor.url, concurrency=1)
    mixed = [f"{'good' if n % 10 == 9 else 'bad'}{n}@example.org" for n in range(80)]
    job = taken(mixed, account)
    assert not sending.send(job.pk, job.fence).left and finalizer.finalise(job.pk)
    assert failed(job) == 72 and not paused(account)
    for _ in range(2):
        actions.retry([job.pk])
        wait_until(lambda: sweep(LEASE) and failed(job) == 0 and job.status == Status.DISPATCHED, "dispatched")
        assert not sending.send(job.pk, take_again(job).fence).left and finalizer.finalise(job.pk)
        sweep(LEASE)
        assert failed(job) == 72 and not paused(account)
    RefusalRun.objects.all().delete()
    others = taken(30, account)
    assert sending.send(others.pk, others.fence).left and paused(account).startswith("20 messages in a row")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("code", ["template", "E_1"])
def test_a_retry_of_a_whole_list_over_a_suspended_account_pauses_it(vendor: Any, code: str) -> None:
    """Many were refused before, or could not be made. That lets no list be refused whole."""
    account = login(vendor.url)
    job = taken(250, account)
    Message.objects.filter(id__gte=job.first_message, id__lt=job.end).update(**refused_so(code, ""))
    recount(job)
    Job.objects.filter(pk=job.pk).update(status="SENT")
    assert finalizer.finalise(job.pk)
    actions.retry([job.pk])
    wait_until(lambda: sweep(LEASE) and failed(job) == 0 and job.status == Status.DISPATCHED, "dispatched")
    assert sending.send(job.pk, take_again(job).fence).left
    assert "messages in a row were refused" in paused(account)
    wait_until(lambda: sweep(LEASE) and failed(job) == 0, "put back")


@pytest.mark.django_db(transaction=True)
def test_other_words_of_a_retry_end_a_run(vendor: Any) -> None:
    account = login(vendor.url)
    job = factories.campaign_with_job(60, of=account, status="SENDING")
    noted(account, job, "E_words", list(range(19)))
    Message.objects.filter(id=job.first_message + 30).update(resend_no=1)
    noted(account, job, "E_other", [30])
    noted(account, job, "E_words", [19])
    assert RefusalRun.objects.get().full_at is None


@pytest.mark.django_db(transaction=True)
def test_a_persons_stop_of_the_parent_holds_for_a_child_that_was_logged_before() -> None:
    top, (logged, other) = family(parent="P_ASSIGNED", remaining=0, children=["LOGGED", "DISPATCHED"], each=20)
    Message.objects.filter(id__gte=logged.first_message, id__lt=logged.end).update(**refused_so("E_7113", "state 4"))
    recount(logged)
    Job.objects.filter(pk=top.pk).update(refused=20)
    actions.stop([top.pk], by="ann")
    full_run(top.credential, logged, 20)
    swept()
    sweep(LEASE)
    for job in (top, logged, other):
        job.refresh_from_db()
    assert (logged.status, logged.stopped_by) == ("LOGGED", "ann")
    assert top.status in ("P_STOPPED", "P_ASSIGNED") and top.stopped_by == "ann"


def refused_so(code: str, sub_type: str) -> dict[str, Any]:
    now = timezone.now()
    ended = {"dequeued_at": now, "sent_at": now, "delivered_at": now}
    return {**ended, "error_code": code, "error_sub_type": sub_type, "cause": "unknown"}


def full_run(account: Credential, job: Job, number: int, full: float = 60.0) -> RefusalRun:
    """A run of the job's first messages, full for so many seconds."""
    at = timezone.now() - timedelta(seconds=full)
    messages = [job.first_message + n for n in range(number)]
    said = {"code": "E_7113", "sub_type": "state 4"}
    return RefusalRun.objects.create(credential=account, messages=messages, since=at, full_at=at, **said)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("stopped", [[0], [0, 1]])
def test_a_finished_parent_shows_what_waits_again_in_a_stopped_child(stopped: list[int]) -> None:
    top, cut = family(parent="P_FINISHED", remaining=0, children=["LOGGED", "LOGGED"], each=10)
    account = top.credential
    for child in cut:
        Message.objects.filter(id__gte=child.first_message, id__lt=child.end).update(**refused_so("E_7113", "state 4"))
        recount(child)
    Job.objects.filter(pk=top.pk).update(refused=20)
    Job.objects.filter(pk__in=[cut[n].pk for n in stopped]).update(stopped_at=timezone.now(), stopped_by="ann")
    full_run(account, top, 20)
    swept()
    sweep(LEASE)
    top.refresh_from_db()
    if len(stopped) == 2:
        assert (top.status, top.stopped_by, top.refused) == ("P_STOPPED", "ann", 0) and top.finished_at
    else:
        assert (top.status, top.finished_at) == ("P_ASSIGNED", None), "its other child sends again"
    assert not [check for check in audit.run() if not check.ok]


def noted(account: Credential, job: Job, code: str, numbers: list[int], anew: bool = False) -> None:
    """Extends the run of the credential as a sender does."""
    part = RunPart(RunKey(account.pk), Refused(code, "state 4"), [job.first_message + n for n in numbers], anew)

    async def note() -> None:
        rows = await connect()
        try:
            await part.note(rows, code, "state 4")
            await refusal_runs.end_run(rows, RunKey(account.pk), timezone.now() if code == "E_7113" else EPOCH)
        finally:
            await rows.close()

    asyncio.run(note())


@pytest.mark.django_db(transaction=True)
def test_a_confirmed_run_stays_until_it_is_put_back(vendor: Any) -> None:
    """Whatever open calls are answered: other words, an acceptance; and what has its words belongs to it."""
    account = login(vendor.url)
    job = factories.campaign_with_job(30, of=account, status="SENDING")
    run = full_run(account, job, 20)
    noted(account, job, "E_7114", [20, 21])
    assert RefusalRun.objects.get().messages == run.messages, "other words"
    noted(account, job, "E_7113", [22, 23], anew=True)
    run.refresh_from_db()
    assert sorted(run.messages) == [job.first_message + n for n in (*range(20), 22, 23)]
    assert run.full_at == run.since, "neither acceptance nor answer has ended it"


@pytest.mark.django_db(transaction=True)
def test_a_run_that_is_not_confirmed_is_replaced_by_other_words_and_ended_by_an_acceptance(vendor: Any) -> None:
    account = login(vendor.url)
    job = factories.campaign_with_job(30, of=account, status="SENDING")
    full_run(account, job, 20, full=0.0)
    noted(account, job, "E_7114", [20, 21])
    assert len(RefusalRun.objects.get().messages) == 2
    noted(account, job, "E_7113", [22])
    assert not RefusalRun.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_stopped_job_stays_stopped(vendor: Any) -> None:
    account = login(vendor.url)
    first, second = taken(10, account), taken(10, account)
    for job in (first, second):
        assert not sending.send(job.pk, job.fence).left and finalizer.finalise(job.pk)
    Job.objects.filter(pk=first.pk).update(stopped_at=first.created_at)
    swept()
    assert (failed(first), first.status) == (0, Status.LOGGED) and Message.objects.filter(
        dequeued_at=None
    ).count() == 20


@pytest.mark.django_db(transaction=True)
def test_it_is_counted_over_all_senders_of_a_job_at_five_a_minute(vendor: Any) -> None:
    account = login(vendor.url, (5, 60))
    job = taken(40, account)
    for _ in range(3):
        assert sending.send(job.pk, job.fence).left and not paused(account)
        make_older(account.vendor, 70)
        job = take_again(job)
    assert sending.send(job.pk, job.fence).left and vendor.calls == 20
    swept()
    assert paused(account).startswith("20 messages in a row") and failed(job) == 0


@pytest.mark.django_db(transaction=True)
def test_whoever_resumes_it_gets_past_what_was_refused_before(vendor: Any) -> None:
    account = login(vendor.url, concurrency=1)
    job = taken(60, account)
    assert sending.send(job.pk, job.fence).left and vendor.calls == 20
    swept()
    resume(account)
    assert sending.send(job.pk, take_again(job).fence).left and vendor.calls == 40
    swept()
    assert failed(job) == 0, "none of these was put back before"
    resume(account)
    assert sending.send(job.pk, take_again(job).fence).left and vendor.calls == 60
    swept()
    assert failed(job) == 0
    resume(account)
    assert sending.send(job.pk, take_again(job).fence).left and vendor.calls == 80
    swept()
    assert failed(job) == 20, "refused again with the same words after a person had looked: that stands"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("recipients", [19, ["good@example.org", *(f"bad{n}@example.org" for n in range(19))]])
def test_a_short_run_refuses_one_by_one(recipients: Any, vendor: Any) -> None:
    account = login(vendor.url, concurrency=1)
    job = taken(recipients, account)
    assert not sending.send(job.pk, job.fence).left and not paused(account)
    sweep(LEASE)
    assert failed(job) == 19 and not paused(account)


@pytest.mark.django_db(transaction=True)
def test_an_acceptance_ends_the_run_and_a_new_one_begins_after_any_number(vendor: Any) -> None:
    account = login(vendor.url, concurrency=1)
    mixed = [f"{'good' if n % 15 == 14 else 'bad'}{n}@example.org" for n in range(60)]
    job = taken([*mixed, *(f"bad{n}@example.org" for n in range(100, 130))], account)
    assert sending.send(job.pk, job.fence).left and vendor.calls == 80
    assert paused(account).startswith("20 messages in a row")
    swept()
    assert failed(job) == 56


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("code", ["unknown_recipient", "invalid_number", "mailbox_full"])
def test_dead_mailboxes_at_the_head_of_a_list_pause_nothing(code: str, vendor: Any) -> None:
    vendor.refusal = {"code": code}
    account = login(vendor.url)
    job = taken([*(f"dead{n}@example.org" for n in range(200)), *(f"good{n}@example.org" for n in range(100))], account)
    assert not sending.send(job.pk, job.fence).left and not paused(account)
    assert failed(job) == 200 and job.accepted == 100 and not RefusalRun.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("refusal", "is_paused"),
    [({"code": "account_suspended"}, True), ({"code": "quota", "sub_type": "daily sending limit exceeded"}, False)],
)
def test_what_a_code_says_of_us_refuses_nobody(refusal: Any, is_paused: bool, vendor: Any) -> None:
    vendor.refusal = refusal
    account = login(vendor.url, concurrency=1)
    job = taken([f"good{n}@example.org" if n < 30 else f"r{n}@example.org" for n in range(90)], account)
    sent = sending.send(job.pk, job.fence)
    assert sent.left and vendor.calls == 31 and failed(job) == 0 and job.accepted == 30
    assert bool(paused(account)) == is_paused and bool(account.retry_after_until) != is_paused


@pytest.mark.django_db(transaction=True)
def test_another_sender_contradicts_a_run(vendor: Any) -> None:
    account = login(vendor.url)
    job = taken(19, account)
    assert not sending.send(job.pk, job.fence).left
    assert RefusalRun.objects.get().credential_id == account.pk
    later = taken([f"good{n}@example.org" for n in range(200)], account)
    with meanwhile(sending.send, later.pk, later.fence) as sent:
        assert not sent.result().left
    again = taken(5, account)
    assert not sending.send(again.pk, again.fence).left and not paused(account)


@pytest.mark.django_db(transaction=True)
def test_zero_in_the_settings_bears_any_number(vendor: Any, settings: Any) -> None:
    settings.EQUAL_REFUSALS = 0
    account = login(vendor.url)
    job = taken(40, account)
    assert not sending.send(job.pk, job.fence).left and not paused(account)


def test_a_part_of_a_run_is_equal_in_a_row_and_not_of_recipients() -> None:
    def part(*answers: Any) -> tuple[int, bool] | None:
        found = KnownRuns().read_part(RunKey(1), enumerate(follow_cause(one) for one in answers))
        return found and (len(found.messages), found.anew)

    policy, other = Refused("550", "5.3.0"), Refused("554", "")
    nobody, full = Refused("550", "5.1.1"), Refused("550", "5.2.2")
    assert part(policy, policy, policy) == (3, False)
    assert part(policy, InDoubt("lost"), nobody, policy) == (2, False), "what says nothing of us is passed by"
    assert part(policy, policy, other, policy, policy) == (2, True)
    assert part(policy, Accepted("1"), policy) == (1, True) and part(policy, Accepted("1")) is None
    assert part(*[nobody] * 9) is None and part(*[full] * 9) is None and part(Refused("unsendable", "no @")) is None
    assert part(Refused("550", "5.3.0", AnswerCause.RECIPIENT)) is None
