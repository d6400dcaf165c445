"""The sender against a vendor with its own books, in this process: no worker, no broker, real sockets and rows."""

import http.server
import threading
from datetime import UTC, timedelta

import pytest
from django.utils import timezone

from campaigns.engine import sending
from campaigns.engine.finishing import finalizer
from campaigns.engine.lifecycle import move
from campaigns.models import AnswerBatch, Campaign, Claim, Job, Message
from tests import factories
from vendors.models import Credential, Usage

pytestmark = pytest.mark.django_db(transaction=True)


def enqueued(recipients, url, **settings):
    """A leaf job that a caster has claimed."""
    vendor = factories.vendor(settings={"url": url, **settings})
    campaign = factories.campaign(recipients, of=factories.credential(vendor))
    job = factories.job(campaign, "DISPATCHED")
    move(Job.objects.filter(pk=job.pk), "enqueue", fence=1, heartbeat_at=timezone.now())
    job.refresh_from_db()
    return job


def test_every_message_is_accepted_once_and_the_truth_holds_the_vendors_ids(sandbox):
    job = enqueued(300, sandbox.url)
    assert not sending.send_claimed_job(job.pk, 1).left
    assert finalizer.finalise_job(job.pk)
    job.refresh_from_db()
    assert (job.status, job.accepted, job.refused, job.in_doubt) == ("LOGGED", 300, 0, 0)
    books = sandbox.books()
    assert len(books.recipients) == 300 and not books.duplicates()
    ids = {entry.reference: entry.id for entry in books.accepted.values()}
    for message in Message.objects.all():
        assert message.message_id == ids[message.reference]
    assert not Claim.objects.exists() and not AnswerBatch.objects.exists()
    assert sum(Usage.objects.values_list("units", flat=True)) == 300


def test_refusals_lost_answers_and_waits_end_as_what_they_are(sandbox):
    names = ["bounce", "reject", "lost", "garbage", "error", "errorafter", "tempfail", "delivered"]
    job = enqueued([f"{name}@sandbox.example" for name in names], sandbox.url)
    assert not sending.send_claimed_job(job.pk, 1).left
    finalizer.finalise_job(job.pk)
    job.refresh_from_db()
    assert (job.accepted, job.refused, job.in_doubt) == (2, 2, 4)
    state = {m.recipient.split("@")[0]: m for m in Message.objects.all()}
    assert state["bounce"].error_code == "bounce" and state["bounce"].error_sub_type == "mailbox_unknown"
    assert all(state[name].in_doubt_at for name in ("lost", "garbage", "error", "errorafter"))
    assert state["tempfail"].message_id and state["delivered"].message_id


def test_what_was_not_called_by_the_deadline_expires_also_while_the_credential_is_closed_or_paused(sandbox):
    job = enqueued(3, sandbox.url)
    now = timezone.now()
    Campaign.objects.filter(pk=job.campaign_id).update(deadline=now - timedelta(seconds=1))
    Credential.objects.filter(pk=job.credential_id).update(retry_after_until=now + timedelta(hours=9), paused=True)
    assert not sending.send_claimed_job(job.pk, 1).left
    finalizer.finalise_job(job.pk)
    job.refresh_from_db()
    assert (job.status, job.accepted, job.expired) == ("LOGGED", 0, 3)
    assert not sandbox.books().recipients


