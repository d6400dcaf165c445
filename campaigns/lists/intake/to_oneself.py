"""Letters to oneself, and their hourly limit: they need no approval, so all doors together share one limit.

A letter to oneself (a draft's test, `--test-to`, `"test_to"`) is a campaign with one message, marked `to_oneself`. It
uses the vendor's throttle and ledger and has an outcome like every message, so the promises hold for it. Each user and
each API key may store MOST of a sponsor's in an hour.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from campaigns.lists.intake.checking import AddressReader, field_faults
from campaigns.texts.bad_input import BadInput
from campaigns.texts.templates import Budget, Content
from vendors.said import Said

NAME = "Test: "  # prefix of the campaign's name
MOST = 10
HOUR = timedelta(hours=1)
# A second transaction waits here until the first one ends, then counts its letters.
ONE_AT_A_TIME = """
SELECT c.id, c.sponsor_id, c.made_by, pg_advisory_xact_lock(
    hashtextextended('letters to oneself ' || c.sponsor_id || ' ' || c.made_by, 0))
FROM campaigns_job j JOIN campaigns_campaign c ON c.id = j.campaign_id WHERE j.id = %s
"""
TENTH_BEFORE = f"""
SELECT created_at FROM campaigns_campaign
WHERE to_oneself AND sponsor_id = %s AND made_by = %s AND id <> %s AND created_at > clock_timestamp() - %s
ORDER BY created_at DESC OFFSET {MOST - 1} LIMIT 1
"""


class TooManyToOneself(BadInput):
    """The hourly limit is reached. again: the earliest time of the next letter."""

    def __init__(self, again: datetime) -> None:
        said = _(
            "%(most)s letters to oneself can be sent in an hour, the next one at %(again)s; what cannot wait "
            "goes as a campaign to this one recipient"
        )
        super().__init__(said % {"most": MOST, "again": f"{timezone.localtime(again):%H:%M:%S %Z}"})
        self.again = again


def count_letter(cursor: Any, job_id: int) -> None:
    """Count a letter just stored, in its transaction; others of the same user wait for its end.

    Raises TooManyToOneself; the caller must then roll back. cursor: of Django or of psycopg.
    """
    cursor.execute(ONE_AT_A_TIME, [job_id])
    campaign, sponsor, who, _lock = cursor.fetchone()
    cursor.execute(TENTH_BEFORE, [sponsor, who, campaign, HOUR])
    if found := cursor.fetchone():
        raise TooManyToOneself(found[0] + HOUR)


def address_first_letter(
    address: str,
    recipients: Iterable[tuple[str, Mapping[str, Any]]],
    normal: AddressReader,
    content: Content,
    budget: Budget | None = None,
) -> list[tuple[str, dict[str, Any]]]:
    """Return the first recipient's letter, addressed to this address.

    Raises BadInput, and OverBudget if there is a budget.
    """
    try:
        oneself = normal(address)
    except ValueError as error:
        raise BadInput(Said("the test-send: %(why)s", why=error)) from error
    fields = dict(next(iter(recipients))[1])
    for fault in field_faults(oneself, fields, content, budget):
        raise BadInput(Said("the test-send: %(why)s", why=fault))
    return [(oneself, fields)]
