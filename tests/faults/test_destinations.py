"""A vendor's settings, or its key, change while answers of earlier calls are lost.

A look-up or a repeat at another address, or in another account, proves nothing about those calls: they wait for a
person. The books of all places together show that nobody was written to twice.
"""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from campaigns.engine import audit
from campaigns.engine.claiming import claims, contexts
from campaigns.engine.doubts import reconciler
from campaigns.engine.doubts import resolve as doubts_resolve
from campaigns.engine.finishing import finalizer
from campaigns.models import Claim, Identity, Job, Message, Route, RouteEntry
from campaigns.operations import actions
from tests import calling, factories
from tests.faults.sending import being_sent, sent, take_again, taken
from tests.places import Places, serving
from tests.vendors.test_admin import form, login_form
from tests.waiting import result_of, wait_until
from vendors.models import Credential, Vendor

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]
MANY = 12
KEY = {"X-Account": "one"}
DESCRIBED = """
[vendor]
name = "Pigeon"
channel = "email"
documents = "our own"
[secret]
account = "whose letters they are"
[request]
url = "{url}"
timeout = 2
headers = {{ Idempotency-Key = "{{reference}}", X-Account = "{{secret.account}}" }}
[request.content]
to = "{{recipient}}"
[answer]
id = "id"
[lookup]
proves = "both"
contract = "its manual says that what is not found was not taken"
url = "{url}/{{reference}}"
id = "id"
reference = "id"
settle_delay = 0
"""


@pytest.fixture
def places() -> Iterator[Places]:
    with serving() as made:
        yield made


def http(places: Places, **settings: Any) -> Credential:
    settings = {"url": places.at("a"), "timeout": 2, "settle_delay": 0.1, "concurrency": 4, **settings}
    return factories.credential(factories.vendor(settings=settings), secret=KEY)


def lost_answers(places: Places, account: Credential) -> list[str]:
    """Sends a job whose letters the vendor accepts all; every fourth answer is lost. Returns those in doubt."""
    places.lost = 4
    sent(taken(MANY, account))
    places.lost = 0
    an_hour_passes()
    found = [one.reference for one in Message.objects.filter(in_doubt_at__isnull=False)]
    assert len(places.accepted) == MANY and len(found) == MANY // 4
    return found


def an_hour_passes() -> None:
    past = timezone.now() - timedelta(hours=1)
    doubts = Message.objects.filter(in_doubt_at__isnull=False)
    doubts.update(sent_at=past, dequeued_at=past)
    doubts.filter(settle_at__isnull=False).update(settle_at=past)


def settled() -> None:
    for _ in range(3):
        an_hour_passes()
        reconciler.reconcile_due_doubts()


def wait_for_a_person(doubts: list[str]) -> bool:
    """Whether these, and no others, are in doubt, nobody asks about them by itself, and it is said why."""
    rows: Any = list(doubts_resolve.list_doubts())
    facts = [doubts_resolve.doubt_facts(row) for row in rows]
    waits = all(one["waits_for"] and one["asked_again"] is None for one in facts)
    return sorted(one["reference"] for one in facts) == sorted(doubts) and waits


def broken() -> list[Any]:
    return [one for one in audit.ask_all_questions() if not one.is_kept]


# -- each door


def by_command(account: Credential, url: str) -> None:
    call_command("vendor", "set", account.vendor.slug, f"url={url}")


def by_page(account: Credential, url: str) -> None:
    client = Client()
    client.force_login(User.objects.get_or_create(username="ada", is_staff=True, is_superuser=True)[0])
    vendor = account.vendor
    known = form(slug=vendor.slug, name=vendor.name, settings=json.dumps({**vendor.settings, "url": url}))
    assert client.post(f"/admin/vendors/vendor/{vendor.pk}/change/", known).status_code == 302


def by_row(account: Credential, url: str) -> None:
    Vendor.objects.filter(pk=account.vendor_id).update(settings={**account.vendor.settings, "url": url})


def enter_the_key(account: Credential) -> None:
    """The secret was forgotten, as it would have gone elsewhere."""
    call_command("credential", "set", account.vendor.slug, account.name, "--set", "X-Account=one")
    call_command("credential", "resume", account.vendor.slug, account.name)


MEANS = pytest.mark.parametrize("means", [{"lookup": "strong"}, {"dedupe": True}], ids=["look-up", "dedupe"])


