"""One sponsor's faults are his: at a vendor that two share they trip no breaker and no pause for the other one.

Elsewhere: dry runs, dear letters and exports (tests/front/test_shares.py), uploads (tests/front/test_large_bodies.py),
webhooks that hang (tests/front/test_slow_receivers.py), bounces (tests/audience/test_mailbox.py, test_receiver.py),
huge imports (test_floods_of_a_sponsor.py).
"""

import http.server
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from campaigns.engine import audit, sending
from campaigns.engine.finishing import finalizer
from campaigns.engine.finishing.sweep import run_sweep
from campaigns.models import (
    Campaign,
    Entitlement,
    Identity,
    Job,
    Message,
    RefusalRun,
    RefusalTail,
    Sponsor,
    SponsorRefusalRun,
)
from campaigns.operations import pausing
from tests import factories
from tests.faults.sending import login, meanwhile, send_the_rest, sent, take_again
from tests.programs import wait_until
from vendors.health import HealthPolicy, HealthStatus, health_store
from vendors.models import Credential

pytestmark = pytest.mark.django_db(transaction=True)
LEASE = timedelta(minutes=5)
WIDE = 30  # connections: as many answers come before the first of them is heeded


class ManyLogins(http.server.BaseHTTPRequestHandler):
    """A vendor: `gone` is refused as unknown, `odd` in other words; `lost` gets no clear answer, a wrong login 401."""

    protocol_version = "HTTP/1.1"
    counting = threading.Lock()
    together = threading.Barrier(WIDE)  # calls with a wrong login come together
    knows = False  # the other words are over
    refusal = ("E_7113", "state 4")  # code and words that no rule knows
    slow_calls = 0
    answers_slow: threading.Event  # who is `odd-slow` waits for it
    unverified = frozenset({"news@anton.example"})  # senders that the account may not use
    senders: list[str]  # of all calls that named one

    def do_POST(self) -> None:
        letter = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if sender := letter.get("from", {}).get("address"):
            self.senders.append(sender)
        if sender in self.unverified:
            status, answer = 403, {"code": "domain_not_verified", "sub_type": f"The sender {sender} is not verified"}
        elif self.headers["x-login"] == "wrong":
            self.together.wait(120)
            status, answer = 401, {"code": "bad_login"}
        elif letter["recipient"].startswith("gone"):
            status, answer = 422, {"code": "unknown_recipient"}
        elif letter["recipient"].startswith("odd") and not self.knows:
            if letter["recipient"].startswith("odd-slow"):
                with self.counting:
                    type(self).slow_calls += 1
                self.answers_slow.wait(120)
            status, answer = 422, dict(zip(("code", "sub_type"), self.refusal, strict=True))
        elif letter["recipient"].startswith("lost"):
            status, answer = 500, {}
        else:
            status, answer = 200, {"id": letter["reference"]}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def rules() -> Any:
    """The vendor's handler: what a test changes of its answers."""
    return type(
        "Handler",
        (ManyLogins,),
        {"together": threading.Barrier(WIDE), "answers_slow": threading.Event(), "senders": []},
    )


@pytest.fixture
def shared_login(rules: Any) -> Iterator[Credential]:
    """The credential that both sponsors may use."""

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 4 * WIDE

    with Server(("127.0.0.1", 0), rules) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield login(f"http://127.0.0.1:{server.server_port}", concurrency=WIDE)
        rules.together.abort()
        rules.answers_slow.set()
        server.shutdown()


@pytest.fixture
def anton() -> Sponsor:
    return factories.sponsor("Anton")


@pytest.fixture
def velma() -> Sponsor:
    return factories.sponsor("Velma")


def job_of(sponsor: Sponsor, recipients: list[str], of: Credential) -> Job:
    return take_again(factories.campaign_with_job(recipients, of=of, by=sponsor, status="DISPATCHED"))


def health_of(account: Credential) -> HealthStatus:
    return health_store(settings.REDIS_URL).look(account.vendor_id, HealthPolicy.of(account.vendor))


def nothing_stands(account: Credential) -> None:
    """Neither the credential nor its vendor is paused, braked or waits, and programs are not turned away."""
    account.refresh_from_db()
    account.vendor.refresh_from_db()
    assert not account.paused and not account.vendor.paused
    assert account.retry_after_until is None and account.rate_limited_until is None
    assert health_of(account).accepting, health_of(account)
    assert not RefusalRun.objects.filter(full_at__isnull=False).exists()


