"""What became of a request: counts, messages page by page, waiting for the end, stop and retry."""

import threading
from collections import Counter

import pytest
from django.core.management import call_command
from django.db import transaction
from django.utils import timezone

from campaigns.engine.casting import mailcaster
from campaigns.engine.finishing import finalizer
from campaigns.integrations.results import writer
from campaigns.integrations.results import writer as result_store
from campaigns.models import Job, Message, Session
from tests import factories
from tests.campaigns.rows import accepted, in_doubt, recount, refused, statuses
from tests.front.program import Program, api_vendor, fresh, letter, pointers, problem
from tests.waiting import joined

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db


def addressees(number):
    return [{"to": f"p{n}@sandbox.example", "reference": f"r{n}"} for n in range(number)]


def sent(program, shapes, number=None):
    """A session whose first messages have these shapes, logged; the others were never called."""
    links = program.send(letter(api_vendor(), recipients=addressees(number or len(shapes)))).json()["links"]
    job = Job.objects.latest("id")
    end(job, shapes)
    return links, job


def end(job, shapes):
    for number, shape in enumerate(shapes):
        Message.objects.filter(id=job.first_message + number).update(dequeued_at=timezone.now(), **shape)
    Job.objects.filter(pk=job.pk).update(status="LOGGED", fence=1, finished_at=timezone.now())
    recount(Job.objects.get(pk=job.pk))


def test_a_fresh_session_waits():
    program = Program()
    links = program.send(letter(api_vendor(), recipients=addressees(3), metadata={"run": "1"})).json()["links"]
    session = program.get(links["self"]).json()
    assert (session["status"], session["finished"], session["accepted"]) == ("waiting", False, 3)
    assert session["counts"]["waiting"] == sum(session["counts"].values()) == 3
    assert session["metadata"] == {"run": "1"} and session["links"] == links


def test_a_finished_one_says_what_became_of_each_message():
    program = Program()
    links, _ = sent(program, [accepted("v-1"), refused(), in_doubt()])
    session = program.get(links["self"]).json()
    assert session["status"] == "needs_attention" and session["finished"]
    wanted = {
        "sent": 1,
        "delivered": 0,
        "bounced": 0,
        "failed": 1,
        "needs_attention": 1,
        "sending": 0,
        "expired": 0,
        "suppressed": 0,
        "stopped": 0,
    }
    assert session["counts"] == wanted
    rows = program.get(links["messages"]).json()["data"]
    assert [(row["reference"], row["status"]) for row in rows] == [
        ("r0", "sent"),
        ("r1", "failed"),
        ("r2", "needs_attention"),
    ]
    assert rows[0]["vendor_message_id"] == "v-1" and rows[0]["sent_at"] and rows[0]["reason"] is None
    assert rows[1]["reason"] == {"code": "bounce", "text": None}
    assert rows[2]["reason"] == {"code": "in_doubt", "text": "read timeout"}


def test_one_message_has_the_facts_that_the_page_of_its_session_has():
    program = Program()
    links, _ = sent(program, [accepted("v-1"), refused(), in_doubt()], number=4)
    for row in program.get(links["messages"]).json()["data"]:
        session = program.get(f"messages/{row['id']}").json()
        assert session.pop("session_id") == Session.objects.get().name
        assert session == row


@pytest.mark.parametrize("name", ["msg_0", "msg_", "x", "msg_" + "9" * 18, "msg_" + "9" * 19, "msg_\u0661"])
def test_what_is_no_message_is_not_found(name):
    problem(Program().get(f"messages/{name}"), "not-found", 404)


def test_the_messages_come_page_by_page_and_by_state():
    program = Program()
    links, _ = sent(program, [accepted(), refused()] * 5)
    path, seen = f"{links['messages']}?limit=4", []
    while path:
        page = program.get(path).json()
        assert len(page["data"]) <= 4
        seen += [row["reference"] for row in page["data"]]
        path = page["links"]["next"]
    assert seen == [f"r{number}" for number in range(10)]
    failed = program.get(f"{links['messages']}?status=failed&limit=3").json()
    assert [row["reference"] for row in failed["data"]] == ["r1", "r3", "r5"]
    rest = program.get(failed["links"]["next"]).json()
    assert [row["reference"] for row in rest["data"]] == ["r7", "r9"] and rest["links"]["next"] is None


def test_the_answer_is_the_same_from_the_result_server_and_from_the_rows():
    program = Program()
    links, _ = sent(program, [accepted("v-1"), refused()])
    from_rows = program.get(links["messages"]).json()
    session = Session.objects.get()
    writer.write_result(session.pk)
    session.refresh_from_db()
    assert session.shard == result_store.shard_of(session.pk) and session.finished_at
    assert result_store.get_result(session.shard, session.pk)["messages"][0]["vendor_message_id"] == "v-1"
    assert program.get(links["messages"]).json() == from_rows


def test_a_result_from_before_a_late_acceptance_is_not_believed():
    program = Program()
    links, job = sent(program, [in_doubt()])
    writer.write_result(Session.objects.get().pk)
    news = {"message_id": "late", "delivered_at": timezone.now(), "in_doubt_at": None, "error_sub_type": None}
    Message.objects.filter(id=job.first_message).update(**news)
    Job.objects.filter(pk=job.pk).update(accepted=1, in_doubt=0)
    assert program.get(links["messages"]).json()["data"][0]["status"] == "sent"
    assert program.get(links["self"]).json()["status"] == "sent"
    assert writer.left_behind() == [Session.objects.get().pk], "and its result is written again"