@MEANS
@pytest.mark.parametrize("change", [by_command, by_page, by_row])
def test_what_was_called_at_another_address_waits_for_a_person(
    means: dict[str, Any], change: Callable[[Credential, str], None], places: Places
) -> None:
    places.dedupe = bool(means.get("dedupe"))
    account = http(places, **means)
    doubts = lost_answers(places, account)
    change(account, places.at("b"))
    enter_the_key(account)
    settled()
    assert places.twice() == [] and places.looked_up == [], "nobody was asked about calls that were made elsewhere"
    assert wait_for_a_person(doubts) and broken() == []
    sent(taken(3, Credential.objects.get(pk=account.pk)))
    assert len(places.of("b", "one")) == 3, "new letters go to the new address"


@MEANS
def test_without_a_change_the_vendor_settles_them_itself(means: dict[str, Any], places: Places) -> None:
    places.dedupe = bool(means.get("dedupe"))
    account = http(places, **means)
    lost_answers(places, account)
    call_command("vendor", "set", account.vendor.slug, "timeout=3", "concurrency=2")
    settled()
    assert places.twice() == [] and wait_for_a_person([]) and broken() == []


def key_by_command(account: Credential, *more: str) -> None:
    call_command("credential", "set", account.vendor.slug, account.name, "--set", "X-Account=two", *more)


def key_by_page(account: Credential) -> None:
    client = Client()
    client.force_login(User.objects.get_or_create(username="ada", is_staff=True, is_superuser=True)[0])
    known = login_form(name=account.name, secret=json.dumps({"X-Account": "two"}))
    assert client.post(f"/admin/vendors/credential/{account.pk}/change/", known).status_code == 302


def key_by_row(account: Credential) -> None:
    Credential.objects.filter(pk=account.pk).update(secret={"X-Account": "two"})


@MEANS
@pytest.mark.parametrize("change", [key_by_command, key_by_page, key_by_row])
def test_what_was_called_with_another_key_waits_for_a_person(
    means: dict[str, Any], change: Callable[[Credential], None], places: Places
) -> None:
    places.dedupe = bool(means.get("dedupe"))
    account = http(places, **means)
    doubts = lost_answers(places, account)
    change(account)
    settled()
    assert places.twice() == [] and places.of("a", "two") == set()
    assert wait_for_a_person(doubts) and broken() == []


def test_a_new_key_of_the_same_account_as_a_person_says_leaves_them_to_the_vendor(places: Places) -> None:
    account = http(places, lookup="strong")
    doubts = lost_answers(places, account)
    call_command(*("credential", "set", account.vendor.slug, account.name, "--set", "X-Account=one", "--same-account"))
    settled()
    assert len(places.looked_up) == len(doubts) and wait_for_a_person([]) and places.twice() == []


def test_a_person_who_knows_that_it_is_the_same_account_says_so_afterwards(places: Places) -> None:
    """The address is changed, and changed back."""
    account = http(places, lookup="strong")
    doubts = lost_answers(places, account)
    for name in ("b", "a"):
        by_command(account, places.at(name))
        enter_the_key(account)
    settled()
    assert wait_for_a_person(doubts) and places.looked_up == []
    assert actions.ask_again(Message.objects.filter(in_doubt_at__isnull=False).values_list("pk", flat=True)) == 0
    ids = Message.objects.filter(in_doubt_at__isnull=False).values_list("pk", flat=True)
    call_command("resolve", *map(str, ids), "--as", "same", "--reason", "it is A again")
    settled()
    assert len(places.looked_up) == len(doubts) and wait_for_a_person([])
    assert places.twice() == [] and broken() == []


def test_what_a_person_sends_again_is_settled_where_it_was_called_the_second_time(places: Places) -> None:
    account = http(places, lookup="strong")
    lost_answers(places, account)
    by_command(account, places.at("b"))
    enter_the_key(account)
    job = Job.objects.get()
    actions.settle_doubts(
        Message.objects.filter(in_doubt_at__isnull=False).values_list("pk", flat=True), "resend", "A has it not", "ann"
    )
    Job.objects.filter(pk=job.pk).update(status="DISPATCHED")
    places.lost = 1
    sent(take_again(job))
    places.lost = 0
    settled()
    assert wait_for_a_person([]) and len(places.of("b", "one")) == MANY // 4 and places.twice() == []


def move_by_command(account: Credential, places: Places) -> None:
    by_command(account, places.at("b"))
    enter_the_key(account)


