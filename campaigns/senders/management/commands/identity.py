"""`manage.py identity`: manages the sender identities of e-mails and SMS."""

from argparse import BooleanOptionalAction
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.db import transaction
from django.db.models import ProtectedError

from campaigns.doors.sponsors import NEW_SPONSOR, filter_by_sponsor, identity_facts, named_identity, named_sponsor
from campaigns.models import Identity, Sponsor
from campaigns.models.identities import named_address
from campaigns.senders import sender_changes
from campaigns.senders.refused_senders import RefusedSender, find_refused
from campaigns.texts.phone_numbers import parse_e164
from vendors.adapters import dkim
from vendors.history import Actor
from vendors.management import arguments, facts
from vendors.management.resources import ResourceCommand, declare_argument, declare_verb

NAMED = (declare_argument("sponsor"), declare_argument("name"))
FIELDS = ("reply_to", "return_path", "help_answer")
ASKING = ("stop", "start", "help")
NUMBERS = "of SMS: a number; may be repeated: a recipient always sees the same one; set replaces them all"
ASKS = "of SMS: a further word that asks as {} does; may be repeated; set replaces them"
ORIGIN = (
    declare_argument("--from", metavar="FROM", help="of e-mail: an address, or Name <address>"),
    declare_argument("--sender-id", metavar="TEXT", help="of SMS: up to 11 letters, digits and signs"),
    declare_argument("--number", action="append", metavar="NUMBER", help=NUMBERS),
    *(
        declare_argument(f"--{one}-word", action="append", metavar="WORD", help=ASKS.format(one.upper()))
        for one in ASKING
    ),
    declare_argument("--help-answer", metavar="TEXT", help="of SMS: the answer to HELP; empty: none"),
    declare_argument("--reply-to", metavar="ADDRESS", help="where answers go; also Name <address>"),
    declare_argument("--return-path", metavar="ADDRESS", help="where bounces go; default: From's address"),
    declare_argument(
        "--verp",
        action=BooleanOptionalAction,
        help="bounces come back to mailhub: each message gets a return path of its own",
    ),
    declare_argument("--default", action="store_true", help="of campaigns and requests that name none"),
)


