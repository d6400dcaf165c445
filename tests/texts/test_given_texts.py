"""Texts as people and programs give them come in by one door: lists, templates, files, the API, commands."""

import io
import json
import re
import unicodedata
import zipfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from campaigns.lists.api.schemas import SendRequest
from campaigns.lists.intake import BadInput, Table, check_table
from campaigns.lists.intake.checking import AddressReader
from campaigns.lists.intake.csv_reader import field_name
from campaigns.lists.intake.files import open_source
from campaigns.texts import templates
from campaigns.texts.given_texts import compose_text, given_address, given_fields, given_name, given_value
from campaigns.texts.templates import TemplateError

MULLER = "Mu\u0308ller"  # as a Mac writes it


def sent(data: str, subject: str = "News", body: str = "Dear {{ name }},") -> list[tuple[str, dict[str, str]]]:
    content = templates.compile_templates(subject, body, html=False)
    return list(check_table(Table(io.BytesIO(data.encode())), "email", content))


def faults(data: str, subject: str = "News", body: str = "Dear {{ name }},") -> list[tuple[int, str]]:
    with pytest.raises(BadInput) as refused:
        sent(data, subject, body)
    return [(one.row, one.text) for one in refused.value.problems]


class TestTheTable:
    @pytest.mark.parametrize(
        ("typed", "value"),
        [
            ("  Ann ", "Ann"),
            ("\u00a0Ann\u2003\u3000", "Ann"),
            ("\ufeffAnn\u200b", "Ann"),
            ("\u202aAnn\u202c", "Ann"),
            ("\u200eAnn\u200f", "Ann"),
            (" \u200e \u3164 ", ""),
            ("\u2800", ""),
            ("Ann\x01 Smith\x1f", "Ann Smith"),
            ("1 High Street\r\nBonn", "1 High Street\nBonn"),
            ("1 High Street\x0bBonn", "1 High Street\nBonn"),
            (MULLER, "M\u00fcller"),
            ("u\u200b\u0308", "\u00fc"),
            ("\u092a\u0942\u0930\u093e", "\u092a\u0942\u0930\u093e"),
            ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
            ("\U0001f468\u200d\U0001f469", "\U0001f468\u200d\U0001f469"),
            ("a\tb", "a\tb"),
        ],
    )
    def test_a_value_is_what_its_reader_sees(self, typed: str, value: str) -> None:
        assert given_value(typed) == value

    @pytest.mark.parametrize(
        ("typed", "name"),
        [
            ("Vor\u00adname", "Vorname"),
            (" First\r\nname ", "First name"),
            ("Gro\u0308\u00dfe", "Gr\u00f6\u00dfe"),
            ("na\u200bme", "name"),
        ],
    )
    def test_a_name_has_no_sign_that_nobody_sees(self, typed: str, name: str) -> None:
        assert given_name(typed) == name

    @pytest.mark.parametrize(
        "typed", ["\u202aann@example.org\u202c", "ann\u200b@example.org", " ann@example.org\ufeff"]
    )
    def test_an_address_copied_with_invisible_signs_is_the_address(self, typed: str) -> None:
        assert given_address(typed) == "ann@example.org"
        assert AddressReader("email")(typed) == "ann@example.org"

    @given(st.text())
    @example("u\u200b\u0308")
    @example("\u200e \u0308")
    def test_what_was_given_once_stays_the_same(self, text: str) -> None:
        for once in (compose_text, given_value, given_name, given_address):
            assert once(once(text)) == once(text)
            assert unicodedata.is_normalized("NFC", once(text)) or text.startswith("\0")

    def test_fields_of_programs_are_cleaned_at_every_level(self) -> None:
        fields = {" name ": " Ann ", "items": [" a ", {"b": "\u200b"}], "n": 3, "none": None}
        assert given_fields(fields) == {"name": "Ann", "items": ["a", {"b": ""}], "n": 3, "none": None}