def another_key(account: Credential, places: Places) -> None:
    key_by_command(account)


@pytest.mark.parametrize("change", [move_by_command, another_key])
def test_another_place_may_number_its_letters_as_the_one_before_did(
    change: Callable[[Credential, Places], None], places: Places
) -> None:
    places.numbered = True
    account = http(places)
    sent(taken(3, account))
    change(account, places)
    job = sent(taken(3, Credential.objects.get(pk=account.pk)))
    ids = Message.objects.values_list("message_id", flat=True)
    assert sorted(ids) == ["1", "1", "2", "2", "3", "3"] and broken() == []
    Message.objects.filter(campaign=job.campaign).update(message_id="3")
    assert [one.question for one in broken()] == ["no two messages have one letter of the vendor"]


def test_where_an_earlier_call_was_asked_about_says_nothing_of_the_next_one(places: Places) -> None:
    account = http(places, lookup="strong")
    lost_answers(places, account)
    doubts = Message.objects.filter(in_doubt_at__isnull=False)
    doubts.update(asked_destination=0)  # as each look-up does
    ids = list(doubts.values_list("pk", flat=True))
    actions.settle_doubts(ids, "failed", "A has it not", "ann")
    move_by_command(account, places)
    job = Job.objects.get()
    assert actions.retry_jobs([job.pk])[0].messages == len(ids)
    assert sent(take_again(job)).accepted == MANY
    assert len(places.of("b", "one")) == len(ids) and broken() == []


def test_of_a_described_vendor_a_new_description_counts(places: Places, tmp_path: Path) -> None:
    source = DESCRIBED.format(url=places.at("a"))
    vendor = factories.vendor(adapter="described", settings={"description": source, "concurrency": 2})
    account = factories.credential(vendor, secret={"account": "one"})
    doubts = lost_answers(places, account)
    file = tmp_path / "pigeon.toml"
    file.write_text(DESCRIBED.format(url=places.at("b")))
    call_command("vendor", "describe", str(file), "--for", vendor.slug)
    call_command("credential", "set", vendor.slug, account.name, "--set", "account=one")
    call_command("credential", "resume", vendor.slug, account.name)
    settled()
    assert places.twice() == [] and places.looked_up == []
    assert wait_for_a_person(doubts) and broken() == []


def test_an_e_mail_service_at_another_address_gets_no_repeat(places: Places) -> None:
    places.dedupe = True
    settings = {"service": "postmark", "url": f"{places.url}/a/", "dedupe": True, "timeout": 2, "concurrency": 2}
    account = factories.credential(
        factories.vendor(adapter="anymail", settings=settings), secret={"server_token": "one"}
    )
    places.lost = 4
    job = factories.campaign_with_job(MANY, of=account, status="DISPATCHED")
    sender = Identity.objects.create(sponsor=job.sponsor, name="ours", from_address="us@example.org")
    type(job.campaign).objects.filter(pk=job.campaign_id).update(identity=sender)
    sent(take_again(job))
    places.lost = 0
    doubts = [one.reference for one in Message.objects.filter(in_doubt_at__isnull=False)]
    assert len(doubts) == MANY // 4
    by_command(account, f"{places.url}/b/")
    call_command("credential", "set", account.vendor.slug, account.name, "--set", "server_token=one")
    call_command("credential", "resume", account.vendor.slug, account.name)
    settled()
    assert places.twice() == [] and wait_for_a_person(doubts) and broken() == []


def test_what_a_vendor_of_a_route_was_called_for_waits_for_a_person_too(places: Places) -> None:
    account, other = http(places, lookup="strong"), http(places, lookup="strong")
    route = Route.objects.create(name="both", channel="email", patience=1)
    for position, one in enumerate((account, other), start=1):
        RouteEntry.objects.create(route=route, position=position, credential=one)
    places.lost = 4
    job = factories.campaign_with_job(MANY, of=account, status="DISPATCHED")
    type(job.campaign).objects.filter(pk=job.campaign_id).update(route=route, routed=True)
    sent(take_again(job))
    places.lost = 0
    doubts = [one.reference for one in Message.objects.filter(in_doubt_at__isnull=False)]
    by_command(account, places.at("b"))
    enter_the_key(account)
    by_row(other, places.at("c"))
    settled()
    assert len(doubts) == MANY // 4 and places.twice() == [] and places.looked_up == []
    assert wait_for_a_person(doubts) and broken() == []


