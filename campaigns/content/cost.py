"""The cost of rendering a template that does more than show fields: puts nodes that count steps into its tree.

A step is about a quarter of a microsecond: one for each part of the template, each time that a loop runs it, and more
for reading a large value. The same letter takes the same steps on every machine, so what was accepted can be sent.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

TEXT, LISTED = 100, 10  # characters read in a step: of a text, and of all fields together
# Templates cannot contain these names, because they have spaces in them.
COUNTED, CHARGED, METER = "counted rounds", "charged value", "steps left"
# Filters that read only the beginning of a value; nodes that may read values; filters that read all of it in Python.
CHEAP = {"count", "d", "default", "first", "last", "length"}
LOOKING = nodes.Filter, nodes.Test, nodes.Compare, nodes.Operand, nodes.Concat, nodes.Output, nodes.Getitem
DEAR = {"dictsort", "sort", "title", "unique", "urlencode"}


def weight(node: nodes.Node) -> int:
    """How many parts run with this one; the body of a loop is counted by its rounds."""
    inside = [node.iter] if isinstance(node, nodes.For) else node.iter_child_nodes()
    return 1 + sum(map(weight, inside))


def count(tree: nodes.Template) -> None:
    """Puts counters into the tree: each round of a loop costs its parts, and reading a value costs by its size."""
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
