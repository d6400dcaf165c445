"""Foreign texts in files for spreadsheets: no text is taken for a formula, and the original can be restored.

A spreadsheet opens a CSV file by local conventions. Where numbers have a decimal comma it splits at semicolons,
regardless of the file's separator, and a quotation mark inside a row quotes nothing. A text therefore has a part after
each sign at which a row may be split, and each part may become a cell.
"""

import re

_PARTS = r"[;,\t\r\n]"
# Invisible characters, which a spreadsheet may strip before it looks for a formula.
_UNSEEN = (
    r"[ \"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U000e0000-\U000e0fff]"
)
_FORMULA = rf"{_UNSEEN}*[=+\-@\uff1d\uff0b\uff0d\uff20]"  # the last four are full-width forms
_RISKY = re.compile(rf"\A'*(?:{_FORMULA}|{_UNSEEN}*[\t\r\n])|{_PARTS}'*{_FORMULA}")
_BEGIN = rf"(?:\A|(?<={_PARTS}))"
_NUMBER = r"[+-][0-9][0-9 .,]*(?=[;\t\r\n]|\Z)"  # phone numbers too: harmless, and a quote before them would annoy
_DANGEROUS = re.compile(rf"{_BEGIN}(?!{_NUMBER})(?='*{_FORMULA})|\A(?='*{_UNSEEN}*[\t\r\n])")
_DEFUSED = re.compile(rf"{_BEGIN}'(?='*{_FORMULA})|\A'(?='*{_UNSEEN}*[\t\r\n])")

_ONE_TEXT = re.compile(r'="((?:[^"]|"")*)"')  # a formula that is nothing but a text


def make_harmless(text: str) -> str:
    """Return the text with an apostrophe before each part that a spreadsheet would take for a formula."""
    return _DANGEROUS.sub("'", text) if _RISKY.search(text) else text


def text_of_formula(text: str) -> str:
    """Return what a spreadsheet shows for a cell of CSV: ="01067", which programs write to keep zeros, is 01067."""
    found = _ONE_TEXT.fullmatch(text) if text.startswith('="') else None
    return found[1].replace('""', '"') if found else text


def undo_harmless(text: str) -> str:
    """Return the original of a text made by `make_harmless`."""
    return _DEFUSED.sub("", text) if "'" in text else text