def test_refused_addresses_of_one_sponsor_let_the_other_ones_mail_through(
    shared_login: Credential, anton: Sponsor, velma: Sponsor
) -> None:
    dead = sent(job_of(anton, [f"gone{number}@example.org" for number in range(150)], shared_login))
    assert (dead.refused, dead.accepted) == (150, 0)
    run_sweep(LEASE)
    nothing_stands(shared_login)
    mine = sent(job_of(velma, [f"reader{number}@example.org" for number in range(20)], shared_login))
    assert (mine.refused, mine.accepted) == (0, 20)


def test_wrong_logins_on_a_credential_of_his_own_pause_that_one_alone(
    shared_login: Credential, anton: Sponsor, velma: Sponsor
) -> None:
    """Many calls are under way as the first answer comes: all of them together are one bad sign of the vendor."""
    own = factories.credential(shared_login.vendor, secret={"X-Login": "wrong"})
    job = job_of(anton, [f"reader{number}@example.org" for number in range(2 * WIDE)], own)
    assert sending.send_claimed_job(job.pk, job.fence).left
    own.refresh_from_db()
    assert own.paused
    assert health_of(shared_login).bad <= 1, "his login says nothing about the vendor"
    run_sweep(LEASE)
    nothing_stands(shared_login)
    mine = sent(job_of(velma, [f"other{number}@example.org" for number in range(20)], shared_login))
    assert (mine.refused, mine.accepted) == (0, 20)


def readers(number: int) -> list[str]:
    return [f"reader{one}@example.org" for one in range(number)]


def waits_paused(job: Job) -> bool:
    """Its campaign has paused itself, and nothing of the job has failed."""
    run_sweep(LEASE)
    job.refresh_from_db()
    campaign = Campaign.objects.get(pk=job.campaign_id)
    return bool(campaign.paused_at) and campaign.paused_by == "mailhub" and job.refused == 0


def odd(number: int, first: int = 0) -> list[str]:
    return [f"odd{one}@example.org" for one in range(first, first + number)]


def refused_all(job: Job) -> Job:
    """Sends a list of which each message is refused, until it is logged."""
    logged = sent(job)
    assert (logged.refused, logged.accepted) == (logged.size, 0)
    return logged


def is_paused(account: Credential) -> bool:
    account.refresh_from_db()
    return account.paused


@pytest.mark.parametrize("refusal", [("E_7113", "state 4"), ("spam", "content rejected")])
def test_a_row_of_equal_refusals_pauses_the_campaign_of_its_sponsor_alone(
    refusal: tuple[str, str], shared_login: Credential, anton: Sponsor, velma: Sponsor, rules: Any
) -> None:
    """In unknown words, or for the content. The other one's mail goes out while the run is full, too."""
    rules.refusal = refusal
    theirs = job_of(anton, odd(300), shared_login)
    assert sending.send_claimed_job(theirs.pk, theirs.fence).left
    theirs.refresh_from_db()
    assert 20 <= theirs.refused <= 20 + WIDE
    assert SponsorRefusalRun.objects.get().full_at
    mine = sent(job_of(velma, readers(20), shared_login))
    assert (mine.refused, mine.accepted) == (0, 20)
    wait_until(lambda: waits_paused(theirs), "his campaign is paused, and his messages wait")
    why = Campaign.objects.get(pk=theirs.campaign_id).paused_reason
    assert f"messages in a row were refused with the same words: {' '.join(refusal)}. They wait" in why
    assert why.endswith("then resume") and "Velma" not in why
    nothing_stands(shared_login)
    rules.knows = True
    pausing.resume_jobs([theirs.pk], by="anton")
    theirs = sent(take_again(theirs))
    assert (theirs.refused, theirs.accepted) == (0, 300)
    assert not [check for check in audit.ask_all_questions() if not check.is_kept]


def test_another_ones_acceptances_beside_do_not_let_a_list_be_refused_whole(
    shared_login: Credential, anton: Sponsor, velma: Sponsor, rules: Any
) -> None:
    theirs = job_of(anton, odd(200), shared_login)
    mine = job_of(velma, readers(2_000), shared_login)
    with meanwhile(sending.send_claimed_job, mine.pk, mine.fence) as beside:
        assert sending.send_claimed_job(theirs.pk, theirs.fence).left
        beside.result()
    assert finalizer.finalise_job(mine.pk)
    wait_until(lambda: waits_paused(theirs), "his campaign is paused, and his messages wait")
    nothing_stands(shared_login)
    mine.refresh_from_db()
    assert (mine.refused, mine.accepted) == (0, 2_000)


