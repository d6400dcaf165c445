"""Numbers of an XLSX spreadsheet as text, by the formats of their cells (number_formats)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from campaigns.lists.intake.number_formats import NumberFormat, Section, ShownAs, parse_format

# Formats without a code of their own in the file (ECMA-376, 18.8.30), the East Asian and Thai ones too.
DATES = {*range(14, 18), 22, *range(27, 32), 34, 35, 36, *range(50, 59), *range(71, 75), 77, 81}
ELAPSED = {46, 79}
TIMES = {18, 19, 20, 21, 32, 33, 45, 47, 75, 76, 78, 80, *ELAPSED}
MONEY = {5, 6, 7, 8, 42, 44}
PERCENT = {9, 10}
NUMBERS = {2, 3, 4, 11, 12, 13, *range(37, 42), 43, 48}
BY_ID: dict[int, ShownAs] = {
    **dict.fromkeys(DATES, "date"),
    **dict.fromkeys(TIMES, "time"),
    **dict.fromkeys(MONEY, "money"),
    **dict.fromkeys(PERCENT, "percent"),
    **dict.fromkeys(NUMBERS, "number"),
}
FIRST_DAY, FIRST_DAY_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)  # noqa: DTZ001
LEAP_1900 = 60  # the day that spreadsheets count, though 1900 was not a leap year
LAST_DAY = 2_958_466  # 10000-01-01
DAY = 86_400  # seconds
LONGEST = 100  # digits of a whole number


@dataclass(frozen=True, slots=True)
class CellFormat:
    """The form of a cell's numbers. kind: names them if they are given in another form than shown."""

    kind: ShownAs
    parts: NumberFormat
    since_1904: bool = False


def cell_format(id: str, code: str | None, since_1904: bool) -> CellFormat | None:
    """Return the format with this id, and its code if the file has one of its own; None: a number as it is."""
    if code is None:
        number = int(id) if id.isdecimal() and len(id) < 10 else 0
        kind = BY_ID.get(number, "")
        section = Section((), None, kind, is_elapsed=number in ELAPSED)
        return CellFormat(kind, NumberFormat((section,)), since_1904) if kind else None
    parts = parse_format(code)
    if not any(section.kind or section.is_code or section.has_word for section in parts.sections):
        return None
    kind = next((section.kind for section in parts.sections if section.kind and not section.is_code), "")
    return CellFormat(kind, parts, since_1904)


def number_text(text: str, form: CellFormat | None) -> str:
    """Return a number of the file as text, without an exponent; dates and times as ISO 8601.

    Whole numbers keep their digits, others the 15 that spreadsheets show.
    """
    is_whole = text.isascii() and text.isdigit() and len(text) <= LONGEST
    if form is None and is_whole:
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    if number != number or abs(number) == float("inf"):
        return text
    exact = Decimal(text if is_whole else f"{number:.15g}") if number else Decimal(0)  # also for -0
    section, has_sign = form.parts.section_for(exact) if form else (None, True)
    if form and section and section.kind in ("date", "time") and 0 <= number < LAST_DAY:
        return _format_moment(
            number if section.kind == "date" or section.is_elapsed else number % 1, section.kind, form
        )
    if form and section and section.is_elapsed and -LAST_DAY < number < 0:
        return "-" + _format_moment(-number, "time", form)
    if form and section and (section.is_code or section.has_word or (section.is_text and form.parts.has_code)):
        try:
            return ("-" if exact < 0 and has_sign else "") + section.show_number(abs(exact))
        except ArithmeticError:  # it has more digits than anybody writes
            pass
    return format(exact, "f")


def _format_moment(days: float, kind: ShownAs, form: CellFormat) -> str:
    seconds = round(days * DAY)
    if kind == "time":
        minutes, second = divmod(seconds, 60)
        return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    first = FIRST_DAY_1904 if form.since_1904 else FIRST_DAY
    if not form.since_1904 and days < LEAP_1900:
        seconds += DAY
    moment = first + timedelta(seconds=seconds)
    return moment.isoformat() if seconds % DAY else moment.date().isoformat()
