"""What needs attention, by its cause: one bad minute of a vendor is one decision, on the page and by the command."""

import re
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management.base import CommandError
from django.test import Client
from django.utils import timezone

from campaigns.engine import lifecycle
from campaigns.engine.doubts import causes
from campaigns.engine.doubts.causes import DoubtLook
from campaigns.engine.doubts.resolve import CannotResolve
from campaigns.models import Job, Message, Resolution
from campaigns.models.states import Status
from campaigns.operations import actions
from tests import factories
from tests.campaigns.rows import accepted, family, in_doubt, logged, manage, messages, recount, sound
from tests.campaigns.test_decisions import person
from tests.campaigns.test_locks import while_it_waits
from vendors.history import Actor

pytestmark = pytest.mark.django_db
ATTENTION = "/admin/campaigns/message/attention/"
AT = datetime(2026, 11, 22, 3, 32, 5, tzinfo=UTC)


def lost(seen: str | None = "http 503", at: datetime = AT) -> dict[str, Any]:
    return in_doubt() | {"sent_at": at, "error_sub_type": seen}


@pytest.fixture
def bad_minute() -> Job:
    """Eight messages of a job: five by one cause, three by others."""
    other_minute = AT.replace(minute=33)
    return logged(9, [accepted(), *[lost()] * 5, lost("timeout"), lost(None), lost(at=other_minute)])


@pytest.fixture
def parts() -> tuple[Job, list[Job]]:
    """A parent of three parts, of each of which two messages are in doubt by one cause."""
    top, children = family(parent=Status.P_FINISHED, remaining=0, children=[Status.LOGGED] * 3, each=2)
    for job in children:
        Message.objects.filter(id__gte=job.first_message, id__lt=job.end).update(dequeued_at=timezone.now(), **lost())
        recount(job)
    return top, children


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(person("operator", "all sponsors"))
    return client


def key(job: Job, seen: str = "http 503") -> str:
    return f"{job.pk} {job.vendor.slug} 2026-11-22T03:32Z {seen}"


def test_doubts_are_counted_by_job_minute_and_what_was_seen(bad_minute: Job) -> None:
    found = causes.list_causes(DoubtLook())
    assert [(one.messages, one.key) for one in found] == [
        (5, key(bad_minute)),
        (1, key(bad_minute, "")),
        (1, key(bad_minute, "timeout")),
        (1, f"{bad_minute.pk} {bad_minute.vendor.slug} 2026-11-22T03:33Z http 503"),
    ]
    for one in found:
        assert len(causes.messages_of(causes.parse_cause(one.key))) == one.messages
    assert causes.list_causes(DoubtLook(sponsors=[])) == []
    assert (
        causes.list_causes(DoubtLook(sponsor=bad_minute.sponsor_id, vendor=bad_minute.vendor_id, job=bad_minute))
        == found
    )
    assert causes.list_causes(DoubtLook(vendor=bad_minute.vendor_id + 1)) == []
    assert [one.messages for one in causes.list_causes(DoubtLook(since=AT.replace(minute=33)))] == [1]


def test_a_minute_without_a_next_one_names_no_cause(operator: Client, bad_minute: Job) -> None:
    forged = f"{bad_minute.pk} {bad_minute.vendor.slug} 9999-12-31T23:59Z http 503"
    assert operator.get(ATTENTION, {"cause": forged}).status_code == 404


def test_without_the_vendors_words_a_minute_is_one_cause(bad_minute: Job) -> None:
    first, second = causes.list_causes(DoubtLook(), texts=False)
    assert (first.messages, second.messages, first.seen) == (7, 1, None)
    assert len(causes.messages_of(causes.parse_cause(first.key))) == 7


