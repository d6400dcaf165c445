"""Numbers of a spreadsheet as text: as the person who made the list sees them, where that is more than a number.

A date is a number of days that is shown as a date, and a postcode may be a number that is shown with leading zeros.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

# Formats without a code of their own in the file (ECMA-376, 18.8.30), the East Asian ones too.
DATES = {*range(14, 18), 22, *range(27, 32), 34, 35, 36, *range(50, 59)}
TIMES = {18, 19, 20, 21, 32, 33, 45, 46, 47}
# What is not a sign of a date: quoted and escaped text, colours and conditions; but [h], [mm] and [ss] are.
LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h+\]|m+\]|s+\])[^\]]*\]', re.IGNORECASE)
FIRST_DAY, FIRST_DAY_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)  # noqa: DTZ001
LEAP_1900 = 60  # the day that spreadsheets count, though 1900 was no leap year
LAST_DAY = 2_958_466  # 10000-01-01
DAY = 86_400  # seconds


@dataclass(frozen=True, slots=True)
class CellFormat:
    """How the number of a cell is shown. digits: with leading zeros up to so many."""

    kind: Literal["date", "time", "digits"]
    since_1904: bool = False
    digits: int = 0


def cell_format(id: str, code: str | None, since_1904: bool) -> CellFormat | None:
    """The format with this id, and its code if the file has one of its own; None: a number shown as it is."""
    if code is None:
        number = int(id) if id.isdecimal() and len(id) < 10 else 0
        kind: Literal["date", "time"] | None = "date" if number in DATES else "time" if number in TIMES else None
        return CellFormat(kind, since_1904) if kind else None
    if re.fullmatch("0{2,32}", code):
        return CellFormat("digits", digits=len(code))
    signs = LITERAL.sub("", code.split(";")[0]).lower()
    if "general" in signs:
        return None
    if re.search("[yd]", signs) or re.search("mmm", signs):
        return CellFormat("date", since_1904)
    return CellFormat("time", since_1904) if re.search("[hs]", signs) else None


def number_text(text: str, form: CellFormat | None) -> str:
    """A number as the file has it, as text: up to 15 digits, without an exponent; dates and times as ISO 8601."""
    if text.isdigit() and len(text) < 16 and form is None:
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    if form is not None and form.kind != "digits" and 0 <= number < LAST_DAY:
        return _moment(number, form)
    if number != number or abs(number) == float("inf"):
        return text
    plain = format(Decimal(f"{number:.15g}"), "f")
    return plain.zfill(form.digits) if form is not None and plain.isdigit() else plain


def _moment(days: float, form: CellFormat) -> str:
    seconds = round(days * DAY)
    if form.kind == "time":
        minutes, second = divmod(seconds, 60)
        return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    first = FIRST_DAY_1904 if form.since_1904 else FIRST_DAY
    if not form.since_1904 and days < LEAP_1900:
        seconds += DAY
    moment = first + timedelta(seconds=seconds)
    return moment.isoformat() if seconds % DAY else moment.date().isoformat()
