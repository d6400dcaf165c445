"""Makes the text that goes beside an HTML body, from the HTML template: once a campaign, not once a recipient.

What templates do in the HTML they do in the text: its expressions and statements come through as they are.
"""

import re
from functools import lru_cache
from pathlib import Path

from campaigns.content import apart, html_reader, templates
from campaigns.content.templates import TemplateError

# One that is not closed takes the rest: to look for its end at every opening takes quadratic time.
TOKEN = re.compile(r"\{\{.*?(?:\}\}|\Z)|\{%.*?(?:%\}|\Z)|\{#.*?(?:#\}|\Z)", re.DOTALL)
ESCAPING = re.compile(r"\|\s*(?:e|escape)\b(?!\s*\()")  # for HTML; a text shows a field as it is
FIRST = 0xF0000  # characters of private use stand for the tokens while the HTML is read
SIGN = re.compile("[\U000f0000-\U000ffffd]")
# Layout is made of tables: a row is a line and cells stand beside each other, but no columns are drawn.
ROW = re.compile(r"(</?)(?:table|tbody|thead|tfoot|tr|caption)\b", re.IGNORECASE)
CELL = re.compile(r"(<)t[dh]\b", re.IGNORECASE)
CELL_END = re.compile(r"</t[dh]\s*>", re.IGNORECASE)
SHORT = 20_000  # characters of HTML that are read here: whatever is in them takes little time
CODE = f"""
{Path(html_reader.__file__).read_text()}
import sys
try:
    text = read(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
except (RecursionError, ValueError) as error:
    sys.exit(str(error))
sys.stdout.buffer.write(text[:{2 * templates.MAX_SIZE}].encode("utf-8", "surrogatepass"))
"""
BLANKS = re.compile(r"[ \t]+")
EMPTY_LINES = re.compile(r"\n{3,}")
OUTER_BLANKS = re.compile(r"(?<![ \t])[ \t]++$|^ (?=\S)", re.MULTILINE)


def made_from(html: str) -> str:
    """The text of an HTML template, as a template; empty if it shows none. Raises TemplateError."""
    tokens: list[str] = []

    def stand_in(found: re.Match[str]) -> str:
        if found[0].startswith("{#"):
            return ""
        if len(tokens) == templates.MAX_TOKENS:
            raise TemplateError(f"the body has more than {templates.MAX_TOKENS:,} parts")
        tokens.append(ESCAPING.sub("", found[0]))
        return chr(FIRST + len(tokens) - 1)

    marked = TOKEN.sub(stand_in, SIGN.sub("", html))
    text = _read(CELL_END.sub("</span>&#160; ", CELL.sub(r"\1span", ROW.sub(r"\1div", marked)))).replace("\u00a0", " ")
    by_sign = {chr(FIRST + number): token for number, token in enumerate(tokens)}
    statements = "".join(sign for sign, token in by_sign.items() if token.startswith("{%"))
    if statements:
        text = _without_their_lines(text, statements)
    text = EMPTY_LINES.sub("\n\n", OUTER_BLANKS.sub("", text)).strip()
    text = SIGN.sub(lambda sign: by_sign.get(sign[0], ""), text)  # others come of the HTML, as &#983040;
    _check(text, html)
    return f"{text}\n" if text else ""


def _without_their_lines(text: str, statements: str) -> str:
    """A line with nothing but statements would be an empty line in each letter: they end the line before it.

    Nor does a line begin with the blanks behind a statement.
    """
    some = f"([{statements}][{statements} \\t]*+)"

    def bare(found: re.Match[str]) -> str:
        return BLANKS.sub("", found[1])

    text = re.sub(rf"(?<![ \t])[ \t]*+\n[ \t]*+{some}(?=\n|\Z)", bare, text)
    return re.sub(rf"^[ \t]?{some}", bare, text, flags=re.MULTILINE)


def _read(html: str) -> str:
    try:
        return html_reader.read(html) if len(html) <= SHORT else _read_apart(html)
    except (RecursionError, ValueError) as error:
        raise TemplateError(f"no text can be made from the HTML ({error}); give one") from error


@lru_cache(maxsize=32)  # pages show the same template again and again
def _read_apart(html: str) -> str:
    """Raises ValueError. A tag with thousands of attributes takes half a minute; deep lists make a text of any size."""
    try:
        done = apart.run(CODE, html)
    except apart.TookTooLong:
        raise ValueError(f"it takes more than {apart.SECONDS} seconds") from None
    if done.returncode == 1:
        raise ValueError(done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])
    if done.returncode:
        raise ValueError("it is nested too deeply, or makes too much text")
    return done.stdout.decode("utf-8", "surrogatepass")


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
