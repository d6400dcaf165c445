"""Checks the list of a draft once, in the process with the draft's fence; a lost or killed check is done again.

Any door requests a check with `ask_for_check`. The row decides: the sweep finds lost tasks, a doubled task finds the
lease taken, and a check stops at its next step if the draft has changed.
"""

import io
import logging
import tempfile
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice, zip_longest
from time import monotonic
from typing import Any

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from campaigns.engine import failpoints
from campaigns.engine.ports import NotEntitled
from campaigns.lists import estimates, intake
from campaigns.lists.drafts import blocks, contents
from campaigns.lists.drafts.columns import HIDDEN_ROWS, Arrangement
from campaigns.lists.drafts.keeping import load_draft, open_drafts_condition
from campaigns.lists.intake import BadInput, RowError, spreadsheets
from campaigns.lists.intake.checking import SHOWN, STEP
from campaigns.lists.intake.csv_reader import SHOWN_HIDDEN
from campaigns.models import Campaign, Draft, DraftBlock
from campaigns.suppression.comparing import count_suppressed
from campaigns.texts.templates import TemplateError
from vendors import alarms
from vendors.models import Vendor
from vendors.said import Said, read, to_data

log = logging.getLogger(__name__)
LEASE = timedelta(minutes=2)  # without a heartbeat; unpacking a large spreadsheet takes up to a minute
SIGN = 1.0  # seconds between heartbeats
SMALL = 500_000  # bytes of a list checked while the page loads
UNPACKED = 2_000_000_000  # bytes of an unpacked spreadsheet


class FenceLost(Exception):
    """Another process has taken over, or nobody wants the work any more."""


def ask_for_check(draft: Draft) -> Draft:
    """Request a new check if the last one broke off, or was of another list or message."""
    if draft.list_version and (draft.found is None or draft.found.get("broken")):
        waiting = Draft.objects.filter(open_drafts_condition(), pk=draft.pk)
        waiting.update(busy=Draft.CHECKING, fence=F("fence") + 1, lease_at=None, percent=0)
        return load_draft(draft.pk)
    return draft


def is_small(draft: Draft) -> bool:
    """Return True if the list can be checked while somebody waits for the page."""
    return draft.list_bytes <= SMALL and not _is_packed(draft)


def _is_packed(draft: Draft) -> bool:
    """Return True if the list may unpack to many times its size, like a spreadsheet."""
    start = blocks.read_block(draft.pk, DraftBlock.LIST, draft.list_version, 0) or b""
    return spreadsheets.is_spreadsheet(start[: spreadsheets.MAGIC])


def claim_draft(draft_id: int, busy: str) -> int | None:
    """Take the fence for this work; return None if there is none, or another process does it."""
    now = timezone.now()
    with transaction.atomic():
        free = Q(lease_at=None) | Q(lease_at__lt=now - LEASE)
        waiting = Draft.objects.filter(free, pk=draft_id, busy=busy, campaign=None)
        # Storing a campaign locks the row until it is done. A locked row is being worked on even if its lease has
        # expired.
        found = waiting.select_for_update(skip_locked=True, no_key=True).values_list("fence", flat=True).first()
        if found is None:
            return None
        Draft.objects.filter(pk=draft_id).update(fence=found + 1, lease_at=now)
        return int(found) + 1


def left_behind(now: datetime | None = None) -> list[tuple[int, str]]:
    """Return the drafts with work that no process is doing, and that work."""
    latest = (now or timezone.now()) - LEASE
    rows = Draft.objects.filter(Q(lease_at=None) | Q(lease_at__lt=latest), busy__gt="", campaign=None)
    return list(rows.values_list("pk", "busy"))


