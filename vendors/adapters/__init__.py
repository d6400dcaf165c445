"""Finds adapters by name: the built-in ones, and those that installed packages offer as entry points."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from vendors.adapters.base import Adapter

GROUP = "mailhub.adapters"
_BUILT_IN = {
    "described": "vendors.described.adapter:Described",
    "anymail": "vendors.adapters.anymail:Anymail",
    "http": "vendors.adapters.http:Http",
    "sandbox": "vendors.adapters.http:Http",  # the sandbox vendor is called like any other
    "smtp": "vendors.adapters.smtp:Smtp",
}


def _found() -> dict[str, EntryPoint]:
    """By name; a package cannot take the name of a built-in adapter."""
    installed = {point.name: point for point in entry_points(group=GROUP)}
    return installed | {name: EntryPoint(name, path, GROUP) for name, path in _BUILT_IN.items()}


def names() -> list[str]:
    """The names that `load` knows."""
    return sorted(_found())


@cache
def load(name: str) -> type[Adapter]:
    """The adapter class of that name. Raises LookupError with the known names.

    Cached: searching all installed packages took a sixth of the time of a job with one message.
    """
    point = _found().get(name)
    if point is None:
        raise LookupError(f"there is no adapter {name!r}; there are {', '.join(names())}")
    adapter = point.load()
    if not (isinstance(adapter, type) and issubclass(adapter, Adapter)):
        raise LookupError(f"{point.value} is not an adapter")
    return adapter
