"""The page of one campaign: how it stands, why messages failed, its recipients, and decisions about it."""

import json
import re
from html import unescape
from io import StringIO

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.db.models import Q
from django.utils import timezone

from campaigns.doors import polling
from campaigns.models import Campaign, ComplaintPause, Job, Message
from tests import factories
from tests.campaigns.rows import accepted, expired, family, in_doubt, logged, recount, refused
from vendors import prices
from vendors.models import Price

pytestmark = pytest.mark.django_db
STALE = "omebody else has just decided"


@pytest.fixture
def campaign(owner):
    """A finished campaign of Ann's sponsor: 3 sent, 2 failed, one expired, one in doubt, one never called."""
    made = logged(8, [accepted()] * 3 + [refused()] * 2 + [expired(), in_doubt()])
    made.campaign.sponsor.users.add(owner)
    return made.campaign


@pytest.fixture
def waiting(owner):
    """A campaign that waits for its mailcaster."""
    made = factories.campaign_with_job(5, status="DISPATCHED")
    made.campaign.sponsor.users.add(owner)
    return made.campaign


def text(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())).split())


def post(client, campaign, verb, **more):
    """Confirms the decision as its page shows it."""
    path = f"/campaigns/{campaign.pk}/{verb}/"
    shown = re.findall(r'name="shown" value="([^"]+)"', client.get(path).content.decode())
    return client.post(path, {"shown": shown, "reason": "wrong date", **more}, follow=True)


def test_the_page_says_what_came_of_the_campaign(client, campaign):
    page = text(client, f"/campaigns/{campaign.pk}/")
    assert "Needs attention It has ended. Of some messages it is not known whether they were sent." in page
    assert "Sent 3" in page and "Failed 2" in page and "Expired 1" in page
    assert "2 The vendor has refused it, with its code bounce. Failed" in page
    assert "1 It was not sent before its deadline. Expired" in page


def test_it_says_why_it_waits_and_names_the_zone(client, waiting):
    page = text(client, f"/campaigns/{waiting.pk}/")
    assert "Waiting Nothing has been sent yet. Nobody takes it at present: an operator has to enable" in page
    Campaign.objects.filter(pk=waiting.pk).update(send_at="2039-01-31T18:00:00Z")
    Job.objects.filter(campaign=waiting).update(not_before="2039-01-31T18:00:00Z")
    assert "Waits until 31 Jan 18:00 (UTC)." in text(client, f"/campaigns/{waiting.pk}/")


def test_it_says_to_which_provider_its_mail_waits_for_an_operator(client, waiting):
    of = {"since": timezone.now(), "complaints": 4, "accepted": 1000, "limit": 0.3}
    pause = ComplaintPause.objects.create(sponsor=waiting.sponsor, receiver="gmail", **of)
    page = text(client, f"/campaigns/{waiting.pk}/")
    assert "mail to gmail waits since" in page and "until an operator resumes it" in page
    assert "0.40% of 1,000 accepted complained (4); the limit is 0.3%" in page
    single = factories.campaign_with_job(1, by=waiting.sponsor, of=waiting.credential, status="DISPATCHED")
    assert "gmail" not in text(client, f"/campaigns/{single.campaign_id}/")
    ComplaintPause.objects.filter(pk=pause.pk).update(resumed_at=timezone.now())
    assert "gmail" not in text(client, f"/campaigns/{waiting.pk}/")


def test_what_was_begun_and_cannot_go_on_is_not_said_to_be_sent(client, admin_client, waiting):
    job = Job.objects.get(campaign=waiting)
    Message.objects.filter(pk=job.first_message).update(dequeued_at=timezone.now(), **accepted())
    recount(job)
    path = f"/campaigns/{waiting.pk}/"
    why = "Part of it has been sent. Nothing is sent at the moment. Nobody takes it at present: an operator"
    assert f"Waiting {why}" in text(client, path) and why in text(client, f"{path}report/")
    lists = "/admin/campaigns/job/", "/admin/campaigns/campaign/"
    for page in lists:
        shown = admin_client.get(page).content.decode()
        assert ">Waiting<" in shown and "badge going" not in shown, page
    said = StringIO()
    call_command("list_jobs", "--json", stdout=said)
    assert json.loads(said.getvalue().splitlines()[0])["in_words"] == "Waiting"
    factories.at_work(waiting.credential.vendor)
    assert "Sending It is being sent." in text(client, path)
    assert all("badge going" in admin_client.get(page).content.decode() for page in lists)


