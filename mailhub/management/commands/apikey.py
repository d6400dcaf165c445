"""`manage.py apikey`: keys for clients of the HTTP API."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from campaigns.management.sponsors import named_sponsor
from mailhub.front import keys
from mailhub.models import ApiKey
from vendors.history import Actor
from vendors.management.arguments import from_now, person
from vendors.management.output import tell, write_rows

SHOWN = ("prefix", "sponsor", "kind", "scopes", "per_minute", "expires_at", "last_used_at", "made_by", "state")


class Command(BaseCommand):
    help = (
        "API keys: create, list, rotate, extend, revoke. A key is shown once and stored nowhere; its prefix names it. "
        "Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        create = verbs.add_parser("create", help="a key for one sponsor")
        create.add_argument("--sponsor", required=True, metavar="NAME")
        create.add_argument("--new-sponsor", action="store_true", help="create the sponsor if there is none")
        create.add_argument("--kind", choices=ApiKey.Kind.values, default="live", help="test: sandbox vendors only")
        create.add_argument("--scope", default="send,read", help="of send, read, ops; with commas")
        create.add_argument("--per-minute", type=int, metavar="N", help="requests; 0: no limit; default 3000")
        create.add_argument("--days", type=float, metavar="N", help="it expires then; default: never")
        verbs.add_parser("list", help="all of them").add_argument("--sponsor", metavar="NAME")
        rotate = verbs.add_parser("rotate", help="a new key like this one, which stays valid for a while")
        rotate.add_argument("prefix")
        rotate.add_argument("--hours", type=float, default=24.0, metavar="N", help="both are valid; default 24")
        verbs.add_parser("revoke", help="it is refused from the next second on").add_argument("prefix")
        extend = verbs.add_parser("extend", help="a valid key gets another end")
        extend.add_argument("prefix")
        extend.add_argument("--days", type=float, metavar="N", help="from now; default: it never expires")
        for one in verbs.choices.values():
            one.add_argument("--json", action="store_true", help="one object a key")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"do_{options['verb']}")(**options)

    def do_create(self, **options: Any) -> None:
        scopes = list(dict.fromkeys(options["scope"].split(",")))
        if unknown := [scope for scope in scopes if scope not in ApiKey.Scope.values]:
            raise CommandError(f"there is no scope {unknown[0]!r}; there are {', '.join(ApiKey.Scope.values)}")
        sponsor = named_sponsor(options["sponsor"], new=options["new_sponsor"])
        expires_at = from_now(days=options["days"]) if options["days"] else None
        row, token = keys.create(sponsor, options["kind"], scopes, expires_at, options["per_minute"], Actor(person()))
        self._show(row, token, options)

    def do_list(self, **options: Any) -> None:
        rows = ApiKey.objects.select_related("sponsor")
        if options["sponsor"]:
            rows = rows.filter(sponsor=named_sponsor(options["sponsor"]))
        write_rows(self.stdout, [_facts(row) for row in rows], options["json"], SHOWN)

    def do_rotate(self, prefix: str, **options: Any) -> None:
        old = _key(prefix)
        end = from_now(hours=options["hours"])
        if not old.is_valid(timezone.now()):
            raise CommandError(f"{prefix} is not valid any more: create a new one")
        row, token = keys.create(old.sponsor, old.kind, old.scopes, None, old.requests_per_minute, Actor(person()))
        keys.extend(old, min(end, old.expires_at or end), Actor(person()))
        self._show(row, token, options)

    def do_revoke(self, prefix: str, **options: Any) -> None:
        row = _key(prefix)
        state = "revoked" if keys.revoke(row, Actor(person())) else "was revoked already"
        row.refresh_from_db()
        tell(self.stdout, f"{prefix}: {state}", _facts(row), options["json"])

    def do_extend(self, prefix: str, **options: Any) -> None:
        row = _key(prefix)
        end = from_now(days=options["days"]) if options["days"] else None
        if not keys.extend(row, end, Actor(person())):
            raise CommandError(f"{prefix} is not valid any more: create a new one")
        row.refresh_from_db()
        tell(self.stdout, f"{prefix}: expires {end or 'never'}", _facts(row), options["json"])

    def _show(self, row: ApiKey, token: str, options: dict[str, Any]) -> None:
        tell(self.stdout, f"{token}\nThis is shown once: keep it.", {**_facts(row), "key": token}, options["json"])


def _key(prefix: str) -> ApiKey:
    row = ApiKey.objects.select_related("sponsor").filter(prefix=prefix).first()
    if row is None:
        raise CommandError(f"there is no key {prefix!r}")
    return row


def _facts(row: ApiKey) -> dict[str, Any]:
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
