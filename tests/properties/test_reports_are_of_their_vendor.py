"""Whatever a vendor reports with its own key, no letter of another vendor changes, nobody else's is suppressed.

Two vendors, each with letters of two sponsors and with the same ids: one names letters by our reference, one by its
own id. Reports name letters of either, known ids, references with another number or another letter's uuid, and
nonsense; they are signed with the key of the vendor that they are posted to, with the other's, or with none.
"""

import json
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from campaigns.models import Job, Message, MessageEvent, Suppression, VendorMessageId, WaitingReport
from tests.campaigns.rows import accepted, in_doubt, logged, messages, refused
from tests.front.program import fresh
from tests.front.vendor import Reporter, receipt, reporting
from tests.plugin import NIGHTLY
from vendors.models import Credential

__all__ = ["fresh"]
pytestmark = [pytest.mark.slow("many"), pytest.mark.django_db]
KINDS = ("delivered", "bounced", "complained", "unsubscribed", "failed", "opened", "clicked")
SHAPES = ("accepted", "refused", "in doubt")
Row = dict[str, Any]


def two_vendors() -> tuple[list[Reporter], list[list[Job]]]:
    """Two vendors, and of each the jobs of two sponsors."""
    reporters, jobs = [], []
    for by_id in (False, True):
        reporter = reporting(channel="email")
        if by_id:
            reporter.row.settings["receipts_by_id"] = True
            reporter.row.save()
        login = Credential.objects.get(vendor=reporter.row)
        of_vendor = []
        for _ in range(2):
            job = logged(3, [accepted("v-0"), refused(), in_doubt()])
            job.campaign.credential = login
            job.campaign.save()
            Job.objects.filter(pk=job.pk).update(vendor=reporter.row, credential=login)
            of_vendor.append(job)
        for number, row in enumerate(row for job in of_vendor for row in messages(job)):
            VendorMessageId.objects.create(
                vendor_id=reporter.row.pk, name=f"id-{number}", message=row.pk, uuid=row.uuid, resend_no=0
            )
        reporters.append(reporter)
        jobs.append(of_vendor)
    return reporters, jobs


def rows(jobs: list[Job]) -> list[Any]:
    """All that reports could change of these jobs."""
    campaigns = [job.campaign_id for job in jobs]
    return [
        list(Message.objects.filter(campaign__in=campaigns).order_by("id").values()),
        list(Job.objects.filter(pk__in=[job.pk for job in jobs]).order_by("id").values()),
        list(MessageEvent.objects.filter(campaign__in=campaigns).order_by("id").values()),
        list(Suppression.objects.filter(sponsor__in=[job.sponsor_id for job in jobs]).order_by("id").values()),
    ]


EVENT = st.fixed_dictionaries(
    {
        "vendor": st.integers(0, 1),
        "sponsor": st.integers(0, 1),
        "letter": st.integers(0, 2),
        "other": st.integers(0, 2),
        "name": st.sampled_from(["reference", "next sending", "another's uuid", "id", "both", "nonsense"]),
        "kind": st.sampled_from(KINDS),
        "minute": st.integers(0, 3),
        "bounce": st.sampled_from(["hard", "soft", "blocked"]),
    }
)


def said(event: Row, jobs: list[list[Job]]) -> Row:
    row, other = (list(messages(jobs[event["vendor"]][event["sponsor"]]))[event[one]] for one in ("letter", "other"))
    number = 3 * event["sponsor"] + event["letter"]
    reference, vendor_id = {
        "reference": (row.reference, ""),
        "next sending": (f"{row.uuid}-1", ""),
        "another's uuid": (f"{other.uuid}-0", ""),
        "id": ("", f"id-{number}"),
        "both": (row.reference, f"id-{number}"),
        "nonsense": ("00000000-0000-4000-8000-000000000000-0", "id-99"),
    }[event["name"]]
    return receipt(reference, event["kind"], event["minute"], id=vendor_id, bounce=event["bounce"])


@given(posted=st.integers(0, 1), key=st.sampled_from(["own", "other's", "none"]), events=st.lists(EVENT, max_size=8))
@settings(
    max_examples=60 if NIGHTLY else 25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_report_touches_letters_of_the_vendor_whose_key_it_has(posted: int, key: str, events: list[Row]) -> None:
    with transaction.atomic():
        reporters, jobs = two_vendors()
        of_others, own = rows(jobs[1 - posted]), rows(jobs[posted])
        body = json.dumps({"receipts": [said(one, jobs) for one in events]})
        reporter = reporters[posted]
        secret = reporters[1 - posted].secret if key == "other's" else reporter.secret
        headers = {} if key == "none" else reporter.signed(body, secret, timezone.now())
        answer = reporter.post_signed(body, headers)
        assert answer.status_code == (401 if key != "own" else 202 if events else 422), answer.content
        assert rows(jobs[1 - posted]) == of_others, "letters of the other vendor"
        assert not WaitingReport.objects.exclude(vendor_id=reporter.row.pk).exists()
        if key != "own":
            assert rows(jobs[posted]) == own
        sponsors = {job.sponsor_id for job in jobs[posted]}
        assert set(Suppression.objects.values_list("sponsor_id", flat=True)) <= sponsors
        transaction.set_rollback(True)


def test_the_same_reports_do_change_letters_of_their_own_vendor() -> None:
    """So the one above could fail."""
    for posted in (0, 1):
        reporters, jobs = two_vendors()
        event = {"vendor": posted, "sponsor": 1, "letter": 0, "other": 0, "kind": "complained", "minute": 0}
        name = "id" if posted else "reference"
        answer = reporters[posted].post([said(event | {"name": name, "bounce": "soft"}, jobs)])
        assert answer.status_code == 202 and answer.json()["unknown"] == []
        assert Suppression.objects.filter(sponsor_id=jobs[posted][1].sponsor_id).count() == 1
