"""Compiles and renders templates: Jinja2 cut down to the needs of a letter, with a fast path for plain templates.

A template may show fields, choose, repeat and assign. It can neither calculate, call nor include, so it cannot grow
without bound or reach outside. Rendered values are never rendered again. Every template knows `recipient`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, Protocol

from jinja2 import Environment, StrictUndefined, Template, TemplateSyntaxError, Undefined, nodes
from jinja2.lexer import TOKEN_FLOAT, TOKEN_INTEGER
from jinja2.meta import TrackingCodeGenerator
from jinja2.runtime import LoopContext
from jinja2.sandbox import SandboxedEnvironment
from markupsafe import escape

from campaigns.texts import cost, filters
from campaigns.texts.template_faults import explain_fault
from vendors.control_signs import IN_SUBJECTS
from vendors.said import Said, gettext_noop

MAX_SIZE = 1_000_000  # characters of a template, and of its result
ESCAPED = 5  # characters one character becomes at most when HTML-escaped: &#34;
SLICE = 1_000  # steps after which other threads get a turn
MAX_STEPS = 50_000  # of one message (campaigns/texts/cost.py)
TOKEN = 100  # steps to compile a name, a sign or a stretch of text; multiplied by the depth of loops
DEEPEST, LOOPS_DEEPEST = 100, 5  # levels of nested parts, and of nested loops
FAILED = 400  # steps to explain a failed rendering
OUTPUT = 1_000  # characters joined in a step
MAX_TOKENS = 5_000  # names, signs and stretches of text in a template
LONGEST_NAME, LONGEST_NUMBER = 200, 40  # characters of a name, and of a number, in a template
LONGEST_FAULT = 300  # characters of a fault's sentence
RECIPIENT = "recipient"
# given to a bulk campaign's templates by mailhub, unless the list has a field of that name
UNSUBSCRIBE_URL = "unsubscribe_url"
LINE_BREAK = re.compile("[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")
INTRICATE = 500  # characters within tags above which compiling takes milliseconds
STYLE = re.compile(r"<style\b[^<>]{0,500}>.*?(?:</style|\Z)", re.DOTALL | re.IGNORECASE)
SELECTOR = re.compile(r"\{#(?=[A-Za-z_-])")
# An unclosed tag takes the rest; searching for its end at every opening would take quadratic time.
TAG = re.compile(r"\{\{.*?(?:\}\}|\Z)|\{%.*?(?:%\}|\Z)", re.DOTALL)

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


def breathe() -> None:
    """Let other threads run: called after each SLICE of steps and between the stages of compiling.

    Web servers replace it.
    """


class Renderer(Protocol):
    """Compiles and renders for one request, here or in another process (campaigns/texts/render_pool.py)."""

    def compile_content(self, source: "Source", budget: "Budget | None") -> "Content":
        """Compile as `compile_here` does, intricate templates perhaps elsewhere."""

    def render_content(self, content: "Content", values: Values, budget: "Budget | None") -> tuple[str, str, str]:
        """Render as Content.render_here does."""


# Returns the renderer of this thread's request. Web servers set it; None: everything is done in this process.
renderer: Callable[[], Renderer | None] | None = None


class PartForms(NamedTuple):
    """What may be wrong with a part of a letter."""

    fault: str
    at_line: str
    too_deep: str
    too_long: str


PARTS = {
    "subject": PartForms(
        gettext_noop("the subject: %(why)s"),
        gettext_noop("the subject, line %(count)s: %(why)s"),
        gettext_noop("the subject is nested too deeply"),
        gettext_noop("the subject is longer than %(most)s characters"),
    ),
    "body": PartForms(
        gettext_noop("the body: %(why)s"),
        gettext_noop("the body, line %(count)s: %(why)s"),
        gettext_noop("the body is nested too deeply"),
        gettext_noop("the body is longer than %(most)s characters"),
    ),
    "text": PartForms(
        gettext_noop("the text: %(why)s"),
        gettext_noop("the text, line %(count)s: %(why)s"),
        gettext_noop("the text is nested too deeply"),
        gettext_noop("the text is longer than %(most)s characters"),
    ),
}
LINE_BREAK_IN_SUBJECT = Said("the subject has a line break in it")
CONTROL_IN_SUBJECT = Said("the subject has a control sign in it")


class TooManySteps(Exception):
    """One message takes too long to render."""


class OverBudget(Exception):
    """The messages of one request together take too long to render."""


class Budget:
    """Steps for several messages together. This one is unlimited; MAX_STEPS still limits each message."""

    left = 0

    def draw_steps(self) -> int:
        """Return a grant of more steps. Raises OverBudget."""
        breathe()
        return SLICE

    def draw_portion(self) -> int:
        """Return the largest grant of steps that another process may count on its own. Raises OverBudget."""
        return MAX_STEPS

    def spend_budget(self, steps: int) -> None:
        """Takes steps. Raises OverBudget."""
        self.left -= steps
        while self.left < 0:
            self.left += self.draw_steps()


class StepMeter:
    """Counts the steps of one message, and takes them from its budget."""

    __slots__ = ("_budget", "_left")

    def __init__(self, budget: Budget) -> None:
        self._budget, self._left = budget, MAX_STEPS

    @property
    def used(self) -> int:
        return MAX_STEPS - self._left

    def spend_steps(self, steps: int) -> None:
        """Takes steps. Raises TooManySteps, OverBudget."""
        self._left -= steps
        if self._left < 0:
            raise TooManySteps(
                Said("it takes more than %(most)s steps to render: fewer rounds, or smaller fields", most=MAX_STEPS)
            )
        self._budget.left -= steps
        if self._budget.left < 0:
            self._budget.spend_budget(0)

    def charge_failure(self) -> None:
        """Charge the budget for a failed rendering. Raises OverBudget."""
        self._budget.spend_budget(FAILED)


ENDLESS = Budget()
Render = Callable[[Values, StepMeter], str]


class TemplateError(ValueError):
    """The template is wrong, or cannot be rendered for a recipient. The text says why in a short sentence for users."""

    def __init__(self, why: str) -> None:
        super().__init__(shorten_fault(why))
        self.whole = why


def shorten_fault(fault: str) -> str:
    """Shorten a sentence to LONGEST_FAULT characters: it may quote a large field or template."""
    return fault if len(fault) <= LONGEST_FAULT else f"{fault[: LONGEST_FAULT - 1]}…"


def is_intricate(*texts: str) -> bool:
    """Return whether compiling these templates takes long."""
    size = 0
    for tag in chain.from_iterable(map(TAG.finditer, texts)):
        size += tag.end() - tag.start()
        if size > INTRICATE:
            return True
    return False


class Source(NamedTuple):
    """The arguments of `compile`; a Content is made from these. given: pairs of name and value."""

    subject: str
    body: str
    html: bool
    text: str
    given: tuple[tuple[str, Any], ...]


class Splice(NamedTuple):
    """A template that only shows fields. It renders as Jinja would, without Jinja.

    form: for the % operator; shown: how often each field occurs; literals: number of characters between the fields.
    """

    form: str
    shown: Mapping[str, int]
    literals: int
    escaped: bool

    def splice_renderer(self) -> Render:
        form, shown, literals, escaped = self

        def render_splice(values: Values, meter: StepMeter) -> str:
            given, size = {}, literals
            for name, times in shown.items():  # a single loop, because every letter passes here
                value = values[name]
                given[name] = text = escape(value) if escaped else value if type(value) is str else str(value)
                size += len(text) * times
            if size >= OUTPUT:  # before the text is made
                texts = all(isinstance(values[name], str) for name in shown)
                meter.spend_steps(size // (OUTPUT if texts else cost.LISTED))
                if size > MAX_SIZE:
                    _raise_too_long_result()
            return form % given

        return render_splice


@dataclass(frozen=True, slots=True)
class Content:
    """A campaign's compiled subject, body and text beside the body.

    fields: names that each recipient's params must have. optional: names they may have; the templates have a default
    for these. required: those of `fields` that must not be empty, because they are always shown unchanged.
    subject_fields: those of the subject. safe: number of characters; printable fields of no more in total are certain
    to render if no required field is empty; -1 unless all templates are plain. further: yields other faults of a
    recipient and its fields, as sentences.

    given: example values for the names that mailhub provides, used if a rendering is given no others. source: the
    templates before compiling. splices: of subject, body and text; None: Jinja renders that part. is_deferred: another
    process has compiled the content and renders it.
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
    source: Source | None = None
    splices: tuple[Splice | None, ...] = ()
    is_deferred: bool = False

    @property
    def is_spliced(self) -> bool:
        """Whether all of its own templates only show fields."""
        return bool(self.splices) and None not in self.splices

    @property
    def is_plain(self) -> bool:
        """True if the templates only show fields; showing one costs hardly a step."""
        return self.safe >= 0

    def render_letter(
        self, recipient: str, params: Values, budget: Budget | None = None, given: Values | None = None
    ) -> tuple[str, str, str]:
        """Return subject, body and text for one recipient.

        Raises TemplateError, and OverBudget if there is a budget.
        """
        values = {**(self.given if given is None else given), **params, RECIPIENT: recipient}
        if renderer and self.source and (by := renderer()):
            return by.render_content(self, values, budget)
        return self.render_here(values, StepMeter(budget or ENDLESS))

    def render_here(self, values: Values, meter: StepMeter) -> tuple[str, str, str]:
        """Render in this process. values: all names that the templates know."""
        try:
            subject, body = self._subject(values, meter), self._body(values, meter)
            text = self._text(values, meter) if self._text else ""
        except KeyError as error:
            meter.charge_failure()
            raise TemplateError(Said("the field %(name)s is missing", name=repr(error.args[0]))) from error
        except TooManySteps as error:
            raise TemplateError(str(error)) from error
        except TemplateError:
            meter.charge_failure()
            raise
        if not subject.isprintable():
            subject = subject.replace("\t", " ")
            _check_subject(subject)
        return subject, body, text


