"""Makes the text that goes beside an HTML body, from the HTML template: once a campaign, not once a recipient.

What templates do in the HTML they do in the text: its expressions and statements come through as they are.
"""

import re

from campaigns.content import templates
from campaigns.content.templates import TemplateError

TOKEN = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
ESCAPING = re.compile(r"\|\s*(?:e|escape)\b(?!\s*\()")  # for HTML; a text shows a field as it is
FIRST = 0xF0000  # characters of private use stand for the tokens while the HTML is read
LAST = 0xFFFFD
# Layout is made of tables: a row is a line and cells stand beside each other, but no columns are drawn.
ROW = re.compile(r"(</?)(?:table|tbody|thead|tfoot|tr|caption)\b", re.IGNORECASE)
CELL = re.compile(r"(<)t[dh]\b", re.IGNORECASE)
CELL_END = re.compile(r"</t[dh]\s*>", re.IGNORECASE)
OWN_LINE = re.compile(r"[ \t]*\n[ \t]*((?:[\U000F0000-\U000FFFFD][ \t]*)+)(?=\n|\Z)")
EMPTY_LINES = re.compile(r"\n{3,}")
LINE_END_BLANKS = re.compile(r"[ \t]+$", re.MULTILINE)


def made_from(html: str) -> str:
    """The text of an HTML template, as a template; empty if it shows none. Raises TemplateError."""
    tokens: list[str] = []

    def stand_in(found: re.Match[str]) -> str:
        if found[0].startswith("{#"):
            return ""
        tokens.append(ESCAPING.sub("", found[0]))
        return chr(FIRST + len(tokens) - 1)

    marked = TOKEN.sub(stand_in, html)
    if len(tokens) > LAST - FIRST:
        raise TemplateError("the body has too many parts")
    text = _read(CELL_END.sub("</span>&#160; ", CELL.sub(r"\1span", ROW.sub(r"\1div", marked))))
    statements = {chr(FIRST + number) for number, token in enumerate(tokens) if token.startswith("{%")}

    def joined(found: re.Match[str]) -> str:
        """A line with nothing but statements would be an empty line in each letter: they end the line before it."""
        signs = found[1].replace(" ", "").replace("\t", "")
        return signs if statements.issuperset(signs) else found[0]

    text = OWN_LINE.sub(joined, text.replace("\u00a0", " "))
    text = EMPTY_LINES.sub("\n\n", LINE_END_BLANKS.sub("", text)).strip()
    text = re.sub("[\U000f0000-\U000ffffd]", lambda sign: tokens[ord(sign[0]) - FIRST], text)
    _check(text, html)
    return f"{text}\n" if text else ""


def _read(html: str) -> str:
    from inscriptis import get_text  # not at the top: few processes need it
    from inscriptis.css_profiles import STRICT_CSS_PROFILE
    from inscriptis.model.config import ParserConfig

    reader = ParserConfig(STRICT_CSS_PROFILE, display_images=True, display_links=True)
    reader.attribute_handler.attribute_mapping = {"style": _hide}
    try:
        return str(get_text(html, reader))
    except (RecursionError, ValueError) as error:
        raise TemplateError(f"no text can be made from the HTML ({error}); give one") from error


def _hide(style: str, element: object) -> None:
    """Of an element's style nothing counts but whether it is shown: as characters, paddings would be large."""
    from inscriptis.model.css import CssParse

    if "display:none" in style.replace(" ", "").lower():
        CssParse.attr_display("none", element)


def _check(text: str, html: str) -> None:
    """The text must be a template by itself, of no other fields. Raises TemplateError."""
    body = templates.compile("", html, html=True)  # its errors speak of the body
    try:
        others = templates.compile("", text, html=False).fields - body.fields
        why = f"it would need {', '.join(map(repr, sorted(others)))}" if others else ""
    except TemplateError as error:
        why = str(error)
    if why:
        raise TemplateError(f"no text can be made from the HTML ({why}); give one")
