"""What the API says of shared vendors, and its ids, tell a program nothing of other sponsors."""

import json
import re
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from django.conf import settings
from django.utils import timezone

from campaigns.doors import public_ids, token_keys
from campaigns.doors.front.vendor_cache import vendor_cache
from campaigns.integrations.results import reader
from campaigns.integrations.webhooks import events
from campaigns.models import Job, Session, Sponsor, WebhookCall
from campaigns.reporting.api.forecasts import forecasts
from tests import factories
from tests.campaigns.rows import accepted
from tests.front.everything import everything
from tests.front.program import Program, api_vendor, fresh, letter, problem
from tests.front.test_sessions import end
from vendors import health
from vendors.mail_classes import MailClass
from vendors.models import Credential, Minute, Vendor

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
FIGURES = re.compile(r"(?:msg|whk|sup|inb|cal)_\d")


def service(program, vendor):
    vendor_cache.forget_vendors()
    forecasts.forget_queues()
    return next(one for one in program.get("/api/v1/services").json()["data"] if one["slug"] == vendor.slug)


def counts(said):
    """Where the number of everybody's messages stands in an answer; times and names may have these digits."""
    return re.findall(r"(?<![\w:.+-])43(?![\w:.+-])", json.dumps(said))


def shared():
    """A vendor of the installation that is used by Alpha and, much more, by Beta."""
    alpha, beta = Program(Sponsor.objects.create(name="Alpha")), Program(Sponsor.objects.create(name="Beta"))
    vendor = factories.at_work(api_vendor(limits=[(5, 60)]))
    login = vendor.credentials.get()
    factories.campaign_with_job(3, of=login, by=alpha.sponsor, status="DISPATCHED")
    factories.campaign_with_job(40, of=login, by=beta.sponsor, status="DISPATCHED")
    return alpha, beta, vendor


def test_only_ones_own_messages_wait_for_a_vendor_of_the_installation():
    alpha, beta, vendor = shared()
    minute = timezone.now().replace(second=0, microsecond=0)
    Minute.objects.create(vendor=vendor, at=minute, share=0, sponsor=beta.sponsor.pk, accepted=40, units=100)
    said = service(alpha, vendor)
    assert said["waiting"] == 3
    beside = "3 of your own ahead of you; others share this vendor, and you have about half of it"
    assert beside in said["forecast"]["basis"] and not counts(said)
    assert (said["forecast"]["own_ahead"], said["forecast"]["share"]) == (3, 0.5)
    assert "units" not in said["forecast"]["basis"]
    assert service(beta, vendor)["waiting"] == 40
    two = letter(vendor, ["ann@sandbox.example", "bob@sandbox.example"])
    dry = alpha.send(two, None, "/api/v1/messages?dry_run=true").json()
    assert not counts(dry) and beside in json.dumps(dry)
    last = datetime.fromisoformat(said["forecast"]["last_at"]) - timezone.now()
    assert timedelta(minutes=1) < last < timedelta(minutes=5), "four of each, of which some cost more: not behind all"


def test_how_many_answers_others_got_is_not_told():
    alpha, _beta, vendor = shared()
    health.health_store(settings.REDIS_URL).note(vendor.pk, health.HealthPolicy.of(vendor), 30, 3)
    said = service(alpha, vendor)
    assert (said["good"], said["bad"], said["ratio"]) == (91, 9, 0.91)
    Vendor.objects.filter(pk=vendor.pk).update(owner=alpha.sponsor)
    said = service(alpha, vendor)
    assert (said["good"], said["bad"]) == (30, 3)


