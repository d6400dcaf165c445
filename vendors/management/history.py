"""Who gives a command, and what it changed, for the history that the admin shows of each row."""

import getpass
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE, DELETION
from django.db import models, transaction

from vendors import history
from vendors.management.output import word


def person() -> str:
    """The user of this shell; a container's user may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def added(row: models.Model) -> None:
    _write(row, "added", ADDITION)


def removed(row: models.Model) -> None:
    """Before the row goes, in the same transaction."""
    _write(row, "removed", DELETION)


def changed(row: models.Model, told: str) -> None:
    _write(row, told, CHANGE)


@contextmanager
def kept(row: models.Model, facts: Callable[[Any], Mapping[str, Any]]) -> Iterator[None]:
    """One transaction. What the block changes of the row's facts is kept, old and new; if nothing, nothing is."""
    with transaction.atomic():
        before = facts(_fresh(row))
        yield
        after = facts(_fresh(row))
        parts = [
            f"{name.replace('_', ' ')} {word(before[name]) or 'none'} → {word(value) or 'none'}"
            for name, value in after.items()
            if before[name] != value
        ]
        if parts:
            changed(row, "; ".join(parts))


def _fresh(row: models.Model) -> models.Model:
    """As it is stored now, without what an earlier look at it has remembered."""
    return type(row)._default_manager.get(pk=row.pk)


def _write(row: models.Model, told: str, flag: int) -> None:
    history.write(history.Person(person()), type(row), [(row.pk, told)], flag=flag)
