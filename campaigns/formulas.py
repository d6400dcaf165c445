"""Texts of others in files for spreadsheets: none is taken for a formula there, and each can be read back.

A spreadsheet opens a CSV file by the customs of its country: where numbers have a decimal comma it splits at
semicolons, whatever the file is separated by, and in the middle of a row a quotation mark quotes nothing. So a text has
a part after each sign at which a row may be split, and each part may become a cell.
"""

import re

_PARTS = r"[;,\t\r\n]"
# Signs that nobody sees, which a spreadsheet may leave out before it looks for a formula.
_UNSEEN = (
    r"[ \"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U000e0000-\U000e0fff]"
)
_FORMULA = rf"{_UNSEEN}*[=+\-@\uff1d\uff0b\uff0d\uff20]"  # the last four are those of East Asian keyboards
_RISKY = re.compile(rf"\A'*(?:{_FORMULA}|{_UNSEEN}*[\t\r\n])|{_PARTS}'*{_FORMULA}")
_BEGIN = rf"(?:\A|(?<={_PARTS}))"
_NUMBER = r"[+-][0-9][0-9 .,]*(?=[;\t\r\n]|\Z)"  # also of a phone: harmless, and nobody wants a quote before it
_DANGEROUS = re.compile(rf"{_BEGIN}(?!{_NUMBER})(?='*{_FORMULA})|\A(?='*{_UNSEEN}*[\t\r\n])")
_DEFUSED = re.compile(rf"{_BEGIN}'(?='*{_FORMULA})|\A'(?='*{_UNSEEN}*[\t\r\n])")


def harmless(text: str) -> str:
    """The text with an apostrophe before each part that a spreadsheet would take for a formula."""
    return _DANGEROUS.sub("'", text) if _RISKY.search(text) else text


def undone(text: str) -> str:
    """The text that `harmless` was given."""
    return _DEFUSED.sub("", text) if "'" in text else text
