"""Lists as spreadsheets and other programs write them: encodings, separators, commas too many; bad rows left out."""

import io
import time

import pytest

from campaigns.lists.intake import BadInput, LeftOut, Table, check_table, write_left_out
from campaigns.texts import templates
from tests.lists.test_intake_csv_reader import PLAIN, file, problems, stored

LIST = "email,name\nann@sandbox.example,José Åström\nbob@sandbox.example,Zoë\n"
NAMES = ["José Åström", "Zoë"]


def names(data: bytes, encoding: str | None = None) -> list[str]:
    return [fields["name"] for _, fields in check_table(Table(file(data), encoding), "email", PLAIN)]


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "iso-8859-15", "mac_roman"]
)
def test_a_list_may_have_any_encoding_that_is_named(encoding: str) -> None:
    assert names(LIST.encode(encoding), encoding) == NAMES


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
def test_what_spreadsheets_write_is_found_out(encoding: str) -> None:
    assert names(LIST.encode(encoding)) == NAMES
    assert names(LIST.replace(",", "\t").replace("\n", "\r\n").encode(encoding)) == NAMES


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        *(
            ("Wałęsa", "cp1250"),
            ("Erdős", "cp1250"),
            ("Dvořák Šimon", "cp1250"),
            ("Иван", "cp1251"),
            ("Γιώργος", "cp1253"),
        ),
        *(
            ("Müller", "mac_roman"),
            ("José", "mac_roman"),
            ("Işık", "cp1254"),
            ("O’Brien", "cp1252"),
            ("田中", "shift_jis"),
        ),
    ],
)
def test_an_encoding_that_would_be_a_guess_has_to_be_named(name: str, encoding: str) -> None:
    data = f"email,name\nann@sandbox.example,{name}\n".encode(encoding)
    (problem,) = problems(data)
    assert problem.row == 2 and "is not UTF-8; save it as XLSX or as 'CSV UTF-8', or name its encoding" in problem.text
    assert names(data, encoding) == [name]


def test_utf8_that_was_damaged_somewhere_is_not_taken_for_cp1252() -> None:
    (problem,) = problems(LIST.encode() + "eve@sandbox.example,Zoë\n".encode("cp1252"))
    assert (problem.row, "byte 0xeb" in problem.text) == (4, True)


@pytest.mark.parametrize("name", ["klingon", "hex", "idna\0"])
def test_an_encoding_that_does_not_exist_is_told(name: str) -> None:
    with pytest.raises(BadInput, match="is no encoding; name one like utf-8"):
        Table(file(LIST), name)


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;", "sep=|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_line_that_names_the_separator_is_no_row(first: str, encoding: str) -> None:
    sign = first.strip('"')[-1]
    data = f"{first}\r\nemail{sign}name\r\nann@sandbox.example{sign}A, nn\r\n"
    assert stored(data.encode(encoding), PLAIN) == [("ann@sandbox.example", {"name": "A, nn"})]
    assert [problem.row for problem in problems((data + "bad\r\n").encode(encoding))] == [3]


def test_commas_after_the_last_column_are_no_columns() -> None:
    data = "email,name,,\nann@sandbox.example,Ann,,\nbob@sandbox.example,Bob\neve@sandbox.example,Eve,,,,\n,,,,\n"
    assert [fields for _, fields in stored(data, PLAIN)] == [{"name": "Ann"}, {"name": "Bob"}, {"name": "Eve"}]
    assert [str(one) for one in problems(data + "zoe@sandbox.example,Zoe,,x\n")] == [
        "row 6: 4 cells, but the header has 2"
    ]


def test_a_column_with_blanks_in_its_name_is_a_field_with_underscores() -> None:
    content = templates.compile_templates("Hello", "Dear {{ First_name }} of {{ Straße_Nr }}", html=False)
    rows = stored("E-Mail, First name ,Straße/Nr.,,2nd\nann@sandbox.example,Ann,Weg 1,,x\n", content)
    assert rows == [("ann@sandbox.example", {"First_name": "Ann", "Straße_Nr": "Weg 1", "2nd": "x"})]
    (problem,) = problems(
        "email,First name\nann@sandbox.example,Ann\n", templates.compile_templates("", "{{ first }}", False)
    )
    assert problem.text == "the template needs 'first'; the columns are email, First_name"


