"""Compiles and renders templates: Jinja2 cut down to what a letter needs, with a fast path for plain templates.

A template may show fields, choose, repeat and name values. It can neither calculate, call nor include, so that nothing
in it grows without bound or reaches outside. Values are never rendered again. Every template knows `recipient`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, NoReturn

from jinja2 import Environment, StrictUndefined, Template, TemplateSyntaxError, Undefined, meta, nodes
from jinja2.runtime import LoopContext
from jinja2.sandbox import SandboxedEnvironment
from markupsafe import escape

from campaigns.content import cost, filters

MAX_SIZE = 1_000_000  # characters of a template, and of what it renders to
ESCAPED = 5  # characters into which HTML escapes one, at most: &#34;
MAX_STEPS = 50_000  # of one message (campaigns/content/cost.py)
TOKEN = 100  # steps that it takes to compile a name, a sign, or a stretch of text
OUTPUT = 1_000  # characters joined in a step
MAX_TOKENS = 5_000  # names, signs and stretches of text that a template consists of
RECIPIENT = "recipient"
UNSUBSCRIBE_URL = "unsubscribe_url"  # what mailhub gives a bulk campaign's templates, unless the list has it as a field
LINE_BREAK = re.compile("[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")

# fmt: off
NODES = {
    "Template", "Output", "TemplateData", "If", "For", "Name", "Const", "Tuple", "List", "Keyword", "Getattr",
    "Getitem", "Slice", "Filter", "Test", "CondExpr", "Compare", "Operand", "And", "Or", "Not", "Concat", "Assign",
}
FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "int", "last", "length",
    "list", "lower", "sort", "string", "title", "trim", "truncate", "upper", "urlencode",
)
# fmt: on
Values = Mapping[str, Any]
NOTHING_GIVEN: Values = MappingProxyType({})


class TooManySteps(Exception):
    """One message takes too long to render."""


class OverBudget(Exception):
    """The messages of one request together take too long to render."""


class Budget:
    """Steps for several messages together. This one is unlimited; each message still has its MAX_STEPS."""

    left = 0

    def draw(self) -> int:
        """Grants so many more steps. Raises OverBudget."""
        return MAX_STEPS

    def spend(self, steps: int) -> None:
        """Takes steps. Raises OverBudget."""
        self.left -= steps
        while self.left < 0:
            self.left += self.draw()


class StepMeter:
    """Counts the steps of one message, and takes them from its budget."""

    __slots__ = ("_budget", "_left", "_values", "_volume")

    def __init__(self, values: Mapping[str, Any], budget: Budget) -> None:
        self._values, self._budget = values, budget
        self._left, self._volume = MAX_STEPS, -1

    def spend(self, steps: int) -> None:
        """Takes steps. Raises TooManySteps, OverBudget."""
        self._left -= steps
        if self._left < 0:
            raise TooManySteps(f"it takes more than {MAX_STEPS:,} steps to render: fewer rounds, or smaller fields")
        self._budget.left -= steps
        if self._budget.left < 0:
            self._budget.spend(0)

    @property
    def volume(self) -> int:
        """Characters of all fields together, as text."""
        if self._volume < 0:
            self._volume = len(str(self._values))
        return self._volume


ENDLESS = Budget()
Render = Callable[[Values, StepMeter], str]


class TemplateError(ValueError):
    """The template is wrong, or cannot be rendered for a recipient. The text says why, for users."""


@dataclass(frozen=True, slots=True)
class Content:
    """A campaign's compiled subject, body and text beside the body.

    fields: names that each recipient's params must have; optional: those that they may have, as the templates say what
    is shown instead; required: those of `fields` that must not be empty, because they are always shown as they are;
    subject_fields: those of the subject. safe: if no required field is empty, printable fields with at most so many
    characters together are certain to be rendered; -1 unless all templates are plain.
    further: what else is wrong with a recipient and its fields, in sentences. given: values of mailhub's own that the
    templates show, as examples for a rendering that is given no others.
    """

    fields: frozenset[str]
    required: frozenset[str]
    subject_fields: frozenset[str]
    safe: int
    _subject: Render
    _body: Render
    _text: Render | None = None
    further: Callable[[str, Values, Budget | None], Iterator[str]] | None = None
    optional: frozenset[str] = frozenset()
    given: Values = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """The templates only show fields, which takes hardly a step."""
        return self.safe >= 0

    def render(
        self, recipient: str, params: Values, budget: Budget | None = None, given: Values | None = None
    ) -> tuple[str, str, str]:
        """Subject, body and text for one recipient. Raises TemplateError, and OverBudget if there is a budget."""
        values = {**(self.given if given is None else given), **params, RECIPIENT: recipient}
        meter = StepMeter(values, budget or ENDLESS)
        try:
            subject, body = self._subject(values, meter), self._body(values, meter)
            text = self._text(values, meter) if self._text else ""
        except KeyError as error:
            raise TemplateError(f"the field {error.args[0]!r} is missing") from error
        except TooManySteps as error:
            raise TemplateError(str(error)) from error
        if not subject.isprintable() and LINE_BREAK.search(subject):
            raise TemplateError("the subject has a line break in it")
        return subject, body, text


def compile(
    subject: str, body: str, html: bool, budget: Budget | None = None, text: str = "", given: Values = NOTHING_GIVEN
) -> Content:
    """Compiles once for many renderings. html: fields are escaped in the body. Raises as `render` does.

    text: beside an HTML body. given: the longest values that mailhub gives beside the fields.
    """
    if LINE_BREAK.search(subject):
        raise TemplateError("the subject has a line break in it")
    parts = [_Part("subject", subject, autoescape=False), _Part("body", body, autoescape=html)]
    if text:
        parts.append(_Part("text", text, autoescape=False))
    if budget:
        budget.spend(TOKEN * sum(part.tokens for part in parts))
    known, ours = frozenset().union(*(part.fields for part in parts)), {RECIPIENT, *given}
    fields, optional = known - ours, frozenset().union(*(part.optional for part in parts))
    return Content(
        fields=fields,
        optional=optional - fields - ours,
        required=frozenset().union(*(part.shown for part in parts)) - ours,
        subject_fields=(parts[0].fields | parts[0].optional) - ours,
        safe=max(-1, min(part.safe for part in parts) - sum(map(len, given.values()))),
        given={name: value for name, value in given.items() if name in known | optional},
        _subject=parts[0].renderer(),
        _body=parts[1].renderer(),
        _text=parts[2].renderer() if text else None,
    )


class _Part:
    """One parsed and checked template."""

    def __init__(self, what: str, source: str, autoescape: bool) -> None:
        if len(source) > MAX_SIZE:
            raise TemplateError(f"the {what} is longer than {MAX_SIZE:,} characters")
        self.what = what
        self.environment = _environment(autoescape)
        with _naming(what):
            self.tokens = _count_tokens(self.environment, source)
            self.tree = self.environment.parse(source)
            for node in self.tree.find_all(nodes.Node):
                _permit(node)
            found = frozenset(meta.find_undeclared_variables(self.tree))
        self.optional = found & set(_guarded(self.tree))
        self.fields = found - self.optional
        outputs = [node for node in self.tree.body if isinstance(node, nodes.Output)]
        pieces = [piece for output in outputs for piece in output.nodes]
        self.pieces = [piece for piece in pieces if isinstance(piece, nodes.TemplateData | nodes.Name)]
        self.shown = self.fields & {piece.name for piece in self.pieces if isinstance(piece, nodes.Name)}
        self.plain = len(outputs) == len(self.tree.body) and len(self.pieces) == len(pieces)

    @property
    def safe(self) -> int:
        """How many characters of fields are certain to fit; -1 if the template is not plain."""
        if not self.plain:
            return -1
        literals = sum(len(piece.data) for piece in self.pieces if isinstance(piece, nodes.TemplateData))
        shown = sum(isinstance(piece, nodes.Name) for piece in self.pieces)
        return (MAX_SIZE - literals) // (ESCAPED * max(1, shown))

    def renderer(self) -> Render:
        with _naming(self.what):
            return self._splice() if self.plain else self._jinja()

    def _splice(self) -> Render:
        """Puts fields between the literals as Jinja would, without Jinja."""
        names = [piece.name for piece in self.pieces if isinstance(piece, nodes.Name)]
        texts = (f"%({n.name})s" if isinstance(n, nodes.Name) else n.data.replace("%", "%%") for n in self.pieces)
        form, escaped = "".join(texts), self.environment.autoescape

        def render(values: Values, meter: StepMeter) -> str:
            text = form % ({name: escape(values[name]) for name in names} if escaped else values)
            if len(text) >= OUTPUT:
                texts = all(isinstance(values[name], str) for name in names)
                meter.spend(len(text) // (OUTPUT if texts else cost.LISTED))
            return text if len(text) <= MAX_SIZE else _too_long()

        return render

    def _jinja(self) -> Render:
        once = sum(map(cost.weight, self.tree.body))
        cost.count(self.tree)
        code = self.environment.compile(self.tree, filename=f"<{self.what}>")
        template = Template.from_code(self.environment, code, {})

        def render(values: Values, meter: StepMeter) -> str:
            chunks, size = [], 0
            try:
                meter.spend(once)
                for chunk in template.generate({**values, cost.METER: meter}):
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > MAX_SIZE:
                        _too_long()
                meter.spend(size // OUTPUT)
            except (TemplateError, OverBudget):
                raise
            except Exception as error:  # whatever a filter raises for a value
                raise TemplateError(f"{error}") from error
            return "".join(chunks)

        return render


LOOP = {"first", "index", "index0", "last", "length", "nextitem", "previtem", "revindex", "revindex0"}


class _Environment(SandboxedEnvironment):
    """A dot shows a member of a field, or what a loop knows; nothing that Python has beside."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, dict):
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if isinstance(obj, Undefined) or (isinstance(obj, LoopContext) and attribute in LOOP):
            return getattr(obj, attribute)
        return self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        try:
            return obj[argument]
        except (TypeError, LookupError):
            return self.undefined(obj=obj, name=argument)


