"""A vendor reports in its own form and with its own proof: what its adapter is given, and what each kind comes to."""

import hashlib
import hmac
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from campaigns.engine import delivery_reports
from campaigns.integrations.api import receipts
from campaigns.models import Job, Message, MessageEvent, Suppression
from mailhub.monitoring import metrics
from tests.campaigns.rows import accepted, in_doubt, logged, messages
from tests.front.program import api_vendor, fresh, problem
from tests.front.vendor import receipt, reporting
from tests.installed import installed
from vendors import report_counts
from vendors.adapters.http import Http
from vendors.adapters.reports import NotTheVendor, Reported, ReportRequest, ReportSource, bad_report
from vendors.models import Credential, ReportCount, ReportKey

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Callback(Http):
    """Reports as SMS services do: a form or a query for each event, signed with the login's token over URL and body."""

    report_status = 200

    @classmethod
    def sends_reports(cls, settings: Mapping[str, Any]) -> bool:
        return True

    @classmethod
    def check_report_key(cls, settings: Mapping[str, Any], key: str) -> None:
        pass  # any text is one

    @classmethod
    def read_report(cls, request: ReportRequest, source: ReportSource) -> list[Reported]:
        tokens = [*source.secrets, *(login["token"] for login in source.credentials)]
        given = request.headers.get("x-signature", "")
        if not any(hmac.compare_digest(signature(token, request.url, request.body), given) for token in tokens):
            raise NotTheVendor
        said = dict(request.query() if request.method == "GET" else request.form())
        if said.get("event") == "queued":
            return []
        if "event" not in said:
            raise bad_report("missing", "There is no event.", "event")
        return [Reported(said["ref"], said["event"], NOON, said.get("sid", ""), code=said.get("code", ""))]  # type: ignore[arg-type]


def signature(token: str, url: str, body: bytes) -> str:
    return hmac.new(token.encode(), url.encode() + body, hashlib.sha256).hexdigest()


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    with installed("callback", f"{__name__}:Callback"):
        yield


def sent(shapes: Sequence[Any] = (accepted("v-1"),), channel: str = "email") -> tuple[Any, Job, list[str]]:
    """A vendor with that adapter, a job that went over it, and the references."""
    job = logged(len(shapes), list(shapes))
    vendor = api_vendor(adapter="callback", channel=channel)
    Credential.objects.filter(vendor=vendor).update(secret={"token": "other"})
    Credential.objects.filter(pk=job.campaign.credential_id).update(vendor=vendor, secret={"token": "sesame"})
    receipts.known_vendors.forget_all()
    return vendor, job, [row.reference for row in messages(job)]


def tell(vendor: Any, token: str = "sesame", base: str = "http://testserver", method: str = "POST", **said: str) -> Any:
    receipts.known_vendors.forget_all()
    path = f"/api/v1/receipts/{vendor.slug}"
    form = "&".join(f"{name}={value}" for name, value in said.items())
    if method == "GET":
        return Client().get(f"{path}?{form}", headers={"x-signature": signature(token, f"{base}{path}?{form}", b"")})
    proof = {"x-signature": signature(token, f"{base}{path}?k=1", form.encode())}
    kind = "application/x-www-form-urlencoded"
    return Client().post(f"{path}?k=1", form, content_type=kind, headers=proof)


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_the_reader_gets_the_url_as_the_vendor_called_it_and_the_logins(settings: Any, method: str) -> None:
    settings.PUBLIC_URL = "https://mail.example.com"
    vendor, job, (name,) = sent()
    problem(tell(vendor, method=method, ref=name, event="delivered"), "not-the-vendor", 401)
    answer = tell(vendor, base=settings.PUBLIC_URL, method=method, ref=name, event="delivered")
    assert (answer.status_code, answer.json()) == (200, {"changed": 1, "unknown": []})
    job.refresh_from_db()
    assert job.delivered == 1


