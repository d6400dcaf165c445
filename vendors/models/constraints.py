"""Checks of tables, each with the sentence that a form shows when it is broken.

Sentences are not part of a table, so migrations do not have them.
"""

from typing import Any, Self

from django.db import models


class SentenceCheck(models.CheckConstraint):
    """A check of a table with its own sentence, `violation_error_message`."""

    def deconstruct(self) -> tuple[str, Any, Any]:
        """Return it as Django's own class without the sentence."""
        _path, args, kwargs = super().deconstruct()
        kwargs.pop("violation_error_message", None)
        return "django.db.models.CheckConstraint", args, kwargs

    def clone(self) -> Self:
        _path, args, kwargs = super().deconstruct()
        return type(self)(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, models.CheckConstraint):
            return NotImplemented
        return (self.name, self.condition) == (other.name, other.condition)

    __hash__ = None  # type: ignore[assignment]  # like Django's
