"""Adapters, one for each kind of vendor. Found by name: the built-in ones and those of installed packages."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from vendors.adapters.base import Adapter

GROUP = "mailhub.adapters"
_BUILT_IN = {
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
    """The adapter class of that name. Raises LookupError, which names the known ones.

    Kept: looking through all installed packages was a sixth of what a job of one message cost.
    """
    point = _found().get(name)
    if point is None:
        raise LookupError(f"there is no adapter {name!r}; there are {', '.join(names())}")
    adapter = point.load()
    if not (isinstance(adapter, type) and issubclass(adapter, Adapter)):
        raise LookupError(f"{point.value} is not an adapter")
    return adapter
