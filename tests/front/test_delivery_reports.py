"""Vendors report later what became of letters: signed, in any order, as often as they like."""

import time
import uuid
from datetime import UTC, datetime, timedelta
from operator import itemgetter

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from standardwebhooks import Webhook as Signer

from campaigns.engine import audit, lifecycle
from campaigns.integrations.api import receipts
from campaigns.integrations.api.receipts import KnownVendors, known_vendors
from campaigns.integrations.results import writer
from campaigns.integrations.webhooks import delivery, events
from campaigns.models import Job, Message, Session, WebhookCall
from tests.campaigns.rows import accepted, expired, in_doubt, logged, refused
from tests.campaigns.test_claims_and_answers import locked
from tests.faults.sending import meanwhile
from tests.front.program import Program, api_vendor, fresh, letter, pointers, problem
from tests.front.test_sessions import end
from tests.front.test_webhooks import Receiver, receiver
from tests.front.vendor import NOON, receipt, reporting
from tests.lock_waits import count_lock_waits
from tests.programs import wait_until, worker
from tests.waiting import result_of
from vendors import report_keys
from vendors.models import Credential, ReportKey, Vendor

__all__ = ["fresh", "receiver"]
pytestmark = pytest.mark.django_db


def kept() -> bool:
    return [check for check in audit.ask_all_questions() if not check.is_kept] == []


def finished(program, vendor, shapes, **more):
    """A session over the vendor whose messages have these shapes; its links, its messages' references."""
    recipients = [{"to": f"p{n}@sandbox.example", "reference": f"r{n}", **more} for n in range(len(shapes))]
    links = program.send(letter(vendor, recipients=recipients)).json()["links"]
    job = Job.objects.latest("id")
    end(job, shapes)
    return links, references(job)


def references(job):
    rows = Message.objects.filter(id__gte=job.first_message, id__lt=job.end).order_by("id")
    return [row.reference for row in rows]


def test_a_session_shows_what_was_delivered_and_what_came_back():
    program, vendor = Program(), reporting()
    links, names = finished(program, vendor.row, [accepted("v-0"), accepted("v-1"), accepted("v-2")])
    reports = [receipt(names[0]), receipt(names[1], "bounced", 5, reason="mailbox full", id="v-1")]
    assert vendor.post(reports).json() == {"changed": 2, "unknown": []}
    counts = program.get(links["self"]).json()["counts"]
    assert {word: count for word, count in counts.items() if count} == {"delivered": 1, "bounced": 1, "sent": 1}
    rows = program.get(links["messages"]).json()["data"]
    assert [row["status"] for row in rows] == ["delivered", "bounced", "sent"]
    assert [row["vendor_message_id"] for row in rows] == ["v-0", "v-1", "v-2"], "the answer of the call stands"
    assert rows[1]["reason"] == {"code": "bounced", "text": "mailbox full"} and rows[0]["reason"] is None
    assert datetime.fromisoformat(rows[1]["reported_at"]) == NOON + timedelta(minutes=5)
    assert vendor.post(reports).json() == {"changed": 0, "unknown": []}, "once more changes nothing"
    assert program.get(links["self"]).json()["counts"] == counts and kept()
    vendor.tell((names[1], "delivered", 9), (names[2],))
    assert program.get(links["self"]).json()["status"] == "delivered", "all of them"


def test_a_result_on_its_server_is_not_believed_after_a_receipt():
    program, vendor = Program(), reporting()
    links, names = finished(program, vendor.row, [accepted(), accepted()])
    vendor.tell((names[0], "delivered", 1), (names[1], "bounced", 1))
    writer.write_result(Session.objects.get().pk)
    vendor.tell((names[0], "bounced", 2), (names[1], "delivered", 2))  # the counts are as before
    rows = program.get(links["messages"]).json()["data"]
    assert [row["status"] for row in rows] == ["bounced", "delivered"]


