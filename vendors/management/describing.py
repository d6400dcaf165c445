"""`manage.py vendor describe`: explains a description, tries it with one letter, or gives it to a vendor."""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.core.management.base import CommandError, OutputWrapper

from vendors import configuration
from vendors import history as records
from vendors.adapters.base import Letter, Origin
from vendors.adapters.http_client import Client, Response
from vendors.adapters.options import InvalidSettings
from vendors.described import reading, report_checks
from vendors.described.adapter import Described
from vendors.described.secrets import hide_secret
from vendors.management import arguments, moving
from vendors.management import facts as history
from vendors.management.facts import vendor_facts
from vendors.management.output import write_result
from vendors.models import Vendor
from vendors.outcomes import Accepted, CallError, InDoubt, NotSent, Outcome

MOST_SHOWN = 8000  # characters of a request or an answer


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="a TOML file; - is the input; or the name of a shipped one"
    )
    parser.add_argument("--check", action="store_true", help="explain every mistake, with its line; the default")
    parser.add_argument(
        "--for", dest="vendor", metavar="SLUG", help="give it to this vendor; without FILE: show its own"
    )
    parser.add_argument("--try", dest="trial", action="store_true", help="send one test letter, and show all of it")
    parser.add_argument("--to", metavar="RECIPIENT", help="of the test letter, which really goes out")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", dest="values")
    parser.add_argument(
        "--secret-file", metavar="FILE", help="the secret for the test letter, as credential set takes it"
    )
    moving.add_arguments(parser)
    parser.add_argument("--subject", default="A test")
    parser.add_argument("--body", default="This is a test.")
    parser.add_argument("--html", action="store_true", help="the body is HTML")
    parser.add_argument("--field", nargs="+", action="extend", default=[], metavar="NAME=VALUE", dest="fields")
    parser.add_argument("--from", dest="sender", metavar="ADDRESS", help="of the test e-mail")


def run_describe(out: OutputWrapper, err: OutputWrapper, options: Mapping[str, Any]) -> None:
    """Run the command. Raises CommandError with each mistake of the file on its own line."""
    if not options["file"]:
        _show_description(out, options)
        return
    source = _read_source(options["file"])
    try:
        found = reading.read_entered(source)
    except reading.InvalidDescription as error:
        name = options["file"]
        raise CommandError("\n".join(f"{name}:{fault}".replace(":line ", ":", 1) for fault in error.faults)) from None
    if options["trial"]:
        _try_letter(out, source, options)
    elif options["vendor"]:
        _give_description(out, err, source, options)
    else:
        write_result(out, _write_summary(found), _description_facts(found), options["json"])


def _read_source(name: str) -> str:
    if name in reading.list_shipped() and not Path(name).exists():
        return reading.source_of(name)
    try:
        with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
            return file.read(4 * reading.LONGEST + 1).decode()
    except OSError as error:
        known = ", ".join(reading.list_shipped())
        raise CommandError(f"{name}: {error.strerror}; the shipped descriptions are {known}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{name} is not a text in UTF-8") from None


def _description_facts(found: reading.Description) -> dict[str, Any]:
    keys = found.keys
    settings = [
        {"name": name, "about": one.about, "required": one.default is None} for name, one in keys.settings.items()
    ]
    return {"name": keys.vendor.name, "channel": keys.vendor.channel, "settings": settings, "secret": keys.secret}


def _write_summary(found: reading.Description) -> str:
    keys = found.keys
    lines = [f"{keys.vendor.name} ({keys.vendor.channel}): no mistake"]
    lines += [
        f"  setting {name}: {one.about}" + (" (required)" if one.default is None else f" (default {one.default!r})")
        for name, one in keys.settings.items()
    ]
    lines += [f"  secret {name}: {about}" for name, about in keys.secret.items()]
    lines += [f"  advice: {said}" for said in report_checks.advise_on_codes(keys)]
    return "\n".join(lines)


def _show_description(out: OutputWrapper, options: Mapping[str, Any]) -> None:
    if not options["vendor"]:
        raise CommandError("say which FILE, or --for SLUG to see the description that a vendor has", returncode=2)
    row = arguments.find_vendor(options["vendor"])
    if row.adapter != "described":
        raise CommandError(f"{row.slug} has the adapter {row.adapter}, and so no description")
    out.write(row.settings["description"], ending="")


