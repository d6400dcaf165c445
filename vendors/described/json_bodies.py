"""Compiles JSON bodies: each letter's own values among constants that are serialized once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import orjson

from vendors.adapters.base import Letter
from vendors.described.bodies import FilledValues, bound_getter, bound_parts
from vendors.described.placeholders import ATTRIBUTES, Parts, Placeholder, split_text

MISSING: Any = object()
"""What is left out of its table or list."""


def json_body(content: Mapping[str, Any], values: FilledValues) -> Callable[[Letter], bytes]:
    """Return a function that renders the JSON for a letter."""
    made = _compile_node(content, values)
    if callable(made):
        return lambda letter: orjson.dumps(made(letter), default=dict)  # for mappings other than dict
    constant = orjson.dumps(made)
    return lambda letter: constant


class _Attribute:
    """Reads an attribute of a letter."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.of_letter = attrgetter(name)

    def __call__(self, letter: Any) -> Any:
        return self.of_letter(letter)


def _compile_node(node: Any, values: FilledValues) -> Any:
    """Compile a node into a constant, or into a function that returns a letter's value or MISSING."""
    if isinstance(node, str):
        return _json_text(node, values)
    if isinstance(node, dict) and "each" in node:
        return _compile_each(node, values)
    if isinstance(node, dict):
        made = {name: _compile_node(value, values) for name, value in node.items()}
        return _compile_table({name: value for name, value in made.items() if value is not MISSING})
    if isinstance(node, list):
        return _compile_list([value for one in node if (value := _compile_node(one, values)) is not MISSING])
    return node


def _compile_table(made: dict[str, Any]) -> Any:
    own = [(name, value) for name, value in made.items() if callable(value)]
    if not own:
        return made
    if len(own) == len(made) > 1 and all(isinstance(value, _Attribute) for _, value in own):  # the most common case
        names, of_letter = tuple(made), attrgetter(*(value.name for _, value in own))
        return lambda letter: dict(zip(names, of_letter(letter), strict=True))
    base = {name: None if callable(value) else orjson.Fragment(orjson.dumps(value)) for name, value in made.items()}

    def make_table(letter: Any) -> dict[str, Any]:
        found: dict[str, Any] = base.copy()
        for name, of_letter in own:
            value = of_letter(letter)
            if value is MISSING:
                del found[name]
            else:
                found[name] = value
        return found

    return make_table


def _compile_list(made: list[Any]) -> Any:
    if not any(map(callable, made)):
        return made
    makers = [value if callable(value) else _make_constant(value) for value in made]
    return lambda letter: [value for make in makers if (value := make(letter)) is not MISSING]


def _make_constant(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def text_maker(value: Any, values: FilledValues) -> Any:
    """Compile a member of a form into an unescaped value or a function that returns it; MISSING if it is left out."""
    return _json_text(value, values) if isinstance(value, str) else value


def _json_text(text: str, values: FilledValues) -> Any:
    bare = text.strip()
    if bare in ("{params}", "{params?}"):
        return _Attribute("params")
    parts = split_text(bare)
    if len(parts) == 1 and isinstance(parts[0], Placeholder) and parts[0].space == "settings":
        value = values["settings"].get(parts[0].name, "")
        if not isinstance(value, str):  # a flag or a number
            return value
    bound = bound_parts(text, values)
    if any(isinstance(part, Placeholder) and part.space in values for part in bound):
        return MISSING
    if not any(isinstance(part, Placeholder) for part in bound):
        return "".join(map(str, bound))
    return _text_of(bound, values)


def _text_of(parts: Parts, values: FilledValues) -> Callable[[Any], Any]:
    only = parts[0]
    if len(parts) == 1 and isinstance(only, Placeholder):
        if only.name in ATTRIBUTES and not only.space and not only.optional:
            return _Attribute(only.name)
        of_letter = bound_getter(only, values)
        return (lambda letter: of_letter(letter) or MISSING) if only.optional else of_letter
    makers = [bound_getter(part, values) if isinstance(part, Placeholder) else _make_constant(part) for part in parts]
    needed = [bound_getter(part, values) for part in parts if isinstance(part, Placeholder) and part.optional]

    def make_text(letter: Any) -> Any:
        if needed and not all(one(letter) for one in needed):
            return MISSING
        return "".join([make(letter) for make in makers])

    return make_text


def _compile_each(node: Mapping[str, Any], values: FilledValues) -> Callable[[Letter], Any]:
    item = _compile_node(node["item"], values)
    make = item if callable(item) else _make_constant(item)
    optional = "?" in node["each"]
    of_letter = attrgetter("attachments" if "files" in node["each"] else "headers")

    def make_list(letter: Letter) -> Any:
        found = of_letter(letter)
        return MISSING if optional and not found else [make(one) for one in found]

    return make_list
