"""Programs are told what happened: signed, once or more, for three days, and never into a network of our own."""

import io
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from celery.signals import before_task_publish
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from standardwebhooks import Webhook as Signer
from standardwebhooks import WebhookVerificationError

from campaigns.integrations.results import writer
from campaigns.integrations.webhooks import delivery, events
from campaigns.models import Job, Message, Session, Webhook, WebhookCall
from campaigns.tasks import WEBHOOKS, deliver_webhooks, sweep_sessions
from mailhub.celery import app
from tests import factories
from tests.campaigns.rows import accepted, in_doubt, refused
from tests.front.program import Program, api_vendor, fresh, letter
from tests.front.test_sessions import end
from tests.programs import sweeping, wait_until, worker

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db


class Receiver:
    """A program's own little server. statuses: what it answers, the last one for ever."""

    def __init__(self) -> None:
        self.statuses, self.headers = [204], {}
        self.got = []

    def answer(self, handler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        self.got.append((dict(handler.headers), body, handler.path))
        handler.send_response(self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0])
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.end_headers()


@contextmanager
def listening() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.answer(self)

        do_GET = do_POST

        def log_message(self, *_) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # of five, connections that come at once are refused

    with Server(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/hook?a=1"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield receiver
        server.shutdown()
        thread.join()


@pytest.fixture
def receiver(settings) -> Iterator[Receiver]:
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    with listening() as one:
        yield one


def deliver(call_id: int) -> object:
    """All that is due is posted; when the next try of this call is."""
    delivery.deliver_due()
    return WebhookCall.objects.filter(pk=call_id).values_list("next_at", flat=True).first()


def finished(program, shapes, **members):
    """A session whose messages have these shapes, consumed; the ids of the calls to be made."""
    recipients = [{"to": f"p{n}@sandbox.example", "reference": f"r{n}"} for n in range(len(shapes))]
    program.send(letter(api_vendor(), recipients=recipients, **members))
    end(Job.objects.latest("id"), shapes)
    return writer.write_result(Session.objects.latest("id").pk)


def test_what_became_of_a_session_is_posted_and_signed(receiver):
    program = Program()
    hook, secret = events.create_webhook(program.sponsor, receiver.url, [], test=False)
    calls = finished(program, [accepted(), refused(), in_doubt()], metadata={"run": "7"})
    assert all(deliver(call) is None for call in calls)
    posted = {}
    for headers, body, path in receiver.got:
        fact = Signer(secret).verify(body, headers)
        posted.setdefault(fact["type"], []).append(fact["data"])
        assert path == "/hook?a=1" and headers["Content-Type"] == "application/json"
        with pytest.raises(WebhookVerificationError):
            Signer(secret).verify(body + b" ", headers)
    assert [one["reference"] for one in posted["message.sent"]] == ["r0"]
    assert [one["reason"]["code"] for one in posted["message.failed"]] == ["bounce"]
    assert [one["status"] for one in posted["message.needs_attention"]] == ["needs_attention"]
    (session,) = posted["session.finished"]
    assert session["counts"] == {"failed": 1, "needs_attention": 1, "sent": 1}
    assert session["metadata"] == {"run": "7"} and session["session_id"] == Session.objects.get().name
    assert not WebhookCall.objects.exclude(taken_at__isnull=False, tries=1, http_status=204, next_at=None).exists()
    with connection.cursor() as cursor:
        cursor.execute("SELECT secret FROM campaigns_webhook")
        assert hook.secret["key"] == secret and secret not in cursor.fetchone()[0], "it is encrypted at rest"


def test_an_event_is_one_call_however_often_it_is_found_and_a_settled_doubt_is_news(receiver):
    program = Program()
    events.create_webhook(program.sponsor, receiver.url, [], test=False)
    assert len(finished(program, [in_doubt()])) == 2
    session, job = Session.objects.get(), Job.objects.get()
    assert writer.write_result(session.pk) == [] and WebhookCall.objects.count() == 2
    news = {"message_id": "late", "delivered_at": timezone.now(), "in_doubt_at": None, "error_sub_type": None}
    Message.objects.filter(id=job.first_message).update(**news)
    Job.objects.filter(pk=job.pk).update(accepted=1, in_doubt=0)
    assert len(writer.write_result(session.pk)) == 2
    assert sorted(WebhookCall.objects.values_list("kind", flat=True)) == [
        "message.needs_attention",
        "message.sent",
        "session.finished",
        "session.finished",
    ]


def test_each_webhook_gets_its_own_sponsors_events_of_its_kinds_and_its_mode(receiver):
    program, stranger = Program(), Program()
    wanted, _ = events.create_webhook(program.sponsor, receiver.url, ["message.failed"], test=False)
    events.create_webhook(program.sponsor, receiver.url, [], test=True)
    events.create_webhook(stranger.sponsor, receiver.url, [], test=False)
    finished(program, [accepted(), refused()])
    assert [(call.webhook_id, call.kind) for call in WebhookCall.objects.all()] == [(wanted.pk, "message.failed")]


@contextmanager
def notified() -> Iterator[list[object]]:
    """The notifications of a delivery: the moment that each is for."""
    etas: list[object] = []

    def look(headers, **_) -> None:
        etas.append(datetime.fromisoformat(headers["eta"]) if headers["eta"] else None)

    before_task_publish.connect(look, sender="campaigns.tasks.deliver_webhooks")
    try:
        yield etas
    finally:
        before_task_publish.disconnect(look, sender="campaigns.tasks.deliver_webhooks")
        with app.connection_for_write() as broker:
            broker.default_channel.queue_purge(WEBHOOKS)


class TestTries:
    @pytest.fixture
    def call(self, receiver):
        """A call that is due."""
        program = Program()
        events.create_webhook(program.sponsor, receiver.url, ["session.finished"], test=False)
        (call_id,) = finished(program, [accepted()])
        return call_id

    def test_ten_in_three_days_and_then_no_more(self, call, receiver):
        receiver.statuses, waits = [500], []
        for _ in range(10):
            WebhookCall.objects.filter(pk=call).update(next_at=timezone.now())
            before = timezone.now()
            next_at = deliver(call)
            waits.append(next_at and (next_at - before).total_seconds())
        assert waits.pop() is None
        for wait, least in zip(waits, delivery.WAITS, strict=True):
            assert least <= wait <= least * 1.1 + 60
        assert timedelta(days=3) < timedelta(seconds=sum(delivery.WAITS)) < timedelta(days=4)
        assert len({headers["webhook-id"] for headers, _, _ in receiver.got}) == 1, "the receiver can tell a repeat"
        row = WebhookCall.objects.get(pk=call)
        assert (row.tries, row.next_at, row.http_status, row.result) == (10, None, 500, "HTTP 500")

    def test_who_comes_too_early_or_too_late_does_nothing(self, call, receiver):
        receiver.statuses = [500, 204]
        WebhookCall.objects.filter(pk=call).update(tries=3)  # so that the next try is hours away
        assert deliver(call)
        assert deliver(call) and len(receiver.got) == 1
        WebhookCall.objects.filter(pk=call).update(next_at=timezone.now())
        assert deliver(call) is None and len(receiver.got) == 2
        assert deliver(call) is None and len(receiver.got) == 2

    def test_a_redirect_is_not_followed(self, call, receiver):
        receiver.statuses, receiver.headers = [302], {"Location": receiver.url}
        assert deliver(call)
        assert len(receiver.got) == 1 and WebhookCall.objects.get(pk=call).http_status == 302

    def test_retry_after_is_honoured(self, call, receiver):
        receiver.statuses, receiver.headers = [503], {"Retry-After": "1200"}
        assert deliver(call) - timezone.now() > timedelta(seconds=1100)

    def test_gone_switches_the_webhook_off(self, call, receiver):
        receiver.statuses = [410]
        assert deliver(call) is None
        hook = Webhook.objects.get()
        assert not hook.enabled and "410" in hook.disabled_reason
        assert WebhookCall.objects.get(pk=call).next_at is None
        assert not events.repeat_call(call), "it has to be switched on first"

    def test_a_receiver_that_is_away_is_tried_again(self, call):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))  # bound and not listening: refused
            Webhook.objects.update(url=f"http://127.0.0.1:{closed.getsockname()[1]}/")
            assert deliver(call)
        row = WebhookCall.objects.get(pk=call)
        assert (row.tries, row.http_status, row.result) == (1, None, "ConnectionRefusedError")

    def test_the_next_try_that_is_due_soon_is_rung_for_and_a_later_one_is_left_to_the_sweep(self, call, receiver):
        receiver.statuses = [500]
        with notified() as notifications:
            deliver_webhooks()
            assert notifications == [WebhookCall.objects.get(pk=call).next_at]
            WebhookCall.objects.filter(pk=call).update(next_at=timezone.now(), tries=2)
            deliver_webhooks()
            assert len(notifications) == 1

    def test_of_an_answer_that_is_none_nothing_is_kept(self, call):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def answer() -> None:
                line, _ = server.accept()
                with line:
                    got = b""
                    while not got.endswith(b"}}"):
                        got += line.recv(65536)
                    line.sendall(b"\x15\x03\x01\x00\x02\x02\x46\n")

            thread = threading.Thread(target=answer)
            thread.start()
            Webhook.objects.update(url=f"http://127.0.0.1:{server.getsockname()[1]}/")
            assert deliver(call)
            thread.join()
        row = WebhookCall.objects.get(pk=call)
        assert (row.tries, row.http_status, row.result) == (1, None, "the answer is not HTTP")

    def test_a_lost_notification_is_made_up_for_by_the_sweep(self, call):
        with notified() as notifications:
            sweep_sessions()
            WebhookCall.objects.filter(pk=call).update(next_at=timezone.now() + timedelta(minutes=2))
            sweep_sessions()
        assert notifications == [None]

    def test_by_hand_the_same_event_is_posted_again(self, call, receiver):
        deliver(call)
        out = io.StringIO()
        call_command("webhook", "redeliver", str(call), stdout=out)
        assert "will be posted again" in out.getvalue()
        deliver(call)
        assert len({headers["webhook-id"] for headers, _, _ in receiver.got}) == 1 and len(receiver.got) == 2


