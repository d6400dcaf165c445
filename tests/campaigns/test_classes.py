"""Classes of mail: who may send what as urgent, by which door it is named, and that urgent mail goes first."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.engine.casting.mailcaster import claim_next_job, idle_casters
from campaigns.engine.lifecycle import move
from campaigns.engine.ports import NotEntitled
from campaigns.engine.turns import charges
from campaigns.models import Campaign, ClassCredit, Entitlement, Job, Session, Sponsor, SponsorTurn, Template
from campaigns.models.identities import Urgent
from campaigns.models.states import S
from campaigns.senders import entitlements
from tests import factories as make
from vendors.history import Actor
from vendors.mail_classes import MailClass
from vendors.models import Credential, Mailcaster, Vendor

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
URGENT, USUAL, BULK = MailClass
pytestmark = pytest.mark.django_db


@pytest.fixture
def login() -> Credential:
    return make.credential(make.vendor(small_audience_threshold=100))


def caster(login: Credential, kind: str = "small-priority") -> Mailcaster:
    return make.caster(login.vendor, "", kind, min_size=10, max_size=10, percentage=10)


def letters(login: Credential, by: Sponsor, number: int, mail_class: MailClass) -> list[Job]:
    fields: dict[str, Any] = {"status": S.DISPATCHED, "of": login, "by": by, "messages": False}
    return [make.campaign_with_job(1, mail_class=mail_class, **fields) for _ in range(number)]


def send(caster: Mailcaster) -> Job | None:
    """Let the mailcaster take a job, send it, and charge its sponsor."""
    claimed = claim_next_job(caster.pk, NOW)
    if claimed is None:
        return None
    job = Job.objects.get(pk=claimed.job_id)
    mine = Job.objects.filter(pk=job.pk)
    assert move(mine, "send") and move(mine, "drain") and move(mine, "log", mailcaster=None)
    charges.charge_sponsor(job.vendor_id, job.sponsor_id, job.size, mail_class=job.mail_class)
    return job


def send_all(caster: Mailcaster, most: int = 10_000) -> list[Job]:
    sent: list[Job] = []
    while len(sent) < most and (job := send(caster)) is not None:
        sent.append(job)
    return sent


def test_urgent_mail_goes_before_usual_mail_and_that_before_bulk_mail(login: Credential) -> None:
    Vendor.objects.update(floor=0)
    one, other = make.sponsor(), make.sponsor()
    for mail_class in (BULK, USUAL, URGENT):
        letters(login, one, 3, mail_class), letters(login, other, 2, mail_class)
    sent = send_all(caster(login))
    assert [job.mail_class for job in sent] == [1] * 5 + [2] * 5 + [3] * 5


def test_urgent_letters_pass_the_older_list_of_their_own_sponsor(login: Credential) -> None:
    one = make.sponsor()
    make.campaign_with_job(200, status=S.P_QUEUED, of=login, by=one, messages=False, remaining=200)
    letters(login, one, 3, BULK)
    urgent = letters(login, one, 1, URGENT)
    for kind in ("small-only", "small-priority", "large-priority"):
        first = claim_next_job(caster(login, kind).pk, NOW)
        assert first
        assert (first.job_id in {job.pk for job in urgent}) == (kind == "small-only"), "and only one of them is there"


def test_within_a_class_the_weights_hold(login: Credential) -> None:
    """Whatever the sponsors were given in another one."""
    one, other = make.sponsor(), make.sponsor()
    SponsorTurn.objects.create(vendor=login.vendor, sponsor=other, weight=3)
    charges.charge_sponsor(login.vendor_id, one.pk, 1000, mail_class=BULK)
    letters(login, one, 40, URGENT), letters(login, other, 40, URGENT), letters(login, other, 3, BULK)
    Vendor.objects.update(floor=0)
    sent = Counter(job.sponsor_id for job in send_all(caster(login), 40))
    assert abs(sent[other.pk] - 30) <= 1


def test_children_have_the_class_of_their_parent(login: Credential) -> None:
    parent = make.campaign_with_job(200, status=S.P_QUEUED, of=login, messages=False, remaining=200, mail_class=USUAL)
    claimed = claim_next_job(caster(login).pk, NOW)
    assert claimed and claimed.parent_id == parent.pk
    assert Job.objects.get(pk=claimed.job_id).mail_class == USUAL


@pytest.mark.parametrize(("floor", "share"), [(10, 0.1), (25, 0.25), (40, 0.4)])
def test_a_floor_keeps_bulk_mail_alive_while_urgent_mail_is_endless(
    login: Credential, floor: int, share: float
) -> None:
    Vendor.objects.update(floor=floor)
    letters(login, make.sponsor(), 120, URGENT), letters(login, make.sponsor(), 60, BULK)
    sent = Counter(job.mail_class for job in send_all(caster(login), 120))
    assert 0.7 * share * 120 <= sent[BULK] <= 1.1 * share * 120


def test_two_lower_classes_have_a_floor_each(login: Credential) -> None:
    for mail_class in (URGENT, USUAL, BULK):
        letters(login, make.sponsor(), 120, mail_class)
    sent = Counter(job.mail_class for job in send_all(caster(login), 120))
    assert all(8 <= sent[lower] <= 14 for lower in (USUAL, BULK))


def test_without_a_floor_bulk_mail_waits_as_long_as_urgent_mail_comes(login: Credential) -> None:
    Vendor.objects.update(floor=0)
    letters(login, make.sponsor(), 40, URGENT), letters(login, make.sponsor(), 5, BULK)
    assert [job.mail_class for job in send_all(caster(login))] == [URGENT] * 40 + [BULK] * 5


def test_bulk_mail_saves_little_up_and_owes_little(login: Credential) -> None:
    one = make.sponsor()
    for mail_class, units in ((BULK, 10_000), (URGENT, 100), (URGENT, 100)):
        charges.charge_sponsor(login.vendor_id, one.pk, units, mail_class=mail_class)
    owed = ClassCredit.objects.get(mail_class=BULK)
    assert owed.credit == -90.0, "at most what a second gave"
    for _ in range(30):
        charges.charge_sponsor(login.vendor_id, one.pk, 100, mail_class=URGENT)
    owed.refresh_from_db()
    assert owed.credit == owed.most == 50.0, "five seconds of a tenth"


ALLOWED = [
    (None, 1, Urgent.SINGLE, True, URGENT),
    (None, 1, Urgent.ALL, True, URGENT),
    (None, 1, Urgent.NOTHING, True, USUAL),
    (None, 1, Urgent.SINGLE, False, USUAL),
    (None, 9, Urgent.ALL, True, BULK),
    (BULK, 1, Urgent.ALL, True, BULK),
    (USUAL, 9, Urgent.NOTHING, False, USUAL),
    (URGENT, 1, Urgent.SINGLE, False, URGENT),
    (URGENT, 9, Urgent.ALL, False, URGENT),
    (URGENT, 9, Urgent.SINGLE, True, None),
    (URGENT, 1, Urgent.NOTHING, True, None),
]


@pytest.mark.parametrize(("named", "size", "right", "by_program", "decided"), ALLOWED)
def test_the_class_of_a_job(
    named: int | None, size: int, right: Urgent, by_program: bool, decided: MailClass | None
) -> None:
    def decide(transactional: bool) -> MailClass:
        return entitlements.decide_class(named, size, right, "vfs", transactional=transactional, by_program=by_program)

    if decided is None:
        with pytest.raises(NotEntitled, match="urgent over vfs"):
            decide(transactional=False)
        return
    assert decide(transactional=False) == decided
    assert decide(transactional=True) == (USUAL if named is None and size > 1 else decided)


def test_a_right_is_the_larger_one_of_vendor_and_credential(login: Credential) -> None:
    sponsor, other = make.sponsor(), make.credential(login.vendor, "other")
    Entitlement.objects.filter(sponsor=sponsor, vendor=login.vendor).update(urgent=Urgent.NOTHING)
    entitlements.grant_entitlement(sponsor, login.vendor, other, Urgent.ALL)
    rights = entitlements.rights_of(sponsor.pk)
    assert rights.urgent_over(login.vendor_id, login.pk) == Urgent.NOTHING
    assert rights.urgent_over(login.vendor_id, other.pk) == Urgent.ALL
    assert rights.urgent_over(make.vendor().pk, None) == Urgent.NOTHING


def test_the_right_is_set_by_command_and_its_history_tells(login: Credential) -> None:
    sponsor, out = make.sponsor(), StringIO()
    row, _ = entitlements.grant_entitlement(sponsor, login.vendor)
    assert row.urgent == Urgent.SINGLE, "the default of a new one"
    call_command("entitlement", "set", sponsor.name, login.vendor.slug, "--urgent", "all", "--json", stdout=out)
    assert json.loads(out.getvalue())["urgent"] == "all"
    assert "urgent single → all" in LogEntry.objects.get(object_id=str(row.pk)).change_message
    row.delete()
    with pytest.raises(CommandError, match="entitlement add allows it"):
        call_command("entitlement", "set", sponsor.name, login.vendor.slug, "--urgent", "all")


def test_the_right_is_edited_in_the_admin(login: Credential, admin_client: Client) -> None:
    row, _ = entitlements.grant_entitlement(make.sponsor(), login.vendor)
    page = f"/admin/campaigns/entitlement/{row.pk}/change/"
    assert admin_client.post(page, {"urgent": "all"}).status_code == 302
    row.refresh_from_db()
    assert row.urgent == Urgent.ALL
    assert "single → all" in LogEntry.objects.get(object_id=str(row.pk)).change_message


def test_a_right_that_is_withdrawn_takes_the_class_from_jobs_that_wait(login: Credential) -> None:
    sponsor = make.sponsor()
    row, _ = entitlements.grant_entitlement(sponsor, login.vendor, None, Urgent.ALL)
    (letter,) = letters(login, sponsor, 1, URGENT)
    listed = make.campaign_with_job(5, of=login, by=sponsor, messages=False, mail_class=URGENT)
    (done,) = letters(login, sponsor, 1, URGENT)
    (others,) = letters(login, make.sponsor(), 1, URGENT)
    Job.objects.filter(pk=done.pk).update(status=S.LOGGED)

    def classes() -> list[int]:
        found = dict(Job.objects.values_list("pk", "mail_class"))
        return [found[job.pk] for job in (letter, listed, done, others)]

    entitlements.set_urgent(row, Urgent.SINGLE)
    assert classes() == [URGENT, BULK, URGENT, URGENT]
    entitlements.set_urgent(row, Urgent.NOTHING)
    assert classes() == [USUAL, BULK, URGENT, URGENT]


@pytest.fixture
def campaign_files(tmp_path: Path) -> list[str]:
    recipients, body = tmp_path / "list.csv", tmp_path / "body.txt"
    recipients.write_text("to\nann@example.com\nbob@example.com\n")
    body.write_text("Hello")
    return [str(recipients), "--body", str(body), "--subject", "Hi"]


def test_the_command_names_a_class_and_is_refused_one_without_the_right(campaign_files: list[str]) -> None:
    vendor = make.vendor(channel="email")
    make.credential(vendor, "default")
    sponsor = make.sponsor()
    row, _ = entitlements.grant_entitlement(sponsor, vendor)
    asked = ["send_campaign", *campaign_files, "--sponsor", sponsor.name, "--vendor", vendor.slug, "--json"]
    for extra in ([], ["--check"]):
        with pytest.raises(CommandError, match=f"only single letters may be urgent over {vendor.slug}"):
            call_command(*asked, "--class", "urgent", *extra)
    assert not Campaign.objects.exists()
    entitlements.set_urgent(row, Urgent.ALL)
    for named, decided in (("urgent", URGENT), ("usual", USUAL), ("", BULK)):
        out = StringIO()
        call_command(*asked, *(["--class", named] if named else []), stdout=out)
        facts = json.loads(out.getvalue())
        assert facts["class"] == decided.word
        assert (
            Job.objects.get(pk=facts["job"]).mail_class
            == Campaign.objects.get(pk=facts["campaign"]).mail_class
            == decided
        )


def test_a_template_has_a_class_for_campaigns_that_name_none(campaign_files: list[str]) -> None:
    vendor = make.vendor(channel="email")
    make.credential(vendor, "default")
    sponsor = make.sponsor()
    entitlements.grant_entitlement(sponsor, vendor)
    versions.add_version(sponsor.pk, "news", "email", TemplateContent("Hi", "Hello"), Actor("ann"))
    out = StringIO()
    call_command("template", "class", sponsor.name, "news", "usual", stdout=out)
    assert "usual" in out.getvalue()
    row = Template.objects.get()
    assert row.mail_class == USUAL
    assert "class by its kind → usual" in LogEntry.objects.filter(object_id=str(row.pk)).latest("pk").change_message
    asked = ["send_campaign", campaign_files[0], "--sponsor", sponsor.name, "--vendor", vendor.slug]
    call_command(*asked, "--template", "news", stdout=out)
    call_command(*asked, "--template", "news", "--class", "bulk", stdout=out)
    assert list(Job.objects.order_by("pk").values_list("mail_class", flat=True)) == [USUAL, BULK]
    call_command("template", "class", sponsor.name, "news", "urgent", stdout=out)
    with pytest.raises(CommandError, match="only single letters may be urgent"):
        call_command(*asked, "--template", "news")


def test_a_vendors_floor_is_set_by_command_and_its_page_tells_of_none(admin_client: Client) -> None:
    vendor, out = make.vendor(), StringIO()
    page = f"/admin/vendors/vendor/{vendor.pk}/change/"
    assert vendor.floor == 10 and "waits as long as" not in admin_client.get(page).content.decode()
    call_command("vendor", "set", vendor.slug, "--floor", "0", stdout=out)
    assert "waits as long as" in out.getvalue()
    assert "waits as long as" in admin_client.get(page).content.decode()
    with pytest.raises(CommandError, match="40"):
        call_command("vendor", "set", vendor.slug, "--floor", "41")


def test_entitlements_of_before_allow_single_letters(login: Credential) -> None:
    """What the table gives a row of the version before, which names no right."""
    sponsor = make.sponsor()
    Entitlement.objects.filter(sponsor=sponsor).delete()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO campaigns_entitlement (sponsor_id, vendor_id, created_at) VALUES (%s, %s, now())",
            [sponsor.pk, login.vendor_id],
        )
    row = Entitlement.objects.get(sponsor=sponsor)
    assert row.urgent == Urgent.SINGLE


def test_jobs_of_before_have_the_class_of_what_they_are(login: Credential, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the migration does with jobs that will still be sent, in batches. Rows of before are bulk."""
    migration = import_module("campaigns.migrations.0082_class_of_jobs")
    monkeypatch.setattr(migration, "BATCH", 2)
    sponsor = make.sponsor()
    code, letter, listed, bulk, done = (
        make.campaign_with_job(size, of=login, by=sponsor, messages=False, status=status)
        for size, status in ((1, S.DISPATCHED), (1, S.READY), (5, S.RENDERED), (5, S.P_QUEUED), (1, S.LOGGED))
    )
    Campaign.objects.filter(pk=listed.campaign_id).update(transactional=True)
    Session.objects.create(
        id=uuid4(), sponsor=sponsor, job=code, key_prefix="k", idempotency_key="k", fingerprint=b"", answer="{}"
    )
    migration.class_jobs(None, SimpleNamespace(connection=connection))
    classes = dict(Job.objects.values_list("pk", "mail_class"))
    assert [classes[job.pk] for job in (code, letter, listed, bulk, done)] == [URGENT, USUAL, USUAL, BULK, BULK]


