"""Texts of others in files for spreadsheets: none is taken for a formula there, and each can be read back.

A spreadsheet opens a CSV file by the customs of its country: where numbers have a decimal comma it splits at
semicolons, whatever the file is separated by, and in the middle of a row a quotation mark quotes nothing. So a text has
a part after each sign at which a row may be split, and each part may become a cell.
"""

import re

_PARTS = r"[;,\t\r\n]"
_FORMULA = r"[ \"\xa0]*[=+\-@\uff1d\uff0b\uff0d\uff20]"  # the last four are those of East Asian keyboards
_RISKY = re.compile(rf"\A'*(?:{_FORMULA}|[ \"\xa0]*[\t\r\n])|{_PARTS}'*{_FORMULA}")
_BEGIN = rf"(?:\A|(?<={_PARTS}))"
_NUMBER = r"[+-][0-9][0-9 .,]*(?=[;\t\r\n]|\Z)"  # also of a phone: harmless, and nobody wants a quote before it
_DANGEROUS = re.compile(rf"{_BEGIN}(?!{_NUMBER})(?='*{_FORMULA})|\A(?='*[ \"\xa0]*[\t\r\n])")
_DEFUSED = re.compile(rf"{_BEGIN}'(?='*{_FORMULA})|\A'(?='*[ \"\xa0]*[\t\r\n])")


def harmless(text: str) -> str:
    """The text with an apostrophe before each part that a spreadsheet would take for a formula."""
    return _DANGEROUS.sub("'", text) if _RISKY.search(text) else text


def undone(text: str) -> str:
    """The text that `harmless` was given."""
    return _DEFUSED.sub("", text) if "'" in text else text
