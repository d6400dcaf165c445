"""`manage.py identity`: manages the sender identities of e-mails and SMS."""

from argparse import ArgumentParser, BooleanOptionalAction
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.db.models import ProtectedError

from campaigns.management.sponsors import identity_facts, named_identity, named_sponsor
from campaigns.models import Identity, Sponsor
from campaigns.models.identities import named_address
from campaigns.operators import senders
from campaigns.phone_numbers import e164
from vendors.adapters import dkim
from vendors.history import Actor
from vendors.management import arguments, facts
from vendors.management.output import tell, write_rows

SHOWN = ("sponsor", "name", "channel", "from", "reply_to", "return_path", "verp", "dkim", "default", "enabled")
FIELDS = ("reply_to", "return_path", "help_answer")
ASKING = ("stop", "start", "help")


class Command(BaseCommand):
    help = (
        "Sender identities of sponsors, for e-mail and SMS: add, list, set, dkim, enable, disable, remove. A campaign "
        "or request names one, else it goes out as the sponsor's default one of its channel. What waits for its "
        "dispatch while its identity is disabled is held. Exit codes: 0 done (or it was so already), 1 unknown name or "
        "bad value, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        verbs.add_parser("list", help="all, or those of a sponsor").add_argument("sponsor", nargs="?")
        abouts = {
            "add": "a new one, by --from, --sender-id or --number; the first of a channel is the default",
            "set": "change it; an empty text takes an option away",
            "dkim": "sign its mails: makes a key, or takes yours, and prints the record for the DNS",
            "enable": "it may be used",
            "disable": "it may not be used any more",
            "remove": "one without campaigns",
        }
        for verb, about in abouts.items():
            one = verbs.add_parser(verb, help=about)
            one.add_argument("sponsor")
            one.add_argument("name")
        for verb in ("add", "set"):
            one = verbs.choices[verb]
            one.add_argument("--from", metavar="FROM", help="of e-mail: an address, or Name <address>")
            one.add_argument("--sender-id", metavar="TEXT", help="of SMS: up to 11 letters, digits and signs")
            one.add_argument(
                "--number",
                action="append",
                metavar="NUMBER",
                help="of SMS: a number; may be repeated: a recipient always sees the same one; set replaces them all",
            )
            for asking in ASKING:
                about = f"of SMS: a further word that asks as {asking.upper()} does; may be repeated; set replaces them"
                one.add_argument(f"--{asking}-word", action="append", metavar="WORD", help=about)
            one.add_argument("--help-answer", metavar="TEXT", help="of SMS: the answer to HELP; empty: none")
            one.add_argument("--reply-to", metavar="ADDRESS", help="where answers go; also Name <address>")
            one.add_argument("--return-path", metavar="ADDRESS", help="where bounces go; default: From's address")
            one.add_argument(
                "--verp",
                action=BooleanOptionalAction,
                help="bounces come back to mailhub: each message gets a return path of its own",
            )
            one.add_argument("--default", action="store_true", help="of campaigns and requests that name none")
        verbs.choices["add"].add_argument(
            "--new-sponsor", action="store_true", help="create the sponsor if there is none"
        )
        sign = verbs.choices["dkim"]
        sign.add_argument("--selector", metavar="NAME", help="needed for a new key, for example mailhub1")
        sign.add_argument("--domain", help="default: that of From's address")
        sign.add_argument("--key-file", metavar="PEM", help="an RSA key of your own; default: a new one of 2,048 bits")
        sign.add_argument("--off", action="store_true", help="forget the key: its mails are not signed any more")
        for one in verbs.choices.values():
            one.add_argument("--json", action="store_true", help="one object an identity")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"do_{options['verb']}")(**options)

    def do_add(self, sponsor: str, name: str, **options: Any) -> None:
        if sum(options[one] is not None for one in ("from", "sender_id", "number")) != 1:
            raise CommandError("say --from for e-mail, or --sender-id or --number for SMS", returncode=2)
        with transaction.atomic():
            who = named_sponsor(sponsor, new=options["new_sponsor"])
            wanted = {"channel": "sms" if options["from"] is None else "email", **_typed(options, who)}
            row = Identity(sponsor=who, name=name, default=options["default"], **wanted)
            try:
                added = senders.add_identity(row, Actor(arguments.person()))
            except ValidationError as error:
                raise arguments.refused(error) from None
        if added:
            self._tell(row, f"added: {row.shown}{', its default' if row.default else ''}", options)
            return
        row = named_identity(who, name)
        if faults := arguments.differences(row, wanted):
            raise CommandError(f"{row} is already there, and differs: " + "; ".join(faults))
        self._tell(row, "already there", options)

    def do_list(self, sponsor: str | None, **options: Any) -> None:
        rows = Identity.objects.select_related("sponsor").defer("secret")
        if sponsor:
            rows = rows.filter(sponsor=named_sponsor(sponsor))
        write_rows(self.stdout, map(identity_facts, rows), options["json"], SHOWN)

    def do_set(self, sponsor: str, name: str, **options: Any) -> None:
        row = named_identity(named_sponsor(sponsor), name)
        wanted = _typed(options, row.sponsor) | ({"default": True} if options["default"] else {})
        if not wanted:
            raise CommandError("say what is to be changed: --from, --number and the like", returncode=2)
        self._change(row, wanted, options)

    def do_dkim(self, sponsor: str, name: str, **options: Any) -> None:
        row = named_identity(named_sponsor(sponsor), name)
        if options["off"]:
            changed = senders.sign_no_more(row.pk, Actor(arguments.person()))
            row.refresh_from_db()
            self._tell(row, "changed" if changed else "already so", options)
            return
        if options["selector"]:
            domain = options["domain"] or row.from_address.rpartition("@")[2]
            key = _read(options["key_file"]) if options["key_file"] else dkim.new_private_key()
            wanted = {"dkim_domain": domain, "dkim_selector": options["selector"], "secret": {"private_key": key}}
            row, _ = _stored(row, wanted)
        known = row.dkim
        if known is None:
            raise CommandError(f"{row} has no key: make one with --selector NAME", returncode=2)
        where, record = f"{known.selector}._domainkey.{known.domain}", dkim.record(known)
        entry = identity_facts(row) | {"dns_name": where, "dns_type": "TXT", "dns_text": record}
        tell(self.stdout, f"{row}: enter this in the DNS\n{where} TXT\n{record}", entry, options["json"])

    def do_enable(self, sponsor: str, name: str, **options: Any) -> None:
        row = named_identity(named_sponsor(sponsor), name)
        self._change(row, {"enabled": True}, options)

    def do_disable(self, sponsor: str, name: str, **options: Any) -> None:
        row = named_identity(named_sponsor(sponsor), name)
        self._change(row, {"enabled": False}, options)

    def do_remove(self, sponsor: str, name: str, **options: Any) -> None:
        row = named_identity(named_sponsor(sponsor), name)
        try:
            with transaction.atomic():
                facts.removed(row)
                row.delete()
        except ProtectedError:
            raise CommandError(f"{row} has campaigns and stays, for the record; disable it instead") from None
        tell(
            self.stdout,
            f"{sponsor}/{name}: removed",
            {"sponsor": sponsor, "name": name, "removed": True},
            options["json"],
        )

    def _change(self, row: Identity, wanted: dict[str, Any], options: dict[str, Any]) -> None:
        row, changed = _stored(row, wanted)
        self._tell(row, "changed" if changed else "already so", options)

    def _tell(self, row: Identity, sentence: str, options: dict[str, Any]) -> None:
        tell(self.stdout, f"{row}: {sentence}", identity_facts(row), options["json"])