def test_a_secret_that_the_vendor_has_given_is_entered_and_the_one_before_holds_for_a_day(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vendor, _, (name,) = sent()
    for number, secret in enumerate(("key-of-march", "key-of-april")):
        (tmp_path / "key").write_text(f"{secret}\n")
        call_command("vendor", "receipts", vendor.slug, "--secret-file", str(tmp_path / "key"))
        assert secret not in capsys.readouterr().out
        assert tell(vendor, secret, ref=name, event="opened").status_code == 200, number
    assert tell(vendor, "key-of-march", ref=name, event="opened").status_code == 200
    stored = ReportKey.objects.filter(vendor=vendor).extra(select={"raw": "secret"}).values_list("raw", flat=True)
    assert len(stored) == 2 and not any("key-of" in raw for raw in stored)


def test_what_each_kind_comes_to() -> None:
    kinds = ("delivered", "bounced", "failed", "complained", "unsubscribed", "opened", "clicked")
    vendor, job, names = sent([accepted(f"v-{kind}") for kind in kinds])
    for _ in range(2):
        for kind, name in zip(kinds, names, strict=True):
            assert tell(vendor, ref=name, event=kind, code="30005").status_code == 200
    assert [row.report for row in messages(job)] == ["delivered", "bounced", "bounced", None, None, None, None]
    happened = dict(MessageEvent.objects.values_list("message_id", "kind"))
    assert happened == {
        job.first_message + 1: "soft_bounce",
        job.first_message + 2: "failed",
        job.first_message + 3: "complaint",
        job.first_message + 4: "unsubscribed",
        job.first_message + 5: "opened",
        job.first_message + 6: "clicked",
    }
    assert MessageEvent.objects.count() == 6, "each is one row, however often it is reported"
    assert set(Suppression.objects.values_list("reason", flat=True)) == {"complained", "unsubscribed"}
    job.refresh_from_db()
    assert (job.delivered, job.bounced) == (1, 2)


def test_whoever_stops_an_sms_gets_none_of_the_sponsor_any_more() -> None:
    vendor, job, (name,) = sent(channel="sms")
    tell(vendor, ref=name, event="unsubscribed")
    found = Suppression.objects.get()
    assert (found.reason, found.channel, found.sponsor_id, found.topic_id) == ("stop", "sms", job.sponsor_id, None)
    assert found.source == f"unsubscribed, campaign {job.campaign_id}"


def test_an_open_proves_that_the_vendor_has_the_letter() -> None:
    vendor, job, (name,) = sent([in_doubt()])
    tell(vendor, ref=name, event="opened", sid="SM1")
    assert Message.objects.get(pk=job.first_message).message_id == "SM1"


def said(*command: str) -> str:
    out = io.StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


def test_reports_are_counted_by_what_they_were_and_told_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, admin_client: Client
) -> None:
    monkeypatch.setattr(report_counts, "COUNT_EVERY", 0.0)
    vendor, _, (name,) = sent()
    for _ in range(3):
        problem(tell(vendor, "guessed", ref=name, event="delivered"), "not-the-vendor", 401)
    problem(tell(vendor, ref=name), "validation", 422)
    assert tell(vendor, event="queued").json() == {"changed": 0, "unknown": []}, "nothing that we keep"
    assert tell(vendor, ref="theirs", event="delivered").json() == {"changed": 0, "unknown": ["theirs"]}
    assert tell(vendor, ref=name, event="delivered").status_code == 200
    found = dict(ReportCount.objects.filter(vendor=vendor).values_list("what", "reports"))
    assert found == {"forged": 3, "unreadable": 1, "unknown": 1, "taken": 1}
    assert caplog.text.count("it has no proof of being the vendor's") == 1, "once a minute"
    assert caplog.text.count("cannot be read: There is no event.") == 1
    refused = "reports refused today: 3 without the vendor's proof, 1 that cannot be read"
    assert refused in " ".join(said("status").split())
    assert refused in admin_client.get("/admin/").content.decode().replace("&#x27;", "'")
    counted = {"taken": 1, "unknown": 1, "forged": 3, "unreadable": 1}
    rows = {one["vendor"]: one for one in map(json.loads, said("status", "--json").splitlines())}
    assert rows[vendor.slug]["reports_today"] == counted
    assert "reports today: 1 taken, 1 unknown, 3 forged, 1 unreadable" in said("vendor", "status", vendor.slug)
    assert json.loads(said("vendor", "status", vendor.slug, "--json"))["reports_today"] == counted
    [day] = ReportCount.objects.values_list("day", flat=True).distinct()  # by the database's clock
    ReportCount.objects.update(day=day - timedelta(days=1))
    assert "refused today" not in said("status")
    assert f'mailhub_reports_total{{vendor="{vendor.slug}",what="forged"}} 3.0' in metrics.metrics_text().decode()


def test_how_many_reports_wait_for_their_letters_is_a_metric() -> None:
    vendor = api_vendor(settings={"url": "http://127.0.0.1:9/letters", "receipts": True, "receipts_by_id": True})
    delivery_reports.store_reports(
        vendor.pk, [Reported("", "delivered", NOON, name) for name in ("SM1", "SM2")], vendor.slug
    )
    assert f'mailhub_reports_waiting{{vendor="{vendor.slug}"}} 2.0' in metrics.metrics_text().decode()


def test_a_text_that_no_column_holds_keeps_back_nothing() -> None:
    vendor, job, (name, other) = sent([accepted(), accepted()])
    said = [Reported(name, "bounced", NOON, "\ud800", "\0\ud800", "hard", "\ud800" * 30)]
    together = receipts._batcher_of_account(vendor.pk, vendor.slug, ())._serve(
        [said, [Reported(other, "delivered", NOON)]]
    )
    assert [one.changed for one in together] == [1, 1]  # type: ignore[union-attr]
    job.refresh_from_db()
    assert (job.delivered, job.bounced) == (1, 1)


def test_our_own_form_knows_the_same_kinds() -> None:
    vendor = reporting()
    for status in ("failed", "unsubscribed", "opened", "clicked"):
        assert vendor.post([receipt("x", status)]).json() == {"changed": 0, "unknown": ["x"]}