class TestPartsOfOneJob:
    def test_are_one_cause_and_settled_together(self, operator: Client, parts: tuple[Job, list[Job]]) -> None:
        top, children = parts
        page = operator.get(ATTENTION).content.decode()
        assert page.count('class="job"') == 1 and f'value="{key(top)}"' in page
        chosen = {"cause": key(top), "decision": "sent"}
        shown = re.search('name="shown" value="([^"]+)"', operator.post(ATTENTION, chosen).content.decode())
        assert shown
        operator.post(ATTENTION, chosen | {"confirmed": "y", "shown": shown[1], "reason": "their web page has them"})
        assert Resolution.objects.filter(decision="sent").count() == 6
        assert [Job.objects.get(pk=one.pk).accepted for one in children] == [2, 2, 2] and sound()

    def test_a_change_in_any_part_refuses_what_was_shown(self, operator: Client, parts: tuple[Job, list[Job]]) -> None:
        top, children = parts
        chosen = {"cause": key(top), "decision": "resend"}
        shown = re.search('name="shown" value="([^"]+)"', operator.post(ATTENTION, chosen).content.decode())
        assert shown
        actions.settle_doubts([children[2].first_message], "sent", "by another", "bob")
        confirmed = chosen | {"confirmed": "y", "shown": shown[1], "reason": "-"}
        assert "look again" in operator.post(ATTENTION, confirmed, follow=True).content.decode()
        assert Resolution.objects.count() == 1

    def test_those_of_another_vendor_are_another_cause(self, parts: tuple[Job, list[Job]]) -> None:
        top, children = parts
        moved = factories.campaign_with_job(1)
        Job.objects.filter(pk=children[1].pk).update(vendor=moved.vendor, credential=moved.credential)
        found = causes.list_causes(DoubtLook())
        assert {(one.job_id, one.vendor, one.messages) for one in found} == {
            (top.pk, top.vendor.slug, 4),
            (top.pk, moved.vendor.slug, 2),
        }
        for one in found:
            assert len(causes.messages_of(causes.parse_cause(one.key))) == one.messages
        (one,) = causes.list_causes(DoubtLook(vendor=moved.vendor_id))
        assert one.messages == 2

    def test_one_part_that_is_asked_for_is_a_cause_of_its_own(self, parts: tuple[Job, list[Job]]) -> None:
        _top, (first, *_others) = parts
        (one,) = causes.list_causes(DoubtLook(job=first))
        assert (one.key, one.messages) == (key(first), 2)
        assert len(causes.messages_of(causes.parse_cause(one.key))) == 2

    def test_the_command_settles_all_of_them(self, parts: tuple[Job, list[Job]]) -> None:
        top, _children = parts
        (listed,) = manage("resolve", "--list", "--causes", "--json").splitlines()
        assert key(top) in listed
        assert "6 messages" in manage(
            "resolve", "--cause", key(top), "--as", "sent", "--reason", "they have it", "--yes"
        )
        assert Resolution.objects.count() == 6


@pytest.mark.parametrize(
    "key",
    [
        "",
        "x v 2026-11-22T03:32Z",
        "7",
        "7 v",
        "7 v yesterday",
        "7 2026-11-22T03:32Z",
        "9" * 30 + " v 2026-11-22T03:32Z",
    ],
)
def test_what_names_no_cause_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r"names no cause|does not match"):
        causes.parse_cause(key)