def test_programs_hear_once_however_often_the_vendor_reports(receiver: Receiver):
    program, vendor = Program(), reporting()
    _, secret = events.create_webhook(program.sponsor, receiver.url, [], test=False)
    events.create_webhook(program.sponsor, receiver.url, [], test=True)
    _, names = finished(program, vendor.row, [accepted("v-0"), accepted("v-1")])
    for _ in range(2):
        vendor.post([receipt(names[0]), receipt(names[1], "bounced", reason="unknown")])
    calls = WebhookCall.objects.order_by("kind")
    assert [call.kind for call in calls] == ["message.bounced", "message.delivered"]
    delivery.deliver_due()
    posted = [Signer(secret).verify(body, headers) for headers, body, _ in receiver.got]
    bounced, delivered = (one["data"] for one in sorted(posted, key=itemgetter("type")))
    assert (delivered["reference"], delivered["status"], delivered["vendor_message_id"]) == ("r0", "delivered", "v-0")
    assert bounced["reason"] == {"code": "bounced", "text": "unknown"} and bounced["session_id"].startswith("ses_")
    vendor.tell((names[1], "delivered", 7))
    assert WebhookCall.objects.filter(kind="message.delivered").count() == 2, "it changed"


def test_a_letter_that_is_delivered_before_its_session_ends_was_sent_as_well(receiver: Receiver):
    program, vendor = Program(), reporting()
    events.create_webhook(program.sponsor, receiver.url, [], test=False)
    _, (name,) = finished(program, vendor.row, [accepted()])
    vendor.tell((name,))
    session = Session.objects.get()
    assert len(writer.write_result(session.pk)) == 2
    vendor.tell((name, "bounced", 3))
    assert writer.write_result(session.pk) == [], "the session's end is an event once"
    kinds = ["message.bounced", "message.delivered", "message.sent", "session.finished"]
    assert sorted(WebhookCall.objects.values_list("kind", flat=True)) == kinds


@pytest.mark.django_db(transaction=True)
def test_a_locked_job_holds_up_no_other_vendors_reports_and_its_own_vendor_is_asked_to_come_again(monkeypatch):
    monkeypatch.setattr(lifecycle, "LOCKED_MOST", "3s")
    ill, well = reporting(), reporting()
    jobs = [logged(1, [accepted()], of=Credential.objects.get(vendor=one.row)) for one in (ill, well)]
    late, early = [receipt(references(job)[0]) for job in jobs]
    with locked(Job.objects.filter(pk=jobs[0].pk)), meanwhile(ill.post, [late]) as waiting:
        wait_until(count_lock_waits, "the report waits for the job")
        assert well.post([early]).json() == {"changed": 1, "unknown": []}
        assert not waiting.done()
        answer = result_of(waiting, "the report is answered")
        assert answer.status_code == 503 and answer["Retry-After"]
    assert ill.post([late]).json() == {"changed": 1, "unknown": []}


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(600)
@pytest.mark.slow("processes")
def test_workers_post_the_news(receiver: Receiver):
    program, vendor = Program(), reporting()
    events.create_webhook(program.sponsor, receiver.url, ["message.delivered"], test=False)
    _, names = finished(program, vendor.row, [accepted(), accepted()])
    with worker(queues="webhooks,celery", WEBHOOK_NETWORKS="127.0.0.0/8"):
        vendor.tell(*((name,) for name in names))
        wait_until(lambda: WebhookCall.objects.filter(taken_at__isnull=False).count() == 2, "both are taken")


