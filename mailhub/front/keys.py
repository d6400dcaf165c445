"""API keys: creation, look-up and authorisation. A key is read from the database at least once a second."""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from ninja.security import HttpBearer

from campaigns.models import Sponsor
from mailhub.front import rate_limits
from mailhub.front.problems import Problem, unauthorized
from mailhub.models import ApiKey

FRESH = 0.8  # seconds that a process caches a key: a revoked key is refused within one second
USED = timedelta(minutes=1)  # precision of last_used_at
MOST_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a request: its key, sponsor and rights."""

    key_id: int
    prefix: str
    sponsor_id: int
    test: bool
    scopes: frozenset[str]
    requests_per_minute: int
    expires_at: datetime | None


def create(
    sponsor: Sponsor,
    kind: str,
    scopes: Iterable[str],
    expires_at: datetime | None = None,
    requests_per_minute: int | None = None,
) -> tuple[ApiKey, str]:
    """Create a key. Returns the row and the key itself, of which only a digest is stored."""
    prefix = f"mh_{kind}_{secrets.token_hex(4)}"
    token = f"{prefix}_{secrets.token_urlsafe(24)}"
    row = ApiKey(sponsor=sponsor, kind=kind, scopes=list(scopes), prefix=prefix, expires_at=expires_at)
    row.digest = _digest(token, settings.SECRET_KEY)
    if requests_per_minute is not None:
        row.requests_per_minute = requests_per_minute
    row.save()
    return row, token


def _digest(token: str, secret: str | bytes) -> bytes:
    return hmac.digest(str(secret).encode(), token.encode(), hashlib.sha256)


class Keyring:
    """A cache of the keys that this process has read, including unknown ones."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Caller | None]] = {}
        self._lock = threading.Lock()

    def find(self, token: str) -> Caller | None:
        """None if the key is unknown, revoked or expired. Raises django.db's errors."""
        read_at, caller = self._known.get(token, (0.0, None))
        if time.monotonic() - read_at > FRESH or not read_at:
            began = time.monotonic()
            caller = _read(token)
            with self._lock:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known[token] = (began, caller)
        if caller and caller.expires_at and caller.expires_at <= timezone.now():
            return None
        return caller

    def forget(self) -> None:
        """Empty the cache."""
        self._known.clear()


def _read(token: str) -> Caller | None:
    secret_keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    row = ApiKey.objects.filter(digest__in=[_digest(token, key) for key in secret_keys]).first()
    now = timezone.now()
    if row is None or not row.is_valid(now):
        return None
    if row.last_used_at is None or now - row.last_used_at > USED:
        ApiKey.objects.filter(pk=row.pk).update(last_used_at=now)
    return Caller(
        key_id=row.pk,
        prefix=row.prefix,
        sponsor_id=row.sponsor_id,
        test=row.kind == ApiKey.Kind.TEST,
        scopes=frozenset(row.scopes),
        requests_per_minute=row.requests_per_minute,
        expires_at=row.expires_at,
    )


keyring = Keyring()


class Key(HttpBearer):
    """Authorises requests to an endpoint: a valid key with one of these scopes, within its rate limit.

    counts: count the request here; if False, the endpoint counts it.
    """

    def __init__(self, *scopes: str, counts: bool = True) -> None:
        super().__init__()
        self._scopes: Collection[str] = scopes
        self._ask = rate_limits.check if counts else rate_limits.precheck

    def __call__(self, request: HttpRequest) -> Caller:
        kind, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        return self.authenticate(request, token if kind.lower() == "bearer" else "")

    def authenticate(self, request: HttpRequest, token: str) -> Caller:
        """Raises Problem: unauthorized, forbidden, rate-limited or storage-unavailable."""
        caller = keyring.find(token) if token.isascii() and len(token) <= 100 else None
        if caller is None:
            raise unauthorized()
        if not caller.scopes.intersection(self._scopes):
            raise Problem("forbidden", f"This needs a key with the scope {' or '.join(self._scopes)}.")
        self._ask(caller.key_id, caller.requests_per_minute)
        return caller
