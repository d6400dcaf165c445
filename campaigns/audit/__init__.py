"""Checks the promises P1 to P7 on the rows: `manage.py audit`, and beat every ten minutes.

Each question is one statement, so it sees one snapshot and may run while mail goes out. It covers the jobs that are
not final, and those that were finished within the last day.
"""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection
from django.utils import timezone

from campaigns.audit.calls import Question
from campaigns.audit.questions import QUESTIONS
from campaigns.ground_truth import GIVE_UP
from campaigns.models import Audited
from vendors import adapters
from vendors.models import Vendor

EXAMPLES = 5
LEASES = 5  # a job that nothing has moved for so many leases, and that is not final, is stuck
KEY_SAFETY = 300.0  # seconds before its end from which a key is not relied on


@dataclass(frozen=True, slots=True)
class Check:
    """The answer to one question. breaches: how many rows break the promise; examples: the first ones, as text."""

    promise: str
    question: str
    breaches: int
    examples: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.breaches


def run() -> list[Check]:
    """Asks all questions, in the order of the promises; changes nothing."""
    vendors = {vendor.pk: _asked_for(vendor) for vendor in Vendor.objects.all()}
    params = {
        "patience": LEASES * settings.LEASE_SECONDS,
        "give_up": GIVE_UP,
        "vendors": list(vendors),
        "asked_for": list(vendors.values()),
        "may_lose": settings.STORES_MAY_LOSE,
    }
    return [_ask(question, params) for question in QUESTIONS]


def run_and_keep() -> list[Check]:
    """As `run`, and keeps the result for the operations page."""
    checks = run()
    found = {"at": timezone.now(), "checks": [asdict(check) for check in checks]}
    Audited.objects.update_or_create(pk=1, defaults=found)
    return checks


def last() -> tuple[datetime, list[Check]] | None:
    """When the last kept audit ran, and its result; None: there is none."""
    row = Audited.objects.filter(pk=1).first()
    return (row.at, [Check(**check) for check in row.checks]) if row else None


def _asked_for(vendor: Vendor) -> float:
    """Seconds after a call for which the vendor can settle a doubt about it, without an operator."""
    try:
        can = adapters.load(vendor.adapter)(vendor.settings, {}).capabilities
    except Exception:  # whatever its settings hold; each sender logs it
        return 0.0
    if can.lookup != "none" or (can.dedupe and can.dedupe_ttl is None):
        return GIVE_UP
    return min(can.dedupe_ttl - KEY_SAFETY, GIVE_UP) if can.dedupe and can.dedupe_ttl else 0.0


def _ask(question: Question, params: dict[str, Any]) -> Check:
    statement = f"SELECT count(*), (array_agg(q.example))[1:{EXAMPLES}] FROM ({question.breaches}) AS q(example)"
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        count, examples = cursor.fetchone()
    return Check(question.promise, question.text, count, tuple(examples or ()))
