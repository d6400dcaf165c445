"""A sign that no font has is told before a letter of empty boxes is made, and refused where pages are made."""

from __future__ import annotations

import asyncio
import base64
import io
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from campaigns.lists.intake.checking import field_faults
from campaigns.models import Campaign
from campaigns.texts import templates
from campaigns.texts.signs import check_signs, sign_check
from campaigns.texts.templates import TemplateError
from tests import factories
from tests.front.program import Program, api_vendor, fresh, letter, pointers
from vendors.adapters.base import Letter
from vendors.adapters.letter_faults import LetterPart
from vendors.printing import glyphs, pages, process
from vendors.printing.pages import Look, NotPrintable, PageMaker, Printed

__all__ = ["fresh"]
pytestmark = pytest.mark.skipif(bool(pages.missing_libraries()), reason=pages.missing_libraries())
SETTINGS = {"folder": "x", "accepted": "uploaded", "address": "name; city", "window": "din5008b"}
CANDIDATES = "日अกꦀ𒀀𐤀𓀀"


@pytest.fixture(scope="module")
def strange() -> str:
    """A sign that no font of this machine has."""
    glyphs.forget_signs()
    found = [one for one in CANDIDATES if glyphs.find_missing_glyphs(one)]
    if not found:
        pytest.skip("the fonts of this machine have every sign")
    return found[0]


def printed(body: str, address: list[str], html: bool = False, **look: Any) -> Printed:
    async def story() -> Printed:
        maker = PageMaker()
        try:
            letter = Letter("r", "k", "", body, {}, html)
            return await maker.render_letter(Look(**look).page_request(letter, address), ())
        finally:
            await maker.close()

    return asyncio.run(story())


@pytest.mark.slow("processes")
class TestPages:
    def test_what_the_fonts_have_is_printed(self) -> None:
        assert printed("Dear Müller, ça coûte 5 € – e\u0301\u00ad\u200b\ufe0f", ["Ann"], window="din5008b").pages == 1

    def test_a_letter_that_shows_a_strange_sign_is_refused_by_its_name(self, strange: str) -> None:
        with pytest.raises(NotPrintable, match=f"{strange}.*U\\+{ord(strange):04X}.*no installed font") as why:
            printed(f"Dear {strange}", [])
        assert why.value.part is LetterPart.CHARACTER

    def test_so_is_one_in_the_window_and_one_that_a_style_sheet_shows(self, strange: str) -> None:
        with pytest.raises(NotPrintable) as why:
            printed("Dear Ann", [f"Ann {strange}", "1 Road"], window="din5008b")
        assert why.value.part is LetterPart.ADDRESS
        with pytest.raises(NotPrintable):
            printed(f"<style>p::before {{ content: '{strange}' }}</style><p>Ann</p>", [], html=True)
        hidden = f"<style>/* {strange} */</style><!-- {strange} --><p title='{strange}'>Ann</p>"
        assert printed(hidden, [], html=True).pages == 1

    def test_a_letter_may_bring_its_fonts(self) -> None:
        """With a font that has a sign of private use."""
        from fontTools.fontBuilder import FontBuilder
        from fontTools.pens.ttGlyphPen import TTGlyphPen

        sign = "\U000f0000"
        pen = TTGlyphPen(None)
        pen.moveTo((0, 0)), pen.lineTo((500, 0)), pen.lineTo((500, 500)), pen.closePath()
        font = FontBuilder(1000)
        font.setupGlyphOrder([".notdef", "sign"])
        font.setupCharacterMap({ord(sign): "sign"})
        font.setupGlyf({".notdef": pen.glyph(), "sign": pen.glyph()})
        font.setupHorizontalMetrics({".notdef": (600, 0), "sign": (600, 0)})
        font.setupHorizontalHeader(ascent=800, descent=-200)
        font.setupNameTable({"familyName": "Ours", "styleName": "Regular", "fullName": "Ours", "psName": "Ours"})
        font.setupOS2()
        font.setupPost()
        made = io.BytesIO()
        font.save(made)
        url = base64.b64encode(made.getvalue()).decode()
        face = f"@font-face {{ font-family: Ours; src: url(data:font/ttf;base64,{url}) }} p {{ font-family: Ours }}"
        assert printed(f"<style>{face}</style><p>{sign}</p>", [], html=True).pages == 1
        with pytest.raises(NotPrintable):
            printed(f"<p>{sign}</p>", [], html=True)


