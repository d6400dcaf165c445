"""What rendering a template costs, counted in steps, which come to about a quarter of a microsecond each.

One for each part of the template, each time that a loop comes to it, and more for what goes through a large value. The
same letter takes the same steps everywhere, so what was taken at a door is sent.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

MAX_STEPS = 50_000  # of one message
TOKEN = 100  # steps that it takes to compile a name, a sign, or a stretch of text
OUTPUT = 1_000  # characters that are put together in a step
TEXT, LISTED = 100, 10  # characters of a text, and of the fields in all, that are gone through in a step
# No template can write these names: they have spaces in them.
COUNTED, CHARGED, METER = "counted rounds", "charged value", "steps left"
# Filters that look at a value's beginning only, and those that go through all of it in Python.
CHEAP = {"count", "d", "default", "first", "last", "length"}
LOOKING = nodes.Filter, nodes.Test, nodes.Compare, nodes.Operand, nodes.Concat, nodes.Output, nodes.Getitem
DEAR = {"dictsort", "sort", "title", "unique", "urlencode"}


class TooManySteps(Exception):
    """One message takes too long to render."""


class OverBudget(Exception):
    """The messages of one request together take too long to render."""


class Budget:
    """Steps for several messages together. This one never ends; each message ends at MAX_STEPS by itself."""

    left = 0

    def draw(self) -> int:
        """So many more steps may be taken. Raises OverBudget."""
        return MAX_STEPS

    def spend(self, steps: int) -> None:
        """Raises OverBudget."""
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
        """Raises TooManySteps, OverBudget."""
        self._left -= steps
        if self._left < 0:
            raise TooManySteps(f"it takes more than {MAX_STEPS:,} steps to render: fewer rounds, or smaller fields")
        self._budget.left -= steps
        if self._budget.left < 0:
            self._budget.spend(0)

    @property
    def volume(self) -> int:
        """Characters of all fields together, as they would be shown."""
        if self._volume < 0:
            self._volume = len(str(self._values))
        return self._volume


def weight(node: nodes.Node) -> int:
    """Parts that are gone through when this one is; the inside of a loop counts for itself."""
    inside = [node.iter] if isinstance(node, nodes.For) else node.iter_child_nodes()
    return 1 + sum(map(weight, inside))


def count(tree: nodes.Template) -> None:
    """Each round of a loop costs its parts; what may go through a large value costs by its size."""
    rounds = [
        (loop, 1 + sum(map(weight, loop.iter_child_nodes(("iter", "target"))))) for loop in tree.find_all(nodes.For)
    ]
    for node in list(tree.find_all(LOOKING)):
        if isinstance(node, nodes.Filter):
            if node.name not in CHEAP:
                node.node = _charging(node.node, node.name in DEAR)
        elif isinstance(node, nodes.Test):
            node.node, node.args = _charging(node.node), [_charging(one) for one in node.args]
        elif isinstance(node, nodes.Compare | nodes.Operand):
            node.expr = _charging(node.expr)
        elif isinstance(node, nodes.Getitem):
            if isinstance(node.arg, nodes.Slice):
                node.node = _charging(node.node)
        elif isinstance(node, nodes.Concat | nodes.Output):
            node.nodes = [_charging(one) for one in node.nodes]
    for loop, each in rounds:
        loop.iter = nodes.Filter(loop.iter, COUNTED, [nodes.Const(each)], [], None, None, lineno=loop.lineno)


def _charging(value: Any, dear: bool = False) -> Any:
    if isinstance(value, nodes.Const | nodes.TemplateData):
        return value
    return nodes.Filter(value, CHARGED, [nodes.Const(dear)], [], None, None, lineno=value.lineno)


@pass_context
def _counted(context: Context, values: Iterable[Any], each: int) -> Iterator[Any]:
    spend = context[METER].spend
    for value in values:
        spend(each)
        yield value


@pass_context
def _charged(context: Context, value: Any, dear: bool) -> Any:
    kind = type(value)
    if kind is str or kind is Markup:
        if dear or len(value) >= TEXT:
            context[METER].spend(len(value) if dear else len(value) // TEXT)
    elif kind is not int and kind is not float and kind is not bool and value is not None:
        meter = context[METER]
        meter.spend(meter.volume // (1 if dear else LISTED))
    return value


FILTERS = {COUNTED: _counted, CHARGED: _charged}
