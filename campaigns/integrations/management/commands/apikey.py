"""`manage.py apikey`: keys for clients of the HTTP API."""

from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from campaigns.doors.front import keys
from campaigns.doors.sponsors import NEW_SPONSOR, OF_SPONSOR, filter_by_sponsor, named_sponsor
from campaigns.models import ApiKey
from vendors.history import Actor
from vendors.management.arguments import parse_from_now, shell_user
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb

KEY = declare_argument("prefix")


def key_facts(row: ApiKey) -> dict[str, Any]:
    valid = row.is_valid(timezone.now())
    return {
        "prefix": row.prefix,
        "sponsor": row.sponsor.name,
        "kind": row.kind,
        "scopes": row.scopes,
        "per_minute": row.requests_per_minute,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "last_used_at": row.last_used_at,
        "made_by": row.made_by,
        "state": "valid" if valid else "revoked" if row.revoked_at else "expired",
    }


class Command(ResourceCommand):
    help = (
        "API keys: create, list, rotate, extend, revoke. A key is shown once and stored nowhere; its prefix names it. "
        "Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    one_object = "a key"
    shown = ("prefix", "sponsor", "kind", "scopes", "per_minute", "expires_at", "last_used_at", "made_by", "state")
    row_facts = staticmethod(key_facts)

    @declare_verb(
        "a key for one sponsor",
        declare_argument("--sponsor", required=True, metavar="NAME"),
        NEW_SPONSOR,
        declare_argument("--kind", choices=ApiKey.Kind.values, default="live", help="test: sandbox vendors only"),
        declare_argument("--scope", default="send,read", help="of send, read, ops; with commas"),
        declare_argument("--per-minute", type=int, metavar="N", help="requests; 0: no limit; default 3000"),
        declare_argument("--days", type=float, metavar="N", help="it expires then; default: never"),
    )
    def do_create(self, **options: Any) -> None:
        scopes = list(dict.fromkeys(options["scope"].split(",")))
        if unknown := [scope for scope in scopes if scope not in ApiKey.Scope.values]:
            raise CommandError(f"there is no scope {unknown[0]!r}; there are {', '.join(ApiKey.Scope.values)}")
        sponsor = named_sponsor(options["sponsor"], new=options["new_sponsor"])
        expires_at = parse_from_now(days=options["days"]) if options["days"] else None
        row, token = keys.create_key(
            sponsor, options["kind"], scopes, expires_at, options["per_minute"], Actor(shell_user())
        )
        self._show_key(row, token)

    @declare_verb("all of them", OF_SPONSOR)
    def do_list(self, **options: Any) -> None:
        rows = filter_by_sponsor(ApiKey.objects.select_related("sponsor"), options["sponsor"])
        self.write_rows(rows)

    @declare_verb(
        "a new key like this one, which stays valid for a while",
        KEY,
        declare_argument("--hours", type=float, default=24.0, metavar="N", help="both are valid; default 24"),
    )
    def do_rotate(self, prefix: str, **options: Any) -> None:
        old = _find_key(prefix)
        end = parse_from_now(hours=options["hours"])
        if not old.is_valid(timezone.now()):
            raise CommandError(f"{prefix} is not valid any more: create a new one")
        row, token = keys.create_key(
            old.sponsor, old.kind, old.scopes, None, old.requests_per_minute, Actor(shell_user())
        )
        keys.extend_key(old, min(end, old.expires_at or end), Actor(shell_user()))
        self._show_key(row, token)

    @declare_verb("it is refused from the next second on", KEY)
    def do_revoke(self, prefix: str, **options: Any) -> None:
        row = _find_key(prefix)
        state = "revoked" if keys.revoke_key(row, Actor(shell_user())) else "was revoked already"
        row.refresh_from_db()
        self.write_result(f"{prefix}: {state}", key_facts(row))

    @declare_verb(
        "a valid key gets another end",
        KEY,
        declare_argument("--days", type=float, metavar="N", help="from now; default: it never expires"),
    )
    def do_extend(self, prefix: str, **options: Any) -> None:
        row = _find_key(prefix)
        end = parse_from_now(days=options["days"]) if options["days"] else None
        if not keys.extend_key(row, end, Actor(shell_user())):
            raise CommandError(f"{prefix} is not valid any more: create a new one")
        row.refresh_from_db()
        self.write_result(f"{prefix}: expires {end or 'never'}", key_facts(row))

    def _show_key(self, row: ApiKey, token: str) -> None:
        self.write_result(f"{token}\nThis is shown once: keep it.", {**key_facts(row), "key": token})


def _find_key(prefix: str) -> ApiKey:
    row = ApiKey.objects.select_related("sponsor").filter(prefix=prefix).first()
    if row is None:
        raise CommandError(f"there is no key {prefix!r}")
    return row
