"""The promises, checked on the rows themselves: `manage.py audit`, and beat every ten minutes.

Each question is one statement, so it sees one snapshot and may be asked while mail goes out. Asked are the jobs that
are not final, and those that were finished within the last day.
"""

from dataclasses import asdict, dataclass
from datetime import datetime

from django.conf import settings
from django.db import connection
from django.utils import timezone

from campaigns.audit.questions import QUESTIONS, Question
from campaigns.models import Audited

EXAMPLES = 5
LEASES = 5  # a state that is not final is stuck when nothing has moved it for so many leases


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
    return [_ask(question) for question in QUESTIONS]


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


def _ask(question: Question) -> Check:
    statement = f"SELECT count(*), (array_agg(q.example))[1:{EXAMPLES}] FROM ({question.breaches}) AS q(example)"
    with connection.cursor() as cursor:
        cursor.execute(statement, {"patience": LEASES * settings.LEASE_SECONDS})
        count, examples = cursor.fetchone()
    return Check(question.promise, question.text, count, tuple(examples or ()))
