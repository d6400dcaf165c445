"""Secrets of credentials: encrypted at rest, readable only by the adapter that needs them."""

import base64
import hashlib
import json
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models


def _fernet() -> MultiFernet:
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]  # the first encrypts, all decrypt
    return MultiFernet([Fernet(base64.urlsafe_b64encode(hashlib.sha256(str(k).encode()).digest())) for k in keys])


class Unreadable(ValueError):
    """None of the keys opens a stored secret."""


class EncryptedJSONField(models.TextField):
    """A JSON object, stored as a Fernet token."""

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        """Raises Unreadable."""
        try:
            return json.loads(_fernet().decrypt(value)) if value else {}
        except InvalidToken:
            raise Unreadable("SECRET_KEY and SECRET_KEY_FALLBACKS do not open a stored secret") from None

    def get_prep_value(self, value: Any) -> str:
        token = bytes(_fernet().encrypt(json.dumps(value or {}).encode()))
        return token.decode()

    def to_python(self, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) and value else value or {}

    def value_to_string(self, obj: models.Model) -> str:
        return str(self.get_prep_value(self.value_from_object(obj)))  # a dump holds the token, never the secret
