"""Checks the list of a draft: whoever holds the fence, once; what is lost or killed is done again.

`ask` says that it is to be done, by any door. The row is the truth: a task that is lost is found by the sweep, one that
comes twice finds the lease taken, and one whose draft has changed in between stops at its next step.
"""

import io
import logging
import tempfile
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_noop

from campaigns import estimates, failpoints, intake
from campaigns.content.templates import TemplateError
from campaigns.drafts import blocks, contents
from campaigns.drafts.columns import Arrangement
from campaigns.drafts.keeping import look, still_open
from campaigns.entitlements import NotEntitled
from campaigns.intake import BadInput
from campaigns.intake.checking import SHOWN, STEP
from campaigns.models import Campaign, Draft, DraftBlock
from campaigns.suppression.comparing import count_suppressed
from vendors.models import Vendor

log = logging.getLogger(__name__)
LEASE = timedelta(minutes=2)  # without a sign of life; a large spreadsheet is unpacked for a minute
SIGN = 1.0  # seconds between two
SMALL = 500_000  # bytes of a list that is checked at once, in less than a second
UNPACKED = 2_000_000_000  # bytes of a spreadsheet


class FenceLost(Exception):
    """Somebody else does it now, or it is not to be done any more."""


def ask(draft: Draft) -> Draft:
    """Has the list checked anew if what was found is not of this list and this message, or the check broke off."""
    if draft.list_version and (draft.found is None or draft.found.get("broken")):
        waiting = Draft.objects.filter(still_open(), pk=draft.pk)
        waiting.update(busy=Draft.CHECKING, fence=F("fence") + 1, lease_at=None, percent=0)
        return look(draft.pk)
    return draft


def is_small(draft: Draft) -> bool:
    """Whether it can be checked while somebody waits for the page."""
    return draft.list_bytes <= SMALL and not _is_packed(draft)


def _is_packed(draft: Draft) -> bool:
    """Whether it may unpack to many times its size, as a spreadsheet may."""
    return (blocks.read(draft.pk, DraftBlock.LIST, draft.list_version, 0) or b"").startswith(b"PK")


def claim(draft_id: int, busy: str) -> int | None:
    """Takes the fence for this work; None: there is none to do, or somebody does it."""
    now = timezone.now()
    with transaction.atomic():
        free = Q(lease_at=None) | Q(lease_at__lt=now - LEASE)
        waiting = Draft.objects.filter(free, pk=draft_id, busy=busy, campaign=None)
        # Who stores the campaign holds the row for as long as that takes: it is at work, however old its lease is.
        found = waiting.select_for_update(skip_locked=True, no_key=True).values_list("fence", flat=True).first()
        if found is None:
            return None
        Draft.objects.filter(pk=draft_id).update(fence=found + 1, lease_at=now)
        return int(found) + 1


def left_behind(now: datetime | None = None) -> list[tuple[int, str]]:
    """Drafts of which something is to be done that nobody does, and what."""
    latest = (now or timezone.now()) - LEASE
    rows = Draft.objects.filter(Q(lease_at=None) | Q(lease_at__lt=latest), busy__gt="", campaign=None)
    return list(rows.values_list("pk", "busy"))


class Sign:
    """Says now and then that somebody is at work, and how far. Raises FenceLost."""

    def __init__(self, draft_id: int, busy: str, fence: int) -> None:
        self.held = Draft.objects.filter(pk=draft_id, busy=busy, fence=fence, campaign=None)
        self._next = monotonic() + SIGN

    def __call__(self, percent: float = 0) -> None:
        if monotonic() < self._next:
            return
        self._next = monotonic() + SIGN
        if not self.held.update(lease_at=timezone.now(), percent=round(percent)):
            raise FenceLost


def check(draft_id: int) -> bool:
    """Checks the list and keeps what was found; False: somebody else does, or has done, or it has changed."""
    fence = claim(draft_id, Draft.CHECKING)
    if fence is None:
        return False
    draft, sign = look(draft_id), Sign(draft_id, Draft.CHECKING, fence)
    try:
        facts = _facts(draft, fence, sign)
    except (FenceLost, blocks.GoneAway):
        return False
    except Exception as error:  # else it would be tried again for ever
        log.exception("the list of draft %s cannot be checked", draft_id)
        facts = {**_nothing(draft, fence), "problems": [[0, unexpected(error)]], "total": 1, "broken": True}
    return _keep(sign, facts)


