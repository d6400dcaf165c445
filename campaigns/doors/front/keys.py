"""API keys: creation, look-up and authorisation. A key is read from the database at least once a second."""

import base64
import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.admin.models import ADDITION, CHANGE
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone
from ninja.security import HttpBearer

from campaigns.doors.front import rate_limits
from campaigns.doors.front.body_gate import STRANGERS_BODY, BodyVerdict, WsgiEnviron
from campaigns.doors.front.problems import REPORTS, Problem, unauthorized_problem
from campaigns.doors.front.queries import query_rules
from campaigns.models import ApiKey, FormerSecretKey, Sponsor
from vendors import history
from vendors.history import Actor
from vendors.said import Said, gettext_noop

FRESH = 0.8  # seconds that a process caches a key; a revoked key is refused within one second
USED = timedelta(minutes=1)  # precision of last_used_at
MOST_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """The key behind a request, with its sponsor and rights."""

    key_id: int
    prefix: str
    sponsor_id: int
    test: bool
    scopes: frozenset[str]
    requests_per_minute: int
    expires_at: datetime | None


def find_maker(key_id: int) -> int | None:
    """Return the id of the user who created the key; None if unknown or not a user."""
    names = ApiKey.objects.filter(pk=key_id).exclude(made_by="").values("made_by")
    return User.objects.filter(username__in=names).values_list("pk", flat=True).first()


def create_key(
    sponsor: Sponsor,
    kind: str,
    scopes: Iterable[str],
    expires_at: datetime | None = None,
    requests_per_minute: int | None = None,
    by: Actor | None = None,
    derived: bytes = b"",
) -> tuple[ApiKey, str]:
    """Create a key. Returns the row and the key itself; only a digest is stored.

    `derived`: 28 secret bytes of this request. A repeat with the same bytes finds the key that the first one created.
    """
    some = derived or secrets.token_bytes(28)
    prefix = f"mh_{kind}_{some[:4].hex()}"
    token = f"{prefix}_{base64.urlsafe_b64encode(some[4:28]).decode()}"
    row = ApiKey(sponsor=sponsor, kind=kind, scopes=list(scopes), prefix=prefix, expires_at=expires_at)
    row.digest, row.made_by = digest_token(token), by.name[:150] if by else ""
    if requests_per_minute is not None:
        row.requests_per_minute = requests_per_minute
    try:
        with transaction.atomic():
            row.save()
            _record_key_change(by, row, _made_sentence(prefix, kind, row.scopes), ADDITION)
    except IntegrityError:
        known = ApiKey.objects.filter(digest=row.digest, sponsor=sponsor).first() if derived else None
        if known is None:
            raise
        return known, token
    return row, token


@transaction.atomic
def revoke_key(row: ApiKey, by: Actor) -> bool:
    """Revoke a key for good; it is refused within a second. Returns False if it was revoked already."""
    if not ApiKey.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=timezone.now()):
        return False
    _record_key_change(by, row, Said(gettext_noop("key %(key)s revoked"), key=row.prefix))
    return True


@transaction.atomic
def extend_key(row: ApiKey, expires_at: datetime | None, by: Actor) -> bool:
    """Set the expiry of a key; None: never. Returns False if it is no longer valid; that is final."""
    valid = ApiKey.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), pk=row.pk, revoked_at=None)
    if not valid.update(expires_at=expires_at):
        return False
    never, then = gettext_noop("key %(key)s expires never"), gettext_noop("key %(key)s expires %(at)s")
    at = expires_at.isoformat() if expires_at else ""
    _record_key_change(by, row, Said(then if at else never, key=row.prefix, at=at))
    return True


def _made_sentence(prefix: str, kind: str, scopes: Iterable[str]) -> Said:
    return Said(
        gettext_noop("key %(key)s made, %(kind)s, for %(scopes)s"), key=prefix, kind=kind, scopes=", ".join(scopes)
    )


def _record_key_change(by: Actor | None, row: ApiKey, what: str, flag: int = CHANGE) -> None:
    if by is not None:
        history.record_changes(by, ApiKey, [(row.pk, what)], flag=flag)


def digest_token(token: str) -> bytes:
    """Return the hash that finds a key. It needs no secret, as nobody can guess 192 random bits."""
    return hashlib.sha256(b"mailhub API key " + token.encode()).digest()


def _old_digest(token: str, secret: object) -> bytes:
    return hmac.digest(str(secret).encode(), token.encode(), hashlib.sha256)


def keep_former_secrets() -> int:
    """Keep former SECRET_KEYs for API keys hashed with one of them. Returns the number kept.

    They are deleted once no such key is left. Idempotent.
    """
    with transaction.atomic():
        if not ApiKey.objects.filter(hashed=ApiKey.Hashed.SECRET_KEY, revoked_at=None).exists():
            FormerSecretKey.objects.all().delete()
            return 0
        known = set(_former_secrets())
        secrets_: list[Any] = [{"key": one} for one in map(str, settings.SECRET_KEY_FALLBACKS) if one not in known]
        FormerSecretKey.objects.bulk_create([FormerSecretKey(secret=one) for one in secrets_])
        return len(known) + len(secrets_)