def test_the_command_adds_lists_and_removes_and_names_what_is_wrong(settings):
    settings.WEBHOOK_NETWORKS = []

    def command(*args):
        out = io.StringIO()
        call_command("webhook", *args, "--json", stdout=out)
        return json.loads(out.getvalue())

    sponsor = factories.sponsor()
    made = command("add", "--sponsor", sponsor.name, "--url", "https://example.org/hook", "--event", "message.failed")
    assert made["secret"].startswith("whsec_") and made["events"] == ["message.failed"]
    listed = command("list", "--sponsor", sponsor.name)
    assert listed["url"] == "https://example.org/hook" and "secret" not in listed
    assert not command("disable", str(made["id"]))["enabled"] and command("enable", str(made["id"]))["enabled"]
    assert command("remove", str(made["id"]))["removed"] and not Webhook.objects.exists()
    for args, message in (
        (("add", "--sponsor", sponsor.name, "--url", "http://example.org"), "must be an https URL"),
        (("add", "--sponsor", "nobody", "--url", "https://example.org"), "there is no sponsor"),
        (("calls", "0"), "there is no webhook 0"),
        (("redeliver", "0"), "there is no call 0"),
    ):
        with pytest.raises(CommandError, match=message):
            command(*args)


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(240)
@pytest.mark.slow("processes")
def test_a_dead_receiver_holds_up_no_mail(sandbox, settings):
    """Its queue is its own: the workers that send do not read it."""
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    program = Program()
    vendor = api_vendor(settings={"url": sandbox.url}, casters=["small-only"])
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # takes connections and never answers
        events.create_webhook(program.sponsor, f"http://127.0.0.1:{silent.getsockname()[1]}/", [], test=False)
        with worker(queues=f"hub,{vendor.queue}", WEBHOOK_NETWORKS="127.0.0.0/8"), sweeping():
            for number in range(3):
                assert program.send(letter(vendor, f"p{number}@sandbox.example")).status_code == 202
            wait_until(lambda: Session.objects.exclude(finished_at=None).count() == 3, "all are finished")
    assert WebhookCall.objects.filter(tries=0).count() == 6
    sweep_sessions()
