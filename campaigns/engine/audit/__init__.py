"""Checks the promises P1 to P7 on the rows: `manage.py audit`, and beat every ten minutes.

Each question is one statement, so it sees one snapshot and may run while mail goes out. It covers jobs without a final
status, and those that finished within the last day.
"""

from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Any

from django.conf import settings
from django.db import connection
from django.utils import timezone

from campaigns.engine.audit.calls import Question
from campaigns.engine.audit.questions import QUESTIONS
from campaigns.engine.ground_truth import GIVE_UP
from campaigns.models import Audited
from vendors import adapters
from vendors.models import Vendor
from vendors.said import read, to_data

EXAMPLES = 5
LEASES = 5  # a job without a final status is stuck after this many leases without progress
KEY_SAFETY = 300.0  # seconds before a key expires from which it is not relied on


@dataclass(frozen=True, slots=True)
class Check:
    """The answer to one question. breaches: rows that break the promise. examples: sentences of the first of them."""

    promise: str
    question: str
    breaches: int
    examples: tuple[str, ...]

    @property
    def is_kept(self) -> bool:
        return not self.breaches


def ask_all_questions() -> list[Check]:
    """Ask all questions, in the order of the promises. Changes nothing."""
    vendors = {vendor.pk: _asked_for(vendor) for vendor in Vendor.objects.all()}
    params = {
        "patience": LEASES * settings.LEASE_SECONDS,
        "give_up": GIVE_UP,
        "vendors": list(vendors),
        "asked_for": list(vendors.values()),
        "may_lose": settings.STORES_MAY_LOSE,
    }
    return [_ask_question(question, params) for question in QUESTIONS]


def run_and_keep() -> list[Check]:
    """Run the audit and store the result for the operations page."""
    checks = ask_all_questions()
    said = [{"question": to_data(one.question), "examples": list(map(to_data, one.examples))} for one in checks]
    found = {"at": timezone.now(), "checks": [asdict(check) for check in checks], "said": said}
    Audited.objects.update_or_create(pk=1, defaults=found)
    return checks


def read_last_audit() -> tuple[datetime, list[Check]] | None:
    """Return the time and result of the last stored audit, or None."""
    row = Audited.objects.filter(pk=1).first()
    if row is None:
        return None
    return row.at, [_read_stored_check(check, said) for check, said in zip_longest(row.checks, row.said or [])]


def _read_stored_check(check: dict[str, Any], said: dict[str, Any] | None) -> Check:
    """Return a stored check. said: its sentences as data; None in a row of an earlier version."""
    data = said or {"question": None, "examples": []}
    question = read(check["question"], data["question"])
    examples = tuple(read(text, one) for text, one in zip_longest(check["examples"], data["examples"]))
    return Check(check["promise"], question, check["breaches"], examples)


def _asked_for(vendor: Vendor) -> float:
    """Return for how many seconds after a call the vendor can settle a doubt about it without an operator."""
    try:
        can = adapters.load(vendor.adapter)(vendor.settings, {}).capabilities
    except Exception:  # invalid settings; each sender logs the error
        return 0.0
    if can.lookup != "none" or (can.dedupe and can.dedupe_ttl is None):
        return GIVE_UP
    return min(can.dedupe_ttl - KEY_SAFETY, GIVE_UP) if can.dedupe and can.dedupe_ttl else 0.0


def _ask_question(question: Question, params: dict[str, Any]) -> Check:
    statement = f"SELECT count(*), to_json((array_agg(q))[1:{EXAMPLES}]) FROM ({question.breaches}) AS q"
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        count, rows = cursor.fetchone()
    return Check(question.promise, question.text, count, tuple(map(question.example, rows or ())))
