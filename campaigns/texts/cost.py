"""Puts nodes that count steps into a template's tree, if the template does more than show fields.

Each part of the template costs a step, again for each round of its loop. A large value costs more steps each time
something reads it, makes it or takes it as an argument. A letter takes the same steps on every machine, so an accepted
letter can be sent.

Nothing a template makes can outgrow the steps of a message: a list is charged for at creation, so lists within lists
cannot grow unseen (decision 44).
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from jinja2 import Undefined, nodes, pass_context
from jinja2.runtime import Context
from jinja2.visitor import NodeTransformer
from markupsafe import Markup

from vendors.said import Said

TEXT, LISTED = 100, 10  # characters read in a step: of a text, and of the members of a list or an object
WALKED = 10_000  # characters of a list read before paying for them
SCALAR, REAL = 4, 20  # characters of null, true and false; of a float
WIDE = 1_024  # bits above which a whole number costs steps: division takes quadratic time
# Names with spaces, so no template can contain them.
COUNTED, CHARGED, METER = "counted rounds", "charged value", "steps left"
# CHEAP filters read only the beginning of a value. DEAR ones read or store each character in Python.
CHEAP = {"count", "d", "default", "first", "last", "length"}
DEAR = {"dictsort", "list", "sort", "title", "unique", "urlencode"}

Given = TypeVar("Given", bound="nodes.Expr | None")
Shown = TypeVar("Shown", nodes.Concat, nodes.Output)


def node_weight(node: nodes.Node) -> int:
    """Return how many parts run when this node runs once; a loop's body is counted by its rounds instead."""
    inside = [node.iter] if isinstance(node, nodes.For) else node.iter_child_nodes()
    return 1 + sum(map(node_weight, inside))


def add_counters(tree: nodes.Template) -> None:
    """Put counters into the tree: each round of a loop costs its parts, and reading a value costs by its size."""
    _Counters().visit(tree)


class _Counters(NodeTransformer):
    """Wraps each node that may read or make large values."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        each = 1 + sum(map(node_weight, node.iter_child_nodes(("iter", "target"))))
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
        return self._count_shown(node)

    def visit_Output(self, node: nodes.Output) -> nodes.Output:
        return self._count_shown(node)

    def _count_shown(self, node: Shown) -> Shown:
        self.generic_visit(node)
        node.nodes = [_charged_node(one, shown=True) for one in node.nodes]
        return node

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        return self._charge_made(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        return node if node.ctx == "store" else self._charge_made(node)

    def _charge_made(self, node: "nodes.List | nodes.Tuple") -> nodes.Expr:
        """Charge for a list when it is made, unless it holds short constants only and cannot grow."""
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
    """Return the node with a charge for its value; short constants and text between tags are free."""
    if value is None or isinstance(value, nodes.TemplateData) or (isinstance(value, nodes.Const) and _is_short(value)):
        return value
    how = [nodes.Const(dear), nodes.Const(shown)]
    # charge once for a list made and read in the same place
    if isinstance(value, nodes.Filter) and value.name == CHARGED:
        value.args = [*how]
        return value
    return nodes.Filter(value, CHARGED, how, [], None, None, lineno=value.lineno)  # type: ignore[return-value]


@pass_context
def _count_values(context: Context, values: Iterable[Any], each: int) -> Iterator[Any]:
    spend = context[METER].spend_steps
    for value in values:
        spend(each)
        yield value


@pass_context
def _charge_value(context: Context, value: Any, dear: bool, shown: bool) -> Any:
    """Charge for a value and return it. Raises ValueError if a letter cannot contain it."""
    kind = type(value)
    if kind is str or kind is Markup:
        if dear or len(value) >= TEXT:
            context[METER].spend_steps(len(value) if dear else len(value) // TEXT)
    elif kind is list or kind is dict or kind is tuple:
        _charge_list(value, context[METER], 1 if dear else LISTED)
    elif kind is int:
        if wide := value.bit_length() // WIDE:
            context[METER].spend_steps(wide * wide)
    elif value is None:
        if shown:
            raise ValueError(Said("a field is null and would be shown; default(..., true) says what is shown instead"))
    elif not isinstance(value, Undefined):
        _judge_value(value)
    return value


def _judge_value(value: Any) -> None:
    """Raise ValueError unless the value is a text, a number or null."""
    if isinstance(value, Undefined):
        str(value)  # raises an error that names the undefined value
    if value is not None and type(value) not in (int, float, bool, str, Markup):
        raise ValueError(
            Said("what would be shown is no text, number or list, but %(kind)s", kind=type(value).__name__)
        )


def _charge_list(value: Any, meter: Any, rate: int) -> None:
    """Charge for a list by its approximate length as text; a member listed twice counts twice. Raises TooManySteps.

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
            _judge_value(one)
            volume += _approximate_length(one)
        volume += 2
        if volume > WALKED:  # reading costs steps, too
            meter.spend_steps(volume // rate)
            volume = 0
    meter.spend_steps(volume // rate)


def _approximate_length(value: Any) -> int:
    """Return the approximate length of a single value as text."""
    if type(value) is int:
        return value.bit_length() // 3 + 1
    if type(value) is float:
        return REAL
    return len(value) if isinstance(value, str) else SCALAR


FILTERS = {COUNTED: _count_values, CHARGED: _charge_value}
