"""The cost of rendering a template that does more than show fields: puts nodes that count steps into its tree.

A step is about a quarter of a microsecond: one for each part of the template, each time that a loop runs it, and more
for reading a large value. The same letter takes the same steps on every machine, so what was accepted can be sent.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from jinja2 import Undefined, nodes, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

TEXT, LISTED = 100, 10  # characters read in a step: of a text, and of all fields together
WALKED = 10_000  # characters of a list that are looked at before they are paid for
# Templates cannot contain these names, because they have spaces in them.
COUNTED, CHARGED, METER = "counted rounds", "charged value", "steps left"
# Filters that read only the beginning of a value; nodes that may read values; filters that read all of it in Python.
CHEAP = {"count", "d", "default", "first", "last", "length"}
LOOKING = nodes.Filter, nodes.Test, nodes.Compare, nodes.Operand, nodes.Concat, nodes.Output, nodes.Getitem
LISTS = nodes.List, nodes.Tuple
DEAR = {"dictsort", "sort", "title", "unique", "urlencode"}


def weight(node: nodes.Node) -> int:
    """How many parts run with this one; the body of a loop is counted by its rounds."""
    inside = [node.iter] if isinstance(node, nodes.For) else node.iter_child_nodes()
    return 1 + sum(map(weight, inside))


def count(tree: nodes.Template) -> None:  # noqa: C901
    """Puts counters into the tree: each round of a loop costs its parts, and reading a value costs by its size."""
    rounds = [
        (loop, 1 + sum(map(weight, loop.iter_child_nodes(("iter", "target"))))) for loop in tree.find_all(nodes.For)
    ]
    members = (one for made in tree.find_all(LISTS) for one in made.iter_child_nodes())
    makes_lists = any(not isinstance(one, nodes.Const) for one in members)

    def charging(value: Any, dear: bool = False, shown: bool = False) -> Any:
        if isinstance(value, nodes.Const | nodes.TemplateData):
            return value
        how = [nodes.Const(dear), nodes.Const(shown), nodes.Const(makes_lists)]
        return nodes.Filter(value, CHARGED, how, [], None, None, lineno=value.lineno)

    for node in list(tree.find_all(LOOKING)):
        if isinstance(node, nodes.Filter):
            if node.name not in CHEAP:
                node.node = charging(node.node, node.name in DEAR)
        elif isinstance(node, nodes.Test):
            node.node, node.args = charging(node.node), [charging(one) for one in node.args]
        elif isinstance(node, nodes.Compare | nodes.Operand):
            node.expr = charging(node.expr)
        elif isinstance(node, nodes.Getitem):
            if isinstance(node.arg, nodes.Slice):
                node.node = charging(node.node)
        elif isinstance(node, nodes.Concat | nodes.Output):
            node.nodes = [charging(one, shown=True) for one in node.nodes]
    for loop, each in rounds:
        loop.iter = nodes.Filter(loop.iter, COUNTED, [nodes.Const(each)], [], None, None, lineno=loop.lineno)


@pass_context
def _counted(context: Context, values: Iterable[Any], each: int) -> Iterator[Any]:
    spend = context[METER].spend
    for value in values:
        spend(each)
        yield value


@pass_context
def _charged(context: Context, value: Any, dear: bool, shown: bool, makes_lists: bool) -> Any:
    """The value itself, if it is one that a letter can have. Raises ValueError."""
    kind = type(value)
    if kind is str or kind is Markup:
        if dear or len(value) >= TEXT:
            context[METER].spend(len(value) if dear else len(value) // TEXT)
    elif kind is list or kind is dict or kind is tuple:
        meter = context[METER]
        volume = _volume(value, meter) if makes_lists else meter.volume
        meter.spend(volume // (1 if dear else LISTED))
    elif value is None:
        if shown:
            raise ValueError("a field is null and would be shown; default(..., true) says what is shown instead")
    elif not isinstance(value, Undefined):
        _judge(value)
    return value


def _judge(value: Any) -> None:
    """Raises an error for what is neither a text nor a number nor null."""
    if isinstance(value, Undefined):
        str(value)  # says what is undefined
    if value is not None and type(value) not in (int, float, bool, str, Markup):
        raise ValueError(f"what would be shown is no text, number or list, but {type(value).__name__}")


def _volume(value: Any, meter: Any) -> int:
    """Characters, as text, of a list that the template may have made of other lists."""
    volume = paid = 0
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting.extend((*one.keys(), *one.values()))
        elif isinstance(one, list | tuple):
            waiting.extend(one)
        else:
            _judge(one)
        volume += len(one) + 2 if isinstance(one, str) else 2
        if volume - paid > WALKED:  # looking takes steps, too
            meter.spend(WALKED // LISTED)
            paid += WALKED
    return volume - paid


FILTERS = {COUNTED: _counted, CHARGED: _charged}