class Command(ResourceCommand):
    help = (
        "Sender identities of sponsors, for e-mail and SMS: add, list, set, dkim, enable, disable, remove. A campaign "
        "or request names one, else it goes out as the sponsor's default one of its channel. What waits for its "
        "dispatch while its identity is disabled is held. Exit codes: 0 done (or it was so already), 1 unknown name or "
        "bad value, 2 usage."
    )
    one_object = "an identity"
    shown = (
        *("sponsor", "name", "channel", "from", "reply_to", "return_path", "verp", "dkim", "default", "enabled"),
        "refused",
    )

    @staticmethod
    def row_facts(row: Identity) -> dict[str, Any]:
        return _make_facts(row, find_refused([row.pk]))

    @declare_verb("all, or those of a sponsor", declare_argument("sponsor", nargs="?"))
    def do_list(self, sponsor: str | None, **options: Any) -> None:
        rows = list(filter_by_sponsor(Identity.objects.select_related("sponsor").defer("secret"), sponsor))
        refused = find_refused([row.pk for row in rows])
        self.write_facts((_make_facts(row, refused) for row in rows), self.shown)

    @declare_verb(
        "a new one, by --from, --sender-id or --number; the first of a channel is the default",
        *(*NAMED, *ORIGIN, NEW_SPONSOR),
    )
    def do_add(self, sponsor: str, name: str, **options: Any) -> None:
        if sum(options[one] is not None for one in ("from", "sender_id", "number")) != 1:
            raise CommandError("say --from for e-mail, or --sender-id or --number for SMS", returncode=2)
        with transaction.atomic():
            who = named_sponsor(sponsor, new=options["new_sponsor"])
            wanted = {"channel": "sms" if options["from"] is None else "email", **_typed_fields(options, who)}
            row = Identity(sponsor=who, name=name, default=options["default"], **wanted)
            try:
                added = sender_changes.add_identity(row, Actor(arguments.shell_user()))
            except ValidationError as error:
                raise arguments.refused_error(error) from None
        if added:
            self.write_row(row, f"added: {row.shown}{', its default' if row.default else ''}")
            return
        row = named_identity(who, name)
        arguments.check_same(row, wanted)
        self.write_row(row, "already there")

    @declare_verb("change it; an empty text takes an option away", *NAMED, *ORIGIN)
    def do_set(self, sponsor: str, name: str, **options: Any) -> None:
        row = named_identity(named_sponsor(sponsor), name)
        wanted = _typed_fields(options, row.sponsor) | ({"default": True} if options["default"] else {})
        if not wanted:
            raise CommandError("say what is to be changed: --from, --number and the like", returncode=2)
        self._change_row(row, wanted)

    @declare_verb(
        "sign its mails: makes a key, or takes yours, and prints the record for the DNS",
        *NAMED,
        declare_argument("--selector", metavar="NAME", help="needed for a new key, for example mailhub1"),
        declare_argument("--domain", help="default: that of From's address"),
        declare_argument("--key-file", metavar="PEM", help="an RSA key of your own; default: a new one of 2,048 bits"),
        declare_argument("--off", action="store_true", help="forget the key: its mails are not signed any more"),
    )
    def do_dkim(self, sponsor: str, name: str, **options: Any) -> None:
        row = named_identity(named_sponsor(sponsor), name)
        if options["off"]:
            changed = sender_changes.sign_no_more(row.pk, Actor(arguments.shell_user()))
            row.refresh_from_db()
            self.write_row(row, "changed" if changed else "already so")
            return
        if options["selector"]:
            domain = options["domain"] or row.from_address.rpartition("@")[2]
            key = _read_private_key(options["key_file"]) if options["key_file"] else dkim.new_private_key()
            wanted = {"dkim_domain": domain, "dkim_selector": options["selector"], "secret": {"private_key": key}}
            row, _ = _store_values(row, wanted)
        known = row.dkim_key
        if known is None:
            raise CommandError(f"{row} has no key: make one with --selector NAME", returncode=2)
        where, record = f"{known.selector}._domainkey.{known.domain}", dkim.dns_record(known)
        entry = self.row_facts(row) | {"dns_name": where, "dns_type": "TXT", "dns_text": record}
        self.write_result(f"{row}: enter this in the DNS\n{where} TXT\n{record}", entry)

    @declare_verb("it may be used", *NAMED)
    def do_enable(self, sponsor: str, name: str, **options: Any) -> None:
        row = named_identity(named_sponsor(sponsor), name)
        self._change_row(row, {"enabled": True})

    @declare_verb("it may not be used any more", *NAMED)
    def do_disable(self, sponsor: str, name: str, **options: Any) -> None:
        row = named_identity(named_sponsor(sponsor), name)
        self._change_row(row, {"enabled": False})

    @declare_verb("one without campaigns", *NAMED)
    def do_remove(self, sponsor: str, name: str, **options: Any) -> None:
        row = named_identity(named_sponsor(sponsor), name)
        try:
            with transaction.atomic():
                facts.log_removed(row)
                row.delete()
        except ProtectedError:
            raise CommandError(f"{row} has campaigns and stays, for the record; disable it instead") from None
        self.write_result(f"{sponsor}/{name}: removed", {"sponsor": sponsor, "name": name, "removed": True})

    def _change_row(self, row: Identity, wanted: dict[str, Any]) -> None:
        row, changed = _store_values(row, wanted)
        self.write_row(row, "changed" if changed else "already so")


def _make_facts(row: Identity, refused: Mapping[int, RefusedSender]) -> dict[str, Any]:
    found = refused.get(row.pk)
    return identity_facts(row) | {"refused": str(found) if found else None}


def _store_values(row: Identity, wanted: dict[str, Any]) -> tuple[Identity, bool]:
    """Store these values; return the identity, and True if one changed."""
    try:
        changed = sender_changes.change_identity(row.pk, wanted, Actor(arguments.shell_user()))
    except ValidationError as error:
        raise arguments.refused_error(error) from None
    return Identity.objects.select_related("sponsor").get(pk=row.pk), changed


def _typed_fields(options: dict[str, Any], of: Sponsor) -> dict[str, Any]:
    """Return the fields given as options, with the values to store."""
    wanted: dict[str, Any] = named_address(options["from"]) if options["from"] is not None else {}
    wanted |= {field: options[field].strip() for field in FIELDS if options[field] is not None}
    if options["sender_id"] is not None:
        wanted |= {"sender_id": options["sender_id"], "numbers": []}
    wanted |= {f"{one}_texts": options[f"{one}_word"] for one in ASKING if options[f"{one}_word"] is not None}
    if options["number"] is not None:
        try:
            numbers = [parse_e164(one, of.phone_region) for one in options["number"]]
        except ValueError as error:
            raise CommandError(str(error)) from None
        wanted |= {"numbers": numbers, "sender_id": ""}
    return wanted if options["verp"] is None else wanted | {"verp": options["verp"]}


def _read_private_key(file: str) -> str:
    try:
        return dkim.private_key(Path(file).read_text())
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    except ValueError as error:  # including text that is not UTF-8, whose bytes are not shown
        raise CommandError(f"{file}: {error if 'RSA' in str(error) else 'not a text'}") from None
