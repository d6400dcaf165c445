"""Filters that templates have besides Jinja's: text and lists joined within the budget, values formatted by locale.

The locale is the filter's own (`locale="de_DE"`), else the value of `locale`, which may be a field or be set by the
template, else English.
"""

import reprlib
from collections.abc import Callable
from copy import copy
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import lru_cache, wraps
from typing import Any
from zoneinfo import ZoneInfo

from babel import Locale, UnknownLocaleError, dates, lists, numbers
from jinja2 import Undefined, pass_context
from jinja2.filters import do_float, do_int, do_items, do_reverse, do_round, do_sort, do_trim, do_unique
from jinja2.runtime import Context
from markupsafe import Markup, escape

from campaigns.texts.cost import METER, TEXT
from vendors.said import Said

DEFAULT = "en"
FORMATTING = 100  # steps to format one value
LONGEST = 1_000_000  # characters a filter may make
LONGEST_PATTERN = 60
MOST_DIGITS = 20  # before the decimal point, and after it
MOST_LISTED = 1_000
LONGEST_NUMBER = 400  # characters of a text read as a number; longer ones take too long to compute with
LONGEST_ARGUMENT = 100  # characters of a member's name, and of the characters to trim
MOST_PARTS = 5  # of `attribute`
PARTED = 4  # steps to get one member

_beginnings = reprlib.Repr()  # shortens lists to what fits into a sentence
_beginnings.maxstring, _beginnings.maxlist, _beginnings.maxtuple, _beginnings.maxlevel = 60, 12, 12, 2


def shorten_value(value: Any) -> str:
    """Return the beginning of any value, as Python would write it."""
    return "an object" if isinstance(value, dict) else _beginnings.repr(value)


def _spend_steps(context: Context, steps: int) -> None:
    context[METER].spend_steps(steps)


@pass_context
def replace_text(context: Context, value: Any, old: str, new: str) -> str:
    """Replace every occurrence: `{{ name|replace("-", " ") }}`."""
    text, old, new = _plain_text_of(value), _plain_text_of(old), _plain_text_of(new)
    if not old:
        raise ValueError(Said("replace: what is to be replaced is empty"))
    length = len(text) + text.count(old) * (len(new) - len(old))
    _charge_length(context, length)
    return text.replace(old, new)


@pass_context
def join_texts(context: Context, values: Any, separator: str = "") -> str:
    """Join texts: `{{ names|join(", ") }}`."""
    texts, separator = _plain_texts_of(values, "join"), _plain_text_of(separator)
    _charge_length(context, sum(map(len, texts)) + len(separator) * len(texts))
    if any(isinstance(one, Markup) for one in texts):
        return escape(separator).join(texts)
    return separator.join(texts)


