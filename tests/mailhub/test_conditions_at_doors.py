"""Every door says the same of a vendor that is down, hangs, refuses the login, asked to wait or is silent.

Doors of campaign owners say it in their words.
"""

import html
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from campaigns.models import Job, Message, Sponsor, Store
from mailhub.monitoring import metrics
from tests import factories
from tests.front.program import Program, api_vendor, forget, fresh, letter, problem
from tests.vendors.test_ownership import user_of
from vendors.models import Credential, RateLimit, ReceiverWait, Vendor, VendorCondition

__all__ = ["fresh", "user_of"]
pytestmark = pytest.mark.django_db
AN_END = re.compile(r"\d\d:\d\d \(\d")
REFUSED = "no connection: [Errno 111] Connection refused"
LOGIN = "/admin/vendors/credential/"
HOUR = timedelta(hours=1)
Users = Callable[..., Client]


@dataclass
class Mood:
    """A condition, as a sender would have left it. `doors` show `said`; undisclosed readers see `brief`."""

    lay: Callable[[Credential], Any]
    kind: str
    said: str
    brief: str
    command: str = ""


def local(at: Any) -> str:
    return f"{timezone.localtime(at):%H:%M}"


def stored_times(login: Credential) -> dict[str, str]:
    """Since when it fails and until when it waits, as stored: by the test's own clock it may be a minute later."""
    since = VendorCondition.objects.filter(credential=login).values_list("failing_since", flat=True).first()
    until = Credential.objects.values_list("retry_after_until", flat=True).get(pk=login.pk)
    return {name: local(at) if at else "" for name, at in (("past", since), ("to_come", until))}


def _paused(login: Credential) -> None:
    Credential.objects.filter(pk=login.pk).update(paused=True, paused_reason="http 401: login refused")


def _waits(login: Credential, **fields: Any) -> None:
    Credential.objects.filter(pk=login.pk).update(retry_after_until=timezone.now() + HOUR, **fields)


MOODS = {
    "down": Mood(
        lambda login: factories.condition(login, failing=HOUR, answer=REFUSED),
        "failing",
        f"failing since {{past}}: 29 tries, last answer: {REFUSED}",
        "failing since {past}",
    ),
    "hanging": Mood(
        lambda login: factories.condition(login, failing=HOUR, tries=1, answer="no answer within 90 s", doubts=1),
        "failing",
        "failing since {past}: one try, last answer: no answer within 90 s",
        "failing since {past}",
    ),
    "refusing": Mood(
        _paused,
        "shut",
        "credential acc-7 paused: http 401: login refused",
        "credential paused",
        "manage.py credential resume {slug} acc-7",
    ),
    "asked to wait": Mood(
        lambda login: _waits(login, asked_wait=3600.0),
        "shut",
        "the vendor asked to wait, until {to_come}",
        "the vendor asked to wait, until {to_come}",
        "manage.py credential resume {slug} acc-7",
    ),
}
EACH = pytest.mark.parametrize("mood", MOODS.values(), ids=MOODS.keys())


@pytest.fixture
def job(fresh: None) -> Job:
    vendor = factories.at_work(api_vendor(slug="good", limits=[(5, 60)]))
    login = vendor.credentials.get()
    Credential.objects.filter(pk=login.pk).update(name="acc-7")
    return factories.campaign_with_job(30, of=Credential.objects.get(pk=login.pk), status="DISPATCHED")