def test_a_header_of_a_hundred_thousand_columns_takes_no_longer_for_each_of_them() -> None:
    def seconds(columns: int) -> float:
        data = "email," + ",".join(f"column{n}" for n in range(columns)) + "\n"
        began = time.process_time()
        Table(file(data))
        return time.process_time() - began

    seconds(1_000)
    assert seconds(100_000) < 60 * max(seconds(10_000), 0.02)
    found = problems("email" + ",name" * 100_000 + "\n")
    assert len(found) == 50


BAD = (
    "email;name;city\nann@sandbox.example;Ann;Ulm\nnobody;Bob;Bonn\n\nANN@sandbox.example;Again;Ulm\n"
    "eve@sandbox.example;;Köln\neve@sandbox.example;Eve;Köln\nzoe@sandbox.example\nnobody;;\n"
)


def left_out(data: str, channel: str = "email") -> tuple[list[str], list[str]]:
    table, out = Table(file(data)), LeftOut()
    kept = [address for address, _ in check_table(table, channel, PLAIN, left_out=out)]
    text = io.StringIO(newline="")
    write_left_out(table, out, text)
    return kept, text.getvalue().splitlines()


def test_bad_rows_and_duplicates_are_left_out_and_written_with_their_reasons() -> None:
    kept, written = left_out(BAD)
    assert kept == ["ann@sandbox.example", "eve@sandbox.example"], "the second eve is good: the first was left out"
    assert written[0] == "email;name;city;row in the list;left out because"
    assert [line.split(";")[0:4] for line in written[1:]] == [
        ["nobody", "Bob", "Bonn", "3"],
        ["ANN@sandbox.example", "Again", "Ulm", "5"],
        ["eve@sandbox.example", "", "Köln", "6"],
        ["zoe@sandbox.example", "", "", "8"],
        ["nobody", "", "", "9"],
    ]
    reasons = [line.split(";", 4)[4] for line in written[1:]]
    assert reasons[1] == "the same recipient as in row 2: ann@sandbox.example"
    assert reasons[2] == "'name' is empty, and the template shows it"
    assert reasons[3] == "1 cell, but the header has 3"
    assert "not an e-mail address" in reasons[4] and "'name' is empty" in reasons[4], "all that is wrong with a row"


def test_what_was_left_out_can_be_mended_and_read_again() -> None:
    _, written = left_out(BAD)
    mended = "\n".join(written).replace("nobody;Bob", "bob@sandbox.example;Bob")
    kept, _ = left_out(mended)
    assert kept == ["bob@sandbox.example", "ANN@sandbox.example"]


def test_thousands_of_bad_rows_are_left_out_and_the_others_kept_in_order() -> None:
    rows = [f"r{n}@sandbox.example;Ann;x" if n % 3 else f"bad{n};Ann;x" for n in range(9_000)]
    kept, written = left_out("\n".join(["email;name;city", *rows, *rows[1:2]]))
    assert kept == [f"r{n}@sandbox.example" for n in range(9_000) if n % 3]
    assert [int(line.split(";")[3]) for line in written[1:]] == [*range(2, 9_002, 3), 9_002]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("email;name\nbad;Ann\n", "there are no recipients: every row would be left out"),
        ("email;nom\nann@sandbox.example;Ann\n", "row 1: the template needs 'name'"),
        ('email;name\nbad;Ann\nann@sandbox.example;"Ann\n', "row 3: a quote is opened here and never closed"),
        ("email;name\n", "there are no recipients"),
    ],
)
def test_what_is_wrong_with_the_whole_list_is_refused_all_the_same(data: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        left_out(data)
