"""Makes the text beside an HTML body from the HTML template: once for a campaign, not once for each recipient.

Expressions and statements of the template are copied unchanged, so they do the same in the text.
"""

import re
from functools import lru_cache
from pathlib import Path

from campaigns.texts import apart, html_reader, templates
from campaigns.texts.templates import TemplateError
from vendors.said import Said

# An unclosed tag takes the rest; searching for its end at every opening would take quadratic time.
TOKEN = re.compile(r"\{\{.*?(?:\}\}|\Z)|\{%.*?(?:%\}|\Z)|\{#.*?(?:#\}|\Z)", re.DOTALL)
ESCAPING = re.compile(r"\|\s*(?:e|escape)\b(?!\s*\()")  # escapes HTML; a text shows the field unescaped
FIRST = 0xF0000  # private-use characters replace the tags while the HTML is read
SIGN = re.compile("[\U000f0000-\U000ffffd]")
# Most tables are layout: rows become lines and cells stand side by side, but no columns are drawn.
ROW = re.compile(r"(</?)(?:table|tbody|thead|tfoot|tr|caption)\b", re.IGNORECASE)
CELL = re.compile(r"(<)t[dh]\b", re.IGNORECASE)
CELL_END = re.compile(r"</t[dh]\s*>", re.IGNORECASE)
SHORT = 20_000  # characters of HTML read in this process; so few take little time with any content
CODE = f"""
{Path(html_reader.__file__).read_text()}
import sys
try:
    text = read_html(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
except (RecursionError, ValueError) as error:
    sys.exit(str(error))
sys.stdout.buffer.write(text[:{2 * templates.MAX_SIZE}].encode("utf-8", "surrogatepass"))
"""
BLANKS = re.compile(r"[ \t]+")
EMPTY_LINES = re.compile(r"\n{3,}")
OUTER_BLANKS = re.compile(r"(?<![ \t])[ \t]++$|^ (?=\S)", re.MULTILINE)


def made_from(html: str) -> str:
    """Return the text of an HTML template, as a template; empty if it shows no text. Raises TemplateError."""
    tokens: list[str] = []

    def stand_in(found: re.Match[str]) -> str:
        if found[0].startswith("{#"):
            return ""
        if len(tokens) == templates.MAX_TOKENS:
            raise TemplateError(Said("the body has more than %(most)s parts", most=templates.MAX_TOKENS))
        tokens.append(ESCAPING.sub("", found[0]))
        return chr(FIRST + len(tokens) - 1)

    marked = TOKEN.sub(stand_in, SIGN.sub("", html))
    text = _read_text_of(CELL_END.sub("</span>&#160; ", CELL.sub(r"\1span", ROW.sub(r"\1div", marked)))).replace(
        "\u00a0", " "
    )
    by_sign = {chr(FIRST + number): token for number, token in enumerate(tokens)}
    statements = "".join(sign for sign, token in by_sign.items() if token.startswith("{%"))
    if statements:
        text = _join_statement_lines(text, statements)
    text = EMPTY_LINES.sub("\n\n", OUTER_BLANKS.sub("", text)).strip()
    # the HTML may contain other such characters, for example as &#983040;
    text = SIGN.sub(lambda sign: by_sign.get(sign[0], ""), text)
    _check_text(text, html)
    return f"{text}\n" if text else ""


def _join_statement_lines(text: str, statements: str) -> str:
    """Join a line of statements alone to the line before, to avoid an empty line in each letter.

    Blanks behind a statement at the beginning of a line are dropped, too.
    """
    some = f"([{statements}][{statements} \\t]*+)"

    def bare_statements(found: re.Match[str]) -> str:
        return BLANKS.sub("", found[1])

    text = re.sub(rf"(?<![ \t])[ \t]*+\n[ \t]*+{some}(?=\n|\Z)", bare_statements, text)
    return re.sub(rf"^[ \t]?{some}", bare_statements, text, flags=re.MULTILINE)


def _read_text_of(html: str) -> str:
    try:
        return html_reader.read_html(html) if len(html) <= SHORT else _read_apart(html)
    except (RecursionError, ValueError) as error:
        raise TemplateError(Said("no text can be made from the HTML (%(error)s); give one", error=error)) from error


@lru_cache(maxsize=32)  # pages show the same template again and again
def _read_apart(html: str) -> str:
    """Read HTML in a separate process. Raises ValueError if it takes too long or makes too much text."""
    try:
        done = apart.run_apart(CODE, html)
    except apart.TookTooLong:
        raise ValueError(Said("it takes more than %(seconds)s seconds", seconds=str(apart.SECONDS))) from None
    if done.returncode == 1:
        raise ValueError(done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])
    if done.returncode:
        raise ValueError(Said("it is nested too deeply, or makes too much text"))
    return done.stdout.decode("utf-8", "surrogatepass")


def _check_text(text: str, html: str) -> None:
    """Raise TemplateError unless the text is a valid template that needs no fields beyond those of the HTML."""
    body = templates.compile_templates("", html, html=True)  # raises errors that name the body
    try:
        others = templates.compile_templates("", text, html=False).fields - body.fields
        why: str = Said("it would need %(names)s", names=", ".join(map(repr, sorted(others)))) if others else ""
    except TemplateError as error:
        why = str(error)
    if why:
        raise TemplateError(Said("no text can be made from the HTML (%(error)s); give one", error=why))