class TestLists:
    def test_blanks_around_a_cell_and_a_quote_behind_one_are_no_part_of_it(self) -> None:
        rows = sent('email, name, city\nann@example.org, "Ann", Bonn\n')
        assert rows == [("ann@example.org", {"name": "Ann", "city": "Bonn"})]

    @pytest.mark.parametrize("blank", ["   ", "\u00a0", "\u200b", "\t"])
    def test_a_cell_of_blanks_is_empty(self, blank: str) -> None:
        assert faults(f"email;name\nann@example.org;{blank}\n") == [(2, "'name' is empty, and the template shows it")]
        ((_, fields),) = sent(f"email;name\nann@example.org;{blank}\n", body="{{ name|default('you', true) }}")
        assert fields == {"name": ""}

    @pytest.mark.parametrize("column", ["Gro\u0308\u00dfe", "Gr\u00f6\u00dfe"])
    @pytest.mark.parametrize("shown", ["Gro\u0308\u00dfe", "Gr\u00f6\u00dfe"])
    def test_a_column_is_found_however_its_letters_are_written(self, column: str, shown: str) -> None:
        body = compose_text("{{ " + shown + " }}")
        assert sent(f"email,{column}\nann@example.org,{MULLER}\n", body=body)[0][1] == {
            "Gr\u00f6\u00dfe": "M\u00fcller"
        }

    @pytest.mark.parametrize(
        ("header", "field"),
        [
            ("\u092a\u0942\u0930\u093e \u0928\u093e\u092e", "\u092a\u0942\u0930\u093e_\u0928\u093e\u092e"),
            ("\u0e0a\u0e37\u0e48\u0e2d \u0e40\u0e15\u0e47\u0e21", "\u0e0a\u0e37\u0e48\u0e2d_\u0e40\u0e15\u0e47\u0e21"),
            (
                "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd \u0baa\u0bc6\u0baf\u0bb0\u0bcd",
                "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd_\u0baa\u0bc6\u0baf\u0bb0\u0bcd",
            ),
            ("\u0627\u0633\u0652\u0645", "\u0627\u0633\u0652\u0645"),
            ("First name (given)", "First_name_given"),
            ("Vor\u00adname", "Vorname"),
        ],
    )
    def test_a_header_keeps_its_letters_and_vowel_signs(self, header: str, field: str) -> None:
        assert field_name(header) == field
        assert templates.compile_templates("News", "{{ " + field + " }}", html=False).fields == {field}

    def test_a_tab_in_a_subject_is_a_blank_as_in_the_letter(self) -> None:
        content = templates.compile_templates("For {{ name }}", "x", html=False)
        assert content.render_letter("ann@example.org", {"name": "Ann\tLee"})[0] == "For Ann Lee"

    @pytest.mark.parametrize("sign", ["\x00", "\x07", "\x1b", "\x7f"])
    def test_no_control_sign_reaches_a_subject(self, sign: str) -> None:
        content = templates.compile_templates("For {{ name }}", "x", html=False)
        with pytest.raises(TemplateError, match="control sign"):
            content.render_letter("ann@example.org", {"name": f"Ann{sign}"})

    def test_a_local_part_that_no_server_takes_is_a_bad_row(self) -> None:
        long = "\u00fc" * 40 + "@example.org"
        assert [row for row, _ in faults(f"email,name\n{long},Ann\n")] == [2]


class TestFiles:
    @pytest.mark.parametrize("written", [MULLER, "M\u00fcller"])
    def test_a_file_is_found_however_the_folder_writes_it(self, tmp_path: Path, written: str) -> None:
        (tmp_path / "J\u00fcni").mkdir()
        (tmp_path / "J\u00fcni" / f"{written}.pdf").write_bytes(b"%PDF")
        found = open_source(tmp_path)
        assert (found.size("J\u00fcni/M\u00fcller.pdf"), found.read_named("J\u00fcni/M\u00fcller.pdf")) == (4, b"%PDF")

    @pytest.mark.parametrize("is_flagged", [True, False])
    def test_a_file_is_found_in_an_archive_without_the_flag_of_utf8(self, tmp_path: Path, is_flagged: bool) -> None:
        path = tmp_path / "files.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{MULLER}.pdf", b"%PDF")
        if not is_flagged:  # as Finder writes it: the flag is in the entry's two headers
            data = bytearray(path.read_bytes())
            for at in (7, data.index(b"PK\x01\x02") + 9):
                data[at] &= ~0x08
            path.write_bytes(data)
        assert open_source(path).read_named("M\u00fcller.pdf") == b"%PDF"


