"""The API's suppressions: added, listed, lifted and erased by the sponsor's own key; asked by what it sends."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from campaigns.doors import filters
from campaigns.lists.intake import storage, suppression_file
from campaigns.models import Job, Message, Suppression
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from tests import factories
from tests.front.program import Program, api_vendor, fresh, letter, pointers, problem

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
HERE = "/api/v1/suppressions"


def asked(*addresses, **fields):
    return {
        "channel": "email",
        "suppressions": [{"address": one, "reason": "unsubscribed", **fields} for one in addresses],
    }


def named(*addresses):
    return {"channel": "email", "addresses": list(addresses)}


def listed(program, query=""):
    return [(row["address"], row["reason"]) for row in program.get(HERE + query).json()["data"]]


def test_what_a_key_adds_is_its_sponsors_and_a_repeat_changes_nothing():
    program, other = Program(), Program()
    body = asked("Ann@EXAMPLE.com", "bob@example.com")
    assert program.send(body, None, HERE).json() == {"changed": 2}
    assert program.send(body, None, HERE).json() == {"changed": 0}
    assert listed(program) == [("bob@example.com", "unsubscribed"), ("Ann@example.com", "unsubscribed")]
    assert listed(other) == []
    assert set(Suppression.objects.values_list("sponsor", "source")) == {(program.sponsor.pk, program.key.prefix)}


def test_pages_and_one_address_also_after_its_erasure():
    program = Program()
    program.send(asked(*[f"r{n}@example.com" for n in range(5)]), None, HERE)
    first = program.get(f"{HERE}?limit=3").json()
    second = program.get(first["links"]["next"]).json()
    assert [len(first["data"]), len(second["data"]), second["links"]["next"]] == [3, 2, None]
    assert program.send(named("R1@example.com", "unknown@example.com"), None, f"{HERE}/erase").json() == {"changed": 1}
    assert listed(program, "?channel=email&address=r1@example.com") == [(None, "unsubscribed")]
    assert pointers(program.get(f"{HERE}?address=r1@example.com")) == {"/channel": "missing"}


def test_lifting_ends_those_of_the_sponsor_only():
    program = Program()
    lists.add_suppressions(None, "email", [NewSuppression("ann@example.com", "stop")])
    program.send(asked("ann@example.com"), None, HERE)
    assert program.send(named("ann@example.com"), None, f"{HERE}/lift").json() == {"changed": 1}
    assert listed(program) == [] and Suppression.objects.filter(until=None).get().sponsor is None


def test_bad_values_are_told_by_their_pointers_and_nothing_is_stored():
    program = Program()
    body = asked("ann@example.com", "nobody", "x\0y@example.com")
    assert pointers(program.send(body, None, HERE)) == {
        "/suppressions/1/address": "address",
        "/suppressions/2/address": "address",
    }
    past = program.send(asked("ann@example.com", until="2020-01-01T00:00:00Z"), None, HERE)
    assert pointers(past) == {"/suppressions/0/until": "past"}
    assert program.send(asked(*[f"r{n}@example.com" for n in range(1001)]), None, HERE).status_code == 422
    assert not Suppression.objects.exists()


def test_only_a_live_key_with_the_scope_ops_changes_them():
    for program in (Program(kind="test"), Program(scopes=("send", "read"))):
        for path, body in (
            ("", asked("a@example.com")),
            ("/lift", named("a@example.com")),
            ("/erase", named("a@b.example")),
        ):
            problem(program.send(body, None, HERE + path), "forbidden", 403)


def test_a_request_stores_suppressed_recipients_with_their_end_and_says_so():
    program = Program()
    lists.add_suppressions(None, "email", [NewSuppression("ALL@sandbox.example", "complained")])
    program.send(asked("ann@sandbox.example"), None, HERE)
    lists.add_suppressions(factories.sponsor().pk, "email", [NewSuppression("bob@sandbox.example", "stop")])
    to = ["all@sandbox.example", "ann@sandbox.example", "bob@sandbox.example"]
    answer = program.send(letter(api_vendor(), to))
    session = program.get(answer.json()["links"]["self"]).json()
    assert (session["counts"]["suppressed"], session["counts"]["waiting"], session["accepted"]) == (2, 1, 3)
    page = program.get(answer.json()["links"]["messages"]).json()["data"]
    assert [row["status"] for row in page] == ["suppressed", "suppressed", "waiting"]
    assert page[0]["reason"] == {"code": "suppressed", "text": "nobody may write to this recipient: Complaint"}
    job = Job.objects.get()
    newest = Suppression.objects.order_by("-position").values_list("position", flat=True)[0]
    assert (job.suppressed, job.remaining_suppressed, job.suppressions) == (2, 0, newest)
    assert list(Message.objects.order_by("id").values_list("sent_at", flat=True)) == [None] * 3


def test_a_large_request_is_a_parent_that_knows_how_many_are_suppressed():
    program = Program()
    program.send(asked("r1@sandbox.example"), None, HERE)
    vendor = api_vendor(small_audience_threshold=2)
    program.send(letter(vendor, [f"r{n}@sandbox.example" for n in range(4)]))
    job = Job.objects.get()
    assert (job.status, job.remaining, job.remaining_suppressed, job.suppressed) == ("P_QUEUED", 4, 1, 1)


def test_where_nobody_is_suppressed_no_digest_is_made():
    Program().send(letter(api_vendor()))
    assert Job.objects.get().suppressions == 0
    assert json.dumps(list(Message.objects.values_list("error_code", flat=True))) == "[null]"


@pytest.mark.parametrize(("since", "stored"), [
    ("2024-05-11T20:39:37-20:32", "2024-05-12T17:11:37Z"), ("0001-01-01T00:00:00+02:00", "0001-01-03T00:00:00Z"),
])  # fmt: skip
def test_any_offset_is_a_time_of_utc(since, stored):
    """PostgreSQL refuses offsets of 16 hours and more, and Python cannot read what is before its year 1."""
    program = Program()
    assert program.send(asked("ann@example.com", since=since), None, HERE).json() == {"changed": 1}
    assert [row["since"] for row in program.get(HERE).json()["data"]] == [stored]


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Pacific/Kiritimati"])
def test_whose_end_or_beginning_is_that_of_all_times_is_shown_in_every_zone(admin_client, zone):
    """Programs write "for ever" as the last second that they know."""
    times = {"since": "0001-01-01T00:00:00Z", "until": "9999-12-31T23:59:59Z"}
    assert Program().send(asked("ann@example.com", **times), None, HERE).status_code == 200
    with timezone.override(zone):
        assert "9999" in admin_client.get("/admin/campaigns/suppression/").content.decode()
        assert "ann@example.com" in admin_client.get("/suppressions/").content.decode()


@pytest.mark.parametrize("read", [
    filters.parse_moment,
    lambda text: suppression_file.read_time(text, "until"),
    lambda text: storage.parse_moment(text, "--at"),
])  # fmt: skip
def test_so_it_is_at_the_doors_of_commands_and_files(read):
    assert read("2024-05-11T20:39:37-20:32") == datetime(2024, 5, 12, 17, 11, 37, tzinfo=UTC)
    assert read("2024-05-11T20:39:37-20:32").utcoffset() == timedelta(0)
