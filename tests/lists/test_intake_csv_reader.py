"""CSV as spreadsheets write it: read right, or refused with the row that a spreadsheet shows."""

import csv
import io
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaigns.lists.intake import BadInput, RowError, Table, check_table
from campaigns.texts import templates
from campaigns.texts.formulas import text_of_formula
from campaigns.texts.given_texts import given_value

PLAIN = templates.compile_templates("Hello", "Dear {{ name }}", html=False)
BARE = templates.compile_templates("Hello", "Good day", html=False)


def problems(data: bytes | str, content: templates.Content = PLAIN, channel: str = "email") -> list[RowError]:
    with pytest.raises(BadInput) as error:
        check_table(Table(file(data)), channel, content)
    return error.value.problems


def stored(data: bytes | str, content: templates.Content = PLAIN, channel: str = "email") -> list[tuple[str, dict]]:
    checked = check_table(Table(file(data)), channel, content)
    rows = list(checked)
    assert len(checked) == len(rows)
    return rows


def file(data: bytes | str) -> io.BytesIO:
    return io.BytesIO(data.encode() if isinstance(data, str) else data)


def shown(cell: str) -> str:
    return given_value(text_of_formula(given_value(cell)))


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=8), st.sampled_from(",;\t"), st.booleans())
def test_what_a_spreadsheet_writes_is_read_back(rows: list[tuple[str, str]], delimiter: str, bom: bool) -> None:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(["email", "one", "two"])
    writer.writerows((f"r{n}@sandbox.example", *row) for n, row in enumerate(rows))
    data = out.getvalue().encode("utf-8-sig" if bom else "utf-8")
    fields = [{"one": shown(one), "two": shown(two)} for one, two in rows]
    expected = [(f"r{n}@sandbox.example", of) for n, of in enumerate(fields)]
    assert stored(data, BARE) == expected


def test_quoted_line_breaks_blank_rows_and_old_line_ends_are_counted_as_a_spreadsheet_does() -> None:
    data = 'email,name\r\n"ann@sandbox.example","An\nn\r\n!"\r\n\r\n,\r\nbob@sandbox.example,Bob\r\nbad,Eve\r\n'
    assert [problem.row for problem in problems(data)] == [6]
    assert problems("email,name\rbad,Ann\r")[0].row == 2


