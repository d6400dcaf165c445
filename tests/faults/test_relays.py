"""A real relay that does not know us: whom it denies us is neither refused nor lost, and the health says so."""

from collections.abc import Iterator

import pytest
from django.conf import settings
from django.utils import timezone

from campaigns.engine import sending
from campaigns.engine.finishing import finalizer
from campaigns.models import Campaign, Job, Message
from tests import factories, private_postfix
from tests.faults.checker import sums
from tests.faults.sending import send_the_rest, take_again, taken
from tests.private_postfix import PrivatePostfix
from tests.waiting import wait_until
from vendors import health
from vendors.models import Credential, Vendor
from vendors.testing.certificates import authority

pytestmark = [
    pytest.mark.slow("programs"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(private_postfix.why_not()), reason=private_postfix.why_not()),
]


@pytest.fixture(scope="module")
def postfix() -> Iterator[PrivatePostfix]:
    relay = PrivatePostfix(authority())
    yield relay
    relay.end()


def test_long_mails_of_a_job_go_at_the_first_try(postfix: PrivatePostfix) -> None:
    known = {"host": "127.0.0.1", "port": postfix.implicit, "tls": "implicit", "ca_file": str(authority())}
    account = factories.credential(factories.vendor(adapter="smtp", settings=known | {"sender": "us@example.org"}))
    job = taken([f"reader{number}@example.org" for number in range(5)], account)
    Campaign.objects.update(body="A newsletter of an ordinary size.\n" * 5_000, html=True)
    before = postfix.log().count("lost connection")
    assert not sending.send_claimed_job(job.pk, job.fence).left
    send_the_rest(job)
    assert sums() == {"accepted": 5} and postfix.log().count("lost connection") == before


def test_a_wrong_relay_burns_no_list_and_the_list_goes_when_it_is_mended(postfix: PrivatePostfix) -> None:
    known = {"host": "127.0.0.1", "port": postfix.foreign, "tls": "none", "sender": "us@example.org", "concurrency": 4}
    account = factories.credential(factories.vendor(adapter="smtp", settings=known, min_requests=1))
    job = taken([f"somebody{number}@elsewhere.example" for number in range(50)], account)
    assert sending.send_claimed_job(job.pk, job.fence).left
    account.refresh_from_db()
    assert account.paused and "Relay access denied" in account.paused_reason
    assert sums() == {"waiting": 50}
    status = health.health_store(settings.REDIS_URL).look(account.vendor_id, health.HealthPolicy.of(account.vendor))
    assert status.good == 0 and status.bad >= 1
    Vendor.objects.update(settings=known | {"port": postfix.plain})  # that relay knows us
    Credential.objects.update(paused=False)
    send_the_rest(job)
    assert sums() == {"accepted": 50}
    wait_until(lambda: postfix.log().count("status=sent") >= 50, "Postfix has handed on all of them", log=postfix.log)


def test_one_job_over_a_relay_that_wants_a_login_and_knows_some_recipients_only(postfix: PrivatePostfix) -> None:
    known = {"host": "127.0.0.1", "port": postfix.login, "tls": "starttls", "ca_file": str(authority())}
    vendor = factories.vendor(adapter="smtp", settings=known | {"sender": "us@example.org"})
    account = factories.credential(vendor, secret={"user": "velma", "password": "wrong"})
    to = ["ann@example.org", "nobody@example.org", "full@example.org", "bob@example.org"]
    job = taken(to, account)
    assert sending.send_claimed_job(job.pk, job.fence).left
    account.refresh_from_db()
    assert account.paused and "535" in account.paused_reason and sums() == {"waiting": 4}

    Credential.objects.update(paused=False, secret={"user": "velma", "password": "s3cret"})
    take_again(job)
    sending.send_claimed_job(job.pk, job.fence)
    finalizer.finalise_job(job.pk)
    assert sums() == {"accepted": 2, "refused": 1, "waiting": 1}, "the full mailbox is tried again later"
    refused = Message.objects.get(error_code="550")
    assert (refused.recipient, refused.error_sub_type) == ("nobody@example.org", "5.1.1")

    postfix.everybody_has_space()
    job.refresh_from_db()
    assert job.status == "DISPATCHED" and job.not_before and job.not_before > timezone.now()
    Message.objects.filter(call_after__isnull=False).update(call_after=timezone.now())  # it is that late by now
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert sums() == {"accepted": 3, "refused": 1}
