"""Why messages of a session failed, and its report as a file."""

import pytest

from campaigns.models import Job
from tests.campaigns.rows import accepted, refused
from tests.front.program import Program, api_vendor, fresh, letter, problem
from tests.front.test_sessions import end

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def session():
    """A program with a session: one message sent, one refused."""
    program = Program()
    recipients = [{"to": f"{name}@sandbox.example", "fields": {"name": name}} for name in ("ann", "bob")]
    sent = program.send(letter(api_vendor(), recipients=recipients), "a-key-of-its-own")
    assert sent.status_code == 202, sent.content
    end(Job.objects.get(session__sponsor=program.sponsor), [accepted(), refused() | {"cause": "us"}])
    return program, f"/api/v1/sessions/{sent.json()['id']}"


def test_reasons(session):
    program, path = session
    assert program.client.get(f"{path}/reasons").json() == {
        "data": [
            {
                "reason": "vendor:bounce",
                "status": "failed",
                "text": "The vendor has refused it because of our account or sender, with its code bounce.",
                "messages": 1,
                "causes": {"us": 1},
            }
        ]
    }


def test_the_report_as_a_file(session):
    program, path = session
    answer = program.client.get(f"{path}/report")
    lines = answer.content.decode("utf-8-sig").splitlines()
    assert len(lines) == 3 and lines[1].startswith("ann@sandbox.example,ann,Sent")
    failed = program.client.get(f"{path}/report?status=failed,bounced").content.decode()
    assert failed.count("@sandbox.example") == 1
    assert program.client.get(f"{path}/report?format=xlsx").content[:2] == b"PK"
    problem(program.client.get(f"{path}/report?status=nonsense"), "validation", 422)
    problem(program.client.get(f"{path}/report?format=pdf"), "validation", 422)


def test_messages_and_the_report_by_cause(session):
    program, path = session
    messages = program.client.get(f"{path}/messages").json()["data"]
    assert [one["cause"] for one in messages] == [None, "us"]
    (blamed,) = program.client.get(f"{path}/messages?cause=us,capacity").json()["data"]
    assert blamed["id"] == messages[1]["id"] and blamed["cause"] == "us"
    assert program.client.get(f"/api/v1/messages/{blamed['id']}").json()["cause"] == "us"
    assert program.client.get(f"{path}/messages?cause=recipient").json()["data"] == []
    following = program.client.get(f"{path}/messages?cause=us&limit=1").json()["links"]
    assert "cause=us" in following["self"] and following["next"] is None
    report = program.client.get(f"{path}/report?cause=us").content.decode("utf-8-sig").splitlines()
    assert len(report) == 2 and report[1].startswith("bob@") and report[1].endswith(",Our account")
    problem(program.client.get(f"{path}/messages?cause=fate"), "validation", 422)
    problem(program.client.get(f"{path}/report?cause=fate"), "validation", 422)