class Sign:
    """Writes the heartbeat and the progress of a draft's work, once in SIGN seconds. Raises FenceLost."""

    def __init__(self, draft_id: int, busy: str, fence: int) -> None:
        self.held = Draft.objects.filter(pk=draft_id, busy=busy, fence=fence, campaign=None)
        self._next = monotonic() + SIGN

    def __call__(self, percent: float = 0) -> None:
        if monotonic() < self._next:
            return
        self._next = monotonic() + SIGN
        if not self.held.update(lease_at=timezone.now(), percent=round(percent)):
            raise FenceLost


def check_draft(draft_id: int) -> bool:
    """Check the list and store the facts.

    Return False if another process does or has done so, or the draft has changed.
    """
    fence = claim_draft(draft_id, Draft.CHECKING)
    if fence is None:
        return False
    draft, sign = load_draft(draft_id), Sign(draft_id, Draft.CHECKING, fence)
    try:
        facts = _list_facts(draft, fence, sign)
    except (FenceLost, blocks.GoneAway):
        return False
    except Exception as error:  # an uncaught error would be tried again for ever
        alarms.LIST_NOT_CHECKED.log(log, draft_id, exc_info=True)
        facts = {
            **_initial_facts(draft, fence),
            **_problem_facts([(0, unexpected_sentence(error))]),
            "total": 1,
            "broken": True,
        }
    return _keep_facts(sign, facts)


def _keep_facts(sign: "Sign", facts: dict[str, Any]) -> bool:
    """Store the facts if list and message have not changed; otherwise leave the draft for a new check by the sweep."""
    with transaction.atomic():
        pk = sign.held.select_for_update(no_key=True).values_list("pk", flat=True).first()
        if pk is None:
            return False
        now = load_draft(pk)
        if now.question != facts["question"]:
            sign.held.update(fence=F("fence") + 1, lease_at=None)
            return False
        # the user has agreed to leave out that number
        agreed = now.leave_out and (now.facts or {}).get("total") == facts["total"]
        sign.held.update(busy="", lease_at=None, facts=facts, leave_out=agreed)
        blocks.delete_others(pk, [DraftBlock.ROWS, DraftBlock.LEFT_OUT], facts["version"])
    return True


def unexpected_sentence(error: Exception) -> str:
    """Return the sentence for an error that users cannot correct; the log has the details."""
    return Said(
        "something went wrong that should not have (%(error)s). Nothing was sent. Please try again.",
        error=type(error).__name__,
    )


def _problem_facts(found: Iterable[tuple[int, str]]) -> dict[str, Any]:
    """Return the facts about bad rows: each with its number and text, and beside them forms and values of the texts."""
    rows = list(found)
    return {"problems": [[row, text] for row, text in rows], "said": [to_data(text) for _, text in rows]}


def problems_of(facts: dict[str, Any]) -> list[RowError]:
    """Return the bad rows that a check has stored."""
    rows = facts["problems"]
    return [
        RowError(row, read(text, data)) for (row, text), data in zip_longest(rows, facts.get("said", ())[: len(rows)])
    ]


class _Steps:
    """Reports the progress of a check: reading the list is the first 80 percent, storing the rows the rest."""

    def __init__(self, table: intake.Table, sign: Sign) -> None:
        self._file, self._size, self._sign = table.file, max(1, table.size), sign

    def __call__(self) -> None:
        self._sign(80 * self._file.tell() / self._size)

    def report_steps(self, rows: Iterable[Any], total: int, sample: list[Any]) -> Iterator[Any]:
        """Yield the rows and report progress. sample: receives the rows whose letters the estimate renders."""
        chosen = estimates.choose_sample(total)
        for number, row in enumerate(rows):
            if number % STEP == 0:
                self._sign(80 + 20 * number / max(1, total))
            if chosen(number):
                sample.append(row)
            yield row


def _initial_facts(draft: Draft, fence: int) -> dict[str, Any]:
    """Return the facts before anything is known."""
    facts: dict[str, Any] = {"question": draft.question, "version": fence, "rows": 0, "good": 0, "bad": 0}
    facts |= {"duplicates": 0, "suppressed": 0, "problems": [], "total": 0, "columns": [], "recipient": ""}
    return facts | {"weights": {}}


