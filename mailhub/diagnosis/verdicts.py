"""The result of a check of the installation."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from django.core.checks import CheckMessage


class VerdictLevel(StrEnum):
    """`error`: mail stands still, or can be lost or sent twice. `warning`: it may come to that, or has a price."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """One fact that a check has seen. remedy: what to do, as a sentence without its full stop, or empty.

    name: its subject; empty: the check's name.
    """

    level: VerdictLevel
    seen: str
    remedy: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.seen}. {self.remedy}" if self.remedy else self.seen


@dataclass(frozen=True, slots=True)
class InstallationCheck:
    """A check and its servers. is_cheap: it takes at most two short statements, and fits every page."""

    name: str
    look: Callable[[], Iterable[HealthVerdict]]
    needs: frozenset[str] = frozenset()
    is_cheap: bool = False


def all_well(seen: str) -> HealthVerdict:
    return HealthVerdict(VerdictLevel.OK, seen)


def warning_of(seen: str, remedy: str, name: str = "") -> HealthVerdict:
    return HealthVerdict(VerdictLevel.WARNING, seen, remedy, name)


def error_of(seen: str, remedy: str, name: str = "") -> HealthVerdict:
    return HealthVerdict(VerdictLevel.ERROR, seen, remedy, name)


def judge_message(message: CheckMessage) -> HealthVerdict:
    """Return the result of one of Django's system checks as a verdict."""
    level = VerdictLevel.ERROR if message.is_serious() else VerdictLevel.WARNING
    return HealthVerdict(level, str(message.msg), str(message.hint or "").removesuffix("."))
