"""An account's used-up quota: nobody is *Failed* for it, the credential waits, and the campaign ends by itself."""

from datetime import timedelta

import pytest
from django.utils import timezone

from campaigns.engine import sending
from tests import factories
from tests.campaigns.test_rounds_of_mails import relay
from tests.faults.sending import send_the_rest, taken
from vendors.models import Credential
from vendors.testing.smtp_relay import MisbehavingSmtp, say

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