def wake(login: Credential) -> list[Job]:
    """Let the idle mailcasters take what they may, as the task does after each letter that comes in."""
    found = [claim_next_job(caster_id, timezone.now()) for caster_id in idle_casters(login.vendor_id)]
    return [Job.objects.get(pk=one.job_id) for one in found if one]


def begin(*jobs: Job) -> None:
    """The jobs began to be sent a second ago."""
    mine = Job.objects.filter(pk__in=[job.pk for job in jobs])
    move(mine, "send")
    mine.update(status_at=timezone.now() - timedelta(seconds=1), heartbeat_at=timezone.now())


def end(job: Job, action: str = "put_back") -> None:
    mine = Job.objects.filter(pk=job.pk)
    assert move(mine, action, mailcaster=None) if action == "put_back" else move(mine, "drain") and move(mine, "log")


@pytest.fixture
def busy(login: Credential) -> list[Job]:
    """Four mailcasters, three of which send bulk mail; the last one, for small jobs only, has an urgent letter."""
    caster(login, "small-only")
    for _ in range(3):
        caster(login)
    make.campaign_with_job(500, status=S.P_QUEUED, of=login, messages=False, remaining=500)
    (letter,) = letters(login, make.sponsor(), 1, URGENT)
    taken = wake(login)
    assert {job.mail_class for job in taken} == {URGENT, BULK} and len(taken) == 4
    begin(*taken)
    return [job for job in taken if job.pk != letter.pk]


