"""Pytest plugin that reports where an adapter's tests keep less than the whole contract.

A project names it in its conftest.py: `pytest_plugins = ["vendors.testing.plugin"]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from vendors.adapters.base import Adapter
from vendors.testing.contract import AdapterContract, HttpContract, SmtpContract
from vendors.testing.subject import Subject

KITS = (AdapterContract, HttpContract, SmtpContract)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    found = config.stash.get(FOUND, {})
    for kind, number in found.items():
        left_out = list(exceptions(kind))
        terminalreporter.section(f"contract of {kind.adapter.__name__}")
        terminalreporter.write_line(f"{number} tests; " + ("; ".join(left_out) or "nothing is left out"))


def pytest_collection_finish(session: pytest.Session) -> None:
    found: dict[type[Subject], int] = {}
    for item in session.items:
        kind = getattr(item, "cls", None)
        if kind is not None and issubclass(kind, Subject):
            found[kind] = found.get(kind, 0) + 1
    session.config.stash[FOUND] = found


FOUND: pytest.StashKey[dict[type[Subject], int]] = pytest.StashKey()


def exceptions(kind: type[Subject]) -> Iterator[str]:
    """Yield, in words, each part of the contract that a test file has changed."""
    for name, expected in kind.differs.items():
        yield f"{name}: its contract says {expected}"
    if not kind.reuses_connections:
        yield "it makes a connection for each call"
    if not kind.trust:
        yield "it trusts the system's authorities only"
    says = (kind.adapter.sends_reports.__func__, kind.report)  # type: ignore[attr-defined]
    if says[0] is not Adapter.sends_reports.__func__ and says[1] is Subject.report:  # type: ignore[attr-defined]
        yield "report() gives no example of a delivery report"
    for name in (name for name in dir(kind) if name.startswith("test_")):
        kits = [getattr(one, name) for one in KITS if hasattr(one, name)]
        if kits and getattr(kind, name) not in kits:
            yield f"{name} is replaced"
