"""History of rows in the admin's log: who decided or changed what, when and why, on pages and by commands.

`describe` gives a form's old and new values as a sentence; secrets are only said to be replaced.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.utils import translation

SILENT = {"secret"}


def brief(value: Any) -> Any:
    """Shorten settings for display. Texts of several lines, such as descriptions, become start, length and digest."""
    if isinstance(value, dict):
        return {name: brief(one) for name, one in value.items()}
    if isinstance(value, str) and "\n" in value:
        digest = hashlib.sha256(value.encode()).hexdigest()[:12]
        return f"{value.strip().splitlines()[0][:60]} ... ({len(value):,} characters, sha256 {digest})"
    return value


def describe(form: Any, formsets: Iterable[Any] | None) -> str:
    """Return the changes of a form and its formsets as one English sentence; "" if there are none."""
    with translation.override(settings.LANGUAGE_CODE):
        return "; ".join(_parts(form, formsets))


def _parts(form: Any, formsets: Iterable[Any] | None) -> list[str]:
    parts = _fields(form)
    for formset in formsets or ():
        name = str(formset.model._meta.verbose_name)
        parts += [f"{name} {row} added" for row in formset.new_objects]
        parts += [f"{name} {row} deleted" for row in formset.deleted_objects]
        changed = {row.pk for row, _ in formset.changed_objects}
        forms = [one for one in formset.forms if one.instance.pk in changed and one.has_changed()]
        parts += [f"{name} {one.instance}: {', '.join(_fields(one))}" for one in forms]
    return parts


def _fields(form: Any) -> list[str]:
    return [_field(form, name) for name in form.changed_data]


def _field(form: Any, name: str) -> str:
    label = name.replace("_", " ")
    if name in getattr(form, "held", ()):
        return f"{label} waits for a second person"
    if name in SILENT:
        return f"{label} replaced"
    before, after = brief(form.initial.get(name, "")), brief(form.cleaned_data.get(name, ""))
    return f"{label} {before!s} → {after!s}"


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return old and new values as one sentence; secrets are only said to be replaced."""
    return "; ".join(
        f"{name.replace('_', ' ')} {'replaced' if name in SILENT else f'{_said(before[name])} → {_said(value)}'}"
        for name, value in after.items()
    )


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    shown = ", ".join(map(str, value)) if isinstance(value, list) else str(brief(value))
    return shown or "none"


SYSTEM = "command line"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who decides. `id`: the admin user's; None in a shell, whose entries belong to the user SYSTEM."""

    name: str
    id: int | None = None


def record(
    by: Actor, model: type[Model], changes: Iterable[tuple[int, str]], reason: str = "", flag: int = CHANGE
) -> None:
    """Log one entry for each (primary key, change). `flag`: Django's action flag."""
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
        for pk, what in changes
    )


def latest(model: type[Model], keys: Iterable[int], most: int) -> list[LogEntry]:
    """Return the newest entries about these rows, with their users."""
    kind = ContentType.objects.get_for_model(model)
    about = LogEntry.objects.filter(content_type=kind, object_id__in=[str(pk) for pk in keys])
    return list(about.select_related("user").order_by("-id")[:most])


def _system() -> int:
    """Return the id of the user SYSTEM, which cannot log in."""
    return User.objects.get_or_create(username=SYSTEM, defaults={"is_active": False, "password": "!"})[0].pk
