"""An account's used-up quota: nobody is *Failed* for it, the credential waits, and the campaign ends by itself."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from django.utils import timezone

from campaigns.engine import sending
from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.models import Job
from tests import factories, programs
from tests.campaigns.test_rounds_of_mails import relay
from tests.faults.sending import send_the_rest, taken
from vendors.models import Credential
from vendors.testing.smtp_relay import Act, MisbehavingSmtp, say

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    "reply",
    [
        "550 5.1.90 Your message can't be sent because you've reached your daily limit for message recipients",
        "554 5.2.0 STOREDRV.Submission.Exception:SubmissionQuotaExceededException; Failed to process message",
    ],
)
def test_a_quota_that_is_used_up_in_the_middle_of_a_list_refuses_nobody(reply: str) -> None:
    to = [f"{'good' if n < 12 else 'later'}-{n}@example.org" for n in range(40)]
    over_quota = MisbehavingSmtp({"rcpt": say(reply)})
    with relay(over_quota) as port:
        known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "us@example.org", "concurrency": 2}
        account = factories.credential(factories.vendor(adapter="smtp", settings=known))
        job = taken(to, account)
        assert sending.send(job.pk, job.fence).left
        job.refresh_from_db()
        account.refresh_from_db()
        assert (job.refused, job.in_doubt) == (0, 0)
        assert not account.paused and account.retry_after_until > timezone.now() + timedelta(minutes=30)

        over_quota.acts = {}  # renewed
        Credential.objects.filter(pk=account.pk).update(retry_after_until=None)
        job = send_the_rest(job)
    assert (job.accepted, job.refused) == (40, 0) and set(over_quota.taken.values()) == {1}


class DailyQuota(MisbehavingSmtp):
    """A relay whose quota is used up after so many mails, and renewed at the time that it states."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.refused = most, 0
        self.renewed: datetime | None = None

    def act(self, phase: str, reference: str, wild: bool) -> Act | None:
        if phase != "rcpt" or len(self.taken) < self.most:
            return None
        self.renewed = self.renewed or datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=8)
        if datetime.now(UTC) >= self.renewed:
            return None
        self.refused += 1
        stated = format_datetime(self.renewed)
        return say(f"550 5.1.90 You have reached your daily limit for message recipients, try again after {stated}")


@pytest.mark.slow("processes")
def test_two_senders_wait_for_the_quota_and_the_campaign_ends_by_itself() -> None:
    quota = DailyQuota(150)
    with relay(quota) as port:
        known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "us@example.org", "concurrency": 4}
        vendor = factories.vendor(adapter="smtp", settings=known, casters=["small-only", "small-priority"])
        account = factories.credential(vendor)
        jobs = [factories.campaign_with_job(300, of=account, status="DISPATCHED") for _ in range(2)]
        queues = f"{vendor.queue},hub"
        with programs.worker(queues=queues), programs.worker(queues=queues), programs.sweeping():
            notify_vendors([vendor.pk])
            ended = Job.objects.filter(pk__in=[job.pk for job in jobs], status="LOGGED")
            programs.wait_until(lambda: ended.count() == 2, "both campaigns end")
    account.refresh_from_db()
    assert not account.paused and quota.refused
    assert [(job.accepted, job.refused, job.in_doubt) for job in ended] == [(300, 0, 0)] * 2
    assert set(quota.taken.values()) == {1} and len(quota.taken) == 600