def test_the_first_column_is_a_field_too_if_the_template_calls_it_by_its_name() -> None:
    content = templates.compile_templates("Hello", "{{ email }} is {{ recipient }}", html=False)
    assert stored("email\nAnn@SANDBOX.example\n", content) == [
        ("Ann@sandbox.example", {"email": "Ann@SANDBOX.example"})
    ]
    assert stored("recipient\nann@sandbox.example\n", BARE) == [("ann@sandbox.example", {})]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (b"PK\x03\x04rest", "the spreadsheet cannot be read: File is not a zip file"),
        (b"PK\x05\x06" + bytes(18), "the file is a packed archive, not CSV: save it as XLSX or as 'CSV UTF-8'"),
        (b"\x1f\x8brest", "the file is a gzip file, not CSV: save it as XLSX or as 'CSV UTF-8'"),
        (b"\xd0\xcf\x11\xe0rest", "the file is no spreadsheet, has a password, or is damaged: save it as XLSX"),
        ("email,name\n".encode("utf-16"), "there are no recipients"),
        ("email,name\nann@sandbox.example,A".encode("utf-16")[:-1], "the file is not in the encoding utf-16; save"),
        (b"email,name\n", "there are no recipients"),
        (b"email,name\n\n,\n", "there are no recipients"),
        (b"\nann@sandbox.example\n", "row 2: there is no header: the first row holds the recipient"),
        (b"\n\n,\nemail,nom\na@sandbox.example,A\n", "row 4: the template needs 'name'; the columns are email, nom"),
        (b"\n \n", "the file is empty"),
        (b"<!DOCTYPE html><table><tr><td>email", "the file is a web page, not CSV"),
        (b"\xef\xbb\xbf\n<?xml version='1.0'?><Workbook/>", "the file is XML, not CSV"),
        (b'[{"email": "ann@sandbox.example"}]', "the file is JSON, not CSV"),
        (b"BEGIN:VCARD\nEMAIL:ann@sandbox.example\n", "the file is an address book or calendar, not CSV"),
        (b"ann@sandbox.example,Ann\n", "row 1: there is no header: the first row holds the recipient"),
        (b"email,name,name\n", "row 1: column 3 has the same name as column 2: 'name'"),
        (b"email,name,Name *,name_2\n", "there are no recipients"),
        (
            b"email,First name,First-name\n",
            "row 1: column 3 has the same name as column 2: 'First name' and 'First-name'",
        ),
        (b",name\n", "row 1: column 1 has no name in the header"),
        (b"email,,name\nann@sandbox.example,x,Ann\n", "row 2: column 2 is not blank, and has no name in the header"),
        (b"email,name,recipient\n", "row 1: column 3 is called 'recipient'"),
        (b"email,nom\nann@sandbox.example,Ann\n", "row 1: the template needs 'name'; the columns are email, nom"),
        (b"email,name\nann@sandbox.example\n", "row 2: 1 cell, but the header has 2"),
        (b"email,name\nann@sandbox.example,A,B\n", "row 2: 3 cells, but the header has 2"),
        (b"email,name\nann@sandbox.example,\n", "row 2: 'name' is empty, and the template shows it"),
        (b"email,name\n,Ann\n", "row 2: there is no recipient"),
        (b"email,name\nann@sandbox.example,A\0nn\n", "row 2: 'name' has a NUL character in it"),
        (b"email,name\nann@sandbox.example," + b"x" * 100_001, "row 2: 'name' is larger than 100,000 characters"),
        (b"email,name\nann@sandbox.example," + b"x" * 200_000, "row 2: a cell is larger than 100,000 characters"),
        (
            b'email,name\na@sandbox.example,A\nb@sandbox.example,"Ann\n',
            "row 3: a quote is opened here and never closed",
        ),
        (b'email,name\na@sandbox.example,"A"nn\n', "row 2: something follows a closing quote; a quote"),
        (b"email,name\na@sandbox.example,A\nb@sandbox.example,Jos\x8e\n", "row 3: column 2: byte 0x8e at position 52"),
        (b"email,name\na@sandbox.example,\xc3", "row 2: column 2: byte 0xc3 at position 29"),
        (b"email,\x8e\n", "row 1: column 2: byte 0x8e at position 6 of the file is not UTF-8; save it as"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_row(data: bytes, message: str) -> None:
    found = problems(data)
    assert len(found) == 1
    assert str(found[0]).startswith(message)


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ('="01067"', "01067"), ('"=""01067"""', "01067"), ('"=""a """"b"""" c"""', 'a "b" c'), ('="" ', ""),
        (' =" 01067 "', "01067"), ("=1+1", "=1+1"), ('"=""a""&""b"""', '="a"&"b"'), ("'01067", "'01067"),
    ],
)  # fmt: skip
def test_a_formula_of_nothing_but_a_text_is_the_text(cell: str, name: str) -> None:
    """Programs write ="01067" into CSV, so that a spreadsheet shows the zero; Excel and LibreOffice show the text."""
    wanted = templates.compile_templates("Hello", "Dear {{ name|default('-', true) }}", html=False)
    [(_, fields)] = stored(f'email,"=""name"""\nann@sandbox.example,{cell}\n', wanted)
    assert fields["name"] == name


def test_rows_of_blanks_above_the_header_are_none_but_count() -> None:
    assert stored("\n ,\nemail,name\nann@sandbox.example,Ann\n") == [("ann@sandbox.example", {"name": "Ann"})]
    assert problems("\n ,\nemail,name\nbad,Ann\n")[0].row == 4


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("name", ["имя", "名前", "name"])
def test_wide_encodings_are_known_in_every_alphabet(encoding: str, name: str) -> None:
    data = f"{name};email\nИван;ann@sandbox.example\n田中;bob@sandbox.example\n".encode(encoding)
    assert list(Table(file(data)).rows())[1:] == [(3, ["田中", "bob@sandbox.example"])]


def test_a_stray_nul_does_not_make_a_file_wide() -> None:
    assert Table(file("email,name\nann@sandbox.example,Z\0oë\n")).encoding == "utf-8-sig"


