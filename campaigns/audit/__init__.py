"""The promises, checked on the rows themselves: `manage.py audit`, and beat every ten minutes.

Each question is one statement, so it sees one snapshot and may be asked while mail goes out. Asked are the jobs that
are not final, and those that were finished within the last day.
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
LEASES = 5  # a state that is not final is stuck when nothing has moved it for so many leases
KEY_SAFETY = 300.0  # seconds before a key's end from which nobody relies on it


@dataclass(frozen=True, slots=True)
class Check:
    """One promise, one question, and the rows that break it: how many, and the first of them in words."""

    promise: str
    question: str
    breaches: int
    examples: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.breaches


def run() -> list[Check]:
    """All questions, in the order of the promises. Changes nothing."""
    vendors = {vendor.pk: _asked_for(vendor) for vendor in Vendor.objects.all()}
    params = {
        "patience": LEASES * settings.LEASE_SECONDS,
        "give_up": GIVE_UP,
        "vendors": list(vendors),
        "asked_for": list(vendors.values()),
    }
    return [_ask(question, params) for question in QUESTIONS]


def run_and_keep() -> list[Check]:
    """The same, and what was found is kept for the operations page."""
    checks = run()
    found = {"at": timezone.now(), "checks": [asdict(check) for check in checks]}
    Audited.objects.update_or_create(pk=1, defaults=found)
    return checks


def last() -> tuple[datetime, list[Check]] | None:
    """When the rows were last asked, and what was found; None: never."""
    row = Audited.objects.filter(pk=1).first()
    return (row.at, [Check(**check) for check in row.checks]) if row else None


def _asked_for(vendor: Vendor) -> float:
    """Seconds after a call for which the vendor can settle a doubt about it, without a person."""
    try:
        can = adapters.load(vendor.adapter)(vendor.settings, {}).capabilities
    except Exception:  # whatever stands in its settings; each sender says so in its log
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