def test_why_somebody_has_paused_it_is_for_those_who_govern_it():
    alpha, beta, vendor = shared()
    reason = "Beta has not paid invoice 4711"
    Credential.objects.filter(vendor=vendor).update(paused=True, paused_reason=reason)
    assert service(alpha, vendor)["paused"] == "credential paused"
    Vendor.objects.filter(pk=vendor.pk).update(paused=True, paused_reason=reason)
    assert service(alpha, vendor)["paused"] == "vendor paused"
    assert "4711" not in json.dumps(service(alpha, vendor))
    assert "4711" not in alpha.send(letter(vendor), "k").content.decode()
    Vendor.objects.filter(pk=vendor.pk).update(owner=beta.sponsor)
    assert service(beta, vendor)["paused"] == f"vendor paused: {reason}"
    assert service(alpha, vendor)["paused"] == "vendor paused"


def test_a_paused_session_is_not_told_in_words_why_its_vendor_is_paused():
    alpha, beta = Program(Sponsor.objects.create(name="Alpha")), Program(Sponsor.objects.create(name="Beta"))
    vendor = api_vendor()
    name = alpha.send(letter(vendor), "k").json()["id"]
    Vendor.objects.filter(pk=vendor.pk).update(paused=True, paused_reason="Beta has not paid")
    assert alpha.get(f"/api/v1/sessions/{name}").json()["paused"] == "vendor paused"
    assert beta.sponsor != alpha.sponsor
    Vendor.objects.filter(pk=vendor.pk).update(owner=alpha.sponsor)
    assert alpha.get(f"/api/v1/sessions/{name}").json()["paused"] == "vendor paused: Beta has not paid"


def test_with_one_sponsor_all_is_told_as_before():
    vendor = factories.at_work(api_vendor(limits=[(5, 60)]))
    program = Program()
    factories.campaign_with_job(4, of=vendor.credentials.get(), by=program.sponsor, status="DISPATCHED")
    assert Sponsor.objects.count() == 1
    said = service(program, vendor)
    assert said["waiting"] == 4 and "4 ahead of you" in said["forecast"]["basis"]
    Vendor.objects.filter(pk=vendor.pk).update(paused=True, paused_reason="the contract ended")
    assert service(program, vendor)["paused"] == "vendor paused: the contract ended"


def test_no_answer_and_no_webhook_has_the_number_of_a_row():
    program, vendor = Program(), api_vendor()
    mine = everything(program, vendor)
    job = Job.objects.get(session__isnull=False)
    entries = [{"address": f"a{n}@example.com", "reason": "stop"} for n in range(3)]
    program.send({"channel": "email", "suppressions": entries}, None, "/api/v1/suppressions")
    for path in (
        f"/sessions/{mine.things['session_id']}",
        f"/sessions/{mine.things['session_id']}/messages",
        f"/messages/{mine.things['message_id']}",
        "/webhooks",
        f"/webhooks/{mine.things['webhook_id']}",
        f"/webhooks/{mine.things['webhook_id']}/calls?limit=1",
        "/suppressions?limit=1",
        f"/sessions/{mine.things['session_id']}/report",
    ):
        answer = program.get(f"/api/v1{path}")
        said = answer.content.decode() if not answer.streaming else str(answer.headers)
        assert answer.status_code == 200 and not FIGURES.search(said), said
        assert not re.search(r"cursor=\d", said) and f"-{job.campaign_id}." not in said, said
    assert not FIGURES.search(json.dumps(list(WebhookCall.objects.values_list("body", flat=True)), default=str))


def test_pages_follow_each_other_by_new_cursors_and_by_those_of_versions_before():
    program, vendor = Program(), api_vendor()
    recipients = [{"to": f"a{n}@sandbox.example"} for n in range(5)]
    name = program.send(letter(vendor, recipients=recipients), "k").json()["id"]
    first = Job.objects.get().first_message
    here = f"/api/v1/sessions/{name}/messages?limit=2"
    seen, link = [], here
    while link:
        page = program.get(link).json()
        seen += [one["id"] for one in page["data"]]
        link = page["links"]["next"]
    assert seen == [public_ids.id_of_number("msg", first + n) for n in range(5)]
    old = program.get(f"{here}&cursor=msg_{first + 1}").json()
    assert [one["id"] for one in old["data"]] == seen[2:4]
    assert program.get(f"/api/v1/messages/msg_{first}").json()["id"] == seen[0]