@pytest.mark.parametrize("named", ["utf-16", "idna", "rot13", "utf-32"])
def test_an_encoding_that_the_file_does_not_have_is_told(named: str) -> None:
    with pytest.raises(BadInput, match="encoding"):
        Table(file("email,name\nann@sandbox.example,Ann\n"), named)


@pytest.mark.parametrize("first", ["sep=|", "sep=| ", '"sep=|"', "", "sep=;|||", '"sep=,"|', "sep=||"])
def test_bars_are_delimiters_too(first: str) -> None:
    assert stored(f"{first}\r\nemail|name\r\nann@sandbox.example|Ann, B\r\n")[0][1] == {"name": "Ann, B"}


def test_a_byte_that_is_not_utf8_is_found_far_into_a_file() -> None:
    rows = "".join(f"r{n}@sandbox.example,J\u00f6rg\n" for n in range(30_000)).encode()
    data = b"email,name\n" + rows + b"bad@sandbox.example,J\xf6rg\n"
    (problem,) = problems(data)
    assert str(problem).startswith(
        f"row 30002: column 2: byte 0xf6 at position {data.index(b'J' + bytes([0xF6])) + 1:,}"
    )


def test_an_endless_line_is_not_read_into_memory() -> None:
    (problem,) = problems(b"email,name\n" + b"x," * 6_000_000)
    assert str(problem) == "row 2: it cannot be read as CSV: a line is longer than 10,000,000 characters"


def test_no_cell_smuggles_a_line_into_the_subject() -> None:
    content = templates.compile_templates("Hello {{ name }}", "Good day", html=False)
    (problem,) = problems('email,name\nann@sandbox.example,"Ann\r\nBcc: all@sandbox.example"\n', content)
    assert str(problem) == "row 2: 'name' has a line break, and the subject shows it"


def test_a_template_that_fails_for_one_row_is_found_before_anything_is_stored() -> None:
    content = templates.compile_templates("Hello", "{{ amount|float|round(1)|abs }}{{ name|trim|abs }}", html=False)
    (problem,) = problems("email,name,amount\nann@sandbox.example,Ann,2\n", content)
    assert problem.row == 2


def test_the_first_fifty_problems_are_shown_by_row_and_all_are_counted() -> None:
    rows = [f"r{n}@sandbox.example,Ann" for n in range(200)]
    for n in range(1, 200, 2):
        rows[n] = "bad,Ann"
    rows[4] = rows[0]
    with pytest.raises(BadInput) as error:
        check_table(Table(file("\n".join(["email,name", *rows]))), "email", PLAIN)
    assert error.value.total == 101
    assert [problem.row for problem in error.value.problems] == sorted([6, *range(3, 100, 2)])
    assert str(error.value).endswith("... and 51 more; 101 problems in all")


def test_the_same_recipient_in_other_letters_is_a_duplicate() -> None:
    data = "email,name\nann@sandbox.example,A\nAnn@sandbox.example,A\nann@SANDBOX.example,A\n ann@sandbox.example,A\n"
    assert [str(problem) for problem in problems(data)] == [
        "row 3: the same recipient as in row 2: ann@sandbox.example",
        "row 4: the same recipient as in row 2: ann@sandbox.example",
        "row 5: the same recipient as in row 2: ann@sandbox.example",
    ]
    assert stored("email\nann@sandbox.example\na.nn@sandbox.example\nann+x@sandbox.example\n", BARE)[2:]
    assert len(stored("key\nA1\na1\n", BARE, "print")) == 2, "a key may tell capitals from small letters"
    assert len(problems("phone,name\n+44 7700 900123,A\n+447700900123,A\n", channel="sms")) == 1


def test_every_duplicate_is_found_wherever_it_stands() -> None:
    recipients = [f"r{n}@sandbox.example" for n in range(3_000)]
    rows = recipients + random.Random(7).sample(recipients, 40)
    with pytest.raises(BadInput) as error:
        check_table(Table(file("email\n" + "\n".join(rows))), "email", BARE)
    assert error.value.total == 40
    assert {problem.row for problem in error.value.problems} == set(range(3_002, 3_042))
