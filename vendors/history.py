"""History of rows in the admin's log: who decided or changed what, when and why, on pages and by commands.

`describe` gives a form's old and new values as a sentence; secrets are only said to be replaced. An entry is stored in
English, and beside it as data (vendors/said.py), so that a page shows the program's words in the reader's language and
a person's as they were typed.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model, Q
from django.utils import translation

from vendors import said
from vendors.models import HistorySentence
from vendors.said import Said, gettext_noop

SILENT = {"secret"}


def shorten_settings(value: Any) -> Any:
    """Shorten settings for display. Texts of several lines, such as descriptions, become start, length and digest."""
    if isinstance(value, dict):
        return {name: shorten_settings(one) for name, one in value.items()}
    if isinstance(value, str) and "\n" in value:
        digest = hashlib.sha256(value.encode()).hexdigest()[:12]
        return f"{value.strip().splitlines()[0][:60]} ... ({len(value):,} characters, sha256 {digest})"
    return value


# Names of fields that no model has, in commands.
OF_COMMANDS = (
    gettext_noop("help answer"),
    gettext_noop("quiet from"),
    gettext_noop("quiet to"),
    gettext_noop("verp"),
    gettext_noop("casters"),
    gettext_noop("threshold"),
    gettext_noop("dkim"),
    gettext_noop("send"),
    gettext_noop("read"),
    gettext_noop("ops"),
)
# Rows of inline tables, by the name of their table.
ADDED = {
    "rate limit": gettext_noop("rate limit %(row)s added"),
    "limit of a receiver": gettext_noop("limit of a receiver %(row)s added"),
    "mailcaster": gettext_noop("mailcaster %(row)s added"),
    "route entry": gettext_noop("route entry %(row)s added"),
}
DELETED = {
    "rate limit": gettext_noop("rate limit %(row)s deleted"),
    "limit of a receiver": gettext_noop("limit of a receiver %(row)s deleted"),
    "mailcaster": gettext_noop("mailcaster %(row)s deleted"),
    "route entry": gettext_noop("route entry %(row)s deleted"),
}


def describe_forms(form: Any, formsets: Iterable[Any] | None) -> str:
    """Return the changes of a form and its formsets as one sentence; "" if there are none."""
    with translation.override(settings.LANGUAGE_CODE):
        return Said.join_parts("; ", parts) if (parts := _form_changes(form, formsets)) else ""


def _form_changes(form: Any, formsets: Iterable[Any] | None) -> list[Said]:
    parts = _field_changes(form)
    for formset in formsets or ():
        name = str(formset.model._meta.verbose_name)
        parts += [Said(ADDED.get(name, f"{name} %(row)s added"), row=str(row)) for row in formset.new_objects]
        parts += [Said(DELETED.get(name, f"{name} %(row)s deleted"), row=str(row)) for row in formset.deleted_objects]
        changed = {row.pk for row, _ in formset.changed_objects}
        forms = [one for one in formset.forms if one.instance.pk in changed and one.has_changed()]
        parts += [
            Said("%(table)s %(row)s: %(fields)s", table=Said(name), row=str(one.instance),
                fields=Said.join_parts(", ", _field_changes(one)))
            for one in forms
        ]  # fmt: skip
    return parts


def _field_changes(form: Any) -> list[Said]:
    return [_field_change(form, name) for name in form.changed_data]


def _field_change(form: Any, name: str) -> Said:
    if name in getattr(form, "held", ()):
        return Said(gettext_noop("%(name)s waits for a second person"), name=_field_label(name))
    if name in SILENT:
        return replaced_sentence(name)
    return change_sentence(
        name, shorten_settings(form.initial.get(name, "")), shorten_settings(form.cleaned_data.get(name, ""))
    )


def replaced_sentence(name: str) -> Said:
    """Return the sentence for a field whose value is not shown."""
    return Said(gettext_noop("%(name)s replaced"), name=_field_label(name))


def change_sentence(name: str, before: Any, after: Any) -> Said:
    """Return the sentence for a field's old and new value."""
    return Said(
        "%(name)s %(before)s → %(after)s", name=_field_label(name), before=_value_text(before), after=_value_text(after)
    )


