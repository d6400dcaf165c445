"""What somebody changed on a page, old and new, for the row's history; secrets are only said to have changed."""

from collections.abc import Iterable
from typing import Any

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