def _list_facts(draft: Draft, fence: int, sign: Sign) -> dict[str, Any]:
    facts = _initial_facts(draft, fence)
    arrangement = Arrangement(draft.columns, draft.channel or Vendor.Channel.EMAIL, draft.sponsor.phone_region)
    try:
        with blocks.spool_list(draft.pk, draft.list_version, draft.list_bytes, sign) as file:
            try:
                _look_through_rows(draft, fence, sign, facts, file, arrangement)
            finally:
                facts |= arrangement.known
    except (BadInput, TemplateError, NotEntitled) as error:
        bad = error if isinstance(error, BadInput) else BadInput(str(error))
        facts |= {"good": 0, **_problem_facts((one.row, one.text) for one in bad.problems), "total": bad.total}
    return facts


def _open_table(draft: Draft, file: Any, arrangement: Arrangement) -> intake.Table:
    """Raises BadInput."""
    hidden = draft.columns.get(HIDDEN_ROWS, "")
    return intake.Table(file, most_unpacked=UNPACKED, columns=arrangement, hidden_rows=hidden)


def _sheet_facts(table: intake.Table) -> dict[str, Any]:
    """Return notes on a spreadsheet for a person: hidden rows, and values given in another form than shown."""
    examples = {kind: list(found.items()) for kind, found in table.examples.items()}
    return {
        "hidden": len(table.hidden_rows),
        "hidden_rows": list(table.hidden_rows[:SHOWN_HIDDEN]),
        "examples": examples,
    }


def _look_through_rows(
    draft: Draft, fence: int, sign: Sign, facts: dict[str, Any], file: Any, arrangement: Arrangement
) -> None:
    """Check the rows and fill in the facts.

    Raises BadInput, TemplateError, NotEntitled if the whole list cannot be sent.
    """
    try:
        content = contents.content_of_draft(draft)
    except (BadInput, TemplateError, NotEntitled):
        facts |= _sheet_facts(_open_table(draft, file, arrangement))  # still finds the columns, for the page
        raise
    within = contents.hours_of_draft(draft)
    made = within.check_recipient_zones(draft.channel, content.compiled) if within else content.compiled
    arrangement.needed = made.fields | made.optional
    table = _open_table(draft, file, arrangement)
    facts |= _sheet_facts(table)
    left_out, steps = intake.LeftOut(), _Steps(table, sign)
    recipients = intake.check_table(table, draft.channel, made, steps, left_out, draft.sponsor.phone_region)
    facts |= {"rows": len(recipients) + len(left_out), "good": len(recipients), "total": len(left_out)}
    facts |= {"duplicates": left_out.duplicates, "bad": len(left_out) - left_out.duplicates}
    facts |= _problem_facts(islice(left_out.reasons_by_row(), SHOWN))
    sample: list[Any] = []
    blocks.add_blocks(
        draft.pk, DraftBlock.ROWS, fence, blocks.blocks_of_rows(steps.report_steps(recipients, facts["good"], sample))
    )
    failpoints.here("mid_check")
    if len(left_out):
        with tempfile.TemporaryFile() as out:
            # spreadsheets recognise UTF-8 by its byte order mark
            text = io.TextIOWrapper(out, encoding="utf-8-sig", newline="")
            intake.write_left_out(table, left_out, text)
            text.flush()
            out.seek(0)
            blocks.add_blocks(draft.pk, DraftBlock.LEFT_OUT, fence, blocks.blocks_of_file(out))
            text.detach()
    campaign = Campaign(sponsor_id=draft.sponsor_id, topic=draft.topic, transactional=draft.transactional)
    kept = (recipient for recipient, _ in blocks.CheckedRows(draft.pk, fence, facts["good"]))
    facts["suppressed"] = count_suppressed(campaign, draft.channel, kept)
    if facts["good"]:
        facts["weights"] = contents.weigh_draft(draft, content, sample, facts["good"])