def test_a_mailcaster_is_kept_for_letters_after_one_found_none(login: Credential, busy: list[Job]) -> None:
    (second,) = letters(login, make.sponsor(), 1, URGENT)
    assert wake(login) == []
    noted = ClassCredit.objects.get(mail_class=URGENT)
    assert noted.needed == 2, "of four mailcasters, so bulk mail may have two"
    end(busy[0])
    assert wake(login) == [second]
    begin(second)
    end(second, "log")
    assert wake(login) == [], "it stays free though bulk mail waits"
    (third,) = letters(login, make.sponsor(), 1, URGENT)
    assert wake(login) == [third]
    begin(third)
    end(third, "log")
    ClassCredit.objects.update(needed_until=timezone.now())
    assert [job.mail_class for job in wake(login)] == [BULK], "for some minutes only"


def test_bulk_mail_keeps_a_mailcaster_however_many_letters_wait(login: Credential, busy: list[Job]) -> None:
    letters(login, make.sponsor(), 30, URGENT)
    assert wake(login) == []
    assert ClassCredit.objects.get(mail_class=URGENT).needed == 31
    for job in busy:
        end(job)
    Vendor.objects.update(floor=40)
    sent = [job.mail_class for job in wake(login)]
    assert sent == [URGENT] * 3, "which are more than its floor"
    begin(*Job.objects.filter(mail_class=URGENT, status=S.ENQUEUED))
    for job in Job.objects.filter(mail_class=URGENT, status=S.SENDING)[:3]:
        end(job)
    Job.objects.filter(status=S.DISPATCHED, mail_class=URGENT).update(not_before=timezone.now() + timedelta(hours=1))
    assert [job.mail_class for job in wake(login)] == [BULK, BULK], "two of four: its floor gives more than one"


def test_nothing_is_kept_for_letters_that_soon_have_a_mailcaster(login: Credential, busy: list[Job]) -> None:
    letters(login, make.sponsor(), 1, URGENT)
    Job.objects.filter(mail_class=URGENT).update(status_at=timezone.now())
    assert wake(login) == []
    Job.objects.filter(mail_class=URGENT).update(
        status_at=timezone.now() - timedelta(seconds=1), not_before=timezone.now() + timedelta(hours=1)
    )
    assert wake(login) == [], "and none may go"
    assert not ClassCredit.objects.filter(mail_class=URGENT).exists()