# -- while it runs


def test_a_sender_that_has_the_adapter_of_before_makes_no_call_after_the_change(places: Places) -> None:
    account = http(places, lookup="strong", concurrency=1, timeout=60)
    places.hold = Event()
    job = taken(20, account)
    with being_sent(job) as sending:
        wait_until(places.arrived.is_set, "the first call has arrived")
        by_row(account, places.at("b"))
        places.hold.set()
        result_of(sending, "the sender ends")
    assert len(places.of("a", "one")) == 1, "the call that was allowed before is finished, and no other one begins"
    job.refresh_from_db()
    assert job.status == "DISPATCHED" and "called elsewhere" in job.waits_for
    Job.objects.filter(pk=job.pk).update(not_before=None)
    sent(take_again(job))
    assert len(places.of("b", "one")) == 19 and places.twice() == [] and broken() == []


@pytest.mark.parametrize(
    "change",
    [
        'UPDATE vendors_vendor SET settings = \'{"url": "http://127.0.0.1:9/b"}\'',
        "UPDATE vendors_credential SET secret = 'another one'",
    ],
    ids=["settings", "key"],
)
def test_a_claim_between_the_change_and_what_a_sender_knows_of_it_is_not_made(change: str, places: Places) -> None:
    account = http(places)
    job = taken(4, account)
    lease = calling.started(job)

    async def claim(rows: Any) -> int:
        [seen] = await contexts.read_contexts(rows, [contexts.Read(lease, job.vendor_id, job.credential_id)])
        await rows.execute(change)
        known = await calling.to_claim(rows, job, lease)
        asked = calling.asked(job, lease, most=4, destination=seen.scope.destination)
        [claimed] = await claims.claim_for_jobs(rows, known, [asked])
        return len(claimed.messages)

    assert calling.by_sender(claim) == 0 and not Claim.objects.exists()


def test_what_a_lost_sender_may_have_called_elsewhere_waits_for_a_person(places: Places) -> None:
    account = http(places, lookup="strong")
    job = taken(3, account)
    lease = calling.started(job)
    calling.by_sender(lambda rows: calling.claim(rows, job, lease, most=3))
    by_row(account, places.at("b"))
    assert finalizer.recover_job(job.pk, timedelta(seconds=-1))
    settled()
    assert places.looked_up == [] and places.accepted == []
    assert Message.objects.filter(in_doubt_at__isnull=False, settle_at=None).count() == 3


def test_a_look_up_that_began_before_the_change_allows_no_repeat_after_it(places: Places) -> None:
    """The vendor does not have it, but the repeat would go elsewhere."""
    account = http(places, lookup="strong")
    job = taken(1, account)
    lease = calling.started(job)
    calling.by_sender(lambda rows: calling.claim(rows, job, lease))
    assert finalizer.recover_job(job.pk, timedelta(seconds=-1))
    an_hour_passes()
    row = Credential.objects.select_related("vendor").get(pk=account.pk)
    by_row(account, places.at("b"))
    assert reconciler._reconcile_credential(row) == 0, "this process has read the credential before the change"
    assert places.accepted == [] and places.looked_up == []


# -- what the doors say


def test_the_commands_and_the_pages_say_first_how_many_it_leaves_to_a_person(
    places: Places, capsys: pytest.CaptureFixture[str], admin_client: Client
) -> None:
    account = http(places, lookup="strong")
    by_command(account, places.at("b"))
    enter_the_key(account)
    assert "in doubt" not in capsys.readouterr().err, "nothing is said where nothing is in doubt"
    places.accepted.clear()
    lost_answers(places, account)
    for page in (f"/admin/vendors/vendor/{account.vendor_id}", f"/admin/vendors/credential/{account.pk}"):
        assert "3 messages are in doubt" in admin_client.get(f"{page}/change/").content.decode()
    key_by_command(account)
    assert "3 messages are in doubt" in capsys.readouterr().err
    by_command(account, places.at("c"))
    assert "in doubt" not in capsys.readouterr().err, "they wait for a person already"
    page = admin_client.get("/admin/campaigns/message/attention/").content.decode()
    assert "3 were called before the vendor's settings or its key changed" in page
    [doubt, *_] = Message.objects.filter(in_doubt_at__isnull=False)
    page = admin_client.get(f"/admin/campaigns/message/{doubt.pk}/change/").content.decode()
    assert "It was called before the vendor&#x27;s settings or its key changed." in page