def text(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return plain(answer.content.decode())


def text_of(answer: Any) -> str:
    return plain(answer.content.decode())


def plain(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def output(*arguments: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, **options)
    return " ".join(out.getvalue().split())


def phrased_at(door: str, said: str) -> str:
    """The same sentence; campaign owners read "account" for "credential" (owner_phrases)."""
    return said.replace("credential", "account") if door in ("home", "campaign") else said


def doors(job: Job, admin: Client, program: Program) -> Iterator[tuple[str, str]]:
    """What each door says: its name and its text."""
    vendor = job.vendor
    forget()
    yield "jobs", text(admin, "/admin/campaigns/job/?date=any")
    yield "job", text(admin, f"/admin/campaigns/job/{job.pk}/change/")
    yield "operations", text(admin, "/admin/operations/pulse/")
    yield "vendor, live", text(admin, f"/admin/operations/vendors/{vendor.pk}/")
    yield "home", text(admin, "/")
    yield "campaign", text(admin, f"/campaigns/{job.campaign_id}/")
    yield "vendors", text(admin, "/admin/vendors/vendor/")
    yield "credentials", text(admin, "/admin/vendors/credential/")
    yield "list_jobs", output("list_jobs", json=True)
    yield "status", output("status", json=True)
    yield "forecast", output("forecast", vendor.slug)
    yield "vendor list", output("vendor", "list", json=True)
    yield "vendor status", output("vendor", "status", vendor.slug)
    yield "credential list", output("credential", "list", json=True)
    [service] = program.get("services").json()["data"]
    assert service["accepting"] is False, service
    yield "api", json.dumps(service, ensure_ascii=False)


@EACH
def test_every_door_says_so_and_shows_no_end(job: Job, admin_client: Client, mood: Mood) -> None:
    before = dict(doors_before(job, admin_client))
    assert AN_END.search(before["jobs"]) and AN_END.search(before["operations"]), "an end before"
    mood.lay(job.credential)
    said = mood.said.format(**stored_times(job.credential))
    for door, shown in doors(job, admin_client, Program(job.sponsor)):
        if door in ("vendor list", "credential list", "api"):  # times by ISO 8601
            assert f'"kind":"{mood.kind}"' in shown.replace('": "', '":"'), (door, shown)
        else:
            expected = phrased_at(door, said)
            assert expected.lower() in shown.lower(), (door, shown)
        assert mood.kind == "shut" or not AN_END.search(shown), (door, shown)


@EACH
@pytest.mark.parametrize("owns", [True, False], ids=["owner", "another"])
def test_the_apis_first_answer_says_so(job: Job, mood: Mood, owns: bool) -> None:
    program, vendor = Program(job.sponsor), Vendor.objects.get()
    Vendor.objects.update(owner=job.sponsor if owns else factories.sponsor("Owner"))
    mood.lay(job.credential)
    forget()
    sent = program.send(letter(vendor))
    if "paused" in mood.brief:
        assert "paused" in problem(sent, "vendor-paused", 503)["detail"]
        return
    answer = sent.json()
    assert answer["condition"]["kind"] == mood.kind
    assert ("111" in answer["condition"]["reason"] or "90 s" in answer["condition"]["reason"]) == (
        owns and mood.kind == "failing"
    )
    session = program.get(answer["links"]["self"]).json()
    assert answer["status"] == session["status"]
    later = program.send(letter(vendor), path="/api/v1/messages?dry_run=true").json()
    assert (later["status"], later["condition"]) == ("valid", answer["condition"])


def doors_before(job: Job, admin: Client) -> Iterator[tuple[str, str]]:
    yield "jobs", text(admin, "/admin/campaigns/job/?date=any")
    yield "operations", text(admin, "/admin/operations/pulse/")


@EACH
def test_metrics_tell_it(job: Job, mood: Mood) -> None:
    mood.lay(job.credential)
    shown = metrics.metrics_text().decode()
    assert f'mailhub_vendor_condition{{condition="{mood.kind}",vendor="good"}} 1.0' in shown
    assert 'mailhub_vendor_condition{condition="works",vendor="good"} 0.0' in shown
    failing = re.search(r'mailhub_vendor_failing_seconds\{vendor="good"\} (\S+)', shown)
    assert failing and (3590 < float(failing[1]) < 3700) == (mood.kind == "failing")


@EACH
def test_status_names_the_command(job: Job, mood: Mood) -> None:
    mood.lay(job.credential)
    assert mood.command.format(slug=job.vendor.slug) in output("status")


@EACH
def test_it_is_back_at_every_door_with_the_first_good_answer(job: Job, admin_client: Client, mood: Mood) -> None:
    mood.lay(job.credential)
    Credential.objects.update(paused=False, retry_after_until=None, asked_wait=None)
    factories.condition(job.credential)
    forget()
    [service] = Program(job.sponsor).get("services").json()["data"]
    assert service["accepting"] and service["condition"]["kind"] == "works"
    assert "works" in output("status") and AN_END.search(output("forecast", "good"))
    page = text(admin_client, "/admin/operations/pulse/")
    assert "works" in page and AN_END.search(page) and "failing" not in page


@EACH
def test_other_sponsors_learn_that_it_waits_and_no_reason(user_of: Users, job: Job, mood: Mood) -> None:
    owner, other = factories.sponsor("Owner"), Sponsor.objects.get(pk=job.sponsor_id)
    Vendor.objects.update(owner=owner)
    mood.lay(job.credential)
    times = stored_times(job.credential)
    ann = user_of([other], "campaign owner", "viewer")
    forget()
    [service] = Program(other).get("services").json()["data"]
    pages = [
        text(ann, f"/campaigns/{job.campaign_id}/"),
        text(ann, "/admin/campaigns/job/?date=any"),
        text(ann, f"/admin/campaigns/job/{job.pk}/change/"),
        text(ann, "/admin/operations/pulse/"),
    ]
    for door, page in zip(("campaign", "jobs", "job", "operations"), pages, strict=True):
        assert phrased_at(door, mood.brief.format(**times)).lower() in page.lower(), page
    for page in (*pages, json.dumps(service)):
        for private in ("http 401", "[Errno", "within 90 s", "29 tries", "acc-7"):
            assert private not in page, (private, page)
    assert service["condition"]["kind"] == mood.kind and service["condition"]["tries"] is None


def test_a_vendor_never_called_has_an_end_and_says_that_it_was_not_called(job: Job, admin_client: Client) -> None:
    page = text(admin_client, "/admin/operations/pulse/")
    assert "not called yet" in page and AN_END.search(page)


def test_nothing_is_comforted_by_time(job: Job, admin_client: Client) -> None:
    """Health forgets after its TTL; a condition does not."""
    factories.condition(job.credential, failing=timedelta(days=3), tries=600, answer="http 500", doubts=600)
    forget()
    [service] = Program(job.sponsor).get("services").json()["data"]
    assert (service["accepting"], service["ratio"], service["condition"]["tries"]) == (False, None, 600)
    page = text(admin_client, "/admin/vendors/vendor/")
    assert "failing since" in page and "works" not in page


def test_a_failing_credential_beside_one_that_works_is_told_and_the_others_end_is_shown(
    job: Job, admin_client: Client
) -> None:
    factories.condition(job.credential)
    second = factories.credential(job.vendor, "second")
    factories.condition(second, failing=HOUR, answer=REFUSED)
    factories.campaign_with_job(7, of=second, status="DISPATCHED")
    page = text(admin_client, "/admin/operations/pulse/")
    assert "credential second: failing since" in page and "7 wait: failing since" in page and AN_END.search(page)


def test_a_service_with_doubts_is_named_with_the_command(job: Job, admin_client: Client, admin_user: User) -> None:
    doubtful = factories.campaign_with_job(4, of=job.credential, status="LOGGED")
    now = timezone.now()
    Message.objects.filter(campaign=doubtful.campaign).update(in_doubt_at=now, sent_at=now, dequeued_at=now)
    assert "4 in doubt: manage.py resolve --list --causes --vendor good" in output("status")
    page = admin_client.get("/admin/operations/pulse/").content.decode()
    assert f"?vendor={job.vendor_id}" in page and "4 messages without a known answer" in plain(page)


def test_check_finds_a_vendor_that_fails_while_mail_waits(job: Job, admin_client: Client) -> None:
    factories.condition(job.credential, failing=HOUR, answer=REFUSED)
    out = io.StringIO()
    with pytest.raises(CommandError, match="1 vendor fails, and mail waits"):
        call_command("status", check=True, stdout=out)
    past = stored_times(job.credential)["past"]
    assert f"vendor good: 30 messages wait: failing since {past}: 29 tries" in out.getvalue()
    page = text(admin_client, "/admin/operations/pulse/")
    assert "1 in trouble" in page and page.count(REFUSED) == 1, "the vendor's line says it, and nothing else"


@pytest.fixture
def beat() -> None:
    factories.beat_sends()


def check_of_status() -> tuple[str, str]:
    """What it shows, and the sentence with which it ends; "" if all is well."""
    out = io.StringIO()
    try:
        call_command("status", check=True, stdout=out)
    except CommandError as fault:
        return out.getvalue(), str(fault)
    return out.getvalue(), ""


def _silent(login: Credential) -> None:
    Credential.objects.filter(pk=login.pk).update(rate_limited_until=timezone.now() + HOUR)


def _vendor_paused(login: Credential) -> None:
    Vendor.objects.filter(pk=login.vendor_id).update(paused=True, paused_reason="a try")


@pytest.mark.usefixtures("beat")
@pytest.mark.parametrize("stopping", [_paused, _waits, _silent, _vendor_paused])
def test_check_fails_while_no_vendor_that_has_mail_may_be_called(
    job: Job, stopping: Callable[[Credential], None]
) -> None:
    assert check_of_status() == ("", "")
    stopping(job.credential)
    shown, fault = check_of_status()
    assert fault == "nothing may be called, and mail waits"
    assert shown.startswith("vendor good: 30 messages wait: "), shown
    other = factories.at_work(factories.vendor("another"))
    assert check_of_status()[1] == fault, "one without mail changes nothing"
    factories.campaign_with_job(1, of=factories.credential(other), status="DISPATCHED")
    assert check_of_status() == ("", ""), "mail goes out over another"


@pytest.mark.usefixtures("beat")
def test_a_short_wait_that_a_vendor_asks_for_is_no_fault(job: Job) -> None:
    soon = timezone.now() + timedelta(seconds=30)
    Credential.objects.filter(pk=job.credential_id).update(retry_after_until=soon, asked_wait=30.0)
    assert check_of_status() == ("", "")


def test_check_fails_while_beat_sends_nothing(job: Job) -> None:
    assert check_of_status() == ("beat has not sent anything yet\n", "beat sends nothing")
    Job.objects.filter(pk=job.pk).delete()
    assert check_of_status() == ("", ""), "an installation that has not begun"
    factories.beat_sends()
    PeriodicTask.objects.update(last_run_at=timezone.now() - HOUR)
    shown, fault = check_of_status()
    assert fault == "beat sends nothing" and shown.startswith("beat has sent nothing for 3")
    factories.beat_sends()
    assert check_of_status() == ("", "")


def test_an_operator_releases_or_holds_the_brake_on_a_page(job: Job, admin_client: Client) -> None:
    braked = Credential.objects.filter(pk=job.credential_id)
    braked.update(braked_at=timezone.now(), retry_after_until=timezone.now() + HOUR)
    page, address = admin_client.get("/admin/operations/pulse/").content.decode(), f"{LOGIN}{job.credential_id}/try/"
    assert f'href="{address}"' in page and "Release the brake" in page
    admin_client.post(address, {"hold": "1"})
    assert braked.get().brake_held_at is not None
    assert "its brake was released" in text_of(admin_client.post(address, follow=True))
    assert braked.get().braked_at is None and "does not wait any more" in text_of(
        admin_client.post(address, follow=True)
    )


@pytest.mark.parametrize(
    ("columns", "button", "page"),
    [
        ({"paused": True, "paused_reason": "http 401: login refused"}, "Resume this account", "pause"),
        ({"braked_at": timezone.now()}, "Release the brake", "try"),
        ({"brake_held_at": timezone.now()}, "Release the brake", "try"),
    ],
)
def test_home_lists_what_its_reader_can_open_again(
    user_of: Users, job: Job, admin_client: Client, columns: dict[str, Any], button: str, page: str
) -> None:
    login = Credential.objects.filter(pk=job.credential_id)
    _waits(login.get(), asked_wait=3600.0)
    assert "Waits for you" not in text(admin_client, "/"), "it ends by itself"
    login.update(retry_after_until=None, asked_wait=None, **columns)
    factories.credential(job.vendor, "beside it")
    shown = admin_client.get("/").content.decode()
    assert f'href="{LOGIN}{login.get().pk}/{page}/"' in shown and plain(shown).count(button) == 1
    ann = user_of([job.sponsor], "campaign owner", "viewer")
    assert button not in text(ann, "/"), "who cannot do it is not asked to"
    login.update(paused=False, braked_at=None, brake_held_at=None)
    assert "Waits for you" not in text(admin_client, "/")


def test_a_vendor_that_is_paused_waits_once_for_all_its_credentials(job: Job, admin_client: Client) -> None:
    factories.credential(job.vendor, "second")
    call_command("vendor", "pause", "good", reason="by Ann")
    shown = admin_client.get("/").content.decode()
    assert plain(shown).count("Resume this vendor") == 1 and "vendor paused: by Ann" in plain(shown)
    assert f'href="/admin/vendors/vendor/{job.vendor_id}/pause/"' in shown


def test_a_campaign_names_the_receiving_domains_that_wait(job: Job, admin_client: Client) -> None:
    until = timezone.now() + HOUR
    of = {"credential": job.credential, "receiver": "gmail", "since": timezone.now(), "seconds": 3600.0}
    ReceiverWait.objects.create(until=until, **of)
    page = text(admin_client, f"/campaigns/{job.campaign_id}/")
    assert f"gmail waits until {local(until)}: it asked us to slow down" in page


def test_while_nothing_may_be_called_the_badge_says_that_alone(job: Job, admin_client: Client) -> None:
    factories.condition(job.credential)
    Store.objects.update(timeline="000000AA")
    page = admin_client.get("/admin/operations/pulse/").content.decode()
    assert re.search(r'<span class="badge bad">halted<', page) and ">works<" not in page


def test_a_limit_of_0_is_a_condition_too(job: Job, admin_client: Client) -> None:
    RateLimit.objects.update(units=0)
    assert "the vendor&#x27;s limit is 0" in admin_client.get("/admin/vendors/vendor/").content.decode()
    assert "manage.py vendor limit good N/SECONDS" in output("status")
