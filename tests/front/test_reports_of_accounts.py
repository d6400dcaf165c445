"""Two credentials of a vendor may be two accounts: what is proved by the one names no letter of the other."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from campaigns.engine import delivery_reports
from campaigns.models import Job, MessageEvent, Suppression, VendorMessageId, WaitingReport
from tests.campaigns.rows import accepted, in_doubt, logged, messages
from tests.front.program import fresh, problem
from tests.front.test_vendors_own_reports import _installed, tell
from tests.front.vendor import Reporter, receipt, reporting
from vendors import report_keys
from vendors.models import Credential, ReportKey, Vendor

__all__ = ["_installed", "fresh"]
pytestmark = pytest.mark.django_db
SHAPES = (accepted("v-0"), in_doubt())


def by(vendor: Any, name: str, shapes: Sequence[Any] = SHAPES, **secret: str) -> tuple[Credential, Job]:
    """A credential of the vendor, and a job that went by it."""
    login, _ = Credential.objects.get_or_create(vendor=vendor, name=name)
    login.secret = secret
    login.save()
    job = logged(len(shapes), list(shapes))
    job.campaign.credential = login
    job.campaign.save()
    Job.objects.filter(pk=job.pk).update(vendor=vendor, credential=login)
    return login, job


def two(own: Sequence[str] = ("eu", "us"), by_id: bool = False) -> tuple[Reporter, dict[str, str], dict[str, Job]]:
    """A vendor with two accounts; the secrets of those that have one of their own, and a job of each."""
    reporter = reporting(channel="email")
    Credential.objects.filter(vendor=reporter.row).update(name="eu")
    reporter.row.settings["receipts_by_id"] = by_id
    reporter.row.save()
    made = {name: by(reporter.row, name) for name in ("eu", "us")}
    keys = {name: report_keys.rotate_key(reporter.row, timezone.now(), made[name][0]) for name in own}
    return reporter, keys, {name: job for name, (_, job) in made.items()}


def known(job: Job, name: str, message: int = 0) -> None:
    row = messages(job)[message]
    facts: dict[str, Any] = {"message": row.pk, "uuid": row.uuid, "resend_no": 0}
    VendorMessageId.objects.create(name=name, vendor_id=Job.objects.get(pk=job.pk).vendor_id, **facts)


def reports(job: Job) -> list[Any]:
    return [(row.report, row.message_id) for row in messages(job)]


def test_a_report_of_one_account_touches_no_letter_of_the_other() -> None:
    reporter, keys, jobs = two()
    names = [row.reference for row in messages(jobs["us"])]
    before = reports(jobs["us"])
    said = [receipt(name, kind, bounce="hard") for name in names for kind in ("bounced", "complained", "opened")]
    answer = reporter.post([*said, *(receipt(name) for name in names)], keys["eu"])
    assert (answer.status_code, answer.json()) == (202, {"changed": 0, "unknown": names})
    assert reports(jobs["us"]) == before
    assert not MessageEvent.objects.exists() and not Suppression.objects.exists()
    assert reporter.post([receipt(name) for name in names], keys["us"]).json() == {"changed": 2, "unknown": []}
    assert [kind for kind, _ in reports(jobs["us"])] == ["delivered", "delivered"], "also the doubt is settled"


def test_an_id_that_two_accounts_have_names_a_letter_of_each() -> None:
    reporter, keys, jobs = two(by_id=True)
    for job in jobs.values():
        known(job, "7")
    assert reporter.post([receipt("", "bounced", id="7")], keys["us"]).json() == {"changed": 1, "unknown": []}
    assert [reports(jobs[name])[0][0] for name in ("eu", "us")] == [None, "bounced"]
    assert reporter.post([receipt("", id="7")], keys["eu"]).json()["changed"] == 1
    assert [reports(jobs[name])[0][0] for name in ("eu", "us")] == ["delivered", "bounced"]


def test_what_is_early_waits_for_a_letter_of_its_own_account() -> None:
    reporter, keys, jobs = two(by_id=True)
    for name, kind in (("eu", "delivered"), ("us", "bounced")):
        assert reporter.post([receipt("", kind, id="SM1")], keys[name]).json() == {"changed": 0, "unknown": []}
    assert WaitingReport.objects.count() == 2
    known(jobs["us"], "SM1")
    assert delivery_reports.take_waiting() == 1
    assert [reports(jobs[name])[0][0] for name in ("eu", "us")] == [None, "bounced"]
    assert WaitingReport.objects.get().credentials == [Credential.objects.get(name="eu").pk]
    known(jobs["eu"], "SM1")
    WaitingReport.objects.update(look_at=timezone.now())
    assert delivery_reports.take_waiting() == 1
    assert [reports(jobs[name])[0][0] for name in ("eu", "us")] == ["delivered", "bounced"]


def test_a_key_of_no_account_speaks_for_those_that_have_none_of_their_own() -> None:
    reporter, keys, jobs = two(own=["us"])
    names = {name: messages(job)[0].reference for name, job in jobs.items()}
    answer = reporter.post([receipt(names["eu"]), receipt(names["us"])])
    assert answer.json() == {"changed": 1, "unknown": [names["us"]]}
    assert reporter.post([receipt(names["us"])], keys["us"]).json()["changed"] == 1
    report_keys.rotate_key(reporter.row, timezone.now(), Credential.objects.get(vendor=reporter.row, name="eu"))
    problem(reporter.post([receipt(names["eu"])]), "not-the-vendor", 401)


def test_a_login_that_signs_speaks_for_itself_and_for_others_of_its_account() -> None:
    reporter = reporting(channel="email")
    Credential.objects.filter(vendor=reporter.row).update(name="eu")
    Vendor.objects.filter(pk=reporter.row.pk).update(adapter="callback")
    ReportKey.objects.all().delete()
    tokens = {"eu": "sesame", "eu-bulk": "sesame", "us": "other"}
    names = {}
    for name, token in tokens.items():
        _, job = by(reporter.row, name, [accepted("v-0")], token=token)
        names[name] = messages(job)[0].reference
    for name in ("eu", "eu-bulk"):
        assert tell(reporter.row, "sesame", ref=names[name], event="delivered").json()["changed"] == 1
    assert tell(reporter.row, "sesame", ref=names["us"], event="delivered").json()["unknown"] == [names["us"]]
    assert tell(reporter.row, "other", ref=names["us"], event="delivered").json()["changed"] == 1
    problem(tell(reporter.row, "guessed", ref=names["us"], event="delivered"), "not-the-vendor", 401)


def test_a_secret_of_an_account_is_entered_rotated_and_ended_by_itself(tmp_path: Path) -> None:
    reporter, keys, jobs = two()
    name = messages(jobs["us"])[0].reference
    (tmp_path / "secret").write_text("whsec_" + "A" * 32)
    out = io.StringIO()
    us = ("vendor", "receipts", reporter.row.slug, "--credential", "us")
    call_command(*us, "--secret-file", str(tmp_path / "secret"), stdout=out)
    assert "Its secret is stored" in out.getvalue() and "AAAA" not in out.getvalue()
    for secret in (keys["us"], "whsec_" + "A" * 32):
        assert reporter.post([receipt(name, "opened")], secret).json()["unknown"] == []
    ending: Any = ReportKey.objects.filter(expires_at__isnull=False).get()
    assert ending.credential.name == "us", "the others' go on"
    call_command(*us, "--off", stdout=out)
    problem(reporter.post([receipt(name)], keys["us"]), "not-the-vendor", 401)
    assert reporter.post([receipt("x")], keys["eu"]).status_code == 202
    with pytest.raises(CommandError, match="has no credential 'asia'"):
        call_command(*us[:-1], "asia", stdout=out)