def compile_templates(
    subject: str,
    body: str,
    html: bool,
    budget: Budget | None = None,
    text: str = "",
    given: Values = NOTHING_GIVEN,
    is_kept: bool = False,
) -> Content:
    """Compile once for many renderings. Raises as `Content.render_letter` does.

    html: escape fields in the body. text: goes beside an HTML body. given: the longest values of the names that mailhub
    provides besides the fields. is_kept: other requests will render the content, too.
    """
    source = Source(subject, body, html, text, tuple(given.items()))
    if renderer and not is_kept and (by := renderer()):
        return by.compile_content(source, budget)
    return compile_here(source, budget)


def compile_here(source: Source, budget: Budget | None = None) -> Content:
    """Compile in this process."""
    subject, body, html, text, pairs = source
    given = dict(pairs)
    _check_subject(subject)
    parts = [_Part("subject", subject, autoescape=False), _Part("body", body, autoescape=html)]
    if text:
        parts.append(_Part("text", text, autoescape=False))
    if budget:
        budget.spend_budget(sum(part.steps for part in parts))
    known, ours = frozenset().union(*(part.fields for part in parts)), {RECIPIENT, *given}
    fields, optional = known - ours, frozenset().union(*(part.optional for part in parts))
    return Content(
        fields=fields,
        optional=optional - fields - ours,
        required=frozenset().union(*(part.shown for part in parts)) - ours,
        subject_fields=(parts[0].fields | parts[0].optional) - ours,
        safe=max(-1, min(part.safe_length for part in parts) - sum(map(len, given.values()))),
        given={name: value for name, value in given.items() if name in known | optional},
        _subject=parts[0].part_renderer(),
        _body=parts[1].part_renderer(),
        _text=parts[2].part_renderer() if text else None,
        source=source,
        splices=tuple(part.find_splice() for part in parts),
    )


