"""The keys of tokens that leave with a letter and come back: of links to unsubscribe, of addresses for bounces.

They are in the database, encrypted like every secret, so that tokens outlive a change of SECRET_KEY (`rotate_keys`).
The first key is made when one is needed for the first time. Several may be stored: the newest makes tokens, and all of
them verify. A key is never deleted, because letters with its tokens are read for years.
"""

import hashlib
import secrets
import threading
import time
from typing import Any

from django.db import connection, transaction

from campaigns.models import TokenKey

FRESH = 1.0  # seconds for which a process trusts what it has read
SIZE = 32  # bytes of a key
LONGEST_PURPOSE = hashlib.blake2b.PERSON_SIZE  # bytes

ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtext('campaigns_tokenkey'))"


class _KnownKeys:
    """What this process has read last, newest first."""

    def __init__(self) -> None:
        self.secrets: tuple[bytes, ...] = ()
        self.read_at = float("-inf")
        self.lock = threading.Lock()


_known = _KnownKeys()


def keys(purpose: str) -> tuple[bytes, ...]:
    """Keys of 32 bytes for one purpose, newest first; what is made with the one of another purpose fits none of them.

    At least one. purpose: at most 16 bytes. Raises the database's errors.
    """
    person = purpose.encode()
    return tuple(hashlib.blake2b(key=one, person=person, digest_size=SIZE).digest() for one in _secrets())


def _secrets() -> tuple[bytes, ...]:
    with _known.lock:
        if time.monotonic() - _known.read_at > FRESH:
            asked = time.monotonic()
            _known.secrets = _read() or _made()
            _known.read_at = asked  # not before: if that failed nothing is known
        return _known.secrets


def _read() -> tuple[bytes, ...]:
    rows: Any = TokenKey.objects.order_by("-id")
    return tuple(bytes.fromhex(row.secret["key"]) for row in rows)


def _made() -> tuple[bytes, ...]:
    """The keys; makes the first one if there is none."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(ONE_AT_A_TIME)
        return _read() or (add(),)


def add() -> bytes:
    """Stores a new key, with which tokens are made from now on; all processes know it a second later."""
    key = secrets.token_bytes(SIZE)
    secret: Any = {"key": key.hex()}
    TokenKey.objects.create(secret=secret)
    return key
