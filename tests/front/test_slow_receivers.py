"""A receiver that does not answer costs nobody else anything: neither other sponsors nor, for long, its own."""

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.integrations.webhooks import delivery, events
from campaigns.integrations.webhooks.delivery import IN_FLIGHT, OF_A_WEBHOOK, SUSPENDED, TIMEOUTS, DueCall, share_calls
from campaigns.models import Session, Webhook, WebhookCall
from campaigns.tasks import notify_webhooks, sweep_sessions
from tests.campaigns.rows import accepted
from tests.front.program import Program, fresh
from tests.front.test_webhooks import deliver, finished, listening, receiver
from tests.programs import worker
from tests.waiting import wait_until
from vendors import webhook_http

__all__ = ["fresh", "receiver"]
SLOW = IN_FLIGHT // 2 // OF_A_WEBHOOK  # webhooks whose calls are in flight together
CALLS = 1024


@contextmanager
def dripping() -> Iterator[str]:
    """Answers 200, and then one more line of the head every now and then, for ever."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:

        def serve() -> None:
            lines: list[socket.socket] = []
            server.settimeout(0.2)
            while not over.is_set():
                with suppress(TimeoutError):
                    line, _ = server.accept()
                    lines.append(line)
                    with suppress(OSError):
                        line.recv(65_536)
                        line.sendall(b"HTTP/1.1 200 OK\r\n")
                for line in lines[-IN_FLIGHT:]:
                    with suppress(OSError):
                        line.send(b"X-More: 1\r\n")
            for line in lines:
                line.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        finally:
            over.set()
            thread.join()


def calls(program: Program, url: str, hooks: int, each: int) -> list[Webhook]:
    """So many webhooks, each with so many calls that are due."""
    session = Session.objects.filter(sponsor=program.sponsor).first()
    if session is None:
        finished(program, [accepted()])
        session = Session.objects.filter(sponsor=program.sponsor).get()
    made = [events.create_webhook(program.sponsor, url, [], test=False)[0] for _ in range(hooks)]
    for hook in made:
        rows = [
            events._make_session_call(
                hook, session, events.uuid5(events.SPACE, f"{hook.pk} {n}"), events.Event.MESSAGE_SENT, {}
            )
            for n in range(each)
        ]
        events.store_calls(rows)
    return made


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(240)
@pytest.mark.slow("processes")
def test_with_a_thousand_calls_waiting_on_slow_receivers_another_sponsors_event_is_posted_at_once(settings) -> None:
    """Seen by how often the slow ones were called when the other one had its event: not once each of them."""
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    slow, other = Program(), Program()
    with (
        dripping() as url,
        listening() as quick,
        worker(queues="webhooks", processes=1, WEBHOOK_NETWORKS="127.0.0.0/8") as program,
    ):
        calls(slow, url, SLOW, CALLS // SLOW)
        notify_webhooks()
        wait_until(lambda: WebhookCall.objects.filter(tries=1).count() >= IN_FLIGHT // 2, "the slow ones are called")
        began = timezone.now()
        (hook,) = calls(other, quick.url, 1, 1)
        call = wait_until(lambda: hook.calls.exclude(taken_at=None).first(), "the other one's event is posted")
        print(f"posted {(call.taken_at - began).total_seconds():.2f} s after it happened")
        assert call.taken_at - began < timedelta(seconds=webhook_http.DEADLINE), "it waited for none of the slow calls"
        wait_until(lambda: Webhook.objects.filter(suspended_until__isnull=False).count() == SLOW, "all are suspended")
        assert program.process.poll() is None and "SIGKILL" not in program.log.read_text()


@pytest.mark.django_db
class TestSuspension:
    @pytest.fixture
    def short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """For receivers that never answer; the others have the time that they need."""
        monkeypatch.setattr(webhook_http, "DEADLINE", 0.3)

    @pytest.mark.usefixtures("short")
    def test_a_webhook_that_times_out_again_and_again_is_suspended_and_its_calls_wait_untried(self, receiver) -> None:
        with dripping() as url:
            (hook,) = calls(Program(), url, 1, OF_A_WEBHOOK + 10)
            delivery.deliver_due()
        hook.refresh_from_db()
        assert hook.timeouts == TIMEOUTS, "calls in flight when it was suspended do not prolong that"
        left = hook.suspended_until - timezone.now()
        assert timedelta() < left <= timedelta(seconds=SUSPENDED[0])
        tried = Counter(hook.calls.values_list("tries", flat=True))
        assert tried[0] >= 10 - OF_A_WEBHOOK and tried.total() == OF_A_WEBHOOK + 10 and set(tried) <= {0, 1}
        assert delivery.deliver_due() == 0

    def test_on_trial_one_call_decides_whether_it_goes_on(self, receiver, monkeypatch) -> None:
        with dripping() as url, monkeypatch.context() as short:
            short.setattr(webhook_http, "DEADLINE", 0.3)
            (hook,) = calls(Program(), url, 1, 5)
            Webhook.objects.update(timeouts=TIMEOUTS, suspended_until=timezone.now())
            assert delivery.deliver_due() == 1
            hook.refresh_from_db()
            assert hook.suspended_until - timezone.now() > timedelta(seconds=SUSPENDED[0])
        Webhook.objects.update(url=receiver.url, suspended_until=timezone.now())
        WebhookCall.objects.update(next_at=timezone.now())
        assert delivery.deliver_due() == 5
        hook.refresh_from_db()
        assert (hook.timeouts, hook.suspended_until) == (0, None)

    @pytest.mark.usefixtures("short")
    def test_a_name_server_that_does_not_answer_is_a_time_out(self, monkeypatch, receiver) -> None:
        over = threading.Event()
        monkeypatch.setattr(webhook_http.socket, "getaddrinfo", lambda *_, **__: over.wait(60))
        (hook,) = calls(Program(), "https://slow.example/", 1, 1)
        try:
            assert delivery.deliver_due() == 1
        finally:
            over.set()
        assert hook.calls.get().result == "no answer within 0.3 s"

    def test_what_waits_for_days_for_a_suspended_webhook_is_given_up_and_can_be_redelivered(self, receiver) -> None:
        (hook,) = calls(Program(), receiver.url, 1, 1)
        Webhook.objects.update(timeouts=9, suspended_until=timezone.now() + timedelta(hours=1))
        assert delivery.give_up() == 0
        WebhookCall.objects.update(created_at=timezone.now() - timedelta(days=5))
        sweep_sessions()
        call = hook.calls.get()
        assert call.next_at is None and "given up" in call.result
        assert events.repeat_call(call.pk) and deliver(call.pk) is None
        assert hook.calls.exclude(taken_at=None).exists()


def test_a_sponsor_may_use_half_of_what_the_others_leave_free() -> None:
    def due(sponsor: int, first: int, hooks: int = 40) -> list[DueCall]:
        return [DueCall(first + n, 100 * sponsor + n % hooks, sponsor, False) for n in range(2 * IN_FLIGHT)]

    alone = list(share_calls(due(1, 0), Counter(), Counter()))
    assert len(alone) == IN_FLIGHT // 2
    busy = Counter({1: IN_FLIGHT // 2})
    second = list(share_calls(due(1, 0) + due(2, 10_000), Counter(), busy))
    assert Counter(one.sponsor_id for one in second) == {2: IN_FLIGHT // 4}
    one_hook = list(share_calls(due(1, 0, hooks=1), Counter(), Counter()))
    assert len(one_hook) == OF_A_WEBHOOK
    assert list(share_calls([DueCall(1, 1, 1, True)], Counter({1: 1}), Counter({1: 1}))) == [], "one at a time on trial"


@pytest.mark.django_db(transaction=True)
def test_two_processes_never_take_the_same_call(receiver) -> None:
    calls(Program(), receiver.url, 2, 40)
    made: list[int] = []

    def run() -> None:
        made.append(delivery.deliver_due())
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(made) == 80 == len(receiver.got)
    assert len({headers["webhook-id"] for headers, *_ in receiver.got}) == 80