def _give_description(out: OutputWrapper, err: OutputWrapper, source: str, options: Mapping[str, Any]) -> None:
    row = arguments.find_vendor(options["vendor"])
    if row.adapter != "described":
        raise CommandError(f"{row.slug} has the adapter {row.adapter}; a description is for vendors with described")
    typed = arguments.parse_pairs(options["values"])
    wanted = arguments.parse_settings("described", {**row.settings, **typed, "description": source})
    same = wanted == row.settings
    row.settings = wanted
    moving.agree_on_vendor(err, row, options)
    with history.log_changes(row, vendor_facts):
        by = records.Actor(arguments.shell_user())
        forgotten = configuration.save_vendor(row, ["settings"], by, options["same_account"])
    said = [f"{row.slug}: {'already so' if same else 'changed; jobs that are taken from now on are sent by it'}"]
    said += [f"{login} is paused: {login.paused_reason}" for login in forgotten]
    row.refresh_from_db()
    write_result(out, "\n".join(said), vendor_facts(row), options["json"])


# --- a test letter ----------------------------------------------------------------------------------------------------


@dataclass
class _Seen:
    """Request and answer of a call."""

    request: bytes = b""
    answer: Response | None = None
    error: CallError | None = None
    calls: int = field(default=0)


class _WatchedClient(Client):
    """A client that also records what it writes and reads."""

    seen: _Seen

    async def call(self, head: bytes, headers: bytes = b"", body: bytes = b"") -> Response:
        self.seen.request = b"".join((head, headers, b"\r\n", body))
        self.seen.calls += 1
        try:
            self.seen.answer = await super().call(head, headers, body)
        except CallError as error:
            self.seen.error = error
            raise
        return self.seen.answer


def _try_letter(out: OutputWrapper, source: str, options: Mapping[str, Any]) -> None:
    if not options["to"]:
        raise CommandError("a test letter really goes out: say to whom with --to", returncode=2)
    settings = arguments.parse_settings(
        "described", {**arguments.parse_pairs(options["values"]), "description": source}
    )
    secret = arguments.read_secret(Vendor(adapter="described", settings=settings), (), options["secret_file"])
    origin = Origin(options["sender"]) if options["sender"] else None
    params = arguments.parse_pairs(options["fields"])
    letter = Letter(f"{uuid4()}-0", options["to"], options["subject"], options["body"], params, options["html"],
                    origin=origin)  # fmt: skip
    try:
        seen, outcome = asyncio.run(_send_watched(Described(settings, secret), letter))
    except InvalidSettings as error:
        raise CommandError("\n".join(error.errors)) from None
    shown = _shown_exchange(seen, secret)
    facts = {"reference": letter.reference, "outcome": type(outcome).__name__, "said": str(outcome), **shown}
    parts = [f"{name}:\n{text}" for name, text in shown.items() if text]
    result = hide_secret(
        f"{_explain_outcome(outcome)} Its reference was {letter.reference}. No limit of mailhub counts this call.",
        secret,
    )
    write_result(
        out, "\n\n".join([*parts, result]), facts | {"said": hide_secret(str(outcome), secret)}, options["json"]
    )
    if not isinstance(outcome, Accepted):
        raise CommandError("the test letter was not accepted")


async def _send_watched(adapter: Described, letter: Letter) -> tuple[_Seen, Outcome]:
    """Send as a sender does, with a client that records."""
    adapter.client = _WatchedClient
    _WatchedClient.seen = seen = _Seen()
    await adapter.open()
    try:
        [outcome] = await adapter.send([letter])
    finally:
        await adapter.close()
    return seen, outcome


def _shown_exchange(seen: _Seen, secret: Mapping[str, str]) -> dict[str, str]:
    def show_bytes(raw: bytes) -> str:
        return hide_secret(raw.decode("utf-8", "replace").replace("\r\n", "\n"), secret)[:MOST_SHOWN]

    answer = ""
    if seen.answer is not None:
        head = b"".join(b"%b: %b\n" % line for line in seen.answer.lines)
        answer = f"HTTP {seen.answer.status}\n" + show_bytes(head + b"\n" + seen.answer.body)
    elif seen.error is not None:
        answer = hide_secret(seen.error.reason, secret)
    return {"request": show_bytes(seen.request), "answer": answer}


def _explain_outcome(outcome: Outcome) -> str:
    match outcome:
        case Accepted():
            return f"Accepted: the vendor's id is {outcome.vendor_id}."
        case InDoubt():
            return f"In doubt: {outcome.reason}. The vendor may have it."
        case NotSent():
            paused = outcome.pause and outcome.scope == "credential"
            then = "the credential would be paused" if paused else "it would be called again"
            return f"Not sent: {outcome.reason}; {then}."
    return f"Refused: {outcome.code} {outcome.sub_type}".rstrip() + "."
