"""Who may send what as whom: decided when work is accepted, and once more when it is dispatched or sent again."""

import io
import json
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.utils import timezone

from campaigns.engine import audit
from campaigns.engine.decisions import Verdict
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.progress import progress_of_jobs
from campaigns.models import Campaign, Entitlement, Identity, Job, Sponsor
from campaigns.models.states import S
from campaigns.operations import actions
from campaigns.reporting.forecast import eta
from campaigns.senders import entitlements
from tests import factories as make
from tests.faults.sending import login, sent, take_again
from tests.sandbox import Sandbox
from vendors.history import Actor
from vendors.models import Credential, Vendor

pytestmark = pytest.mark.django_db


def manage(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def send(tmp_path: Path) -> Any:
    (tmp_path / "people.csv").write_text("email\nann@sandbox.example\n")
    (tmp_path / "body.txt").write_text("Dear you\n")
    content = [str(tmp_path / "people.csv"), "--subject", "Hello", "--body", str(tmp_path / "body.txt"), "--json"]

    def run(vendor: str, sponsor: str = "Velma", *more: str) -> Campaign:
        facts = json.loads(manage("send_campaign", *content, "--vendor", vendor, "--sponsor", sponsor, *more))
        return Campaign.objects.get(pk=facts["campaign"])

    return run


def relay(slug: str = "post", sender: str = "Velma <post@velma.example>") -> None:
    manage("vendor", "add", slug, "--adapter", "smtp", "--set", "host=relay.example", f"sender={sender}")


def test_the_first_vendor_of_an_installation_is_for_the_sponsor_made_with_it_and_no_other(send: Any) -> None:
    relay()
    relay("second", "other@velma.example")
    found = send("post")
    assert (found.identity.name, found.identity.shown) == ("default", "Velma <post@velma.example>")
    for vendor, sponsor, hint in [
        ("second", "Velma", "Velma may not use second/default; .* entitlement add Velma second$"),
        ("post", "Bob & Co", "Bob & Co may not use .* entitlement add 'Bob & Co' post --new-sponsor"),
    ]:
        with pytest.raises(CommandError, match=hint):
            send(vendor, sponsor)
    assert not Sponsor.objects.filter(name="Bob & Co").exists() and Campaign.objects.count() == 1
    assert manage("entitlement", "list").split() == [
        *("sponsor", "vendor", "credential", "urgent"),
        *("Velma", "post", "single"),
    ]


def test_a_sponsor_that_was_made_before_the_first_vendor_is_offered_it_and_nothing_after_it() -> None:
    manage("apikey", "create", "--sponsor", "Velma", "--new-sponsor")
    relay()
    relay("second")
    manage("apikey", "create", "--sponsor", "Other", "--new-sponsor")
    assert [str(row) for row in Entitlement.objects.all()] == ["Velma may use post"]
    assert [str(row) for row in Identity.objects.all()] == ["Velma/default"]


def test_an_entitlement_to_one_credential_allows_no_other(send: Any) -> None:
    make.sponsor("Other")  # so that nobody is the first
    make.sponsor("Velma")
    manage("vendor", "add", "v", "--adapter", "http", "--set", "url=https://vendor.example/letters")
    manage("credential", "add", "v", "brand")
    assert manage("entitlement", "add", "Velma", "v", "--credential", "brand") == "Velma may use v/brand\n"
    assert manage("entitlement", "add", "Velma", "v", "--credential", "brand") == "Velma may use v/brand already\n"
    assert send("v", "Velma", "--credential", "brand").credential.name == "brand"
    with pytest.raises(CommandError, match="Velma may not use v/default"):
        send("v", "Velma", "--credential", "default")
    with pytest.raises(CommandError, match="may still use single credentials of v: brand"):
        manage("entitlement", "remove", "Velma", "v")
    manage("entitlement", "remove", "Velma", "v", "--credential", "brand")
    assert "may not use v anyway" in manage("entitlement", "remove", "Velma", "v")
    with pytest.raises(CommandError, match="has no credential 'nope'; it has: brand, default"):
        manage("entitlement", "add", "Velma", "v", "--credential", "nope")


def test_a_campaign_names_one_of_its_sponsors_identities(send: Any) -> None:
    relay()
    send("post")
    manage("identity", "add", "Velma", "spring", "--from", "Spring <spring@velma.example>")
    manage("identity", "add", "Bob", "his", "--from", "bob@bob.example", "--new-sponsor")
    assert send("post", "Velma", "--identity", "spring").identity.name == "spring"
    assert send("post").identity.name == "default"
    for name in ("his", "nope"):
        with pytest.raises(CommandError, match=f"Velma has no sender identity '{name}' .*there are: default, spring"):
            send("post", "Velma", "--identity", name)
    manage("identity", "set", "Velma", "spring", "--default")
    assert send("post").identity.name == "spring"
    manage("identity", "disable", "Velma", "spring")
    with pytest.raises(CommandError, match="Velma has no default sender identity, and post needs one"):
        send("post")
    manage("vendor", "add", "paper", "--adapter", "http", "--channel", "print", "--set", "url=https://p.example/x")
    manage("entitlement", "add", "Velma", "paper")
    with pytest.raises(CommandError, match="a sender identity is for e-mail or SMS, and paper delivers print"):
        send("paper", "Velma", "--identity", "default")


def rendered(status: str = S.RENDERED, **fields: Any) -> Job:
    return make.campaign_with_job(3, status=status, **fields)


def withdraw(job: Job) -> None:
    Entitlement.objects.filter(sponsor=job.sponsor, vendor=job.vendor).delete()


def obstacle(job: Job) -> str:
    jobs = eta.select_related_rows(Job.objects.filter(pk=job.pk))
    seen = list(jobs)
    return eta.forecast_jobs(seen, progress_of_jobs(seen), timezone.now())[job.pk].next


@pytest.mark.parametrize("status", [S.RENDERED, S.READY])
def test_what_waits_for_its_dispatch_is_held_while_its_sponsor_may_not_send_it_and_goes_on_after(status: str) -> None:
    job, other = rendered(status), rendered(status)
    withdraw(job)
    assert dispatcher.preview_dispatch().jobs == (1 if status == S.RENDERED else 0)
    done = dispatcher.dispatch_rendered() + dispatcher.dispatch_ready()
    job.refresh_from_db()
    other.refresh_from_db()
    assert (done.jobs, job.status, other.status) == (1, status, S.DISPATCHED)
    assert obstacle(job) == "held: its sponsor may not use this vendor or credential any more"
    [answer] = actions.dispatch_jobs([job.pk], Actor("test"))
    assert answer.verdict is Verdict.BUSY and "is held: its sponsor may not" in answer.message
    entitlements.grant_entitlement(job.sponsor, job.vendor, job.credential)
    assert dispatcher.dispatch_these([job.pk]).jobs == 1


def test_what_waits_is_held_while_its_identity_is_disabled() -> None:
    job = rendered()
    identity = Identity.objects.create(sponsor=job.sponsor, name="a", from_address="a@velma.example", enabled=False)
    Campaign.objects.filter(pk=job.campaign_id).update(identity=identity)
    assert dispatcher.dispatch_rendered().jobs == 0 and obstacle(job) == "held: its sender identity is disabled"
    Identity.objects.update(enabled=True)
    assert dispatcher.dispatch_rendered().jobs == 1


def test_a_job_whose_sponsor_may_not_send_it_any_more_is_not_retried_and_loses_nothing() -> None:
    job = rendered(S.STOPPED, stopped_at=timezone.now(), finished_at=timezone.now())
    Job.objects.filter(pk=job.pk).update(status=S.LOGGED)
    withdraw(job)
    [answer] = actions.retry_jobs([job.pk])
    assert answer.verdict is Verdict.BUSY and "held: its sponsor" in answer.message
    job.refresh_from_db()
    assert job.status == S.LOGGED
    entitlements.grant_entitlement(job.sponsor, job.vendor)
    [answer] = actions.retry_jobs([job.pk])
    assert (answer.verdict, answer.messages) == (Verdict.DONE, 3)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("status", [S.RENDERED, S.READY])
def test_what_is_held_expires_at_its_deadline_without_a_call(status: str, sandbox: Sandbox) -> None:
    job = make.campaign_with_job(3, of=login(sandbox.url), status=status)
    Campaign.objects.update(deadline=timezone.now() - timedelta(minutes=1))
    withdraw(job)
    assert (dispatcher.dispatch_rendered() + dispatcher.dispatch_ready()).jobs == 1
    job.refresh_from_db()
    done = sent(take_again(job))
    assert (done.status, done.expired) == (S.LOGGED, 3) and not sandbox.books().entries


def test_what_was_dispatched_goes_on_after_its_entitlement_is_gone() -> None:
    job = rendered(S.DISPATCHED)
    withdraw(job)
    assert obstacle(job) != "" and "held" not in obstacle(job)


def test_the_audit_misses_no_job_that_is_held_and_finds_one_that_nobody_dispatches() -> None:
    long_ago = timezone.now() - timedelta(days=1)
    job = rendered(S.READY, created_at=long_ago)
    withdraw(job)
    assert "every job that is not final" not in str(faults())
    entitlements.grant_entitlement(job.sponsor, job.vendor)
    assert "every job that is not final" in str(faults())


def faults() -> list[Any]:
    return [check for check in audit.ask_all_questions() if check.breaches]


def existing() -> None:
    """What the migration does, in an installation of the version before it."""
    for model in (Entitlement, Identity):
        model.objects.all().delete()
    import_module("campaigns.migrations.0009_entitle_existing").entitle(apps, None)


def test_an_upgrade_keeps_what_each_sponsor_used_and_allows_no_more() -> None:
    post, mail, paper = (make.vendor(slug, adapter="smtp", settings=known) for slug, known in RELAYS.items())
    ann, bob, eve = (make.sponsor(name) for name in ("Ann", "Bob", "Eve"))
    jobs = [
        make.campaign_with_job(1, of=make.credential(vendor), by=by)
        for by, vendor in [(ann, post), (ann, mail), (bob, post), (ann, paper)]
    ]
    existing()
    assert sorted(map(str, Entitlement.objects.all())) == [
        *("Ann may use mail", "Ann may use paper", "Ann may use post", "Bob may use post")
    ]
    assert {(str(row), row.shown, row.default) for row in Identity.objects.all()} == {
        ("Ann/default", "Paper <p@example.com>", True),
        ("Ann/mail", "m@example.com", False),
        ("Ann/post", "Post <post@example.com>", False),
        ("Bob/default", "Post <post@example.com>", True),
    }
    used = [str(Campaign.objects.get(pk=job.campaign_id).identity) for job in jobs]
    assert used == ["Ann/post", "Ann/mail", "Bob/default", "Ann/default"]
    assert dispatcher.dispatch_ready().jobs == 4 and not entitlements.allowed_vendors(eve.pk)


RELAYS = {
    "post": {"host": "relay.example", "sender": "Post <post@example.com>"},
    "mail": {"host": "relay.example", "sender": "m@example.com"},
    "paper": {"host": "relay.example", "sender": "Paper <p@example.com>"},
}


def test_an_upgrade_before_the_first_campaign_offers_the_first_vendor_to_the_only_sponsor() -> None:
    make.vendor("post", adapter="smtp", settings=RELAYS["post"])
    make.vendor("second")
    make.sponsor("Ann")
    existing()
    assert [str(row) for row in Entitlement.objects.all()] == ["Ann may use post"]
    assert [str(row) for row in Identity.objects.all()] == ["Ann/default"]


def test_a_vendor_that_is_removed_takes_its_entitlements_along() -> None:
    vendor = make.vendor("v")
    make.credential(vendor, "default")
    make.sponsor("Velma")
    manage("vendor", "remove", "v")
    assert not Entitlement.objects.exists() and not Vendor.objects.exists() and not Credential.objects.exists()