def test_a_second_sponsors_run_in_the_same_words_pauses_the_credential(
    shared_login: Credential, anton: Sponsor, velma: Sponsor, rules: Any
) -> None:
    theirs = job_of(anton, odd(20), shared_login)
    assert not sending.send_claimed_job(theirs.pk, theirs.fence).left and finalizer.finalise_job(theirs.pk)
    wait_until(lambda: waits_paused(theirs), "the first one's campaign is paused, though its job had ended")
    assert not is_paused(shared_login)
    mine = job_of(velma, odd(19), shared_login)
    assert not sending.send_claimed_job(mine.pk, mine.fence).left and finalizer.finalise_job(mine.pk)
    run_sweep(LEASE)
    assert not is_paused(shared_login) and RefusalRun.objects.get().full_at is None
    more = job_of(velma, odd(100), shared_login)
    assert sending.send_claimed_job(more.pk, more.fence).left
    wait_until(lambda: run_sweep(LEASE) and not RefusalRun.objects.exists(), "the run is put back")
    assert is_paused(shared_login) and "were refused with the same words" in shared_login.paused_reason
    assert not SponsorRefusalRun.objects.exists()
    assert not Campaign.objects.filter(sponsor=velma, paused_at__isnull=False).exists(), "it is not hers"
    assert not Message.objects.filter(error_code="E_7113").exists(), "all wait again"
    assert not [check for check in audit.ask_all_questions() if not check.is_kept]


def test_few_refusals_each_of_many_sponsors_pause_the_credential(shared_login: Credential, rules: Any) -> None:
    jobs = [job_of(factories.sponsor(f"Sponsor {one}"), odd(6), shared_login) for one in range(5)]
    for job in jobs:
        sending.send_claimed_job(job.pk, job.fence)
        finalizer.finalise_job(job.pk)
    runs = RefusalRun.objects
    wait_until(lambda: run_sweep(LEASE) and not runs.exists() and is_paused(shared_login), "24 are not of the first")
    assert not Message.objects.filter(error_code="E_7113").exists(), "all wait again"
    assert not Campaign.objects.filter(paused_at__isnull=False).exists()


def test_the_only_sponsor_of_a_credential_pauses_it(
    shared_login: Credential, anton: Sponsor, velma: Sponsor, rules: Any
) -> None:
    """Nobody else is harmed, and the account is the likelier cause."""
    Entitlement.objects.filter(sponsor=velma).delete()
    own = factories.credential(shared_login.vendor)
    Entitlement.objects.create(sponsor=velma, vendor=own.vendor, credential=shared_login)
    job = job_of(anton, odd(100), own)
    assert sending.send_claimed_job(job.pk, job.fence).left
    assert is_paused(own)
    wait_until(lambda: run_sweep(LEASE) and not RefusalRun.objects.exists(), "the run is put back")
    job.refresh_from_db()
    assert job.refused == 0 and Campaign.objects.get(pk=job.campaign_id).paused_at is None
    shared_login.refresh_from_db()
    assert not shared_login.paused


def test_his_calls_that_are_open_at_the_pause_belong_to_it(
    shared_login: Credential, anton: Sponsor, velma: Sponsor, rules: Any
) -> None:
    early = job_of(anton, [f"odd-slow{one}@example.org" for one in range(3)], shared_login)
    hers = job_of(velma, [f"odd-slow{one}@example.org" for one in range(10, 12)], shared_login)
    full = job_of(anton, odd(100), shared_login)
    with (
        meanwhile(sending.send_claimed_job, early.pk, early.fence) as one,
        meanwhile(sending.send_claimed_job, hers.pk, hers.fence) as other,
    ):
        wait_until(lambda: rules.slow_calls == 5, "the calls are open")
        assert sending.send_claimed_job(full.pk, full.fence).left
        wait_until(lambda: waits_paused(full), "his campaign is paused, and his messages wait")
        assert Campaign.objects.get(pk=early.campaign_id).paused_at, "its calls would go on after their answer"
        rules.answers_slow.set()
        one.result()
        other.result()
    for job in (early, hers):
        finalizer.finalise_job(job.pk)
    wait_until(lambda: run_sweep(LEASE) and not RefusalTail.objects.exists(), "the tail is put back")
    early.refresh_from_db()
    hers.refresh_from_db()
    assert (early.refused, early.status) == (0, "DISPATCHED")
    assert hers.refused == 2, "two in the same words are far from a run"
    nothing_stands(shared_login)


def test_his_own_acceptance_ends_his_run_alone(shared_login: Credential, anton: Sponsor, velma: Sponsor) -> None:
    for sponsor in (anton, velma):
        refused_all(job_of(sponsor, odd(10), shared_login))
    assert SponsorRefusalRun.objects.count() == 2
    sent(job_of(velma, readers(300), shared_login))
    assert not RefusalRun.objects.exists(), "the account works"
    assert SponsorRefusalRun.objects.get().sponsor_id == anton.pk
    refused_all(job_of(anton, odd(10, first=10), shared_login))
    assert SponsorRefusalRun.objects.get().full_at


