"""Each message of an identity with VERP has a return path of its own, by which its bounce finds it again."""

import asyncio
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from campaigns.content import return_paths
from campaigns.engine.claiming import claims, letters
from campaigns.engine.doubts import queries
from campaigns.models import Identity, Job, MessageEvent, Suppression
from mailhub import checks
from mailhub.management.commands.up import process_formation
from tests import factories, private_postfix
from tests.audience.test_receiver import receiving
from tests.campaigns.rows import accepted, logged, messages
from tests.contracts.test_smtp import opened
from tests.contracts.test_smtp import settings as relay_settings
from tests.private_postfix import PrivatePostfix
from tests.waiting import wait_until
from vendors.adapters.base import Letter
from vendors.models import Vendor
from vendors.outcomes import Accepted
from vendors.testing.certificates import authority


def identity(job: Job, **more: Any) -> Identity:
    fields = {"from_address": "hello@brand.example", "return_path": "bounces@brand.example", "verp": True, **more}
    job.campaign.identity = Identity.objects.create(sponsor=job.sponsor, name="main", **fields)
    job.campaign.save()
    return job.campaign.identity


def letter(job: Job) -> Letter:
    type(job.vendor).objects.update(settings={"url": "http://127.0.0.1:9/letters"}, channel="email")
    started = claims.start_job(job.pk, job.fence)
    assert started
    (row,) = messages(job)
    made = letters.load_leased_job(started.lease).letter(
        claims.ClaimedMessage(row.pk, row.reference, row.recipient, {})
    )
    assert isinstance(made, Letter)
    return made


@pytest.mark.django_db
def test_a_letter_has_the_return_path_of_its_message() -> None:
    job = factories.campaign_with_job(1, status="ENQUEUED")
    identity(job)
    made = letter(job)
    (row,) = messages(job)
    found = return_paths.read_return_path(made.return_path, "return-path")
    assert found and (found.id, found.uuid, found.resend_no) == (row.pk, row.uuid, 0)
    assert made.return_path.startswith("bounces+") and made.return_path.endswith("@brand.example")
    assert return_paths.read_return_path(made.return_path, "unsubscribe") is None


@pytest.mark.django_db
def test_without_verp_bounces_go_where_the_identity_says() -> None:
    job = factories.campaign_with_job(1, status="ENQUEUED")
    identity(job, verp=False)
    assert letter(job).return_path == ""


@pytest.mark.django_db
def test_list_unsubscribe_has_an_address_of_the_message_too(settings: Any) -> None:
    settings.PUBLIC_URL = "https://mail.example.org"
    job = factories.campaign_with_job(1, status="ENQUEUED")
    identity(job)
    Vendor.objects.update(adapter="smtp")
    type(job.vendor).objects.update(settings={"host": "127.0.0.1", "tls": "none"}, channel="email")
    started = claims.start_job(job.pk, job.fence)
    assert started
    (row,) = messages(job)
    made = letters.load_leased_job(started.lease).letter(
        claims.ClaimedMessage(row.pk, row.reference, row.recipient, {})
    )
    assert isinstance(made, Letter)
    value = dict(tuple(one) for one in made.headers)["List-Unsubscribe"]
    assert value.startswith("<https://mail.example.org/") and "?subject=unsubscribe>" in value
    found = return_paths.read_return_path(value, "unsubscribe")
    assert found and found.uuid == row.uuid and return_paths.read_return_path(value, "return-path") is None


@pytest.mark.django_db
def test_a_return_path_must_leave_space_for_the_token() -> None:
    job = factories.campaign_with_job(1)
    call_command("identity", "add", job.sponsor.name, "long", "--from", "a@b.example", "--verp")
    long = f"{'x' * 24}@b.example"
    with pytest.raises(CommandError, match="at most 23 characters before the @"):
        call_command("identity", "set", job.sponsor.name, "long", "--return-path", long)
    call_command("identity", "set", job.sponsor.name, "long", "--no-verp", "--return-path", long)


@pytest.mark.django_db(transaction=True)
def test_the_repeat_of_a_doubt_is_made_with_it() -> None:
    job = factories.campaign_with_job(1)
    row = identity(job)

    async def found() -> Identity:
        connection = await queries_connection()
        try:
            return await queries._load_origin(connection, row.pk)
        finally:
            await connection.close()

    assert asyncio.run(found()).verp is True


async def queries_connection() -> Any:
    from campaigns.engine.connections import open_connection

    return await open_connection()


@pytest.mark.django_db
def test_who_lets_bounces_come_back_is_warned_where_nothing_takes_them(settings: Any) -> None:
    settings.BOUNCE_RECEIVER = settings.BOUNCE_MAILBOX = ""
    assert checks.bounces_come_somewhere() == []
    identity(factories.campaign_with_job(1))
    assert [one.id for one in checks.bounces_come_somewhere()] == ["mailhub.W003"]
    settings.BOUNCE_RECEIVER = "lmtp://127.0.0.1:2424"
    assert checks.bounces_come_somewhere() == []


def test_up_runs_the_receiver_only_where_it_has_an_address(settings: Any) -> None:
    settings.BOUNCE_RECEIVER = ""
    assert "bounces" not in process_formation()
    settings.BOUNCE_RECEIVER = "lmtp://127.0.0.1:2424"
    assert process_formation()["bounces"] == "python -m mailhub receive_bounces"


@pytest.mark.skipif(bool(private_postfix.why_not()), reason=private_postfix.why_not())
@pytest.mark.django_db(transaction=True)
@pytest.mark.slow("programs")
def test_a_mail_that_a_real_postfix_accepts_and_cannot_deliver_comes_back_as_a_hard_bounce() -> None:
    job = logged(1, [accepted()])
    (row,) = messages(job)
    row.recipient = "nobody@never.example"
    row.save()
    paths = return_paths.return_paths_of(identity(job))
    assert paths
    relay = PrivatePostfix(authority())
    try:
        with receiving("lmtp") as one:
            relay.hand_on(one.port, "brand.example", "never.example")  # where it refuses whoever is not ours
            sent = Letter(
                row.reference, row.recipient, "News", "Hi\n", origin=identity_origin(job),
                return_path=paths.of(row.reference),
            )  # fmt: skip

            async def send() -> Any:
                async with opened(relay_settings(relay.plain, tls="none")) as adapter:
                    return await adapter.send([sent])

            [outcome] = asyncio.run(send())
            assert isinstance(outcome, Accepted), outcome
            wait_until(MessageEvent.objects.exists, "the bounce is stored", log=relay.log)
    finally:
        relay.end()
    event = MessageEvent.objects.get()
    assert (event.message_id, event.kind, event.code) == (row.pk, "hard_bounce", "5.1.1")
    assert [one.address for one in Suppression.objects.all()] == ["nobody@never.example"]


def identity_origin(job: Job) -> Any:
    return job.campaign.identity.origin