def _field_label(name: str) -> Said:
    """Return a field's name, which the catalogue has from the field."""
    return Said(name.replace("_", " "))


def _value_text(value: Any) -> str:
    return Said((gettext_noop("False"), gettext_noop("True"))[value]) if isinstance(value, bool) else str(value)


def changes_sentence(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return old and new values as one sentence; secrets are only said to be replaced."""
    parts = (
        replaced_sentence(name)
        if name in SILENT
        else change_sentence(name, shown_value(before[name]), shown_value(value))
        for name, value in after.items()
    )
    return Said.join_parts("; ", parts)


def shown_value(value: Any) -> str:
    """Return a value as commands and forms show it: yes, no, none, or its text."""
    if isinstance(value, bool):
        return Said(gettext_noop("yes") if value else gettext_noop("no"))
    shown = ", ".join(map(str, value)) if isinstance(value, list) else str(shorten_settings(value))
    return shown or Said(gettext_noop("none"))


SYSTEM = "command line"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who decides. `id`: the admin user's; None in a shell, whose entries belong to the user SYSTEM."""

    name: str
    id: int | None = None


def record_changes(
    by: Actor, model: type[Model], changes: Iterable[tuple[int, str]], reason: str = "", flag: int = CHANGE
) -> None:
    """Log one entry for each (primary key, change). `flag`: Django's action flag. reason: as a person typed it."""
    user_id = _system_user() if by.id is None else by.id
    kind = ContentType.objects.get_for_model(model)
    who, typed = by.name if by.id is None else "", reason.strip()
    made = LogEntry.objects.bulk_create(
        LogEntry(
            user_id=user_id,
            content_type=kind,
            object_id=str(pk),
            object_repr=f"{kind.model} {pk}",
            action_flag=flag,
            change_message=decision_sentence(what, who, typed),
        )
        for pk, what in changes
    )
    keep_sentences(made)


def decision_sentence(what: str, who: str = "", typed: str = "") -> str:
    """Return the sentence of an entry: the decision, the person who made it in a shell, and the reason as typed."""
    if who:
        what = Said(gettext_noop("%(decision)s by %(person)s"), decision=what, person=who)
    return Said(gettext_noop("%(decision)s. Reason: %(typed)s"), decision=what, typed=typed) if typed else what


def keep_sentences(entries: Iterable[LogEntry]) -> None:
    """Store the sentences of new entries as data, too."""
    rows = [
        HistorySentence(entry=entry, said=one.data)
        for entry in entries
        if isinstance(one := entry.change_message, Said)
    ]
    if rows:
        HistorySentence.objects.bulk_create(rows)


def entry_sentences(entries: Iterable[LogEntry], show: Callable[[str], str] = said.show) -> list[tuple[LogEntry, str]]:
    """Return each entry with its sentence in the active language; one of before, or of Django, as it is stored.

    show: puts a sentence into words for the reader.
    """
    entries = list(entries)
    kept = dict(HistorySentence.objects.filter(pk__in=[one.pk for one in entries]).values_list("pk", "said"))
    return [(one, show(said.read(one.get_change_message(), kept.get(one.pk)))) for one in entries]


def latest_entries(model: type[Model], keys: Iterable[int], most: int) -> list[LogEntry]:
    """Return the newest entries about these rows, with their users."""
    return latest_about({model: keys}, most)


def latest_about(rows: Mapping[type[Model], Iterable[int]], most: int) -> list[LogEntry]:
    """Return the newest entries about rows of several models, with one statement."""
    about = Q()
    for model, keys in rows.items():
        kind = ContentType.objects.get_for_model(model)
        about |= Q(content_type=kind, object_id__in=[str(pk) for pk in keys])
    return list(LogEntry.objects.filter(about).select_related("user").order_by("-id")[:most])


def _system_user() -> int:
    """Return the id of the user SYSTEM, which cannot log in."""
    return User.objects.get_or_create(username=SYSTEM, defaults={"is_active": False, "password": "!"})[0].pk
