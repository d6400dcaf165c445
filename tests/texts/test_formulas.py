"""Texts of others in files for spreadsheets: no part is a formula, wherever a row is split, and each is read back."""

import csv
import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.lists.intake import LeftOut, Table, write_left_out
from campaigns.texts.formulas import make_harmless, undo_harmless

FORMULA = re.compile(r"[=+\-@\uff1d\uff0b\uff0d\uff20]")
NUMBER = re.compile(r"[+-][0-9][0-9 .,]*")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=1+1", "'=1+1"), ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"), ("-2+3", "'-2+3"), ("@SUM(A1)", "'@SUM(A1)"),
        ("\tx", "'\tx"), ("\rx", "'\rx"), ("+4930123456", "+4930123456"), ("+49 30 1234", "+49 30 1234"),
        ("-5.20", "-5.20"), ("a=1", "a=1"), ("", ""), ("-1-1", "'-1-1"), ("+1(2)", "'+1(2)"), ("a;=1", "a;'=1"),
        ("a,=1", "a,'=1"), ("a\t=1", "a\t'=1"), ("a\r\n=1", "a\r\n'=1"), ('a;"=1"', "a;'\"=1\""), (" =1", "' =1"),
        ("\uff1d1", "'\uff1d1"), ("1,-5", "1,-5"), ("'=1", "''=1"), ("it's", "it's"),
        ("\x0b=1", "'\x0b=1"), ("\ufeff=1", "'\ufeff=1"), ("\u3000=1", "'\u3000=1"), ("a;\x00@b", "a;'\x00@b"),
        ("\u200b\u00ad+1()", "'\u200b\u00ad+1()"), ("\u2028=1", "'\u2028=1"), ("\U000e0020=1", "'\U000e0020=1"),
        ("\u3000a", "\u3000a"),
    ],
)  # fmt: skip
def test_no_part_of_a_text_is_a_formula(text, written):
    assert make_harmless(text) == written
    assert undo_harmless(written) == text


@settings(max_examples=100)
@given(st.text("=+-@;,\t\r\n' \"1a\xa0\uff1d\x0b\u200b\u3000", max_size=12))
def test_no_part_begins_as_a_formula_and_each_text_is_read_back(text):
    written = make_harmless(text)
    assert undo_harmless(written) == text
    assert written[:1] not in ("\t", "\r", "\n")
    for part in re.split("[;\t\r\n]", written):
        begun = part.lstrip(' "\xa0\x0b\u200b\u3000')
        assert not FORMULA.match(begun) or NUMBER.fullmatch(part)
        for one in part.split(","):
            begun = one.lstrip(' "\xa0\x0b\u200b\u3000')
            assert not FORMULA.match(begun) or re.match(r"[+-][0-9]", one)


def test_what_was_left_out_is_read_again_as_it_was_in_the_list():
    cells = ["=x", "a;=cmd\n=more", "+49 30", "'=was"]
    text = io.StringIO()
    csv.writer(text).writerows([["email", "=name", "phone", "note"], cells])

    def bad_rows(data):
        table, out, written = Table(io.BytesIO(data.encode())), LeftOut(), io.StringIO()
        out.add_error(2, "=no address")
        out.end_pass()
        write_left_out(table, out, written)
        return written.getvalue()

    once = bad_rows(text.getvalue())
    assert "'=x" in once and "a;'=cmd\n'=more" in once and "''=was" in once and "'=no address" in once
    assert bad_rows(once) == once
    again = Table(io.BytesIO(once.encode()))
    assert again.header == ["email", "=name", "phone", "note", "row in the list", "left out because"]
    assert list(again.rows()) == [(2, [*cells, "2", "=no address"])]
