"""A program looks after its webhooks itself: made, listed, rotated, posted again, removed."""

import threading
from datetime import timedelta

import pytest
import time_machine
from django.db import connection, transaction
from django.utils import timezone
from standardwebhooks import Webhook as Signer
from standardwebhooks import WebhookVerificationError

from campaigns.engine import delivery_reports
from campaigns.integrations.webhooks import events
from campaigns.models import Job, KeptAnswer, Message, Webhook, WebhookCall
from mailhub import tasks
from tests.campaigns.rows import accepted, refused
from tests.front.program import Program, fresh, pointers, problem
from tests.front.test_webhooks import deliver, finished, receiver
from tests.lock_waits import count_lock_waits
from tests.programs import wait_until
from vendors.adapters.reports import Reported

__all__ = ["fresh", "receiver"]
pytestmark = pytest.mark.django_db
HOOKS = "/api/v1/webhooks"
URL = "https://receiver.example/hook"


def create(program, **members):
    return program.send({"url": URL, **members}, key=None, path=HOOKS)


def test_a_webhook_is_made_with_a_secret_that_is_shown_once():
    program = Program()
    made = create(program, events=["message.failed", "message.failed"])
    hook = made.json()
    assert (made.status_code, made.headers["Location"]) == (201, f"{HOOKS}/{hook['id']}")
    assert hook["secret"] == Webhook.objects.get().secret["key"]
    assert (hook["events"], hook["mode"], hook["enabled"]) == (["message.failed"], "live", True)
    secret = hook.pop("secret")
    assert program.get(made.headers["Location"]).json() == hook
    assert program.get(HOOKS).json() == {"data": [hook]} and secret not in program.get(HOOKS).content.decode()
    assert len(create(program).json()["events"]) > 4, "all, if none is named"


def test_a_repeat_with_the_same_idempotency_key_makes_one_webhook_and_gets_the_first_answer_again():
    program = Program()
    first, again = (program.send({"url": URL}, key="the only one", path=HOOKS) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201) and first.content == again.content
    assert first.headers["Location"] == again.headers["Location"]
    assert again.headers["Idempotent-Replayed"] == "true" and "Idempotent-Replayed" not in first.headers
    rotated = Program(program.sponsor)
    assert rotated.send({"url": URL}, key="the only one", path=HOOKS).content == first.content
    assert program.client.delete(first.headers["Location"]).status_code == 204
    assert program.send({"url": URL}, key="the only one", path=HOOKS).content == first.content
    assert not Webhook.objects.exists(), "a late repeat makes nothing"
    assert KeptAnswer.objects.get().answer["body"] == first.content.decode()


def test_a_key_is_good_for_one_body_and_for_one_sponsors_mode():
    program = Program()
    assert program.send({"url": URL}, key="one", path=HOOKS).status_code == 201
    other = program.send({"url": URL, "events": ["message.failed"]}, key="one", path=HOOKS)
    problem(other, "idempotency-key-reused", 422)
    assert program.send({"url": URL}, key="two", path=HOOKS).status_code == 201
    assert Program().send({"url": URL}, key="one", path=HOOKS).status_code == 201
    test = Program(program.sponsor, "test").send({"url": URL}, key="one", path=HOOKS)
    assert test.status_code == 201 and test.json()["mode"] == "test"
    assert Webhook.objects.count() == 4
    assert program.send({"url": URL}, key="x" * 256, path=HOOKS).status_code == 422
    assert program.send({"url": URL}, key="é", path=HOOKS).status_code == 422


def test_what_was_refused_may_be_asked_again_with_the_same_key():
    program = Program()
    for _ in range(events.MOST_OF_A_PROGRAM):
        assert create(program).status_code == 201
    problem(program.send({"url": URL}, key="one", path=HOOKS), "state-conflict", 409)
    Webhook.objects.first().delete()
    assert program.send({"url": URL}, key="one", path=HOOKS).status_code == 201