class TestWhoMayReport:
    def test_only_who_signs_with_the_vendors_secret(self):
        vendor, other = reporting(), reporting()
        body = '{"receipts": []}'
        stale = datetime.now(UTC) - timedelta(minutes=6)
        good = vendor.signed(body, vendor.secret)
        forged = [
            {},
            vendor.signed(body, other.secret),
            vendor.signed(body, vendor.secret, stale),
            vendor.signed(body + " ", vendor.secret),
            good | {"webhook-signature": "nonsense"},
            good | {"webhook-signature": "v1,nonsense"},
            good | {"webhook-timestamp": "nan"},
        ]
        for headers in forged:
            problem(vendor.post_signed(body, headers), "not-the-vendor", 401)
        for slug in (other.row.slug, "nobody", api_vendor().slug):
            problem(vendor.post_signed(body, good, slug), "not-the-vendor", 401)
        Vendor.objects.filter(pk=vendor.row.pk).update(settings=vendor.row.settings | {"receipts": False})
        problem(vendor.post([receipt("x")]), "not-the-vendor", 401)

    def test_a_new_secret_leaves_the_old_one_a_day(self):
        vendor = reporting()
        old, vendor.secret = vendor.secret, report_keys.rotate_key(vendor.row, timezone.now())
        for secret in (old, vendor.secret):
            assert vendor.post([receipt("x")], secret).status_code == 202
        later = report_keys.reporting_vendor(vendor.row.slug, timezone.now() + timedelta(days=1, minutes=1))
        assert later and later.common and later.common.source.secrets == [vendor.secret]
        assert report_keys.revoke_keys(vendor.row) == 2
        problem(vendor.post([receipt("x")]), "not-the-vendor", 401)

    def test_a_secret_that_can_prove_nothing_is_refused_and_one_that_is_stored_hides_no_older_one(self, tmp_path):
        vendor = reporting()
        for text in ("", "whsec_", "whsec_c2hvcnQ=", "a password, or so it seems", vendor.secret + "!"):
            with pytest.raises(ValueError, match="at least 16 bytes"):
                report_keys.enter_key(vendor.row, text, timezone.now())
        given = tmp_path / "secret"
        given.write_text("hush")
        with pytest.raises(CommandError, match="the secret is not stored"):
            call_command("vendor", "receipts", vendor.row.slug, "--secret-file", str(given))
        assert ReportKey.objects.count() == 1
        for text in ("whsec_", "\xff"):  # as an earlier version stored them
            row = ReportKey(vendor=vendor.row)
            row.secret = {"key": text}
            row.save()
        known_vendors.forget_all()
        assert vendor.post([receipt("x")]).status_code == 202

    def test_a_vendor_that_cannot_be_used_as_it_is_stored_reports_nothing(self, caplog):
        vendor = reporting()
        for adapter, settings in (
            ("described", {"description": "nonsense"}),
            ("gone", {}),
            ("http", {"receipts": "x"}),
        ):
            Vendor.objects.filter(pk=vendor.row.pk).update(adapter=adapter, settings=settings)
            known_vendors.forget_all()
            problem(vendor.post([receipt("x")]), "not-the-vendor", 401)
        assert caplog.text.count("cannot be taken as it is set up") == 1, "once a minute"

    def test_who_tries_many_names_makes_nobody_read_a_vendor_again(self, django_assert_num_queries):
        vendor = reporting()
        known = KnownVendors()
        known.find_vendor(vendor.row.slug)
        for number in range(receipts.MOST_STRANGE + 1):
            known._strange[f"nobody-{number}"] = time.monotonic()
        assert known.find_vendor("nobody") is None
        with django_assert_num_queries(0):
            found = known.find_vendor(vendor.row.slug)
        assert found and found.id == vendor.row.pk

    def test_the_command_shows_a_secret_once_where_the_adapter_reports(self, capsys):
        vendor = reporting()
        call_command("vendor", "receipts", vendor.row.slug)
        secret = capsys.readouterr().out.split()[0]
        assert vendor.post([receipt("x")], secret).status_code == 202
        call_command("vendor", "receipts", vendor.row.slug, "--off")
        assert not ReportKey.objects.exists()
        with pytest.raises(CommandError, match="sends no receipts"):
            call_command("vendor", "receipts", api_vendor().slug)

    def test_what_cannot_be_read_names_the_place(self):
        vendor = reporting()
        assert pointers(vendor.post([receipt("x", "read")])) == {"/receipts/0/status": "literal_error"}
        assert pointers(vendor.post([receipt("x") | {"at": "2026-03-01T12:00:00"}]))["/receipts/0/at"]
        assert pointers(vendor.post([receipt("x") | {"more": 1}])) == {"/receipts/0/more": "extra_forbidden"}
        for body in ("{", "[]", '{"receipts": []}', '{"receipts": 7}'):
            problem(vendor.post(body), "validation", 422)
        assert pointers(vendor.post([receipt("x")] * 1001)) == {"/receipts": "too_long"}
        assert vendor.post([receipt("x")] * 1000).json() == {"changed": 0, "unknown": ["x"]}


