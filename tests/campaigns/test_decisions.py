"""What operators decide in the admin: in numbers, on record, within what they may see."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from campaigns.engine.doubts import causes
from campaigns.engine.doubts.causes import DoubtLook
from campaigns.models import Message, Resolution
from mailhub import installation
from tests import factories
from tests.campaigns.rows import accepted, family, in_doubt, logged, messages, recount, refused, statuses

pytestmark = pytest.mark.django_db
JOBS, ATTENTION = "/admin/campaigns/job/", "/admin/campaigns/message/attention/"


def person(*groups: str, name: str = "ann") -> User:
    made = User.objects.create(username=name, is_staff=True)
    made.groups.set(Group.objects.filter(name__in=groups))
    return made


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(person("operator", "all sponsors"))
    return client


def flat(response: Any) -> str:
    return " ".join(response.content.decode().split())


class TestDispatchNow:
    def test_a_rendered_job_goes_out_before_its_night_and_the_reason_is_kept(self, operator: Client) -> None:
        job, sent = factories.campaign_with_job(3, status="RENDERED"), logged(1, [accepted()])
        press = {"action": "dispatch_now", "_selected_action": [job.pk, sent.pk]}
        page = flat(operator.post(JOBS, press))
        assert "1 job: <b>3</b> messages will go out now" in page
        assert "1 of the chosen jobs is left alone" in page and f"job {sent.pk} (" in page
        assert statuses(job) == ["RENDERED"]
        shown = {"confirmed": "Yes", "shown": [f"{job.pk}:{job.revision}"], "reason": "Velma called"}
        operator.post(JOBS, {**press, **shown})
        assert statuses(job, sent) == ["DISPATCHED", "LOGGED"]
        (entry,) = LogEntry.objects.all()
        assert (entry.user.username, entry.object_id) == ("ann", str(job.pk))
        assert entry.change_message == f"job {job.pk} dispatched. Reason: Velma called"

    @pytest.mark.parametrize(
        ("status", "offered"),
        [("RENDERED", ["dispatch_now", "stop"]), ("SENDING", ["stop"]), ("LOGGED", ["retry"]), ("STOPPED", ["retry"])],
    )
    def test_a_jobs_page_offers_what_is_legal_now(self, operator: Client, status: str, offered: list[str]) -> None:
        job = factories.campaign_with_job(1, status=status)
        page = operator.get(f"{JOBS}{job.pk}/change/").content.decode()
        assert [name for name in ("dispatch_now", "stop", "retry") if f'value="{name}"' in page] == offered

    def test_a_command_is_on_record_too(self) -> None:
        job = factories.campaign_with_job(1)
        call_command("stop_job", job.pk, by="bob", reason="wrong list")
        entry = LogEntry.objects.get()
        assert entry.user.username == "command line" and not entry.user.is_active
        assert entry.change_message == f"job {job.pk} stopped: no new call starts by bob. Reason: wrong list"


class TestNeedsAttention:
    def test_the_page_shows_what_a_person_has_to_know(self, operator: Client) -> None:
        job = logged(2, [in_doubt(), accepted()])
        assert "read timeout" in flat(operator.get(ATTENTION))
        (cause,) = causes.list_causes(DoubtLook())
        page = flat(operator.get(ATTENTION, {"cause": cause.key}))
        assert "read timeout" in page and job.vendor.slug in page and "r1@sandbox.example" in page
        assert "r2@sandbox.example" not in page

    def test_sending_again_warns_first_and_then_does_it(self, operator: Client) -> None:
        job = logged(1, [in_doubt()])
        chosen = {"message": [job.first_message], "decision": "resend"}
        page = flat(operator.post(ATTENTION, chosen))
        assert "their recipients get them twice" in page and not Resolution.objects.exists()
        operator.post(ATTENTION, {**chosen, "confirmed": "Yes", "reason": "asked Velma"})
        assert statuses(job) == ["DISPATCHED"]
        assert Resolution.objects.get().decided_by == "ann"
        assert LogEntry.objects.get().change_message == "settled as send again. Reason: asked Velma"

    def test_without_a_reason_nothing_is_settled(self, operator: Client) -> None:
        job = logged(1, [in_doubt()])
        chosen = {"message": [job.first_message], "decision": "sent", "confirmed": "Yes"}
        assert "a reason is kept" in operator.post(ATTENTION, chosen, follow=True).content.decode()
        assert messages(job)[0].in_doubt_at

    def test_asking_again_makes_it_due_now(self, operator: Client) -> None:
        job = logged(1, [in_doubt()])
        operator.post(ATTENTION, {"message": [job.first_message], "decision": "ask"})
        assert Message.objects.get(pk=job.first_message).settle_at

    def test_a_job_with_doubts_is_found_by_its_tab(self, operator: Client) -> None:
        job, _ = logged(1, [in_doubt()]), logged(1, [refused()])
        listed = operator.get(JOBS, {"status": "Needs attention"}).context["cl"].result_list
        assert [row.pk for row in listed] == [job.pk]

    def test_a_jobs_page_leads_to_its_own_doubts(self, operator: Client) -> None:
        job, other = logged(2, [in_doubt(), in_doubt()]), logged(1, [in_doubt()])
        link = f"{ATTENTION}?job={job.pk}"
        assert f'href="{link}"' in operator.get(f"{JOBS}{job.pk}/change/").content.decode()
        groups = operator.get(link).context["groups"]
        assert [(one.first.job_id, one.messages) for one in groups] == [(job.pk, 2)]
        chosen = {"message": [job.first_message, other.first_message], "decision": "sent"}
        operator.post(link, {**chosen, "confirmed": "Yes", "reason": "their list"})
        assert not messages(job)[0].in_doubt_at and messages(other)[0].in_doubt_at, "what is not shown is not decided"

    def test_bad_minutes_of_one_job_are_one_row_and_are_decided_together(self, operator: Client) -> None:
        job, other = logged(6, [in_doubt()] * 6), logged(1, [in_doubt()])
        for minute in range(3):
            of = Message.objects.filter(id__in=[job.first_message + 2 * minute, job.first_message + 2 * minute + 1])
            of.update(sent_at=timezone.now() - timedelta(minutes=2 * minute), error_sub_type="no answer within 90 s")
        page = operator.get(ATTENTION)
        group, single = page.context["groups"]
        assert (group.messages, len(group.causes), single.messages) == (6, 3, 1)
        assert page.content.decode().count('class="pick"') == 2
        asked = operator.post(ATTENTION, {"causes": group.keys, "decision": "sent"})
        shown = {"cause": [cause.key for cause, _ in asked.context["causes"]]}
        shown["shown"] = [version for _, version in asked.context["causes"]]
        operator.post(ATTENTION, {**shown, "decision": "sent", "confirmed": "Yes", "reason": "their list"})
        assert not any(one.in_doubt_at for one in messages(job)) and messages(other)[0].in_doubt_at

    @pytest.mark.parametrize("typed", ["", "{", "7", "[7]", '["no cause"]', '{"a": 1}'])
    def test_what_is_no_group_chooses_nothing(self, operator: Client, typed: str) -> None:
        job = logged(1, [in_doubt()])
        answer = operator.post(ATTENTION, {"causes": typed, "decision": "sent"}, follow=True)
        assert "Choose what needs attention" in answer.content.decode() and messages(job)[0].in_doubt_at


class TestRoles:
    def test_a_viewer_sees_masked_recipients_and_decides_nothing(self, client: Client) -> None:
        client.force_login(person("viewer", "all sponsors"))
        job = logged(1, [in_doubt()])
        Message.objects.update(error_sub_type="450 r1@sandbox.example: try again")
        (cause,) = causes.list_causes(DoubtLook(), texts=False)
        page = client.get(ATTENTION, {"cause": cause.key}).content.decode()
        assert "r1@" not in client.get(ATTENTION).content.decode()
        assert "450 r…@sandbox.example: try again" in page
        assert "r…@sandbox.example" in page and "r1@" not in page and "It was sent" not in page
        assert client.post(ATTENTION, {"message": [job.first_message], "decision": "sent"}).status_code == 403
        settled = Resolution.objects.create(
            message_id=job.first_message,
            decision="sent",
            reason="-",
            decided_by="ann",
            evidence="450 r1@sandbox.example",
        )
        for path in (
            "message/",
            f"message/{job.first_message}/change/",
            "resolution/",
            f"resolution/{settled.pk}/change/",
        ):
            page = client.get(f"/admin/campaigns/{path}")
            assert page.status_code == 200 and "r1@" not in page.content.decode()
        assert 'value="retry"' not in client.get(f"{JOBS}{job.pk}/change/").content.decode()

    def test_without_all_sponsors_a_person_sees_those_that_name_the_person(self, client: Client) -> None:
        ann = person("operator")
        client.force_login(ann)
        mine, other = logged(1, [in_doubt()]), logged(1, [in_doubt()])
        mine.sponsor.users.add(ann)
        assert [row.pk for row in client.get(JOBS).context["cl"].result_list] == [mine.pk]
        assert client.get(f"{JOBS}{other.pk}/change/", follow=True).redirect_chain
        for path in ("campaign/", "message/", "message/attention/", "resolution/", "sponsor/"):
            page = client.get(f"/admin/campaigns/{path}").content.decode()
            assert other.campaign.name not in page and other.sponsor.name not in page
        assert client.get(f"{ATTENTION}?job={other.pk}").status_code == 404
        page = client.get(f"/admin/campaigns/message/?campaign={other.campaign_id}", follow=True).content.decode()
        assert other.campaign.name not in page, "nor by its number"
        client.post(
            JOBS, {"action": "retry", "confirmed": "Y", "shown": [f"{other.pk}:0"], "_selected_action": [other.pk]}
        )
        assert statuses(other) == ["LOGGED"] and not LogEntry.objects.exists()
        client.post(ATTENTION, {"message": [other.first_message], "decision": "sent", "confirmed": "Y", "reason": "-"})
        assert messages(other)[0].in_doubt_at

    def test_the_groups_are_made_once_and_stay_as_users_change_them(self, db: None) -> None:
        installation.create_groups()
        group = Group.objects.get(name="viewer")
        group.permissions.clear()
        installation.create_groups()
        assert not group.permissions.exists()
        assert Group.objects.get(name="vendor admin").permissions.filter(codename="change_vendor").exists()


class TestFlags:
    """The commands take the admin's look-ups."""

    def test_where_nothing_can_be_done_nobody_is_asked(self, capsys: pytest.CaptureFixture) -> None:
        job = logged(1, [accepted()])
        for command in ("stop_job", "retry_job"):
            call_command(command, vendor=job.vendor.slug)
            assert " 0 " in capsys.readouterr().out
            call_command(command, vendor=job.vendor.slug, json=True)
            assert '"dry_run":false,"jobs":0' in capsys.readouterr().out

    def test_what_failed_is_sent_again_by_sponsor_after_a_yes(self, capsys: pytest.CaptureFixture) -> None:
        mine, other = logged(3, [accepted(), refused(), refused()]), logged(1, [refused()])
        name = mine.sponsor.name
        call_command("retry_job", sponsor=name, status="Failed", dry_run=True)
        assert "2 refused and 0 never called messages of 1 job" in capsys.readouterr().out
        with pytest.raises(CommandError, match="add --yes"):
            call_command("retry_job", sponsor=name)
        assert statuses(mine) == ["LOGGED"]
        call_command("retry_job", sponsor=name, status="Failed", yes=True)
        assert statuses(mine, other) == ["DISPATCHED", "LOGGED"]

    def test_by_campaign_and_date(self, capsys: pytest.CaptureFixture) -> None:
        mine, other = factories.campaign_with_job(4), factories.campaign_with_job(1)
        call_command("stop_job", campaign=mine.campaign.name, since="2020-01-01", dry_run=True)
        assert "stops 1 job with 4 messages" in capsys.readouterr().out
        call_command("stop_job", campaign=str(mine.campaign_id), yes=True)
        assert statuses(mine, other) == ["STOPPED", "READY"]

    def test_ids_and_flags_together_are_a_mistake(self) -> None:
        for options in ({}, {"sponsor": "Velma"}):
            ids = [1] if options else []
            with pytest.raises(CommandError, match="name the jobs"):
                call_command("retry_job", *ids, **options)

    def test_failures_in_the_parts_of_a_parent_are_found(self, capsys: pytest.CaptureFixture) -> None:
        top, (part, whole) = family(parent="P_FINISHED", remaining=0, children=["LOGGED", "LOGGED"], each=2)
        Message.objects.filter(id__gte=top.first_message, id__lt=top.end).update(
            dequeued_at=timezone.now(), **accepted()
        )
        Message.objects.filter(id=part.first_message).update(message_id=None, **refused())
        recount(part), recount(whole)
        call_command("retry_job", vendor=top.vendor.slug, status="failed", yes=True)
        assert statuses(top, part, whole) == ["P_ASSIGNED", "DISPATCHED", "LOGGED"]