@pass_context
def join_sentence(context: Context, values: Any, kind: str = "and", locale: str | None = None) -> str:
    """Join names in a sentence: `{{ names|sentence }}` gives Ann, Bob, and Eve. `sentence("or")` gives Ann, Bob, or
    Eve.
    """
    texts = _plain_texts_of(values, "sentence")
    if kind not in ("and", "or"):
        raise ValueError(Said("sentence: %(kind)s is neither 'and' nor 'or'", kind=repr(kind)))
    if len(texts) > MOST_LISTED:
        raise ValueError(Said("sentence: there are more than %(most)s values", most=MOST_LISTED))
    _charge_length(context, sum(map(len, texts)) * max(1, len(texts) // 10))  # Babel appends each text to a growing one
    found = _find_locale(context, locale)
    return lists.format_list([str(one) for one in texts], "standard" if kind == "and" else "or", locale=found)


@pass_context
def shown_date(context: Context, value: Any, form: str = "medium", locale: str | None = None) -> str:
    """Format a date: `{{ due|date }}`, `{{ due|date("long") }}`, `{{ due|date("d MMMM yyyy") }}`. value: ISO 8601."""
    moment = _parse_date(value, "date")
    return _format_in_locale(
        context, "date", locale, lambda found: dates.format_date(moment, _check_pattern(form), found)
    )


@pass_context
def shown_time(
    context: Context, value: Any, form: str = "short", zone: str | None = None, locale: str | None = None
) -> str:
    """Format a time: `{{ start|time }}`, `{{ start|time(zone="Europe/London") }}`.

    value: ISO 8601, a time or a date with a time.
    """
    moment = _move_to_zone(_parse_time_value(value), zone)
    return _format_in_locale(
        context, "time", locale, lambda found: dates.format_time(moment, _check_pattern(form), locale=found)
    )


@pass_context
def shown_datetime(
    context: Context, value: Any, form: str = "medium", zone: str | None = None, locale: str | None = None
) -> str:
    """Format a date and time: `{{ start|datetime("short", zone="Europe/London") }}`. value: ISO 8601."""
    moment = _move_to_zone(_parse_date(value, "datetime"), zone)
    return _format_in_locale(
        context, "datetime", locale, lambda found: dates.format_datetime(moment, _check_pattern(form), locale=found)
    )


@pass_context
def shown_number(context: Context, value: Any, digits: int | None = None, locale: str | None = None) -> str:
    """Format a number: `{{ 1234.5|number }}` gives 1,234.5; `number(2)` gives 1,234.50."""
    number = _parse_number(value, "number")
    return _format_in_locale(
        context, "number", locale, lambda found: _format_decimal(number, found.decimal_formats[None], digits, found)
    )


@pass_context
def shown_percent(context: Context, value: Any, digits: int | None = None, locale: str | None = None) -> str:
    """Format a percentage: `{{ 0.256|percent }}` gives 26%; `percent(1)` gives 25.6%."""
    number = _parse_number(value, "percent")
    return _format_in_locale(
        context, "percent", locale, lambda found: _format_decimal(number, found.percent_formats[None], digits, found)
    )


@pass_context
def shown_money(context: Context, value: Any, currency: str, locale: str | None = None) -> str:
    """Format an amount: `{{ amount|money("EUR") }}` gives €1,234.50."""
    if not (isinstance(currency, str) and numbers.is_currency(currency)):
        raise ValueError(Said("money: %(value)s is no currency, like EUR", value=_quote_short(currency)))
    number = _parse_number(value, "money")
    return _format_in_locale(
        context, "money", locale, lambda found: numbers.format_currency(number, currency, locale=found)
    )


def _format_in_locale(context: Context, name: str, locale: str | None, make: Callable[[Locale], str]) -> str:
    _spend_steps(context, FORMATTING)
    try:
        return make(_find_locale(context, locale))
    except (ValueError, KeyError, AttributeError, OverflowError, TypeError) as error:
        raise ValueError(Said.join_parts(": ", (name, str(error)))) from error


def _find_locale(context: Context, named: str | None) -> Locale:
    name = named if named is not None else context.get("locale", DEFAULT)
    if isinstance(name, Undefined) or name in ("", None):
        name = DEFAULT
    found = _known_locale(name) if isinstance(name, str) and len(name) <= 40 else None
    if found is None:
        raise ValueError(Said("%(value)s is no locale, like de_DE", value=_quote_short(name)))
    return found


@lru_cache(maxsize=256)
def _known_locale(name: str) -> Locale | None:
    try:
        return Locale.parse(name.replace("-", "_"))
    except (ValueError, UnknownLocaleError):
        return None


def _check_pattern(form: Any) -> Any:
    if not isinstance(form, str) or not 0 < len(form) <= LONGEST_PATTERN:
        raise ValueError(
            Said("%(value)s is no format, like short, medium, long, full or 'd MMMM yyyy'", value=_quote_short(form))
        )
    return form


def _parse_date(value: Any, name: str) -> datetime:
    try:
        return datetime.fromisoformat(_plain_text_of(value).strip())
    except ValueError:
        raise ValueError(
            Said("%(filter)s: %(value)s is no date like 2026-03-31", filter=name, value=_quote_short(value))
        ) from None


def _parse_time_value(value: Any) -> datetime:
    text = _plain_text_of(value).strip()
    try:
        return datetime.combine(date(2000, 1, 1), time.fromisoformat(text))
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            Said("time: %(value)s is no time like 18:30 or 2026-03-31T18:30", value=_quote_short(value))
        ) from None


def _move_to_zone(moment: datetime, zone: str | None) -> datetime:
    """Return the moment in the zone, without tzinfo; a moment without a zone is local already."""
    if zone is None or moment.tzinfo is None:
        return moment.replace(tzinfo=None)
    try:
        return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    except (ValueError, OSError, KeyError, OverflowError, TypeError):
        raise ValueError(Said("%(value)s is no time zone, like Europe/London", value=_quote_short(zone))) from None


def _parse_number(value: Any, name: str) -> Decimal:
    try:
        text = _plain_text_of(value).strip()
        number = Decimal(text) if not isinstance(value, bool) and len(text) <= LONGEST_NUMBER else Decimal("nan")
    except InvalidOperation:
        number = Decimal("nan")
    if (
        not number.is_finite()
        or abs(number.adjusted()) > MOST_DIGITS
        or -int(number.as_tuple().exponent) > 2 * MOST_DIGITS
    ):
        raise ValueError(Said("%(filter)s: %(value)s is no number like 1234.5", filter=name, value=_quote_short(value)))
    return number


def _format_decimal(number: Decimal, pattern: numbers.NumberPattern, digits: Any, locale: Locale) -> str:
    """Format a number by the locale's pattern. digits: after the decimal point; None: as the pattern says."""
    if digits is not None:
        if type(digits) is not int or not 0 <= digits <= MOST_DIGITS:
            raise ValueError(
                Said(
                    "there are 0 to %(most)s digits after the point, not %(value)s",
                    most=MOST_DIGITS,
                    value=_quote_short(digits),
                )
            )
        pattern = copy(pattern)
        pattern.frac_prec = (digits, digits)
    text: str = pattern.apply(number, locale)
    return text


def _plain_text_of(value: Any) -> str:
    """Return a text or a number as text. Raises ValueError for other values."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, list | tuple | dict):
        raise ValueError(Said("%(value)s is no text or number", value=_quote_short(value)))
    return str(value)  # raises if the value is undefined


def _plain_texts_of(values: Any, name: str) -> list[str]:
    if not isinstance(values, list | tuple):
        raise ValueError(Said("%(filter)s: %(value)s is no list", filter=name, value=_quote_short(values)))
    return [_plain_text_of(one) for one in values]


def _charge_length(context: Context, length: int) -> None:
    """Charge for a text before it is made."""
    if length > LONGEST:
        raise ValueError(Said("a text would be longer than %(most)s characters", most=LONGEST))
    _spend_steps(context, length // TEXT)


def _quote_short(value: Any) -> str:
    """Return the beginning of a value, to quote in a sentence."""
    text = "what is missing" if isinstance(value, Undefined) else shorten_value(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def listing_filter(make: Callable[..., Any]) -> Callable[..., Any]:
    """Make a Jinja filter that returns an iterator return a list."""

    @wraps(make)  # also copies the mark that makes Jinja pass the context
    def make_list(*given: Any, **named: Any) -> Any:
        result = make(*given, **named)
        return result if isinstance(result, str) else list(result)

    return make_list


@pass_context
def sorted_(
    context: Context, value: Any, reverse: bool = False, case_sensitive: bool = False, attribute: Any = None
) -> list[Any]:
    """Jinja's `sort`. attribute: a member's name, or several: `lines|sort(attribute="price,name")`."""
    _charge_attribute(context, "sort", value, attribute)
    return do_sort(context.environment, value, reverse, case_sensitive, attribute)


@pass_context
def unique_values(context: Context, value: Any, case_sensitive: bool = False, attribute: Any = None) -> list[Any]:
    """Jinja's `unique`, as a list."""
    _charge_attribute(context, "unique", value, attribute)
    return list(do_unique(context.environment, value, case_sensitive, attribute))


def _charge_attribute(context: Context, name: str, value: Any, attribute: Any) -> None:
    """Charge for looking up a member of each value. Raises ValueError if `attribute` names none."""
    if attribute is None or isinstance(attribute, Undefined):
        return
    parts = 1
    if isinstance(attribute, str):
        parts += attribute.count(".") + attribute.count(",")
    if not isinstance(attribute, str | int) or len(str(attribute)) > LONGEST_ARGUMENT or parts > MOST_PARTS:
        raise ValueError(Said("%(filter)s: %(value)s names no member", filter=name, value=_quote_short(attribute)))
    _spend_steps(context, len(value) * parts * PARTED)


def trim_text(value: Any, chars: str | None = None) -> str:
    """Jinja's `trim`, for a limited number of characters: it looks for each in all of them."""
    if chars is not None and len(_plain_text_of(chars)) > LONGEST_ARGUMENT:
        raise ValueError(Said("trim: at most %(most)s different characters can be trimmed", most=str(LONGEST_ARGUMENT)))
    return do_trim(value, chars)


def parse_whole_filter(value: Any, default: Any = 0, base: int = 10) -> Any:
    """Jinja's `int`. A text longer than LONGEST_NUMBER is not a number, because converting it takes too long."""
    return default if isinstance(value, str) and len(value) > LONGEST_NUMBER else do_int(value, default, base)


def real_number(value: Any, default: Any = 0.0) -> Any:
    """Jinja's `float`, with the same limit as `int`."""
    return default if isinstance(value, str) and len(value) > LONGEST_NUMBER else do_float(value, default)


def round_number(value: Any, precision: int = 0, method: str = "common") -> float:
    """Jinja's `round`, for at most 20 digits; more take too long."""
    if not isinstance(precision, int) or abs(precision) > MOST_DIGITS:
        raise ValueError(f"round: {_quote_short(precision)} are no digits from 0 to {MOST_DIGITS}")
    return do_round(value, precision, method)  # type: ignore[arg-type]


FILTERS: dict[str, Callable[..., Any]] = {
    "date": shown_date,
    "datetime": shown_datetime,
    "float": real_number,
    "int": parse_whole_filter,
    "join": join_texts,
    "money": shown_money,
    "number": shown_number,
    "percent": shown_percent,
    "items": listing_filter(do_items),
    "replace": replace_text,
    "reverse": listing_filter(do_reverse),
    "round": round_number,
    "sentence": join_sentence,
    "sort": sorted_,
    "time": shown_time,
    "trim": trim_text,
    "unique": unique_values,
}