def test_whoever_resumes_gets_past_what_was_refused_before(
    shared_login: Credential, anton: Sponsor, velma: Sponsor
) -> None:
    """A message is put back once, or recipients truly refused in unknown words would block their list for good."""
    job = job_of(anton, odd(20), shared_login)
    sending.send_claimed_job(job.pk, job.fence)
    assert finalizer.finalise_job(job.pk)
    wait_until(lambda: waits_paused(job), "his campaign is paused, and his messages wait")
    pausing.resume_jobs([job.pk], by="anton")
    job = refused_all(take_again(job))
    wait_until(lambda: run_sweep(LEASE) and not SponsorRefusalRun.objects.exists(), "the run is looked at")
    job.refresh_from_db()
    assert (job.refused, job.status) == (20, "LOGGED")
    assert Campaign.objects.get(pk=job.campaign_id).paused_at is None, "nothing of it is left to pause"
    nothing_stands(shared_login)


def mail_of(sponsor: Sponsor, of: Credential, recipients: int = 300) -> Job:
    """A job with a sender of the sponsor's own."""
    sender = Identity.objects.create(
        sponsor=sponsor, channel="email", name="news", from_address=f"news@{sponsor.name.lower()}.example"
    )
    job = job_of(sponsor, readers(recipients), of)
    Campaign.objects.filter(pk=job.campaign_id).update(identity=sender)
    return job


def test_a_sender_that_the_vendor_does_not_take_pauses_its_campaign_alone(
    shared_login: Credential, anton: Sponsor, velma: Sponsor, rules: Any
) -> None:
    theirs, mine = mail_of(anton, shared_login), mail_of(velma, shared_login)
    assert sending.send_claimed_job(theirs.pk, theirs.fence).left
    assert 1 <= len(rules.senders) <= WIDE, "no call begins after the first answer"
    nothing_stands(shared_login)
    campaign = Campaign.objects.get(pk=theirs.campaign_id)
    assert campaign.paused_at and "is not verified" in campaign.paused_reason
    mine = sent(mine)
    assert (mine.refused, mine.accepted) == (0, 300)
    rules.unverified = frozenset()
    pausing.resume_jobs([theirs.pk], by="anton")
    theirs = sent(take_again(theirs))
    assert (theirs.refused, theirs.accepted) == (0, 300), "nobody was refused for it"
    assert not [check for check in audit.ask_all_questions() if not check.is_kept]


def test_all_campaigns_of_a_refused_sender_are_resumed_together(
    shared_login: Credential, anton: Sponsor, velma: Sponsor, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each request over the API is a campaign, so each of them has paused by itself."""
    first, hers = mail_of(anton, shared_login, 1), mail_of(velma, shared_login, 1)
    jobs = [first, *(job_of(anton, readers(1), shared_login) for _ in range(3))]
    sender = Campaign.objects.get(pk=first.campaign_id).identity
    Campaign.objects.filter(pk__in=[job.campaign_id for job in jobs]).update(identity=sender)
    for job in jobs:
        assert sending.send_claimed_job(job.pk, job.fence).left
    pausing.pause_jobs([hers.pk], by="velma")
    paused = Campaign.objects.filter(paused_at__isnull=False)
    assert paused.count() == 5
    with pytest.raises(CommandError, match="there is no sender identity 'offers'"):
        call_command("resume_job", sponsor="Anton", identity="offers", yes=True)
    call_command("resume_job", sponsor="Anton", identity="news", yes=True)
    assert capsys.readouterr().out.count("campaign goes on") == 4
    assert paused.get().pk == hers.campaign_id


def test_the_credentials_own_sender_is_a_matter_of_the_credential(
    shared_login: Credential, anton: Sponsor, rules: Any
) -> None:
    rules.unverified = frozenset({None})
    job = job_of(anton, readers(300), shared_login)
    assert sending.send_claimed_job(job.pk, job.fence).left
    assert is_paused(shared_login) and Campaign.objects.get(pk=job.campaign_id).paused_at is None


def test_doubts_about_one_sponsors_mail_cost_the_other_one_a_probe(
    shared_login: Credential, anton: Sponsor, velma: Sponsor
) -> None:
    theirs = job_of(anton, [f"lost{one}@example.org" for one in range(100)], shared_login)
    assert sending.send_claimed_job(theirs.pk, theirs.fence).left
    shared_login.refresh_from_db()
    assert shared_login.braked_at, "they may be the vendor's fault"
    mine = send_the_rest(job_of(velma, readers(20), shared_login))
    assert (mine.refused, mine.in_doubt, mine.accepted) == (0, 0, 20)
    shared_login.refresh_from_db()
    assert shared_login.braked_at is None, "an answer to her letter has ended it"
