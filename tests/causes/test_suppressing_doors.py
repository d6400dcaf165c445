"""Every door that may suppress a recipient asks the one table: an answer about us never suppresses anybody."""

from collections.abc import Callable

import pytest
from django.utils import timezone

from campaigns.audience.bounces import inbound
from campaigns.audience.bounces.inbound import InboundMail
from campaigns.engine import delivery_reports
from campaigns.models import Job, Message, Suppression
from campaigns.suppression import refused
from tests.audience.forms import failed, written
from tests.campaigns.rows import accepted, logged, messages
from tests.receivers.test_reported_waits import TSS04, mailed, return_path
from vendors.adapters.reports import Reported
from vendors.causes import AnswerCause, consequences
from vendors.causes.consequences import AnswerProof, Consequence, MessageEnd
from vendors.models import Vendor
from vendors.outcomes import Refused, follow_cause

pytestmark = pytest.mark.django_db
REPLIES = {"us": "550 5.7.1 blocked, listed at spamhaus", "capacity": TSS04, "recipient": "550 5.1.1 user unknown"}


def by_bounce(cause: str) -> None:
    (row,) = messages(mailed(["ann@yahoo.com"]))
    said, to = REPLIES[cause], return_path(row)
    mail = written(failed(said.split()[1], f"smtp; {said}"), to)
    inbound.store_mail(InboundMail(mail, (to,), True, timezone.now()), "receiver")


def by_report(cause: str) -> None:
    """The vendor calls it hard, whatever the server has said."""
    job = mailed(["ann@yahoo.com"])
    (row,) = messages(job)
    one = Reported(row.reference, "bounced", timezone.now(), note=REPLIES[cause], bounce="hard")
    delivery_reports.store_reports(job.vendor_id, [one], "vendor")


def by_coded_report(cause: str) -> None:
    """The vendor's code has its cause in a description; it calls the bounce hard."""
    job = mailed(["ann@yahoo.com"])
    (row,) = messages(job)
    one = Reported(row.reference, "bounced", timezone.now(), bounce="hard", code="17", cause=cause)
    delivery_reports.store_reports(job.vendor_id, [one], "vendor")


def by_stored_refusal(cause: str) -> None:
    """A description has called a code with this name ours."""
    job = refused_job(cause)
    refused.suppress_refused(job.pk)


def refused_job(cause: str) -> Job:
    job = logged(1, [accepted()])
    Vendor.objects.filter(pk=job.vendor_id).update(channel="email")
    Message.objects.filter(pk=job.first_message).update(
        recipient="ann@yahoo.com", message_id=None, error_code="unknown_recipient", cause=cause
    )
    return job


def test_a_bounce_that_quotes_our_return_path_suppresses_nobody_and_blames_us() -> None:
    (row,) = messages(mailed(["ann@yahoo.com"]))
    to = return_path(row)
    mail = written(failed("5.1.1", f"smtp; 550 5.1.1 <{to}>: User unknown"), to)
    inbound.store_mail(InboundMail(mail, (to,), True, timezone.now()), "receiver")
    row.refresh_from_db()
    assert (Suppression.objects.count(), row.cause) == (0, "us")
    assert row.events.get().kind == "blocked"


DOORS: list[Callable[[str], None]] = [by_bounce, by_report, by_coded_report, by_stored_refusal]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("cause", "number"), [("us", 0), ("capacity", 0), ("recipient", 1)])
def test_only_the_recipients_own_fault_suppresses(door: Callable[[str], None], cause: str, number: int) -> None:
    door(cause)
    assert Suppression.objects.count() == number


@pytest.mark.parametrize("door", DOORS)
def test_where_the_table_lets_nobody_be_suppressed_no_door_does(
    door: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So each door reads it: a wrong line in it would be seen at all of them."""
    for proof, end in ((AnswerProof.REFUSED, MessageEnd.FAILED), (AnswerProof.REPORTED, MessageEnd.HARD)):
        monkeypatch.setitem(consequences.FOLLOWS, (AnswerCause.RECIPIENT, proof), Consequence(end))
    door("recipient")
    assert not Suppression.objects.exists()


@pytest.mark.parametrize("cause", ["us", "capacity"])
def test_a_call_that_is_refused_because_of_us_is_no_refusal(cause: str) -> None:
    assert not isinstance(follow_cause(Refused("unknown_recipient", cause=AnswerCause(cause))), Refused)
