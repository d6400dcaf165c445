"""Adapters: the public names for other packages, and the lookup of an adapter by its name.

Names in `__all__` are public: they keep their meaning within a major version and are deprecated one version before
removal. Anything else may change in any version.

Adapters are found by name among the built-in ones and the entry points of installed packages. A process knows only what
was installed when it started; later changes need a restart (vendors/restarts.py says of which processes).
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from vendors.adapters.base import (
    PARTS,
    WIND_UP,
    Adapter,
    Attachment,
    Capabilities,
    Letter,
    LoginAnswer,
    Origin,
    one_unit,
)
from vendors.adapters.http import url
from vendors.adapters.http_client import Client, Response, header
from vendors.adapters.options import (
    InvalidSettings,
    Option,
    certificates,
    check_protected,
    choice,
    flag,
    seconds,
    text,
    whole,
)
from vendors.adapters.reports import BadReport, NotTheVendor, Reported, ReportRequest, ReportSource, UnreadableEntry
from vendors.adapters.segments import segments
from vendors.causes import AnswerCause
from vendors.outcomes import (
    Accepted,
    CallError,
    InDoubt,
    NotSent,
    Outcome,
    Refused,
    classify_error,
    classify_http,
    classify_smtp,
    parse_retry_after,
    sane,
)

__all__ = [
    "PARTS",
    "WIND_UP",
    "Accepted",
    "Adapter",
    "AnswerCause",
    "Attachment",
    "BadReport",
    "CallError",
    "Capabilities",
    "Client",
    "InDoubt",
    "InvalidSettings",
    "Letter",
    "LoginAnswer",
    "NotSent",
    "NotTheVendor",
    "Option",
    "Origin",
    "Outcome",
    "Refused",
    "ReportRequest",
    "ReportSource",
    "Reported",
    "Response",
    "UnreadableEntry",
    "certificates",
    "check_protected",
    "choice",
    "classify_error",
    "classify_http",
    "classify_smtp",
    "flag",
    "header",
    "one_unit",
    "parse_retry_after",
    "sane",
    "seconds",
    "segments",
    "text",
    "url",
    "whole",
]

GROUP = "mailhub.adapters"
_BUILT_IN = {
    "described": "vendors.described.adapter:Described",
    "anymail": "vendors.adapters.anymail:Anymail",
    "print_file": "vendors.printing.adapter:PrintFile",
    "http": "vendors.adapters.http:Http",
    "sandbox": "vendors.adapters.http:Http",  # the sandbox vendor is called like any other
    "smtp": "vendors.adapters.smtp:Smtp",
}


class UnknownAdapter(LookupError):
    """This process does not know the adapter or cannot load it; another process may."""


@cache
def _find_entry_points() -> dict[str, EntryPoint]:
    """Return entry points by name, found once. A package cannot take the name of a built-in adapter."""
    installed = {point.name: point for point in entry_points(group=GROUP)}
    return installed | {name: EntryPoint(name, path, GROUP) for name, path in _BUILT_IN.items()}


def list_names() -> list[str]:
    """Return the names that `load` knows."""
    return sorted(_find_entry_points())


def is_built_in(name: str) -> bool:
    return name in _BUILT_IN


@cache
def load(name: str) -> type[Adapter]:
    """Return the adapter class of that name. Raises UnknownAdapter, a LookupError, with the known names.

    Cached, because searching all installed packages is slow.
    """
    point = _find_entry_points().get(name)
    if point is None:
        raise UnknownAdapter(
            f"there is no adapter {name!r} here, or this process needs a restart; there are {', '.join(list_names())}"
        )
    try:
        adapter = point.load()
    except Exception as error:  # importing a package may raise anything
        raise UnknownAdapter(f"the adapter {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(adapter, type) and issubclass(adapter, Adapter)):
        raise UnknownAdapter(f"the adapter {name!r} cannot be loaded: {point.value} is not an adapter")
    return adapter


@cache
def list_others() -> dict[str, str]:
    """Return the loadable adapters of other packages, with the version of their package.

    A worker loads them before it forks, so all its processes have the same ones until it restarts.
    """
    return {
        name: _package_version(point)
        for name, point in _find_entry_points().items()
        if name not in _BUILT_IN and _can_load(name)
    }


def _can_load(name: str) -> bool:
    try:
        load(name)
    except UnknownAdapter:
        return False
    return True


def _package_version(point: EntryPoint) -> str:
    return point.dist.version if point.dist else ""
