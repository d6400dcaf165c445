"""Adapters of installed packages, for a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint

import pytest

from vendors import adapters


@contextmanager
def installed(name: str, path: str) -> Iterator[str]:
    """This process knows an adapter of that name besides its own, as if a package had been there when it began."""
    known = adapters._find_entry_points() | {name: EntryPoint(name, path, adapters.GROUP)}
    adapters.load.cache_clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(adapters, "_find_entry_points", lambda: known)
        yield name
    adapters.load.cache_clear()
