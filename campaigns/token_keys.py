"""The keys of tokens that leave with a letter and come back, in unsubscribe links and addresses for bounces.

They are in the database, encrypted like every secret, so tokens survive a change of SECRET_KEY (`rotate_keys`). The
first key is made on first use. Several may be stored: the newest makes tokens, and all of them verify. A key is never
deleted, because letters with its tokens are read for years.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from django.db import connection, transaction

from campaigns.models import TokenKey

FRESH = 1.0  # seconds for which a process caches them
SIZE = 32  # bytes of a key
LONGEST_PURPOSE = hashlib.blake2b.PERSON_SIZE  # bytes

ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtext('campaigns_tokenkey'))"


Secrets = TypeVar("Secrets")


class Known(Generic[Secrets]):
    """A value cached for FRESH seconds in this process. read: fetches it; raises the database's errors."""

    def __init__(self, read: Callable[[], Secrets]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._last: tuple[float, Secrets] | None = None

    def get(self) -> Secrets:
        with self._lock:
            if self._last is None or time.monotonic() - self._last[0] > FRESH:
                asked, self._last = time.monotonic(), None
                self._last = asked, self._read()
            return self._last[1]

    def forget(self) -> None:
        with self._lock:
            self._last = None


def keys(purpose: str) -> tuple[bytes, ...]:
    """Return the keys (32 bytes) for one purpose, newest first, at least one.

    A token made for one purpose fits no other. purpose: at most 16 bytes. Raises the database's errors.
    """
    person = purpose.encode()
    return tuple(hashlib.blake2b(key=one, person=person, digest_size=SIZE).digest() for one in known.get())


def _read() -> tuple[bytes, ...]:
    rows: Any = TokenKey.objects.order_by("-id")
    return tuple(bytes.fromhex(row.secret["key"]) for row in rows)


def _made() -> tuple[bytes, ...]:
    """Return the keys, making the first one if none exists."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(ONE_AT_A_TIME)
        return _read() or (add(),)


known = Known(lambda: _read() or _made())  # newest first


def add() -> bytes:
    """Store a new key, used for tokens from now on. All processes know it a second later."""
    key = secrets.token_bytes(SIZE)
    secret: Any = {"key": key.hex()}
    TokenKey.objects.create(secret=secret)
    return key