@cache
def _environment(autoescape: bool) -> Environment:
    made = _Environment(undefined=StrictUndefined, autoescape=autoescape, keep_trailing_newline=True)
    made.globals.clear()
    made.filters = {name: made.filters[name] for name in FILTERS} | filters.FILTERS | cost.FILTERS
    return made


def _guarded(tree: nodes.Template) -> Iterator[str]:
    """Names for which the template says what is to be done without them."""
    for node in tree.find_all((nodes.Filter, nodes.Test)):
        if node.name in ("d", "default", "defined", "undefined") and isinstance(node.node, nodes.Name):
            yield node.node.name


def _permit(node: nodes.Node) -> None:
    """Raises TemplateError for what templates may not use."""
    name = getattr(node, "name", None) or getattr(node, "attr", None)
    if type(node).__name__ not in NODES or getattr(node, "recursive", False):
        raise TemplateError(f"{type(node).__name__.lower()!r} is not for templates (line {node.lineno})")
    if isinstance(name, str) and (name.startswith("_") or name in ("self", "super")):
        raise TemplateError(f"the name {name!r} is not for templates (line {node.lineno})")


def _count_tokens(environment: Environment, source: str) -> int:
    """Counts tokens; raises TemplateError at MAX_TOKENS, because the parser takes far longer for each."""
    count = 0
    for count, _ in enumerate(environment.lexer.tokeniter(source, None), start=1):
        if count > MAX_TOKENS:
            raise TemplateError(f"it has more than {MAX_TOKENS:,} parts")
    return count


def _too_long() -> NoReturn:
    raise TemplateError(f"the result is longer than {MAX_SIZE:,} characters")


@contextmanager
def _naming(what: str) -> Iterator[None]:
    try:
        yield
    except TemplateSyntaxError as error:
        raise TemplateError(f"the {what}, line {error.lineno}: {error.message}") from error
    except TemplateError as error:
        raise TemplateError(f"the {what}: {error}") from error
    except (RecursionError, SyntaxError, MemoryError) as error:
        raise TemplateError(f"the {what} is nested too deeply") from error
