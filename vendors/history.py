"""Who decided what, when and why: the admin's own log of each row, for decisions by hand and by command.

What somebody changed on a page, old and new, for the row's history; secrets are only said to have changed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model

SILENT = {"secret"}


def describe(form: Any, formsets: Iterable[Any] | None) -> str:
    """One sentence; empty when nothing changed."""
    parts = _fields(form)
    for formset in formsets or ():
        name = str(formset.model._meta.verbose_name)
        parts += [f"{name} {row} added" for row in formset.new_objects]
        parts += [f"{name} {row} deleted" for row in formset.deleted_objects]
        changed = {row.pk for row, _ in formset.changed_objects}
        forms = [one for one in formset.forms if one.instance.pk in changed and one.has_changed()]
        parts += [f"{name} {one.instance}: {', '.join(_fields(one))}" for one in forms]
    return "; ".join(parts)


def _fields(form: Any) -> list[str]:
    return [_field(form, name) for name in form.changed_data]


def _field(form: Any, name: str) -> str:
    words = name.replace("_", " ")
    if name in SILENT:
        return f"{words} replaced"
    return f"{words} {form.initial.get(name, '')!s} → {form.cleaned_data.get(name, '')!s}"


SYSTEM = "command line"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who decides. id: of the admin's user; None: somebody at a shell, whose decisions are filed under one user."""

    name: str
    id: int | None = None


def record(
    by: Actor, model: type[Model], told: Iterable[tuple[int, str]], reason: str = "", flag: int = CHANGE
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