class Shy(http.server.BaseHTTPRequestHandler):
    """A vendor that asks to be called again later for bob and eve (RFC 8470's 425), and takes everybody else."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        letter = self.rfile.read(int(self.headers["content-length"]))
        later = b"bob@" in letter or b"eve@" in letter
        answer = b"{}" if later else b'{"id": "1"}'
        self.send_response(425 if later else 200)
        if b"eve@" in letter:
            self.send_header("retry-after", "1800")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def shy():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shy) as vendor:
        threading.Thread(target=vendor.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{vendor.server_port}"
        vendor.shutdown()


def called_after(message):
    """In how many seconds the message may be called."""
    return (message.call_after - timezone.now()).total_seconds()


def calls_of(job):
    return sum(job.vendor.usage_set.values_list("units", flat=True))


def test_one_recipient_that_is_put_off_holds_up_nobody_and_no_sender_waits_for_it(shy):
    job = enqueued(["bob@sandbox.example", "ann@sandbox.example"], shy)
    sent = sending.send_claimed_job(job.pk, 1)
    job.refresh_from_db()
    bob = Message.objects.get(sent_at=None)
    assert sent.left and job.status == "DISPATCHED" and job.not_before == sent.until == bob.call_after
    assert 30 < called_after(bob) <= 90, "from a minute on, each a little different"
    assert "tried again" in job.waits_for and job.credential.retry_after_until is None
    assert job.accepted == 1 and calls_of(job) == 2
    again(job, fence=3)
    assert sending.send_claimed_job(job.pk, 3).until == bob.call_after, "a sender that comes too early calls nobody"
    assert calls_of(job) == 2


def test_a_wait_that_the_vendor_names_is_kept_where_it_is_longer(shy):
    job = enqueued(["eve@sandbox.example"], shy)
    assert sending.send_claimed_job(job.pk, 1).left
    assert 1700 < called_after(Message.objects.get()) <= 1800


@pytest.mark.parametrize(
    ("since", "least", "most"), [(20, 60, 90), (100, 100, 190), (1000, 1000, 1540), (9000, 3600, 3600)]
)
def test_the_wait_grows_from_a_minute_to_an_hour_with_the_time_since_the_first(since, least, most, shy):
    job = enqueued(["bob@sandbox.example"], shy)
    assert sending.send_claimed_job(job.pk, 1).left
    Message.objects.update(put_off_at=timezone.now() - timedelta(seconds=since), call_after=None)
    again(job, fence=3)
    assert sending.send_claimed_job(job.pk, 3).left
    assert least - 25 < called_after(Message.objects.get()) <= most


def test_those_who_are_put_off_together_do_not_come_back_together(shy):
    job = enqueued([f"bob@{n}.sandbox.example" for n in range(30)], shy)
    assert sending.send_claimed_job(job.pk, 1).left
    waits = [called_after(message) for message in Message.objects.all()]
    assert max(waits) - min(waits) > 10


def test_whom_the_vendor_puts_off_for_too_long_expires_in_the_end_and_says_since_when(settings, shy):
    """The wait counts from the first time on: a job that is put back and claimed again does not begin it anew."""
    job = enqueued(["ann@sandbox.example", "bob@sandbox.example"], shy)
    assert sending.send_claimed_job(job.pk, 1).left
    first = Message.objects.get(sent_at=None).put_off_at
    assert timezone.now() - first < timedelta(minutes=5)
    Message.objects.update(call_after=None)
    again(job, fence=3)
    assert sending.send_claimed_job(job.pk, 3).left
    bob = Message.objects.get(sent_at=None)
    assert (bob.error_code, bob.error_sub_type, bob.put_off_at) == (None, None, first)
    settings.PUT_OFF = timedelta(0)
    Message.objects.update(call_after=None)
    again(job, fence=5)
    assert not sending.send_claimed_job(job.pk, 5).left, "once more, and it was once too often"
    finalizer.finalise_job(job.pk)
    job.refresh_from_db()
    assert (job.status, job.accepted, job.expired) == ("LOGGED", 1, 1)
    gone = Message.objects.get(error_code="expired")
    assert (gone.recipient, gone.sent_at) == ("bob@sandbox.example", None)
    assert gone.error_sub_type == f"put off since {first.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def again(job, fence):
    """Lets a mailcaster claim the job that was put back."""
    mine = Job.objects.filter(pk=job.pk)
    assert move(mine, "enqueue", fence=fence, heartbeat_at=timezone.now(), not_before=None)