def _former_secrets() -> list[str]:
    rows: Any = FormerSecretKey.objects.order_by("-pk")
    return [row.secret["key"] for row in rows]


class Keyring:
    """A process's cache of keys, including unknown ones."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Caller | None]] = {}
        self._lock = threading.Lock()

    def find_caller(self, token: str) -> Caller | None:
        """Return the key's caller; None if it is unknown, revoked or expired. Raises django.db's errors."""
        read_at, caller = self._known.get(token, (0.0, None))
        if time.monotonic() - read_at > FRESH or not read_at:
            began = time.monotonic()
            caller = _read_caller(token)
            with self._lock:
                if len(self._known) >= MOST_KNOWN and token not in self._known:
                    self._forget_strangers()
                self._known[token] = (began, caller)
        if caller and caller.expires_at and caller.expires_at <= timezone.now():
            return None
        return caller

    def _forget_strangers(self) -> None:
        """Forget unknown tokens. Otherwise a stranger could use them to push sponsors into the strangers' queue."""
        keys = {token: known for token, known in self._known.items() if known[1] is not None}
        self._known = keys if len(keys) < MOST_KNOWN else {}

    def cached_owner(self, token: str) -> int | None:
        """Return the sponsor of a cached key, valid or not. No query is made."""
        _, caller = self._known.get(token, (0.0, None))
        return caller.sponsor_id if caller else None

    def forget_callers(self) -> None:
        """Empty the cache."""
        self._known.clear()


def _find_key_row(token: str) -> ApiKey | None:
    """Return the row of a key. A key hashed with a former SECRET_KEY is rehashed, so that the old one can go."""
    found = ApiKey.objects.filter(digest__in=[digest_token(token), _old_digest(token, settings.SECRET_KEY)]).first()
    prefix = "_".join(token.split("_", 3)[:3])
    if found or not ApiKey.objects.filter(prefix=prefix, hashed=ApiKey.Hashed.SECRET_KEY).exists():
        return found
    old = [_old_digest(token, one) for one in (*settings.SECRET_KEY_FALLBACKS, *_former_secrets())]
    found = ApiKey.objects.filter(digest__in=old, hashed=ApiKey.Hashed.SECRET_KEY).first()
    if found:
        ApiKey.objects.filter(pk=found.pk).update(digest=digest_token(token), hashed=ApiKey.Hashed.PLAIN)
    return found


def _read_caller(token: str) -> Caller | None:
    row = _find_key_row(token)
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


def find_reports(path: str) -> str | None:
    """Return the prefix in REPORTS of this path, or None. Each has its own room, so neither fills the other's."""
    return next((one for one in REPORTS if path.startswith(one)), None)


def judge_large_body(path: str, environ: WsgiEnviron) -> BodyVerdict:
    """Return whose a large body at the API is. Raises Problem, and django.db's errors.

    Only vendors' reports come without a key; their signature is checked after reading.
    """
    kind, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    token = token.strip(" ")
    bearer = kind.lower() == "bearer" and token.isascii() and len(token) <= 100
    caller = keyring.find_caller(token) if bearer else None
    most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if caller is not None:
        return BodyVerdict(most, (f"sponsor {caller.sponsor_id}",))
    if (vendors := find_reports(path)) is not None:
        return BodyVerdict(most, (vendors,))
    if int(environ.get("HTTP_CONTENT_LENGTH") or 0) > STRANGERS_BODY:
        raise unauthorized_problem()
    return BodyVerdict(STRANGERS_BODY)


class Key(HttpBearer):
    """Authorises requests to an endpoint: a valid key with one of these scopes, within its rate limit.

    `counts`: count the request here; if False, the endpoint counts it.
    """

    def __init__(self, *scopes: str, counts: bool = True) -> None:
        super().__init__()
        self.scopes: Collection[str] = scopes
        self._ask = rate_limits.check_rate if counts else rate_limits.precheck_rate

    def __call__(self, request: HttpRequest) -> Caller:
        kind, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        return self.authenticate(request, token.strip(" ") if kind.lower() == "bearer" else "")

    def authenticate(self, request: HttpRequest, token: str) -> Caller:
        """Return the caller. Raises Problem: unauthorized, forbidden, rate-limited or storage-unavailable."""
        caller = keyring.find_caller(token) if token.isascii() and len(token) <= 100 else None
        if caller is None:
            raise unauthorized_problem()
        if not caller.scopes.intersection(self.scopes):
            raise Problem("forbidden", f"This needs a key with the scope {' or '.join(self.scopes)}.")
        self._ask(caller.key_id, caller.requests_per_minute)
        query_rules.check_parameters(request)
        return caller