class TestTemplates:
    @pytest.mark.parametrize(
        "sheet", ["@media (max-width:480px){#head{width:100%!important}}", "a{b}@media print{#x{c:d}}{#y{e:f}}"]
    )
    def test_a_minified_style_sheet_begins_no_comment(self, sheet: str) -> None:
        html = f"<html><head><style type='text/css'>{sheet}</style></head><body>Hi {{{{ name }}}}</body></html>"
        content = templates.compile_templates("News", html, html=True)
        assert content.render_letter("ann@example.org", {"name": "Ann"})[1] == html.replace("{{ name }}", "Ann")
        assert content.is_plain

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            ("Dear {{ name|default(“you”) }}", "line 1: “ is no straight quote: type ' or \""),
            ("Dear\n{{ name|default(’you’) }}", "line 2: ’ is no straight quote"),
            ("Dear {{ first name }}", "name stands behind a field's name: a field has one word, with _ for each blank"),
            ("Dear {{ first-name }}", "- is no part of a field's name: type _ in its place (line 1)"),
            ("Dear {{ first‑name }}", "‑ is no part of a field's name"),
            ("Dear {{ name|default('you) }}", "a quote is opened and not closed"),
            ("Dear {{&nbsp;name }}", "& is no part of a template's tag"),
            ("{% if a = 1 %}x{% endif %}", "two values are compared by =="),
            ("Dear {{{ name }}}", "a field stands between two braces on each side, as in {{ name }}"),
            ("Dear {{ name|default('x' }}", ") is missing"),
            ("Dear {{ name }", "{{ is open: }} is missing"),
            ("Dear {{ name", "{{ is open: }} is missing"),
            ("Dear {{ }}", "a field's name is missing"),
            ("Dear {{ name|proper }}", "there is no filter proper"),
            ("{% if name is wrong %}x{% endif %}", "there is no test wrong"),
            ("{% if name %}{{ name|proper }}{% endif %}", "there is no filter proper"),
            ("{% if name %}x{% endfor %}", "{% endfor %} cannot stand here: {% if %} is still open"),
            ("{% if name %}x", "{% if %} is open: {% endif %} is missing"),
            ("{% raw %}x", "{% raw %} is open: {% endraw %} is missing"),
            ("x{% endif %}", "{% endif %} ends nothing: no such part is open"),
            ("{% first_name %}", "there is no tag {% first_name %}"),
            ("{% for x of y %}x{% endfor %}", "expected token 'in', got 'of'"),
        ],
    )
    def test_what_word_processors_and_newcomers_type_is_explained(self, body: str, said: str) -> None:
        with pytest.raises(TemplateError, match=r"^the body.*" + re.escape(said)):
            templates.compile_templates("News", body, html=False)

    def test_a_comment_without_an_end_is_named(self) -> None:
        with pytest.raises(TemplateError, match=r"\{# begins a comment, and no #\} ends it"):
            templates.compile_templates("News", "Hi {#name", html=False)
        assert (
            templates.compile_templates("News", "Hi{# for whom? #}", html=True).render_letter("a@example.org", {})[1]
            == "Hi"
        )


def test_the_api_takes_texts_by_the_same_door() -> None:
    asked = {
        "channel": "email",
        "subject": f"{MULLER}\u200b",
        "body": f"{MULLER} {{{{ name }}}}",
        "recipients": [{"to": "ann@example.org", "fields": {"name": "  Ann "}}],
        "attachments": [{"name": f"{MULLER}.pdf", "content": "eA=="}],
    }
    read = SendRequest.model_validate_json(json.dumps(asked))
    assert (read.subject, read.body) == ("M\u00fcller", "M\u00fcller {{ name }}")
    assert read.recipients[0].fields == {"name": "Ann"}
    assert read.attachments[0].name == "M\u00fcller.pdf"