def _keep(sign: "Sign", facts: dict[str, Any]) -> bool:
    """Stores what was found, if it still is of this list and this message; else it is checked again, by the sweep."""
    with transaction.atomic():
        pk = sign.held.select_for_update(no_key=True).values_list("pk", flat=True).first()
        if pk is None:
            return False
        now = look(pk)
        if now.question != facts["question"]:
            sign.held.update(fence=F("fence") + 1, lease_at=None)
            return False
        agreed = now.leave_out and (now.facts or {}).get("total") == facts["total"]  # to leave out so many
        sign.held.update(busy="", lease_at=None, facts=facts, leave_out=agreed)
        blocks.delete_others(pk, [DraftBlock.ROWS, DraftBlock.LEFT_OUT], facts["version"])
    return True


def unexpected(error: Exception) -> str:
    """What is said of an error that is in no one's power who reads it; the log has the rest."""
    why = gettext_noop("something went wrong that should not have (%(error)s). Nothing was sent. Please try again.")
    return why % {"error": type(error).__name__}


class _Steps:
    """Reading is the first four fifths of the work, storing the rest."""

    def __init__(self, table: intake.Table, sign: Sign) -> None:
        self._file, self._size, self._sign = table.file, max(1, table.size), sign

    def __call__(self) -> None:
        self._sign(80 * self._file.tell() / self._size)

    def each(self, rows: Iterable[Any], total: int, sample: list[Any]) -> Iterator[Any]:
        """sample: gets those of which letters are made for the estimate."""
        chosen = estimates.chosen(total)
        for number, row in enumerate(rows):
            if number % STEP == 0:
                self._sign(80 + 20 * number / max(1, total))
            if chosen(number):
                sample.append(row)
            yield row


def _nothing(draft: Draft, fence: int) -> dict[str, Any]:
    """The facts before anything was found."""
    facts: dict[str, Any] = {"question": draft.question, "version": fence, "rows": 0, "good": 0, "bad": 0}
    facts |= {"duplicates": 0, "suppressed": 0, "problems": [], "total": 0, "columns": [], "recipient": ""}
    return facts | {"weights": {}}


def _facts(draft: Draft, fence: int, sign: Sign) -> dict[str, Any]:
    facts = _nothing(draft, fence)
    arrangement = Arrangement(draft.columns, draft.channel or Vendor.Channel.EMAIL, draft.sponsor.phone_region)
    try:
        with blocks.spool(draft.pk, draft.list_version, draft.list_bytes, sign) as file:
            try:
                _look(draft, fence, sign, facts, file, arrangement)
            finally:
                facts |= arrangement.known
    except (BadInput, TemplateError, NotEntitled) as error:
        bad = error if isinstance(error, BadInput) else BadInput(str(error))
        facts |= {"good": 0, "problems": [[one.row, one.text] for one in bad.problems], "total": bad.total}
    return facts


def _look(draft: Draft, fence: int, sign: Sign, facts: dict[str, Any], file: Any, arrangement: Arrangement) -> None:
    """Raises BadInput, TemplateError, NotEntitled: then the list as a whole cannot be sent."""
    try:
        content = contents.of(draft)
    except (BadInput, TemplateError, NotEntitled):
        intake.Table(file, most_unpacked=UNPACKED, columns=arrangement)  # its columns are worth to be known
        raise
    within = contents.hours(draft)
    made = within.with_zones(draft.channel, content.compiled) if within else content.compiled
    arrangement.needed = made.fields | made.optional
    table = intake.Table(file, most_unpacked=UNPACKED, columns=arrangement)
    left_out, steps = intake.LeftOut(), _Steps(table, sign)
    recipients = intake.check_table(table, draft.channel, made, steps, left_out, draft.sponsor.phone_region)
    facts |= {"rows": len(recipients) + len(left_out), "good": len(recipients), "total": len(left_out)}
    facts |= {"duplicates": left_out.duplicates, "bad": len(left_out) - left_out.duplicates}
    facts["problems"] = [[row, text] for (row, text), _ in zip(left_out.reasons(), range(SHOWN), strict=False)]
    sample: list[Any] = []
    blocks.add(draft.pk, DraftBlock.ROWS, fence, blocks.of_rows(steps.each(recipients, facts["good"], sample)))
    failpoints.here("mid_check")
    if len(left_out):
        with tempfile.TemporaryFile() as out:
            text = io.TextIOWrapper(out, encoding="utf-8-sig", newline="")  # spreadsheets know UTF-8 by its mark
            intake.write_left_out(table, left_out, text)
            text.flush()
            out.seek(0)
            blocks.add(draft.pk, DraftBlock.LEFT_OUT, fence, blocks.of_file(out))
            text.detach()
    campaign = Campaign(sponsor_id=draft.sponsor_id, topic=draft.topic, transactional=draft.transactional)
    kept = (recipient for recipient, _ in blocks.CheckedRows(draft.pk, fence, facts["good"]))
    facts["suppressed"] = count_suppressed(campaign, draft.channel, kept)
    if facts["good"]:
        facts["weights"] = contents.weigh(draft, content, sample, facts["good"])
