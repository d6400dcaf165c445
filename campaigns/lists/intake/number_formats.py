"""Number formats of spreadsheets (ECMA-376, 18.8.31): the text of a cell that holds a number.

Codes become the text that the spreadsheet shows: a postcode may be a number with leading zeros, a phone number one with
signs between its digits. Dates and times become ISO 8601, amounts plain numbers: templates write them by language.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import Literal

ShownAs = Literal["date", "time", "money", "percent", "number", "merged", ""]

TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"?|\\(?P<escaped>.)|_(?P<width>.)|\*.|\[(?P<bracket>[^\]]*)\]'
    r"|(?P<general>general)|(?P<exponent>e[+-])|(?P<sign>[0#?.,%/@;])|(?P<letters>[ymdhs]+|am/pm|a/p)|(?P<other>.)",
    re.IGNORECASE | re.DOTALL,
)
CONDITION = re.compile(r"(<=|>=|<>|<|>|=)\s*(-?[0-9.]+)")
ELAPSED = re.compile(r"h+|m+|s+", re.IGNORECASE)
CURRENCY = re.compile(r"[$£¥¢\u20a0-\u20cf]|\b(?:[A-Z]{3}|kr|Kč|zł|Ft|Fr|lei|лв)\b\.?")
THOUSANDS = re.compile(r"#[ '.\u00a0\u202f\u2019]##[0#](?![0#?])")  # grouped by literal signs instead of commas
LONGEST = 255  # characters of a code, the most that Excel takes
MOST_SECTIONS = 4
INEXACT = {"general", "exponent", "slash", "text"}  # a section with one of these is never a code


@dataclass(frozen=True, slots=True)
class Section:
    """One of the up to four parts of a code. signs: pairs of a class ("digit", "literal", ...) and a character.

    is_text: it shows a text instead of the number, or nothing. is_elapsed: it counts hours beyond a day.
    """

    signs: tuple[tuple[str, str], ...]
    condition: tuple[str, Decimal] | None
    kind: ShownAs
    is_code: bool = False
    is_text: bool = False
    is_elapsed: bool = False

    @property
    def has_word(self) -> bool:
        """True if it shows a word instead of the number, as for yes and no."""
        return self.is_text and any(sign.isalpha() for _, sign in self.signs)

    def show_number(self, number: Decimal) -> str:
        """Return the text that a spreadsheet shows for a number of 0 or more."""
        number *= Decimal(100) ** sum(kind == "percent" for kind, _ in self.signs)
        number /= Decimal(1000) ** self._scale_of_commas()
        decimals = sum(kind == "decimal" for kind, _ in self.signs)
        rounded = number.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)
        whole, _, fraction = f"{rounded:f}".partition(".")
        return "".join(self._fill_digits("" if whole == "0" else whole, fraction))

    def _scale_of_commas(self) -> int:
        """Count the commas behind the last digit before the point: each divides by a thousand."""
        kinds = [kind for kind, _ in self.signs if kind in ("digit", "comma", "point")]
        before = kinds[: kinds.index("point")] if "point" in kinds else kinds
        return len(before) - len("".join("," if kind == "comma" else "0" for kind in before).rstrip(","))

    def _fill_digits(self, whole: str, fraction: str) -> Iterator[str]:
        places = sum(kind == "digit" for kind, _ in self.signs)
        grouped = any(kind == "comma" for kind, _ in self.signs) and self._is_grouped()
        padded, place = False, 0
        for kind, sign in self.signs:
            if kind == "digit":
                left = places - place  # places from here on
                padded = padded or sign == "0"
                first, place = place == 0, place + 1
                digits = whole[: len(whole) - left + 1] if first else whole[len(whole) - left : len(whole) - left + 1]
                if len(whole) < left:
                    digits = "0" if padded else " " if sign == "?" else ""
                yield self._group_digits(digits, left) if grouped else digits
            elif kind == "decimal":
                digit, fraction = fraction[:1], fraction[1:]
                rest = (digit + fraction).strip("0")
                yield digit if sign == "0" or rest else " " if sign == "?" else ""
            elif kind == "point":
                yield "."
            elif kind == "literal":
                yield sign
            elif kind == "percent":
                yield "%"

    def _is_grouped(self) -> bool:
        kinds = "".join({"digit": "0", "comma": ",", "point": "."}.get(kind, "") for kind, _ in self.signs)
        return re.search("0,+0", kinds.partition(".")[0]) is not None

    @staticmethod
    def _group_digits(digits: str, left: int) -> str:
        """Put a comma behind each digit that has a multiple of three behind it. left: places from the last digit on."""
        behind = left - 1
        parts = []
        for back, digit in enumerate(reversed(digits)):
            at = behind + back
            parts.append(digit + ("," if at and at % 3 == 0 and digit.isdigit() else ""))
        return "".join(reversed(parts))


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A format code, cut into its sections for numbers."""

    sections: tuple[Section, ...]

    @property
    def has_code(self) -> bool:
        return any(section.is_code for section in self.sections)

    def section_for(self, number: Decimal) -> tuple[Section | None, bool]:
        """Return the part that shows this number, and True if a minus goes before a negative one."""
        if any(section.condition for section in self.sections):
            for section in self.sections:
                if section.condition is None or _does_condition_hold(number, *section.condition):
                    return section, True
            return None, True
        if len(self.sections) > 2 and number == 0:
            return self.sections[2], False
        if len(self.sections) > 1 and number < 0:
            return self.sections[1], False
        return (self.sections[0] if self.sections else None), True


