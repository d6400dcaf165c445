"""Settings of the adapter `print_file`, and the rules between them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from vendors.adapters import addresses, options
from vendors.adapters.options import Option
from vendors.printing import batches, pages, sheets
from vendors.said import Said


def parse_folder(value: Any) -> str:
    """Parse a folder, which may not contain `..`. Raises ValueError."""
    path = PurePosixPath(options.text(value))
    if ".." in path.parts:
        raise ValueError(Said("must be a folder without .."))
    return str(path)


def host_keys(value: Any) -> tuple[str, ...]:
    """Parse a server's public keys, separated by commas, such as `ssh-ed25519 AAAA...`. Raises ValueError."""
    parts = value.split(",") if isinstance(value, str) else value
    found = tuple(" ".join(str(one).split()[:2]) for one in parts if str(one).strip())
    if not found or not all(one.partition(" ")[2] for one in found):
        raise ValueError(Said("must be the server's public key, such as 'ssh-ed25519 AAAA...': ask the vendor for it"))
    return found


def parse_suffix(value: Any) -> str:
    """Parse the suffix of temporary names. Raises ValueError."""
    word = options.text(value)
    if not word.startswith(".") or "/" in word or word.lower() in (".csv", ".pdf"):
        raise ValueError(Said("must begin with a dot, such as .part, and be neither .csv nor .pdf"))
    return word


OPTIONS: dict[str, Option] = {
    "host": Option(
        options.text, "", destination=True, about="SFTP server; without it, folders below the setting `PRINT_FOLDER`"
    ),
    "port": Option(options.whole(1, 65535), 22, destination=True, about="Of the SFTP server"),
    "user": Option(options.text, "", destination=True, about="Login at the server"),
    "host_key": Option(
        host_keys, (), destination=True, about="The server's public keys, as `ssh-ed25519 AAAA...`, comma-separated"
    ),
    "folder": Option(parse_folder, required=True, destination=True, about="The vendor's inbox for batches"),
    "temporary": Option(parse_suffix, ".part", tuning=True, about="Name ending that the vendor leaves alone"),
    "accepted": Option(
        options.choice("acknowledged", "uploaded"),
        "acknowledged",
        tuning=True,
        about="Accepted by the vendor's file, or, with `uploaded`, once uploaded",
    ),
    "acknowledgements": Option(parse_folder, "", about="Folder of the vendor's files"),
    "acknowledged_within": Option(
        options.seconds, 172_800.0, tuning=True, about="Seconds until a missing acknowledgement is an alarm"
    ),
    "manifests_stay": Option(
        options.flag, False, tuning=True, about="Manifests stay some days, so doubts are looked up there"
    ),
    "batch": Option(options.whole(1, 2000), 500, tuning=True, about="Letters a batch, at most 2,000"),
    "paper": Option(options.choice("A4", "Letter", a4="A4", letter="Letter"), "A4", tuning=True, about="Or `Letter`"),
    "address": Option(
        addresses.parse_lines,
        (),
        tuning=True,
        about="Lines made from columns: `name; street; postcode city`; default: the recipient's lines",
    ),
    "address_required": Option(addresses.parse_names, (), tuning=True, about="Columns that must be filled"),
    "address_lines": Option(
        options.whole(1, batches.ADDRESS_LINES), batches.ADDRESS_LINES, tuning=True, about="Most lines of an address"
    ),
    "address_width": Option(options.whole(10, 200), 40, tuning=True, about="Most characters of a line"),
    "address_alphabet": Option(options.choice(*addresses.ALPHABETS), "any", tuning=True, about="`latin1` or `ascii`"),
    "country": Option(options.text, "", tuning=True, about="Column with the country"),
    "countries": Option(addresses.parse_names, (), tuning=True, about="Allowed values of that column, as `DE AT CH`"),
    "window": Option(
        options.choice(*sheets.WINDOWS, "none"),
        "none",
        tuning=True,
        about="`din5008b` or `us10`: prints the address in the envelope's window",
    ),
    "unit": Option(
        options.choice("letter", "page", "sheet"),
        "letter",
        tuning=True,
        about="Or `page`, `sheet`: counted by limits and prices",
    ),
    "duplex": Option(options.flag, False, tuning=True, about="Word in the manifest; letters start on a sheet's front"),
    "colour": Option(options.flag, False, tuning=True, about="Word in the manifest"),
    "pages_max": Option(options.whole(1, 200), 20, tuning=True, about="Longer letters are refused"),
    "concurrency": Option(
        options.whole(1, 8), 1, tuning=True, about="Batches made at once by a sender, each in its own process"
    ),
    "making": Option(
        options.seconds, 300.0, tuning=True, about="Seconds to make a batch's pages; the rest goes in the next one"
    ),
    "uploading": Option(options.seconds, 300.0, tuning=True, about="Seconds to upload it"),
    "timeout": Option(options.seconds, 30.0, tuning=True, about="Seconds for one answer of the server"),
}


def find_contradictions(known: Mapping[str, Any]) -> list[str]:
    """Return contradictions between the parsed settings, as sentences."""
    errors: list[str] = []
    if known["host"] and not (known["user"] and known["host_key"]):
        errors.append(Said("host needs user and host_key: without the server's key anybody could take the letters"))
    if known["accepted"] == "acknowledged" and not known["acknowledgements"]:
        errors.append(Said("acknowledgements is missing: the folder with the vendor's files, or set accepted=uploaded"))
    if not known["host"] and known["folder"].startswith("/"):
        errors.append(Said("folder is below the setting PRINT_FOLDER, so it must not begin with /"))
    if bool(known["country"]) != bool(known["countries"]):
        errors.append(Said("country names a column, and countries what may stand there: they go together"))
    if not known["address"] and (known["address_required"] or known["country"]):
        errors.append(Said("address is missing: the lines of an address, such as 'name; street; postcode city'"))
    if absent := pages.missing_libraries(*(["asyncssh"] if known["host"] else [])):
        errors.append(absent)
    return errors