class _Part:
    """One parsed and checked template."""

    def __init__(self, what: str, source: str, autoescape: bool) -> None:
        if len(source) > MAX_SIZE:
            raise TemplateError(Said(PARTS[what].too_long, most=MAX_SIZE))
        self.what = what
        if autoescape:
            source = STYLE.sub(_keep_selectors, source)
        self.environment = _make_environment(autoescape)
        with _naming_faults(what):
            self.tokens = _count_tokens(self.environment, source)
            breathe()
            self.tree = self.environment.parse(source)
            breathe()
            loops = _permit_all(self.tree)
            _check_known(self.tree, self.environment)
            found = _undeclared_names(self.tree, self.environment)
        self.steps = TOKEN * self.tokens * max(1, loops)
        self.optional = found & set(_guarded_names(self.tree))
        self.fields = found - self.optional
        outputs = [node for node in self.tree.body if isinstance(node, nodes.Output)]
        pieces = [piece for output in outputs for piece in output.nodes]
        self.pieces = [piece for piece in pieces if isinstance(piece, nodes.TemplateData | nodes.Name)]
        self.shown = self.fields & {piece.name for piece in self.pieces if isinstance(piece, nodes.Name)}
        self.plain = len(outputs) == len(self.tree.body) and len(self.pieces) == len(pieces)

    @property
    def safe_length(self) -> int:
        """Return how many characters of fields are certain to fit; -1 if the template is not plain."""
        if not self.plain:
            return -1
        literals = sum(len(piece.data) for piece in self.pieces if isinstance(piece, nodes.TemplateData))
        shown = sum(isinstance(piece, nodes.Name) for piece in self.pieces)
        return (MAX_SIZE - literals) // (ESCAPED * max(1, shown))

    def part_renderer(self) -> Render:
        with _naming_faults(self.what):
            splice = self.find_splice()
            return splice.splice_renderer() if splice else self._jinja_renderer()

    def find_splice(self) -> Splice | None:
        """Return the literals with the fields between them, or None if the template is not plain."""
        if not self.plain:
            return None
        shown = Counter(piece.name for piece in self.pieces if isinstance(piece, nodes.Name))
        texts = (f"%({n.name})s" if isinstance(n, nodes.Name) else n.data.replace("%", "%%") for n in self.pieces)
        literals = sum(len(piece.data) for piece in self.pieces if isinstance(piece, nodes.TemplateData))
        return Splice("".join(texts), shown, literals, bool(self.environment.autoescape))

    def _jinja_renderer(self) -> Render:
        once = sum(map(cost.node_weight, self.tree.body))
        cost.add_counters(self.tree)
        breathe()
        code = self.environment.compile(self.tree, filename=f"<{self.what}>")
        template = Template.from_code(self.environment, code, {})

        def render_chunks(values: Values, meter: StepMeter) -> str:
            chunks, size = [], 0
            try:
                meter.spend_steps(once)
                for chunk in template.generate({**values, cost.METER: meter}):
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > MAX_SIZE:
                        _raise_too_long_result()
                meter.spend_steps(size // OUTPUT)
            except (TemplateError, OverBudget):
                raise
            except Exception as error:  # a filter may raise anything for a value
                raise TemplateError(str(error)) from error
            return "".join(chunks)

        return render_chunks


LOOP = {"first", "index", "index0", "last", "length", "nextitem", "previtem", "revindex", "revindex0"}


class _Environment(SandboxedEnvironment):
    """A sandbox in which a dot reaches only a field's members and a loop's variables, not Python's attributes."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, dict):
            return obj[attribute] if attribute in obj else self._missing_value(obj, attribute)
        if isinstance(obj, Undefined) or (isinstance(obj, LoopContext) and attribute in LOOP):
            return getattr(obj, attribute)
        return self._missing_value(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        try:
            return obj[argument]
        except (TypeError, LookupError):
            return self._missing_value(obj, argument)

    def _missing_value(self, obj: Any, name: Any) -> Undefined:
        """Return an undefined value that quotes only the beginning of a name or object in its message."""
        if isinstance(name, str):
            return self.undefined(obj=obj, name=name[:LONGEST_NAME])
        return self.undefined(f"{type(obj).__name__} object has no element {filters.shorten_value(name)}")


@cache
def _make_environment(autoescape: bool) -> Environment:
    # Not optimized: the search for constants takes cubic time in nested filters, and runs them while compiling.
    made = _Environment(undefined=StrictUndefined, autoescape=autoescape, keep_trailing_newline=True, optimized=False)
    made.globals.clear()
    made.filters = {name: made.filters[name] for name in FILTERS} | filters.FILTERS | cost.FILTERS
    return made


def _guarded_names(tree: nodes.Template) -> Iterator[str]:
    """Yield the names for which the template has a default or a test."""
    for node in tree.find_all((nodes.Filter, nodes.Test)):
        if node.name in ("d", "default", "defined", "undefined") and isinstance(node.node, nodes.Name):
            yield node.node.name


def _undeclared_names(tree: nodes.Template, environment: Environment) -> frozenset[str]:
    """Return the names that come from the fields, as jinja2.meta does, without its search for constants."""
    finder = TrackingCodeGenerator(environment)
    finder.optimizer = None
    finder.visit(tree)
    return frozenset(finder.undeclared_identifiers)


def _permit_all(tree: nodes.Template) -> int:
    """Check every node and return how deeply loops are nested. Raises TemplateError, RecursionError."""
    most = 0
    waiting: list[tuple[nodes.Node, int, int]] = [(tree, 0, 0)]
    while waiting:
        node, depth, loops = waiting.pop()
        _permit_node(node)
        loops += isinstance(node, nodes.For)
        if depth > DEEPEST or loops > LOOPS_DEEPEST:
            raise RecursionError
        most = max(most, loops)
        waiting.extend((one, depth + 1, loops) for one in node.iter_child_nodes())
    return most


def _check_known(tree: nodes.Template, environment: Environment) -> None:
    """Raise TemplateSyntaxError for an unknown filter or test. Within an {% if %} Jinja finds it while rendering."""
    for node in tree.find_all((nodes.Filter, nodes.Test)):
        what, known = ("filter", environment.filters) if isinstance(node, nodes.Filter) else ("test", environment.tests)
        if node.name not in known:
            raise TemplateSyntaxError(f"No {what} named {node.name!r}.", node.lineno)


def _permit_node(node: nodes.Node) -> None:
    """Raise TemplateError if templates may not use this node."""
    name = getattr(node, "name", None) or getattr(node, "attr", None)
    if isinstance(node, nodes.Sub):
        raise TemplateError(
            Said("- is no part of a field's name: type _ in its place (line %(line)s)", line=str(node.lineno))
        )
    if type(node).__name__ not in NODES or getattr(node, "recursive", False):
        raise TemplateError(
            Said(
                "%(name)s is not for templates (line %(line)s)",
                name=repr(type(node).__name__.lower()),
                line=str(node.lineno),
            )
        )
    if isinstance(name, str) and (name.startswith("_") or name in ("self", "super")):
        raise TemplateError(
            Said("the name %(name)s is not for templates (line %(line)s)", name=repr(name), line=str(node.lineno))
        )
    if isinstance(name, str) and len(name) > LONGEST_NAME:
        raise TemplateError(
            Said(
                "a name is longer than %(most)s characters (line %(line)s)",
                most=str(LONGEST_NAME),
                line=str(node.lineno),
            )
        )


def _check_subject(text: str) -> None:
    """Raise TemplateError for line breaks and control characters. Tabs are allowed, and shown as blanks."""
    if LINE_BREAK.search(text):
        raise TemplateError(LINE_BREAK_IN_SUBJECT)
    if IN_SUBJECTS.search(text):
        raise TemplateError(CONTROL_IN_SUBJECT)


def _keep_selectors(style: re.Match[str]) -> str:
    """Return a style sheet in which {# before a name is text, as in @media{#head{...}}, and begins no comment."""
    return SELECTOR.sub("{% raw %}{#{% endraw %}", style[0])


def _count_tokens(environment: Environment, source: str) -> int:
    """Count tokens; raise TemplateError above MAX_TOKENS before the slower parser sees them."""
    count = 0
    for count, (line, kind, text) in enumerate(environment.lexer.tokeniter(source, None), start=1):
        if count > MAX_TOKENS:
            raise TemplateError(Said("it has more than %(most)s parts", most=MAX_TOKENS))
        if kind in (TOKEN_INTEGER, TOKEN_FLOAT) and len(text) > LONGEST_NUMBER:
            raise TemplateError(
                Said(
                    "a number is longer than %(most)s characters (line %(line)s)",
                    most=str(LONGEST_NUMBER),
                    line=str(line),
                )
            )
    return count


def _raise_too_long_result() -> NoReturn:
    raise TemplateError(Said("the result is longer than %(most)s characters", most=MAX_SIZE))


@contextmanager
def _naming_faults(what: str) -> Iterator[None]:
    try:
        yield
    except TemplateSyntaxError as error:
        why = explain_fault(error.message or "")
        raise TemplateError(Said(PARTS[what].at_line, count=str(error.lineno), why=why)) from error
    except TemplateError as error:
        raise TemplateError(Said(PARTS[what].fault, why=error)) from error
    except (RecursionError, SyntaxError, MemoryError) as error:
        raise TemplateError(Said(PARTS[what].too_deep)) from error