def _does_condition_hold(number: Decimal, sign: str, bound: Decimal) -> bool:
    return {
        "<": number < bound,
        "<=": number <= bound,
        ">": number > bound,
        ">=": number >= bound,
        "=": number == bound,
        "<>": number != bound,
    }[sign]


@lru_cache(maxsize=1_000)
def parse_format(code: str) -> NumberFormat:
    """Read a code. Unknown parts leave numbers unchanged."""
    parts = list(_split_sections(code[:LONGEST]))[:MOST_SECTIONS]
    sections = [_parse_section(part, is_signed=len(parts) > 1) for part in parts]
    if len(sections) == MOST_SECTIONS or any(kind == "text" for kind, _ in sections[-1].signs):
        sections.pop()  # the section for texts
    return NumberFormat(tuple(sections))


def _split_sections(code: str) -> Iterator[list[re.Match[str]]]:
    found: list[re.Match[str]] = []
    for token in TOKEN.finditer(code):
        if token["sign"] == ";":
            yield found
            found = []
        else:
            found.append(token)
    yield found


def _parse_section(tokens: list[re.Match[str]], is_signed: bool) -> Section:
    """Parse a section. is_signed: there are others, such as one for negative numbers, so a plus only shows the sign."""
    signs: list[tuple[str, str]] = []
    condition, kinds, letters, currency, is_elapsed = None, set[str](), "", "", False
    for token in tokens:
        literal = token["quoted"] or token["escaped"] or (" " if token["width"] else "") or token["other"] or ""
        if bracket := token["bracket"]:
            if said := CONDITION.fullmatch(bracket.strip()):
                condition = said[1], _parse_decimal_text(said[2])
            elif ELAPSED.fullmatch(bracket):
                letters, is_elapsed = letters + "s", True
            elif bracket.startswith("$"):
                literal = currency = bracket[1:].partition("-")[0]
        elif token["letters"]:
            letters += token["letters"].lower()
        elif token["general"]:
            kinds.add("general")
        elif token["exponent"]:
            kinds.add("exponent")
        elif sign := token["sign"]:
            _add_sign(signs, kinds, sign)
        signs.extend(("literal", one) for one in literal)
    text = "".join(sign for _, sign in signs)
    has_currency = bool(currency) or CURRENCY.search(text) is not None
    kind = _kind_of_format(
        kinds, letters, has_currency, any(one == "literal" and sign.isalnum() for one, sign in signs)
    )
    is_code = not letters and not kinds & INEXACT and _is_code(signs, kinds, is_signed)
    return Section(tuple(signs), condition, kind, is_code, not kinds and not letters, is_elapsed)


def _parse_decimal_text(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError:
        return Decimal(0)


def _add_sign(signs: list[tuple[str, str]], kinds: set[str], sign: str) -> None:
    if sign in "0#?":
        signs.append(("decimal" if "point" in kinds else "digit", sign))
        kinds.add("digit")
        return
    name = {".": "point", ",": "comma", "%": "percent", "/": "slash", "@": "text"}[sign]
    if name == "slash" and "digit" not in kinds:
        signs.append(("literal", sign))  # no fraction
        return
    signs.append((name, sign))
    kinds.add(name)


def _kind_of_format(kinds: set[str], letters: str, has_currency: bool, has_text: bool) -> ShownAs:
    if "general" not in kinds and letters:
        if re.search("[yd]|mmm", letters):
            return "date"
        if re.search("[hs]", letters):
            return "time"
        if letters.startswith("m"):
            return "date"  # of a month alone
    if "digit" not in kinds:
        return ""
    if has_currency:
        return "money"
    if "percent" in kinds:
        return "percent"
    return "number" if kinds & {"point", "comma", "exponent", "slash"} or has_text else ""


def _is_code(signs: list[tuple[str, str]], kinds: set[str], is_signed: bool) -> bool:
    """Return True for a code: it fills up with zeros, begins with a plus, or has signs between ungrouped digits."""
    digits = [number for number, (kind, _) in enumerate(signs) if kind == "digit"]
    if not digits:
        return False
    zeros = [number for number in digits if signs[number][1] == "0"]
    if zeros and len([number for number in digits if number >= zeros[0]]) > 1:
        return True
    before = signs[digits[0] - 1] if digits[0] else ("", "")
    if before[0] == "literal" and before[1].isdigit():
        return True  # as "0"0, so that phone numbers keep their zero
    if signs[0] == ("literal", "+") and not is_signed and not kinds & {"point", "comma", "percent"}:
        return True  # a phone number
    within = signs[digits[0] : digits[-1] + 1]
    if not any(kind == "literal" for kind, _ in within):
        return False
    return THOUSANDS.search("".join(sign for _, sign in within)) is None
