"""manage.py list_jobs: the look-ups of document 000, and where each message is."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from campaigns.models import Campaign, Job, Message, Sponsor
from campaigns.operations.job_commands import SHOWN
from tests import factories
from tests.campaigns.rows import accepted, expired, family, in_doubt, logged, recount, refused
from tests.terminal import Terminal
from vendors.management.output import fitting_columns

pytestmark = pytest.mark.django_db


@pytest.fixture
def listed(capsys: pytest.CaptureFixture) -> Any:
    def go(**options: Any) -> list[dict[str, Any]]:
        call_command("list_jobs", json=True, **options)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return go


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


class TestNumbers:
    def test_the_counts_of_a_finished_job_add_up_to_its_size(self, listed: Any) -> None:
        job = logged(6, [accepted(), accepted(), refused(), in_doubt(), expired()])
        (row,) = listed()
        assert row | {"created_at": "", "created": ""} == {
            "id": job.pk,
            "parent": None,
            "sponsor": job.campaign.sponsor.name,
            "campaign": job.campaign.name,
            "vendor": job.vendor.slug,
            "class": "bulk",
            "status": "LOGGED",
            "in_words": "Needs attention",
            "size": 6,
            "revision": 0,
            "waiting": 1,
            "in_flight": 0,
            "accepted": 2,
            "refused": 1,
            "expired": 1,
            "suppressed": 0,
            "in_doubt": 1,
            "delivered": 0,
            "bounced": 0,
            "units": 0,
            "created_at": "",
            "created": "",
            "next": "",
            "ahead": "",
            "first_at": None,
            "ends_at": None,
        }

    def test_a_job_that_waits_says_for_what_and_until_when(self, listed: Any) -> None:
        until = timezone.now() + timedelta(hours=2)
        reason = "sending hours: from 2026-03-01 08:00 Europe/London"
        factories.campaign_with_job(status="DISPATCHED", not_before=until, waits_for=reason)
        assert [row["next"] for row in listed()] == [reason]

    def test_a_job_for_later_says_so_also_after_it_was_stopped_and_resumed(self, listed: Any) -> None:
        job = factories.campaign_with_job(status="READY")
        send_at = timezone.now() + timedelta(days=3)
        Campaign.objects.filter(pk=job.campaign_id).update(send_at=send_at)
        assert [row["next"] for row in listed()] == [f"waits until {timezone.localtime(send_at):%d %b %H:%M}"]

    def test_calls_without_an_answer_are_in_flight(self, listed: Any) -> None:
        job = factories.campaign_with_job(5, status="SENDING", accepted=1)
        factories.claim(job, [0, 1, 2])
        Message.objects.filter(id=job.first_message).update(dequeued_at=timezone.now(), **accepted())
        (row,) = listed()
        assert [row[name] for name in ("waiting", "in_flight", "accepted")] == [2, 2, 1]
        assert row["in_words"] == "Sending"

    def test_a_parent_shows_the_sums_of_its_children_and_what_is_not_cut_yet(self, listed: Any) -> None:
        top, cut = family(parent="P_ASSIGNING", remaining=5, children=["LOGGED", "SENDING"])
        Job.objects.filter(pk=cut[0].pk).update(accepted=8, refused=2)
        factories.claim(cut[1], [0])
        rows = {row["id"]: row for row in listed(children=True)}
        sums = {name: rows[top.pk][name] for name in ("size", "waiting", "in_flight", "accepted", "refused")}
        assert sums == {"size": 25, "waiting": 14, "in_flight": 1, "accepted": 8, "refused": 2}
        assert rows[cut[0].pk]["parent"] == top.pk

    def test_however_many_jobs_it_takes_five_statements(self, listed: Any, django_assert_num_queries: Any) -> None:
        for _ in range(2):
            family(parent="P_ASSIGNING", remaining=5, children=["LOGGED", "SENDING"], each=2)
        with django_assert_num_queries(5):
            listed(children=True)
        family(parent="P_ASSIGNING", remaining=5, children=["SENDING"] * 6, each=2)
        with django_assert_num_queries(5):
            listed(children=True)


class TestFilters:
    def test_by_sponsor_vendor_and_status(self, listed: Any) -> None:
        one, two = factories.campaign_with_job(1, status="RENDERED"), factories.campaign_with_job(1, status="SENDING")
        assert ids(listed(sponsor=one.campaign.sponsor.name)) == [one.pk]
        assert ids(listed(vendor=two.vendor.slug)) == [two.pk]
        assert ids(listed(status="SENDING")) == ids(listed(status="sending")) == [two.pk]
        assert ids(listed(status="Rendered", vendor=two.vendor.slug)) == []

    @pytest.mark.parametrize(
        ("group", "members"),
        [
            ("Rendered", ["RENDERED"]),
            ("Dispatched", ["READY", "DISPATCHED", "P_QUEUED"]),
            ("Sending", ["ENQUEUED", "SENDING", "RECOVERING", "P_ASSIGNING"]),
        ],
    )
    def test_the_three_look_ups_of_the_print_dispatch(self, listed: Any, group: str, members: list[str]) -> None:
        login = factories.credential()
        for status in ("RENDERED", "READY", "DISPATCHED", "ENQUEUED", "SENDING", "RECOVERING", "LOGGED", "STOPPED"):
            factories.campaign_with_job(1, of=login, status=status)
        for status in ("P_QUEUED", "P_ASSIGNING"):
            factories.campaign_with_job(1, of=login, status=status)
        assert sorted(row["status"] for row in listed(status=group)) == sorted(members)

    def test_sent_in_capitals_is_the_status_and_otherwise_the_group(self, listed: Any) -> None:
        sent, done = factories.campaign_with_job(1, status="SENT"), factories.campaign_with_job(1, status="LOGGED")
        assert ids(listed(status="SENT")) == [sent.pk]
        assert ids(listed(status="Sent")) == [done.pk, sent.pk]

    def test_a_job_that_was_stopped_is_never_among_the_sent_ones(self, listed: Any) -> None:
        ended = factories.campaign_with_job(2, status="LOGGED")
        early = factories.campaign_with_job(2, status="LOGGED", stopped_at=timezone.now(), stopped_by="Ann")
        stopped = factories.campaign_with_job(2, status="STOPPED", stopped_at=timezone.now())
        assert ids(listed(status="Sent")) == [ended.pk]
        assert ids(listed(status="Stopped")) == [stopped.pk, early.pk]
        assert ids(listed(status="STOPPED")) == [stopped.pk], "in capitals it is the status"
        assert ids(listed(status="LOGGED")) == [early.pk, ended.pk]

    def test_a_range_of_time_is_half_open_and_in_the_current_zone(self, listed: Any) -> None:
        born = datetime(2026, 3, 28, 23, 0, tzinfo=UTC)  # midnight in Paris
        job = factories.campaign_with_job(1, created_at=born)
        assert ids(listed(since="2026-03-28T23:00:00+00:00", until="2026-03-28T23:00:01+00:00")) == [job.pk]
        assert ids(listed(until="2026-03-28T23:00:00Z")) == []
        with timezone.override("Europe/Paris"):
            assert ids(listed(since="2026-03-29", until="2026-03-30")) == [job.pk]
            assert ids(listed(since="2026-03-28", until="2026-03-29")) == []
            assert ids(listed(since="2026-03-29T00:00", until="2026-03-29T00:01")) == [job.pk]

    @pytest.mark.parametrize("zone", ["America/Los_Angeles", "UTC", "Pacific/Kiritimati"])
    def test_from_the_first_day_to_the_last_is_always(self, listed: Any, zone: str) -> None:
        job = factories.campaign_with_job(1)
        with timezone.override(zone):
            assert ids(listed(since="0001-01-01", until="9999-12-31")) == [job.pk]
            assert ids(listed(since="0001-01-01T00:00:00+16:00", until="9999-12-31T23:59:59-16:00")) == [job.pk]

    @pytest.mark.parametrize(
        ("option", "value", "complaint"),
        [
            ("sponsor", "nobody", "there is no sponsor 'nobody'"),
            ("vendor", "nowhere", "there is no vendor 'nowhere'"),
            ("status", "Gone", "'Gone' is not a status; there are Rendered, Dispatched"),
            ("since", "yesterday", "'yesterday' is not a date or time"),
            ("until", "2026-02-30", "'2026-02-30' is not a date or time"),
            ("limit", -1, "--limit is a number from 0 to 1,000,000,000"),
            ("limit", 10**30, "--limit is a number from 0 to 1,000,000,000"),
        ],
    )
    def test_what_is_unknown_is_named(self, option: str, value: Any, complaint: str) -> None:
        with pytest.raises(CommandError, match=complaint) as error:
            call_command("list_jobs", **{option: value})
        assert error.value.returncode == 1


class TestChildren:
    def test_a_parent_stands_for_its_children_unless_they_are_asked_for(self, listed: Any) -> None:
        top, cut = family(parent="P_ASSIGNING", remaining=5, children=["LOGGED", "SENDING"])
        assert ids(listed()) == [top.pk]
        assert sorted(ids(listed(children=True))) == sorted([top.pk, *(child.pk for child in cut)])

    def test_who_asks_for_an_end_of_messages_sees_the_child_that_it_is_in(self, listed: Any) -> None:
        top, (child,) = family(parent="P_ASSIGNED", remaining=0, children=["LOGGED"])
        Job.objects.filter(pk=child.pk).update(refused=1)
        (row,) = listed(status="Failed")
        assert (row["id"], row["parent"]) == (child.pk, top.pk)


class TestLimit:
    def test_a_program_gets_all_jobs_unless_it_asks_for_fewer(self, listed: Any) -> None:
        for _ in range(SHOWN + 1):
            factories.campaign_with_job(1)
        assert len(listed()) == SHOWN + 1
        assert len(listed(limit=2)) == 2

    def test_people_get_the_newest_and_hear_how_many_there_are(self, capsys: pytest.CaptureFixture) -> None:
        for _ in range(SHOWN + 1):
            factories.campaign_with_job(1)
        call_command("list_jobs")
        assert capsys.readouterr().out.endswith(f"the newest {SHOWN} of {SHOWN + 1} jobs; --limit 0 shows all\n")


class TestTable:
    def test_80_columns_show_whose_job_it_is_its_status_and_its_date(self, monkeypatch: pytest.MonkeyPatch) -> None:
        job = factories.campaign_with_job(1, status="DISPATCHED", waits_for="sending hours: from Monday 08:00")
        Campaign.objects.filter(pk=job.campaign_id).update(name="a long name " * 8)
        Sponsor.objects.update(name="Velma")
        monkeypatch.setenv("COLUMNS", "80")
        screen = Terminal()
        call_command("list_jobs", stdout=screen)
        lines = screen.lines()
        assert max(map(len, lines)) <= 80
        assert {"id", "sponsor", "campaign", "status", "created"} <= set(lines[0].split())
        assert {str(job.pk), "Velma", "DISPATCHED"} <= set(lines[1].split())
        assert f"{timezone.localtime(job.created_at):%Y-%m-%d %H:%M}" in lines[1]

    @pytest.mark.parametrize("name", ["a long name " * 8, "newsletter_of_november_" * 4])
    def test_120_columns_show_what_is_next_and_two_lines_of_a_long_name(
        self, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        job = factories.campaign_with_job(1_000_000, status="DISPATCHED", waits_for="sending hours", messages=False)
        Campaign.objects.filter(pk=job.campaign_id).update(name=name)
        Sponsor.objects.update(name="The Society of Friends of Long Names, Northern Branch")
        monkeypatch.setenv("COLUMNS", "120")
        screen = Terminal()
        call_command("list_jobs", stdout=screen)
        head, *lines = screen.lines()
        assert max(map(len, lines)) <= 120 and {"next", "vendor", "size"} <= set(head.split())
        at = head.index("campaign")
        shown = [line[at:].split("  ")[0] for line in lines if line[at : at + 1].strip()]
        assert len(shown) == 2 and shown[1].endswith("…") and name.startswith(shown[0])

    def test_the_newest_come_first_and_a_note_tells_how_many_there_are(self, capsys: pytest.CaptureFixture) -> None:
        jobs = [factories.campaign_with_job(1) for _ in range(3)]
        for job in jobs:
            factories.at_work(job.vendor)
        call_command("list_jobs", limit=2)
        head, *lines, note = capsys.readouterr().out.splitlines()
        shown = [line.split()[0] for line in lines if "READY" in line]  # a long name takes a second line
        assert head.split()[:3] == ["id", "sponsor", "campaign"]
        assert shown == [str(jobs[2].pk), str(jobs[1].pk)]
        assert note == "the newest 2 of 3 jobs; --limit 0 shows all"

    def test_no_jobs_are_no_error(self, capsys: pytest.CaptureFixture) -> None:
        call_command("list_jobs")
        assert capsys.readouterr().out == "nothing to show\n"


def test_all_labels_of_a_sum_come_from_the_messages(listed: Any) -> None:
    shapes = {
        "Sent": [accepted()] * 2,
        "Partly sent": [accepted(), refused()],
        "Failed": [refused(), expired()],
        "Expired": [expired()] * 2,
        "Needs attention": [accepted(), in_doubt()],
        "Stopped": [accepted()],
    }
    jobs = {logged(2, rows).pk: word for word, rows in shapes.items()}
    jobs[factories.campaign_with_job(2, status="DISPATCHED").pk] = "Waiting"
    jobs[recount(factories.campaign_with_job(2, status="SENDING")).pk] = "Sending"
    assert {row["id"]: row["in_words"] for row in listed()} == jobs


def test_on_a_narrow_terminal_columns_go_instead_of_breaking_numbers() -> None:
    rows = [{"id": 1_000_200, "sponsor": "Velma", "expired": 0, "next": "waits for its turn"}]
    columns, spare = ("id", "sponsor", "expired", "next"), ("expired", "sponsor")
    assert fitting_columns(columns, rows, spare, 200) == [*columns]
    assert fitting_columns(columns, rows, spare, 36) == ["id", "sponsor", "next"]
    assert fitting_columns(columns, rows, spare, 5) == ["id", "next"], "what is not spare stays"


def test_a_long_text_is_broken_before_a_column_goes() -> None:
    rows = [{"id": 7, "campaign": "Spring " * 20, "status": "SENDING"}]
    assert fitting_columns(("id", "campaign", "status"), rows, ("status",), 40) == ["id", "campaign", "status"]