def test_ids_of_a_result_that_a_version_before_has_stored_name_the_same_events():
    program, vendor = Program(), api_vendor()
    events.create_webhook(program.sponsor, "https://receiver.example/hook", [], test=False)
    program.send(letter(vendor), "k")
    job = Job.objects.get()
    end(job, [accepted("v-1")])
    session = Session.objects.get()
    rows = reader.messages_from_rows(session, job)
    old = [row | {"id": f"msg_{job.first_message}"} for row in rows]
    named = [list(events._message_events(session, one)) for one in (rows, old)]
    assert named[0] == named[1] and named[0][0][2]["id"] == public_ids.id_of_number("msg", job.first_message)


@pytest.mark.parametrize("number", [0, 1, 2, 4711, 2**48, 2**63 - 1])
def test_an_id_leads_back_to_its_row_and_to_none_of_another_kind(number):
    ids = [public_ids.id_of_number(kind, number) for kind in ("msg", "whk", "sup", "inb", "cal")]
    assert [public_ids.number_of_id(one[:3], one) for one in ids] == [number] * 5
    assert len({one[4:] for one in ids}) == 5
    assert public_ids.number_of_id("whk", ids[0]) is None and public_ids.number_of_id("msg", ids[0].upper()) is None
    assert all(
        public_ids.number_of_id("msg", text) is None for text in ("msg_", "msg_abc", "msg_-1", f"{ids[0]}a", "x")
    )


def test_ids_of_neighbours_have_nothing_in_common_and_survive_a_new_key_of_tokens():
    before = [public_ids.id_of_number("msg", number) for number in range(2000)]
    assert len(set(before)) == 2000
    shifts = {len([1 for a, b in zip(x, y, strict=True) if a == b]) for x, y in pairwise(before)}
    assert max(shifts) < 14
    token_keys.add_key()
    token_keys.known.forget_value()
    assert [public_ids.id_of_number("msg", number) for number in range(2000)] == before


def test_a_foreign_id_is_answered_like_none():
    ours, theirs = Program(), Program()
    mine = everything(ours, api_vendor())
    problem(theirs.get(f"/api/v1/messages/{mine.things['message_id']}"), "not-found", 404)
    problem(theirs.get(f"/api/v1/webhooks/{mine.things['webhook_id']}"), "not-found", 404)


def test_a_session_tells_what_goes_before_it_without_names_and_numbers_of_others():
    alpha, beta, vendor = shared()
    name = alpha.send(letter(vendor, ["ann@sandbox.example", "bob@sandbox.example"])).json()["id"]
    found = alpha.get(f"/api/v1/sessions/{name}").json()["forecast"]
    assert found["own_ahead"] == 3 and found["share"] == 0.5 and found["first_at"] <= found["last_at"]
    beside = "3 of your own ahead of you; others share this vendor, and you have about half of it"
    assert found["basis"] == beside and not counts(found)
    factories.campaign_with_job(
        70, of=vendor.credentials.get(), by=beta.sponsor, status="DISPATCHED", mail_class=MailClass.URGENT
    )
    found = alpha.get(f"/api/v1/sessions/{name}").json()["forecast"]
    assert "more urgent mail of others goes first" in found["basis"] and not counts(found)
    assert found["share"] == 0.05 and "70" not in found["basis"]
    Vendor.objects.filter(pk=vendor.pk).update(paused=True, paused_reason="Beta has not paid")
    found = alpha.get(f"/api/v1/sessions/{name}").json()["forecast"]
    assert (found["first_at"], found["last_at"], found["own_ahead"]) == (None, None, None)
    assert "Beta" not in json.dumps(found)
    Job.objects.update(status="LOGGED", finished_at=timezone.now())
    assert alpha.get(f"/api/v1/sessions/{name}").json()["forecast"] is None