class TestThePage:
    def test_four_hundred_are_one_row_and_the_head_counts_all(self, operator: Client, bad_minute: Job) -> None:
        page = operator.get(ATTENTION).content.decode()
        assert "Needs attention: 8</h1>" in page
        assert page.count('class="job"') == 3 and "http 503" in page and "03:32" in page
        assert key(bad_minute).replace("03:32Z", "03:33Z") in page, "its minutes are one row, and can be chosen singly"

    def test_a_whole_cause_is_settled_after_its_numbers_were_shown(self, operator: Client, bad_minute: Job) -> None:
        chosen = {"cause": key(bad_minute), "decision": "sent"}
        asked = operator.post(ATTENTION, chosen).content.decode()
        assert f"5 of job {bad_minute.pk}, called at 22 Nov 03:32: http 503" in asked
        assert "It was sent: 5 messages" in asked and not Resolution.objects.exists()
        shown = re.search('name="shown" value="([^"]+)"', asked)
        assert shown
        confirmed = chosen | {"confirmed": "y", "shown": shown[1], "reason": "their web page has them"}
        operator.post(ATTENTION, confirmed)
        assert Resolution.objects.filter(decision="sent", reason="their web page has them").count() == 5
        assert LogEntry.objects.count() == 5
        assert Message.objects.filter(in_doubt_at__isnull=False).count() == 3
        answer = operator.post(ATTENTION, confirmed, follow=True).content.decode()
        assert "other messages are in doubt than were shown" in answer
        assert Resolution.objects.count() == 5, "the double click changed nothing"

    def test_the_decision_is_about_what_was_shown(self, operator: Client, bad_minute: Job) -> None:
        asked = operator.post(ATTENTION, {"cause": key(bad_minute), "decision": "resend"}).content.decode()
        shown = re.search('name="shown" value="([^"]+)"', asked)
        assert shown
        Message.objects.filter(pk=bad_minute.first_message + 6).update(error_sub_type="http 503")  # one more meanwhile
        confirmed = {"decision": "resend", "confirmed": "y", "reason": "-", "shown": shown[1], "cause": key(bad_minute)}
        assert "look again" in operator.post(ATTENTION, confirmed, follow=True).content.decode()
        assert not Resolution.objects.exists()

    def test_the_messages_of_a_cause_can_be_chosen_singly(self, operator: Client, bad_minute: Job) -> None:
        page = operator.get(ATTENTION, {"cause": key(bad_minute)}).content.decode()
        assert page.count('name="message"') == 5 and "All 5 of this cause" in page
        one = {"message": bad_minute.first_message + 1, "decision": "failed", "confirmed": "y", "reason": "not there"}
        operator.post(ATTENTION, one)
        assert [row.error_code for row in messages(bad_minute)[1:3]] == ["person", None]

    def test_the_vendors_are_asked_again_about_all_of_a_cause(self, operator: Client, bad_minute: Job) -> None:
        answer = operator.post(ATTENTION, {"cause": key(bad_minute), "decision": "ask"}, follow=True).content.decode()
        assert "asked about 5" in answer
        assert Message.objects.filter(settle_at__isnull=False).count() == 5

    def test_filters_narrow_it_and_a_bad_one_is_told(self, operator: Client, bad_minute: Job) -> None:
        for query, rows in (
            ({"vendor": bad_minute.vendor_id}, 3),
            ({"sponsor": bad_minute.sponsor_id, "job": bad_minute.pk}, 3),
            ({"from": "2026-11-23"}, 0),
            ({"from": "2026-11-22", "to": "2026-11-22"}, 3),
        ):
            assert operator.get(ATTENTION, query).content.decode().count('class="job"') == rows, query
        page = operator.get(ATTENTION, {"from": "2026-11-23", "to": "2026-11-01"}).content.decode()
        assert "the first day is after the last" in page

    def test_of_another_sponsor_nothing_is_shown_or_decided(self, client: Client, bad_minute: Job) -> None:
        ann = person("operator")
        client.force_login(ann)
        assert "Nothing needs attention" in client.get(ATTENTION).content.decode()
        assert client.get(ATTENTION, {"cause": key(bad_minute)}).status_code == 404
        client.post(ATTENTION, {"cause": key(bad_minute), "decision": "sent", "confirmed": "y", "reason": "-"})
        client.post(ATTENTION, {"cause": key(bad_minute), "decision": "ask"})
        assert not Resolution.objects.exists()

    def test_who_may_not_see_recipients_does_not_read_the_vendors_words(self, client: Client, bad_minute: Job) -> None:
        client.force_login(person("viewer", "all sponsors"))
        page = client.get(ATTENTION).content.decode()
        assert "http 503" not in page and page.count('class="job"') == 1
        assert client.get(ATTENTION, {"cause": key(bad_minute)}).status_code == 404

    def test_however_many_there_are_it_takes_the_same_statements(
        self, operator: Client, bad_minute: Job, django_assert_max_num_queries: Any
    ) -> None:
        for _ in range(3):
            logged(2, [lost("timeout")] * 2)
        operator.get(ATTENTION)
        with django_assert_max_num_queries(9):
            operator.get(ATTENTION)


class TestTheCommand:
    def test_causes_are_listed_and_settled_whole(self, bad_minute: Job) -> None:
        assert key(bad_minute) in manage("resolve", "--list", "--causes", "--json")
        how = ("--as", "sent", "--reason", "they have it", "--yes")
        assert "5 message" in manage("resolve", "--cause", key(bad_minute), *how, "--dry-run")
        assert not Resolution.objects.exists()
        assert "5 message" in manage("resolve", "--cause", key(bad_minute), *how)
        assert Resolution.objects.count() == 5

    def test_two_ways_of_naming_them_are_refused(self, bad_minute: Job) -> None:
        with pytest.raises(CommandError, match="say --list"):
            manage("resolve", "1", "--cause", key(bad_minute), "--as", "sent", "--reason", "x")


@pytest.mark.django_db(transaction=True)
def test_what_changes_before_the_lock_is_taken_is_noticed(bad_minute: Job) -> None:
    cause = causes.parse_cause(key(bad_minute))
    _, seen = causes.version_of_messages(causes.messages_of(cause))
    settle = partial(actions.settle_causes, [(cause, seen)], "sent", "asked Velma", Actor("bob"))

    def sent_again_by_another_and_in_doubt_once_more() -> None:
        with while_it_waits(settle):
            lifecycle.hold_jobs([bad_minute.pk])
            Message.objects.filter(pk=bad_minute.first_message + 1).update(resend_no=1)

    with pytest.raises(CannotResolve, match="other messages are in doubt than were shown"):
        sent_again_by_another_and_in_doubt_once_more()
    assert not Resolution.objects.exists()
