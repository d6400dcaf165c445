"""The cost of rendering a template that does more than show fields: puts nodes that count steps into its tree.

A step is about a quarter of a microsecond: one for each part of the template, each time that a loop runs it, and more
for every large value that something reads, makes or is given as an argument. The same letter takes the same steps on
every machine, so what was accepted can be sent.

Nothing that a template makes can be larger than the steps of a message pay for: a list is read, and paid for, when it
is made, so lists within lists cannot grow unseen (decision 44).
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from jinja2 import Undefined, nodes, pass_context
from jinja2.runtime import Context
from jinja2.visitor import NodeTransformer
from markupsafe import Markup

TEXT, LISTED = 100, 10  # characters read in a step: of a text, and of a list's or an object's members
WALKED = 10_000  # characters of a list that are looked at before they are paid for
SCALAR, REAL = 4, 20  # characters of null, true and false; of a number with a point
WIDE = 1_024  # bits of a whole number from which on it costs: to divide takes time by the square of its length
# Templates cannot contain these names, because they have spaces in them.
COUNTED, CHARGED, METER = "counted rounds", "charged value", "steps left"
# Filters that read only the beginning of a value; and those that read each character in Python, or keep each apart.
CHEAP = {"count", "d", "default", "first", "last", "length"}
DEAR = {"dictsort", "list", "sort", "title", "unique", "urlencode"}

Given = TypeVar("Given", bound="nodes.Expr | None")


def weight(node: nodes.Node) -> int:
    """How many parts run with this one; the body of a loop is counted by its rounds."""
    inside = [node.iter] if isinstance(node, nodes.For) else node.iter_child_nodes()
    return 1 + sum(map(weight, inside))


def count(tree: nodes.Template) -> None:
    """Puts counters into the tree: each round of a loop costs its parts, and reading a value costs by its size."""
    _Counters().visit(tree)


class _Counters(NodeTransformer):
    """Wraps whatever may be large: each kind of node that reads or makes values has its method."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        each = 1 + sum(map(weight, node.iter_child_nodes(("iter", "target"))))
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, COUNTED, [nodes.Const(each)], [], None, None, lineno=node.lineno)
        return node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Filter:
        self.generic_visit(node)
        if node.name not in CHEAP:
            node.node = _charged_node(node.node, dear=node.name in DEAR)
            _charge_arguments(node)
        return node

    def visit_Test(self, node: nodes.Test) -> nodes.Test:
        self.generic_visit(node)
        node.node = _charged_node(node.node)
        _charge_arguments(node)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:
        self.generic_visit(node)
        node.expr = _charged_node(node.expr)
        for operand in node.ops:
            operand.expr = _charged_node(operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Getitem:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _charged_node(node.node)
        else:
            node.arg = _charged_node(node.arg)
        return node

    def visit_Slice(self, node: nodes.Slice) -> nodes.Slice:
        self.generic_visit(node)
        node.start, node.stop, node.step = map(_charged_node, (node.start, node.stop, node.step))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Concat:
        return self._shown(node)

    def visit_Output(self, node: nodes.Output) -> nodes.Output:
        return self._shown(node)

    def _shown(self, node: Any) -> Any:
        self.generic_visit(node)
        node.nodes = [_charged_node(one, shown=True) for one in node.nodes]
        return node

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        return self._made(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        return node if node.ctx == "store" else self._made(node)

    def _made(self, node: "nodes.List | nodes.Tuple") -> nodes.Expr:
        """A list is paid for when it is made; one of short constants alone cannot grow."""
        self.generic_visit(node)
        constant = all(isinstance(one, nodes.Const) and _is_short(one) for one in node.items)
        return node if constant else _charged_node(node)


def _charge_arguments(node: "nodes.Filter | nodes.Test") -> None:
    node.args = [_charged_node(one) for one in node.args]
    for named in node.kwargs:
        named.value = _charged_node(named.value)


def _is_short(node: nodes.Const) -> bool:
    return not isinstance(node.value, str) or len(node.value) < TEXT


def _charged_node(value: Given, dear: bool = False, shown: bool = False) -> Given:
    """The node, which is paid for when it has a value; a short constant and text between tags cost nothing more."""
    if value is None or isinstance(value, nodes.TemplateData) or (isinstance(value, nodes.Const) and _is_short(value)):
        return value
    how = [nodes.Const(dear), nodes.Const(shown)]
    if isinstance(value, nodes.Filter) and value.name == CHARGED:  # a list that is read where it is made
        value.args = [*how]
        return value
    return nodes.Filter(value, CHARGED, how, [], None, None, lineno=value.lineno)  # type: ignore[return-value]


@pass_context
def _counted(context: Context, values: Iterable[Any], each: int) -> Iterator[Any]:
    spend = context[METER].spend
    for value in values:
        spend(each)
        yield value


@pass_context
def _charged(context: Context, value: Any, dear: bool, shown: bool) -> Any:
    """The value itself, if it is one that a letter can have. Raises ValueError."""
    kind = type(value)
    if kind is str or kind is Markup:
        if dear or len(value) >= TEXT:
            context[METER].spend(len(value) if dear else len(value) // TEXT)
    elif kind is list or kind is dict or kind is tuple:
        _read(value, context[METER], 1 if dear else LISTED)
    elif kind is int:
        if wide := value.bit_length() // WIDE:
            context[METER].spend(wide * wide)
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


def _read(value: Any, meter: Any, rate: int) -> None:
    """Pays for a list by its characters as text, about; members that it has twice count twice. Raises TooManySteps.

    rate: characters in a step.
    """
    volume = 0
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        kind = type(one)
        if kind is str:
            volume += len(one)
        elif kind is dict:
            waiting.extend(one.keys())
            waiting.extend(one.values())
        elif kind is list or kind is tuple:
            waiting.extend(one)
        else:
            _judge(one)
            volume += _length(one)
        volume += 2
        if volume > WALKED:  # looking takes steps, too
            meter.spend(volume // rate)
            volume = 0
    meter.spend(volume // rate)


def _length(value: Any) -> int:
    """Of one value as text, about."""
    if type(value) is int:
        return value.bit_length() // 3 + 1
    if type(value) is float:
        return REAL
    return len(value) if isinstance(value, str) else SCALAR


FILTERS = {COUNTED: _counted, CHARGED: _charged}