@pytest.mark.django_db(transaction=True)
def test_many_at_once_with_the_same_key_make_one_webhook():
    program, gate = Program(), threading.Barrier(6)
    answers = []

    def ask():
        gate.wait()
        answers.append(program.send({"url": URL}, key="one", path=HOOKS))
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1 and Webhook.objects.count() == 1


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"url": "http://receiver.example/"}, "/url"),
        ({"url": "https://u:p@receiver.example/"}, "/url"),
        ({"url": "https://receiver.example/" + "x" * 500}, "/url"),
        ({"url": "https://a\0b/"}, "/url"),
        ({"events": ["message.read"]}, "/events/0"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_what_cannot_be_is_named(members, pointer, settings):
    settings.WEBHOOK_NETWORKS = []
    assert pointer in pointers(create(Program(), **members))
    assert not Webhook.objects.exists()


def test_a_program_has_so_many_webhooks_and_no_more():
    program = Program()
    for _ in range(events.MOST_OF_A_PROGRAM):
        assert create(program).status_code == 201
    problem(create(program), "state-conflict", 409)
    assert create(Program()).status_code == 201, "the others are not concerned"
    first = program.get(HOOKS).json()["data"][0]["id"]
    assert program.client.delete(f"{HOOKS}/{first}").status_code == 204
    problem(program.get(f"{HOOKS}/{first}"), "not-found", 404)
    assert create(program).status_code == 201


def test_during_a_rotation_both_secrets_sign_and_after_a_day_the_new_one_alone(receiver):
    program = Program()
    hook, old = events.create_webhook(program.sponsor, receiver.url, ["session.finished"], test=False)
    new = program.post(f"{HOOKS}/whk_{hook.pk}/rotate").json()["secret"]
    assert old != new
    (call,) = finished(program, [accepted()])
    deliver(call)
    ((headers, body, _),) = receiver.got
    assert Signer(old).verify(body, headers) == Signer(new).verify(body, headers)
    with time_machine.travel(timezone.now() + timedelta(hours=25)):
        assert events.repeat_call(call)
        deliver(call)
        _, (headers, body, _) = receiver.got
        assert Signer(new).verify(body, headers)
        with pytest.raises(WebhookVerificationError):
            Signer(old).verify(body, headers)


def test_the_calls_come_page_by_page_and_an_event_is_posted_again(receiver):
    program = Program()
    hook, _ = events.create_webhook(program.sponsor, receiver.url, [], test=False)
    for call in finished(program, [accepted(), refused()]):
        deliver(call)
    path, seen = f"{HOOKS}/whk_{hook.pk}/calls?limit=2", []
    while path:
        page = program.get(path).json()
        seen += page["data"]
        path = page["links"]["next"]
    assert [one["type"] for one in reversed(seen)] == ["message.sent", "message.failed", "session.finished"]
    assert {(one["tries"], one["http_status"], one["next_at"]) for one in seen} == {(1, 204, None)}
    again = program.post(f"{HOOKS}/whk_{hook.pk}/calls/{seen[0]['id']}/redeliver")
    assert (again.status_code, again.json()["id"], again.json()["tries"]) == (202, seen[0]["id"], 0)
    deliver(WebhookCall.objects.get(kind="session.finished").pk)
    assert [headers["webhook-id"] for headers, _, _ in receiver.got].count(seen[0]["id"]) == 2
    events.disable_webhook(hook, "the receiver answered 410 Gone")
    found = problem(program.post(f"{HOOKS}/whk_{hook.pk}/calls/{seen[0]['id']}/redeliver"), "state-conflict", 409)
    assert "410 Gone" in found["detail"]


@pytest.mark.django_db(transaction=True)
class TestRemovedMeanwhile:
    def test_while_a_vendors_report_is_stored_that_report_is_stored(self):
        program = Program()
        hook, _ = events.create_webhook(program.sponsor, URL, ["message.delivered"], test=False)
        finished(program, [accepted()])
        row, job = Message.objects.get(), Job.objects.get()
        answers = []

        def remove():
            answers.append(program.client.delete(f"{HOOKS}/whk_{hook.pk}").status_code)
            connection.close()

        thread = threading.Thread(target=remove)
        with transaction.atomic():
            taken = delivery_reports.store_reports(
                job.vendor_id, [Reported(row.reference, "delivered", timezone.now())]
            )
            thread.start()
            wait_until(lambda: answers or count_lock_waits(), "it is removed, or waits")
        thread.join()
        assert answers == [204] and len(taken.calls) == 1
        assert not Webhook.objects.exists() and not WebhookCall.objects.exists()
        assert Message.objects.get().report == "delivered"
        again = delivery_reports.store_reports(job.vendor_id, [Reported(row.reference, "bounced", timezone.now())])
        assert (again.changed, again.calls) == (1, ())

    def test_while_it_is_called_the_call_ends_quietly(self, receiver):
        program = Program()
        events.create_webhook(program.sponsor, receiver.url, ["session.finished"], test=False)
        (call,) = finished(program, [accepted()])
        answer = receiver.answer

        def removing(handler):
            Webhook.objects.all().delete()
            connection.close()
            answer(handler)

        receiver.answer = removing
        assert deliver(call) is None and len(receiver.got) == 1


@pytest.mark.parametrize("scopes", [("read",), ("send", "read")])
def test_it_needs_the_scope_ops(scopes):
    program = Program(scopes=scopes)
    problem(create(program), "forbidden", 403)
    problem(program.get(HOOKS), "forbidden", 403)


def test_an_answer_is_kept_for_a_month_and_then_deleted():
    program = Program()
    for key in ("old", "new"):
        assert program.send({"url": URL}, key=key, path=HOOKS).status_code == 201
    month = timezone.now() - timedelta(days=30, minutes=1)
    KeptAnswer.objects.filter(idempotency_key="old").update(created_at=month)
    tasks.delete_events()
    assert [one.idempotency_key for one in KeptAnswer.objects.all()] == ["new"]