class TestRows:
    def content(self, body: str, html: bool = False, **more: str) -> templates.Content:
        made = templates.compile_templates("", body, html)
        return check_signs(made, body, html, [sign_check("print_file", {**SETTINGS, **more}), None])

    def test_a_row_names_the_field_and_the_sign(self, strange: str) -> None:
        content = self.content("Dear {{ name }}")
        assert list(field_faults("k", {"name": "Müller", "city": "Köln"}, content)) == []
        [fault] = field_faults("k", {"name": f"Ann {strange}", "city": "Rome"}, content)
        assert fault == f"'name' has {strange!r} (U+{ord(strange):04X}), which no installed font has"

    def test_the_address_counts_where_it_is_drawn_and_a_field_that_is_not_shown_does_not(self, strange: str) -> None:
        row = {"name": "Ann", "city": strange, "note": "x"}
        assert "'city' has" in next(field_faults("k", row, self.content("Dear {{ name }}")))
        assert list(field_faults("k", row, self.content("Dear {{ name }}", window="none"))) == []
        assert list(field_faults("k", {**row, "city": "x", "note": strange}, self.content("Dear {{ name }}"))) == []

    def test_a_sign_of_the_template_itself_is_said_once(self, strange: str) -> None:
        with pytest.raises(TemplateError, match="the letter shows"):
            self.content(f"Dear {{{{ name }}}}, {strange}")
        shown = self.content(f"Dear {{{{ name|default('{strange}', true) }}}}")
        assert list(field_faults("k", {"name": "Ann", "city": ""}, shown)) == []
        assert "the letter shows" in next(field_faults("k", {"name": "", "city": ""}, shown))
        self.content(f"<style>@font-face {{ font-family: x }}</style>{strange}", html=True)
        self.content(f"<style>/* {strange} */</style><p title='{strange}'>Ann</p>", html=True)

    def test_another_adapter_draws_nothing_here(self) -> None:
        assert sign_check("http", {"url": "https://vendor.example/"}) is None and sign_check("gone", {}) is None

    def test_fonts_that_cannot_be_read_refuse_nobody(self, strange: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process, "__file__", "/nowhere.py")
        glyphs.forget_signs()
        assert glyphs.find_missing_glyphs(strange) == ""
        monkeypatch.undo()
        glyphs.forget_signs()
        assert strange in glyphs.find_missing_glyphs(strange)

    def test_the_process_reads_as_many_fonts_as_the_machine_lists(self) -> None:
        signs = glyphs.known_signs()
        assert signs is not None and len(signs) == process.CODE_POINTS and all(signs[ord(one)] for one in "Aa1€ö")

    @pytest.mark.django_db
    def test_the_import_refuses_the_row_by_its_number(self, strange: str, tmp_path: Path) -> None:
        vendor = factories.vendor(slug="shop", adapter="print_file", channel="print", settings=SETTINGS)
        factories.credential(vendor)
        table, body = tmp_path / "list.csv", tmp_path / "body.txt"
        table.write_text(f"id,name,city\n1,Ann,Rome\n2,{strange},Rome\n", "utf-8")
        body.write_text("Dear {{ name }}")
        given = (str(table), "--sponsor", "Velma", "--new-sponsor", "--vendor", "shop", "--body", str(body))
        with pytest.raises(CommandError, match=f"row 3: 'name' has '{strange}'"):
            call_command("send_campaign", *given)
        assert not Campaign.objects.exists()

    @pytest.mark.django_db
    def test_the_api_refuses_the_recipient_and_the_template(self, strange: str, fresh: None) -> None:
        vendor = api_vendor(adapter="print_file", channel="print", settings=SETTINGS)
        recipients = [
            {"to": f"{n}", "fields": {"name": name, "city": "Rome"}} for n, name in enumerate(["Ann", strange])
        ]
        mail = letter(vendor, recipients=recipients, subject="", body="Dear {{ name }}")
        assert pointers(Program().send(mail)) == {"/recipients/1/fields": "fields"}
        mail |= {"recipients": recipients[:1], "body": f"{strange} {{{{ name }}}}"}
        assert pointers(Program().send(mail)) == {"/body": "template"}
        assert not Campaign.objects.exists()