def _stored(row: Identity, wanted: dict[str, Any]) -> tuple[Identity, bool]:
    """Store these values; return the identity, and True if one changed."""
    try:
        changed = senders.change_identity(row.pk, wanted, Actor(arguments.person()))
    except ValidationError as error:
        raise arguments.refused(error) from None
    return Identity.objects.select_related("sponsor").get(pk=row.pk), changed


def _typed(options: dict[str, Any], of: Sponsor) -> dict[str, Any]:
    """Return the fields given as options, with the values to store."""
    wanted: dict[str, Any] = named_address(options["from"]) if options["from"] is not None else {}
    wanted |= {field: options[field].strip() for field in FIELDS if options[field] is not None}
    if options["sender_id"] is not None:
        wanted |= {"sender_id": options["sender_id"], "numbers": []}
    wanted |= {f"{one}_texts": options[f"{one}_word"] for one in ASKING if options[f"{one}_word"] is not None}
    if options["number"] is not None:
        try:
            numbers = [e164(one, of.phone_region) for one in options["number"]]
        except ValueError as error:
            raise CommandError(str(error)) from None
        wanted |= {"numbers": numbers, "sender_id": ""}
    return wanted if options["verp"] is None else wanted | {"verp": options["verp"]}


def _read(file: str) -> str:
    try:
        return dkim.private_key(Path(file).read_text())
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    except ValueError as error:  # including text that is not UTF-8, whose bytes are not shown
        raise CommandError(f"{file}: {error if 'RSA' in str(error) else 'not a text'}") from None