@pytest.mark.parametrize("name", ["ses_0", "x", "ses_" + "0" * 32, "ses_" + "G" * 32, "0" * 32])
def test_what_is_no_session_is_not_found(name):
    program = Program()
    problem(program.get(f"sessions/{name}"), "not-found", 404)
    problem(program.get(f"sessions/{name}/messages"), "not-found", 404)
    problem(program.post(f"sessions/{name}/stop"), "not-found", 404)


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "cursor=x", "cursor=msg_", "status=" + "x" * 31])
def test_a_page_that_cannot_be_is_refused(query):
    program = Program()
    links = program.send(letter(api_vendor())).json()["links"]
    found = problem(program.get(f"{links['messages']}?{query}"), "validation", 422)
    assert found["errors"][0]["parameter"] == query.partition("=")[0]


def test_a_stopped_session_calls_nobody_and_a_retry_sends_it_on():
    program = Program()
    links = program.send(letter(api_vendor(), recipients=addressees(2))).json()["links"]
    stopped = program.post(links["stop"])
    assert stopped.status_code == 202 and stopped.json()["changed"]
    session = stopped.json()["session"]
    assert session["status"] == "stopped" and session["counts"]["stopped"] == 2
    assert not program.post(links["stop"]).json()["changed"]
    job = Job.objects.get()
    assert job.stopped_by == program.key.prefix
    problem(program.post(links["retry"]), "state-conflict", 409)  # until it is finalised
    assert finalizer.finalise_job(job.pk)
    writer.write_result(Session.objects.get().pk)
    assert program.get(f"{links['messages']}?status=stopped").json()["data"][1]["reference"] == "r1"
    again = program.post(program.get(links["self"]).json()["links"]["retry"])
    assert again.status_code == 202 and again.json()["changed"] and again.json()["session"]["status"] == "waiting"
    assert Job.objects.get().status == "DISPATCHED"
    assert Session.objects.get().finished_at is None, "what was told before is not the last word"
    problem(program.post(links["retry"]), "state-conflict", 409)


def test_a_stop_stops_a_child_that_was_sent_again_after_the_stop_before_it():
    program, vendor = Program(), api_vendor(small_audience_threshold=4)
    for _ in range(2):
        factories.caster(vendor, min_size=2, max_size=2)
    links = program.send(letter(vendor, recipients=addressees(4))).json()["links"]
    top = Job.objects.get()
    for caster in vendor.mailcasters.all():
        assert mailcaster.claim_next_job(caster.pk, timezone.now())
    one, other = Job.objects.filter(parent=top).order_by("pk")
    assert "2 child jobs stopped" in program.post(links["stop"]).json()["told"]
    for child in (one, other):  # of each, the first message was called
        Message.objects.filter(pk=child.first_message).update(dequeued_at=timezone.now(), **in_doubt())
        assert finalizer.finalise_job(child.pk)
    call_command("retry_job", one.pk, yes=True)
    assert statuses(top, one, other) == ["P_ASSIGNED", "DISPATCHED", "LOGGED"]

    answer = program.post(links["stop"])
    assert answer.status_code == 202 and answer.json()["changed"]
    assert answer.json()["told"] == f"job {top.pk} and 1 child job stopped: no new call starts"
    assert statuses(top, one, other) == ["P_STOPPED", "STOPPED", "LOGGED"]
    top.refresh_from_db()
    one.refresh_from_db()
    assert top.stopped_by == one.stopped_by == program.key.prefix
    session = answer.json()["session"]
    assert (session["status"], session["finished"], session["finished_at"]) == ("needs_attention", False, None)
    counted = {name: count for name, count in session["counts"].items() if count}
    assert counted == {"needs_attention": 2, "stopped": 2}
    assert counted == Counter(row["status"] for row in program.get(links["messages"]).json()["data"])
    again = program.post(links["stop"]).json()
    assert (again["changed"], again["told"]) == (False, f"job {top.pk} is stopped already")


def test_nothing_that_was_accepted_is_sent_again():
    program = Program()
    links, job = sent(program, [accepted()])
    answer = program.post(links["retry"]).json()
    assert not answer["changed"] and "nothing to send again" in answer["told"]
    assert Job.objects.get(pk=job.pk).status == "LOGGED"


def test_prefer_wait_answers_at_once_when_there_is_nothing_to_wait_for():
    program = Program()
    links, _ = sent(program, [accepted()])
    answer = program.get(links["self"], Prefer="wait=30")
    assert answer.json()["finished"] and "Preference-Applied" not in answer.headers


def test_prefer_wait_is_over_when_its_time_is_over():
    program = Program()
    links = program.send(letter(api_vendor())).json()["links"]
    answer = program.get(links["self"], Prefer="respond-async, wait=1")
    assert answer.headers["Preference-Applied"] == "wait=1" and answer.json()["status"] == "waiting"


@pytest.mark.django_db(transaction=True)
def test_prefer_wait_answers_when_something_has_happened():
    program = Program()
    links = program.send(letter(api_vendor())).json()["links"]
    job, answers = Job.objects.get(), []

    def ask():
        from django.db import connection

        answers.append(program.get(links["self"], Prefer="wait=30").json())
        connection.close()

    waiting = threading.Thread(target=ask)
    waiting.start()
    with transaction.atomic():
        end(job, [accepted()])
    joined(waiting)
    assert answers[0]["status"] == "sent"


def test_a_wrong_recipient_is_named_by_its_pointer():
    assert pointers(Program().send(letter(api_vendor(), "x"))) == {"/recipients/0/to": "address"}
