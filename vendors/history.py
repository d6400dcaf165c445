"""Who decided what, when and why: the admin's own log of each row, for decisions by hand and by command."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model

SYSTEM = "command line"


@dataclass(frozen=True, slots=True)
class Person:
    """Who decides. id: of the admin's user; None: somebody at a shell, whose decisions are filed under one user."""

    name: str
    id: int | None = None


def write(
    by: Person, model: type[Model], told: Iterable[tuple[int, str]], reason: str = "", flag: int = CHANGE
) -> None:
    """One entry for each (row, what was decided of it). flag: the log's own word for it."""
    user_id = _system() if by.id is None else by.id
    kind = ContentType.objects.get_for_model(model)
    who = f" by {by.name}" if by.id is None else ""
    LogEntry.objects.bulk_create(
        LogEntry(
            user_id=user_id,
            content_type=kind,
            object_id=str(pk),
            object_repr=f"{kind.model} {pk}",
            action_flag=flag,
            change_message=f"{what}{who}" + (f". Reason: {reason.strip()}" if reason.strip() else ""),
        )
        for pk, what in told
    )


def _system() -> int:
    """Nobody can log in as it."""
    return User.objects.get_or_create(username=SYSTEM, defaults={"is_active": False, "password": "!"})[0].pk