def test_what_is_no_letter_of_this_vendor_is_named_and_the_rest_is_stored():
    program, vendor, other = Program(), reporting(), reporting()
    _, (mine,) = finished(program, vendor.row, [accepted()])
    _, (theirs,) = finished(program, other.row, [accepted()])
    guessed = f"{uuid.UUID(int=uuid.UUID(mine[:36]).int ^ 1)}-0"
    strange = ["", "x", str(uuid.uuid4()), f"{uuid.uuid4()}-0", guessed, f"{mine[:36]}-1", f"{mine[:36]}-00", theirs]
    answer = vendor.tell((mine,), *((name or "-",) for name in strange), (guessed, "bounced", 9))
    assert answer["changed"] == 1
    assert sorted(answer["unknown"]) == sorted({name or "-" for name in strange})
    assert list(Job.objects.order_by("id").values_list("delivered", "bounced")) == [(1, 0), (0, 0)]


def test_what_is_said_of_the_future_happened_now():
    program, vendor = Program(), reporting()
    links, (name,) = finished(program, vendor.row, [accepted()])
    far = (timezone.now() + timedelta(days=400)).isoformat()
    vendor.post([receipt(name) | {"at": far}])
    vendor.post([receipt(name, "bounced") | {"at": far}])
    assert program.get(links["messages"]).json()["data"][0]["status"] == "bounced"


def test_a_vendor_whose_clock_is_ahead_may_say_it_all_again():
    program, vendor = Program(), reporting()
    links, (name,) = finished(program, vendor.row, [accepted()])
    soon, later = ((timezone.now() + timedelta(minutes=minutes)).isoformat() for minutes in (20, 30))
    reports = [receipt(name) | {"at": soon}, receipt(name, "bounced") | {"at": later}]
    for one in (*reports, *reports, reports[0]):
        assert vendor.post([one]).status_code == 202
    assert program.get(links["messages"]).json()["data"][0]["status"] == "bounced"


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_at_the_end_of_all_times_is_a_time(at):
    program, vendor = Program(), reporting()
    links, (name,) = finished(program, vendor.row, [accepted()])
    for _ in range(2):
        assert vendor.post([receipt(name) | {"at": at}]).status_code == 202
    assert program.get(links["messages"]).json()["data"][0]["status"] == "delivered"


@pytest.mark.parametrize("kind", ["delivered", "bounced"])
def test_a_receipt_settles_a_doubt(kind):
    program, vendor = Program(), reporting()
    links, (name,) = finished(program, vendor.row, [in_doubt()])
    vendor.post([receipt(name, kind, id="v-9")])
    job, row = Job.objects.get(), Message.objects.get()
    assert (job.accepted, job.in_doubt, row.message_id, row.report) == (1, 0, "v-9", kind)
    assert program.get(links["self"]).json()["counts"][kind] == 1 and kept()


def test_without_the_vendors_own_name_the_receipt_itself_is_the_evidence():
    job = logged(1, [in_doubt()])
    vendor = reporting_for(job)
    (name,) = references(job)
    vendor.tell((name,))
    assert Message.objects.get().message_id == f"receipt:{name}"


@pytest.mark.parametrize("shape", [refused(), expired()], ids=["refused", "expired"])
def test_what_was_delivered_was_neither_refused_nor_expired(shape):
    job = logged(1, [shape])
    vendor = reporting_for(job)
    (name,) = references(job)
    vendor.tell((name, "bounced"))
    assert Message.objects.get().report is None, "that it did not arrive was known"
    vendor.tell((name,))
    job.refresh_from_db()
    assert (job.accepted, job.refused, job.expired, job.delivered) == (1, 0, 0, 1) and kept()


def reporting_for(job):
    vendor = reporting()
    type(job.campaign.credential).objects.filter(pk=job.campaign.credential_id).update(vendor=vendor.row)
    return vendor
