"""Exports a campaign's recipients, as in the list, with their outcomes, for files of a million rows.

Rows are read in the campaign's block of ids, some thousands in each statement, so memory and snapshots stay small.
Changes during the export may show in the later rows.
"""

import csv
import io
import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from django.db import connection

from campaigns.doors import labels
from campaigns.engine import progress
from campaigns.models import Campaign, Job, Message
from campaigns.models.states import PARENTS
from campaigns.reporting import reasons, xlsx_writer
from campaigns.reporting.message_rows import FINAL
from campaigns.reporting.own_files import name_report_columns
from campaigns.texts.formulas import make_harmless
from vendors.causes import AnswerCause
from vendors.causes.wording import CAUSE_LABELS

AT_ONCE = 5_000  # rows read by a statement
MOST_COLUMNS = 1_000  # fields of a list
LINES = 1_000  # of a CSV file, sent in one chunk
FAILURES = (labels.FAILED, labels.EXPIRED, labels.SUPPRESSED, labels.BOUNCED)
CALLED_SO = {labels.OPEN.lower(): (labels.WAITING, labels.SENDING, labels.STOPPED)}
READ = (
    "id", "recipient", "params", "message_id", "error_code", "error_sub_type", "in_doubt_at", "report", "sent_at",
    "report_at", "resend_no", "cause",
)  # fmt: skip
FIELDS = """
SELECT DISTINCT name FROM campaigns_message m CROSS JOIN LATERAL jsonb_object_keys(m.params) AS name
WHERE m.id >= %s AND m.id < %s LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class Export:
    """A campaign to export. states: labels, causes: of AnswerCause; empty: all.

    whole: with fields and whole addresses; else addresses are masked.
    """

    campaign: Campaign
    channel: str
    states: Collection[str] = ()
    whole: bool = True
    causes: Collection[str] = ()


def states_named(names: Iterable[str]) -> list[str]:
    """Return the labels these words name, in any case. Raises ValueError, which lists the known ones."""
    known = {label.lower().replace(" ", "_"): label for label in (*labels.SHAPES, *CALLED_SO[labels.OPEN.lower()])}
    wanted = [name.strip().lower().replace(" ", "_").replace("-", "_") for name in names]
    if strange := [name for name in wanted if name not in known]:
        raise ValueError(f"{strange[0]!r} is no state of a recipient; there are {', '.join(known)}")
    found = [known[name] for name in wanted]
    return [*found, *(CALLED_SO[labels.OPEN.lower()] if labels.OPEN in found else ())]


def csv_chunks(of: Export) -> Iterator[bytes]:
    """Yield CSV in UTF-8, with the byte order mark that spreadsheets need. No text is a formula there."""
    text, fields = io.StringIO(), field_names(of)
    writer = csv.writer(text)
    text.write("\ufeff")
    for number, row in enumerate(chain([_report_header(fields)], _report_rows(of, fields))):
        writer.writerow(map(make_harmless, row))
        if number % LINES == LINES - 1:
            yield _take_written(text)
    yield _take_written(text)


def xlsx_chunks(of: Export) -> Iterator[bytes]:
    """Yield a spreadsheet (XLSX). Its cells are texts, so none needs a quote."""
    fields = field_names(of)
    return xlsx_writer.xlsx_chunks(_report_header(fields), _report_rows(of, fields), of.campaign.name)


def _take_written(text: io.StringIO) -> bytes:
    taken = text.getvalue()
    text.seek(0)
    text.truncate()
    return taken.encode()


def field_names(of: Export) -> list[str]:
    """Return the fields in the list's order; those of a program's requests alphabetically."""
    if not of.whole:
        return []
    campaign = of.campaign
    if campaign.columns is not None:
        return list(campaign.columns)
    with connection.cursor() as cursor:
        end = campaign.first_message + campaign.size
        cursor.execute(FIELDS, [campaign.first_message, end, MOST_COLUMNS])
        return sorted(name for (name,) in cursor.fetchall())


def _report_header(fields: Sequence[str]) -> list[str]:
    """Return the header; our columns get a suffix if a field has the same name."""
    return ["recipient", *fields, *name_report_columns(fields)]


def _report_rows(of: Export, fields: Sequence[str]) -> Iterator[list[str]]:
    """Yield the rows as texts, as they are."""
    for row, label in _labelled_messages(of):
        if (of.states and label not in of.states) or (of.causes and row.cause not in of.causes):
            continue
        params = row.params
        cells = [labels.format_recipient(row.recipient, of.whole), *(_cell_text(params.get(name)) for name in fields)]
        yield [
            *cells,
            label,
            reasons.reason_of_message(row, of.channel),
            row.error_code or "",
            row.message_id or "",
            _time_cell(row.sent_at if row.message_id is not None or row.error_code is not None else None),
            _time_cell(row.report_at),
            str(row.resend_no + 1),
            CAUSE_LABELS[AnswerCause(row.cause)] if row.cause else "",
        ]


def _labelled_messages(of: Export) -> Iterator[tuple[Any, str]]:
    """Yield each message with its label, in order."""
    campaign = of.campaign
    leaves = list(
        Job.objects.filter(campaign=campaign)
        .exclude(status__in=PARENTS)
        .order_by("first_message")
        .only("first_message")
    )
    begins = [leaf.first_message for leaf in leaves]
    end = campaign.first_message + campaign.size
    for low in range(campaign.first_message, end, AT_ONCE):
        high = min(end, low + AT_ONCE)
        near = [leaf.pk for leaf in leaves[max(0, bisect_right(begins, low) - 1) : bisect_right(begins, high - 1)]]
        jobs = list(Job.objects.filter(pk__in=near).only("status", "first_message", "size", "parent"))
        called = progress.messages_in_flight(job.pk for job in jobs if job.status not in FINAL)
        still = [range(job.first_message, job.end) for job in jobs if job.status in FINAL]
        rows: Any = Message.objects.filter(id__gte=low, id__lt=high).order_by("id").values_list(*READ, named=True)
        for row in rows:
            stopped = any(row.id in span for span in still)
            yield row, labels.label_of_message(row, in_flight=row.id in called, stopped=stopped)


def _cell_text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _time_cell(at: datetime | None) -> str:
    return at.isoformat(timespec="seconds") if at else ""
