"""What operators decide in the admin: in numbers, on record, within what they may see."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client

from campaigns.models import Message, Resolution
from mailhub import roles
from tests import factories
from tests.campaigns.rows import accepted, in_doubt, logged, messages, refused, statuses

pytestmark = pytest.mark.django_db
JOBS, ATTENTION = "/admin/campaigns/job/", "/admin/campaigns/message/attention/"


def person(*groups: str, name: str = "ann") -> User:
    roles.create()
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
        page = flat(operator.get(ATTENTION))
        assert "read timeout" in page and job.vendor.slug in page and "r1@sandbox.example" in page
        assert "r2@sandbox.example" not in page

    def test_sending_again_warns_first_and_then_does_it(self, operator: Client) -> None:
        job = logged(1, [in_doubt()])
        chosen = {"message": [job.first_message], "decision": "resend"}
        page = flat(operator.post(ATTENTION, chosen))
        assert "these people get them twice" in page and not Resolution.objects.exists()
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


class TestRoles:
    def test_a_viewer_sees_masked_recipients_and_decides_nothing(self, client: Client) -> None:
        client.force_login(person("viewer", "all sponsors"))
        job = logged(1, [in_doubt()])
        page = client.get(ATTENTION).content.decode()
        assert "r…@sandbox.example" in page and "r1@" not in page and "It was sent" not in page
        assert client.post(ATTENTION, {"message": [job.first_message], "decision": "sent"}).status_code == 403
        for path in ("", f"{job.first_message}/change/"):
            assert "r1@" not in client.get(f"/admin/campaigns/message/{path}").content.decode()
        assert 'value="retry"' not in client.get(f"{JOBS}{job.pk}/change/").content.decode()

    def test_without_all_sponsors_a_person_sees_those_that_name_the_person(self, client: Client) -> None:
        ann = person("operator")
        client.force_login(ann)
        mine, other = logged(1, [in_doubt()]), logged(1, [in_doubt()])
        mine.sponsor.people.add(ann)
        assert [row.pk for row in client.get(JOBS).context["cl"].result_list] == [mine.pk]
        assert client.get(f"{JOBS}{other.pk}/change/", follow=True).redirect_chain
        for path in ("campaign/", "message/", "message/attention/", "resolution/", "sponsor/"):
            page = client.get(f"/admin/campaigns/{path}").content.decode()
            assert other.campaign.name not in page and other.sponsor.name not in page
        client.post(
            JOBS, {"action": "retry", "confirmed": "Y", "shown": [f"{other.pk}:0"], "_selected_action": [other.pk]}
        )
        assert statuses(other) == ["LOGGED"] and not LogEntry.objects.exists()
        client.post(ATTENTION, {"message": [other.first_message], "decision": "sent", "confirmed": "Y", "reason": "-"})
        assert messages(other)[0].in_doubt_at

    def test_the_groups_are_made_once_and_stay_as_people_change_them(self, db: None) -> None:
        roles.create()
        group = Group.objects.get(name="viewer")
        group.permissions.clear()
        roles.create()
        assert not group.permissions.exists()
        assert Group.objects.get(name="vendor admin").permissions.filter(codename="change_vendor").exists()