def test_doubts_are_neither_sent_nor_failed(client, waiting):
    job = Job.objects.get(campaign=waiting)
    Message.objects.filter(pk=job.first_message).update(dequeued_at=timezone.now(), **in_doubt())
    recount(job)
    path = f"/campaigns/{waiting.pk}/"
    for shown in (text(client, path), text(client, f"{path}report/")):
        assert "Waiting Nothing is sent at the moment." in shown and "Needs attention" in shown
        assert "Part of it has been sent" not in shown and "Why did they fail?" not in shown
    Message.objects.filter(pk=job.first_message + 1).update(dequeued_at=timezone.now(), **refused())
    recount(job)
    assert "Why did they fail?" in text(client, path) and "Why did they fail?" in text(client, f"{path}report/")


PAGES = ("", "live/", "failures/", "parts/", "recipients/", "stop/", "pause/", "resume/", "retry/")


@pytest.mark.parametrize("page", PAGES)
def test_no_page_of_another_sponsors_campaign(client, owner, page):
    theirs = factories.campaign_with_job(3, status="DISPATCHED").campaign
    path = f"/campaigns/{theirs.pk}/{page}"
    assert client.get(path).status_code == 404
    assert client.post(path, {"shown": "1:0", "reason": "mine now"}).status_code == 404
    assert client.get(f"/campaigns/{theirs.pk + 999}/{page}").status_code == 404


def test_a_poll_gets_nothing_new_and_what_is_over_is_not_polled(client, waiting, campaign, monkeypatch):
    monkeypatch.setattr(polling, "SHARE", 0)  # however busy this machine is
    page = client.get(f"/campaigns/{waiting.pk}/").content.decode()
    seen = re.search(r'"seen": "([\w-]+)"', page)[1]
    live = f"/campaigns/{waiting.pk}/live/"
    assert (client.get(live, {"seen": seen}).status_code, client.get(live).status_code) == (204, 200)
    job = Job.objects.get(campaign=waiting)
    Message.objects.filter(id=job.first_message).update(dequeued_at="2026-01-01T00:00:00Z", **refused())
    Job.objects.filter(pk=job.pk).update(refused=1)
    assert client.get(live, {"seen": seen}).status_code == 200
    assert "hx-trigger" not in client.get(f"/campaigns/{campaign.pk}/live/").content.decode()
    monkeypatch.setattr(polling, "SHARE", 1e9)
    seen = re.search(r'"seen": "([\w-]+)"', client.get(live).content.decode())[1]
    assert seen.endswith("-60") and client.get(live, {"seen": seen}).status_code == 204
    slower = client.get(live, {"seen": seen.replace("-60", "-2")})
    assert 'hx-trigger="every 60s"' in slower.content.decode()


def test_recipients_by_state_and_reason(client, campaign, owner):
    path = f"/campaigns/{campaign.pk}/recipients/"
    everybody, failed = text(client, path), text(client, f"{path}?state=failed&reason=vendor:bounce")
    assert everybody.count("@sandbox.example") == 8
    assert failed.count("@sandbox.example") == 2 and "r4@sandbox.example" in failed
    Message.objects.filter(error_code="bounce").update(cause="us")
    blamed = text(client, f"{path}?state=failed&cause=us")
    assert blamed.count("@sandbox.example") == 2 and "because of our account or sender" in blamed
    assert "@sandbox.example" not in text(client, f"{path}?state=failed&cause=recipient")
    assert client.get(f"{path}?cause=fate").status_code == client.get(f"{path}?state=nonsense").status_code == 404
    assert client.get(f"{path}?after=x").status_code == 404
    owner.groups.get().permissions.remove(Permission.objects.get(codename="see_recipients"))
    masked = text(client, path)
    assert "r1@sandbox.example" not in masked and "r…@sandbox.example" in masked


def test_parts_of_a_job_that_was_cut(client, owner):
    parent, _ = family(parent="P_ASSIGNING", remaining=40, children=["LOGGED", "DISPATCHED"], each=20)
    parent.campaign.sponsor.users.add(owner)
    assert "Parts: 2" in text(client, f"/campaigns/{parent.campaign_id}/")
    assert "1 1–20" in text(client, f"/campaigns/{parent.campaign_id}/parts/")
    alone = client.get(f"/campaigns/{parent.campaign_id}/parts/", headers={"HX-Request": "true"}).content.decode()
    assert "<table" in alone and "<html" not in alone


