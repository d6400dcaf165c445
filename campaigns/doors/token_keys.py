"""The keys of tokens that leave with a letter and come back, in unsubscribe links and addresses for bounces.

They are in the database, encrypted like every secret, so tokens survive a change of SECRET_KEY (`rotate_keys`). The
first key is made on first use. Several may be stored: the newest makes tokens, and all of them verify. A key is never
deleted, because letters with its tokens are read for years.
"""

import hashlib
import secrets
from typing import Any

from django.db import connection, transaction

from campaigns.engine.kept_values import Known
from campaigns.models import TokenKey

SIZE = 32  # bytes of a key

ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtext('campaigns_tokenkey'))"


def keys_for_purpose(purpose: str) -> tuple[bytes, ...]:
    """Return the keys (32 bytes) for one purpose, newest first, at least one.

    A token made for one purpose fits no other. purpose: at most 16 bytes. Raises the database's errors.
    """
    person = purpose.encode()
    return tuple(hashlib.blake2b(key=one, person=person, digest_size=SIZE).digest() for one in known.get_fresh())


def _read_keys() -> tuple[bytes, ...]:
    rows: Any = TokenKey.objects.order_by("-id")
    return tuple(bytes.fromhex(row.secret["key"]) for row in rows)


def _make_first_key() -> tuple[bytes, ...]:
    """Return the keys, making the first one if none exists."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(ONE_AT_A_TIME)
        return _read_keys() or (add_key(),)


known = Known(lambda: _read_keys() or _make_first_key())  # newest first


def add_key() -> bytes:
    """Store a new key, used for tokens from now on. All processes know it a second later."""
    key = secrets.token_bytes(SIZE)
    secret: Any = {"key": key.hex()}
    TokenKey.objects.create(secret=secret)
    return key