def test_a_campaign_is_stopped_once_with_its_reason(client, waiting):
    assert "5 wait: they are not sent." in text(client, f"/campaigns/{waiting.pk}/stop/")
    page = client.get(f"/campaigns/{waiting.pk}/stop/").content.decode()
    shown = re.search(r'name="shown" value="([^"]+)"', page)[1]
    nothing = client.post(f"/campaigns/{waiting.pk}/stop/", {"shown": shown, "reason": " "})
    assert "Say why" in nothing.content.decode()
    assert Job.objects.get(campaign=waiting).stopped_at is None
    for _ in range(2):  # a double click
        client.post(f"/campaigns/{waiting.pk}/stop/", {"shown": shown, "reason": "wrong date"})
    job = Job.objects.get(campaign=waiting)
    assert (job.stopped_by, job.stopped_at is not None) == ("ann", True)
    assert LogEntry.objects.filter(object_id=str(job.pk)).count() == 1
    assert "Reason: wrong date" in text(client, f"/campaigns/{waiting.pk}/")


def test_pause_and_go_on(client, waiting):
    post(client, waiting, "pause")
    assert Campaign.objects.get(pk=waiting.pk).paused_reason == "wrong date"
    assert "Paused It is paused" in text(client, f"/campaigns/{waiting.pk}/")
    post(client, waiting, "resume")
    assert Campaign.objects.get(pk=waiting.pk).paused_at is None


def test_a_decision_about_what_has_changed_meanwhile_is_refused(client, waiting):
    path = f"/campaigns/{waiting.pk}/pause/"
    shown = re.search(r'name="shown" value="([^"]+)"', client.get(path).content.decode())[1]
    Job.objects.filter(campaign=waiting).update(revision=7)
    answer = client.post(path, {"shown": shown, "reason": "late"}, follow=True)
    assert STALE in answer.content.decode()
    assert Campaign.objects.get(pk=waiting.pk).paused_at is None


def test_sending_again_leaves_what_was_sent_or_is_in_doubt(client, campaign):
    page = text(client, f"/campaigns/{campaign.pk}/retry/")
    assert "2 failed: they are sent again. 1 were never sent: they are sent now. 3 were sent already: left out." in page
    assert "1 may be at the vendor, whose answer was lost: left out." in page
    post(client, campaign, "retry")
    rows = Message.objects.filter(campaign=campaign).order_by("id")
    assert [row.dequeued_at is None for row in rows] == [False] * 3 + [True] * 2 + [False] * 2 + [True]
    assert [row.resend_no for row in rows] == [0, 0, 0, 1, 1, 0, 0, 0]


def test_where_nobody_would_be_sent_to_there_is_a_sentence_and_no_button(client, campaign):
    button, sentence = f'href="/campaigns/{campaign.pk}/retry/"', "Nobody is left to send to"
    page = client.get(f"/campaigns/{campaign.pk}/").content.decode()
    assert button in page and sentence not in page
    rows = Message.objects.filter(campaign=campaign)
    rows.filter(error_code="bounce").update(error_code="unknown_recipient")
    rows.filter(Q(error_code="expired") | Q(dequeued_at=None)).update(
        error_code="unknown_recipient", dequeued_at=timezone.now(), sent_at=timezone.now(), delivered_at=timezone.now()
    )
    recount(Job.objects.get(campaign=campaign))
    page = client.get(f"/campaigns/{campaign.pk}/").content.decode()
    assert button not in page and sentence in page
    assert "0 failed: they are sent again. 0 were never sent" in text(client, f"/campaigns/{campaign.pk}/retry/")


def test_who_may_only_look_decides_nothing(client, waiting, owner):
    owner.groups.get().permissions.remove(Permission.objects.get(codename="change_job"))
    assert "Pause" not in text(client, f"/campaigns/{waiting.pk}/")
    assert client.get(f"/campaigns/{waiting.pk}/stop/").status_code == 403
    assert client.post(f"/campaigns/{waiting.pk}/stop/", {"shown": "1:0", "reason": "x"}).status_code == 403


def test_of_many_failures_the_reasons_are_counted_on_a_page_of_their_own(client, campaign, monkeypatch):
    monkeypatch.setattr("campaigns.reporting.pages.campaign.FEW", 1)
    Job.objects.filter(campaign=campaign).update(finished_at=None)
    assert "Show the reasons of 4 recipients" in text(client, f"/campaigns/{campaign.pk}/")
    assert "2 The vendor has refused it" in text(client, f"/campaigns/{campaign.pk}/failures/")


def test_what_it_has_cost_so_far(client, campaign):
    assert "Cost so far" not in text(client, f"/campaigns/{campaign.pk}/")
    Price.objects.create(
        vendor=campaign.credential.vendor,
        currency="EUR",
        per_unit="0.07",
        per_message="0.01",
        since=prices.pricing_day(),
    )
    assert "Cost so far about 0.24 EUR at today's price" in text(client, f"/campaigns/{campaign.pk}/")
    Job.objects.filter(campaign=campaign).update(units=12)  # of six calls, three of which were accepted
    assert "Cost so far 6 mails by size, about 0.45 EUR at today's price" in text(client, f"/campaigns/{campaign.pk}/")
