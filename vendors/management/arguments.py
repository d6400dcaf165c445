"""Parsers for command arguments: KEY=VALUE, N/SECONDS, names. A CommandError explains the right form."""

import getpass
import json
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.db.models import Model, QuerySet
from django.utils import timezone

from vendors import adapters, configuration
from vendors.adapters.options import InvalidSettings, NoSecret
from vendors.configuration import LimitSpec
from vendors.instants import check_instant
from vendors.models import LONGEST_WINDOW, Credential, Vendor

NamedRow = TypeVar("NamedRow", bound=Model)
MOST_SECRET = 10_000  # characters
"""How the reason of a pause begins that ends when the secret is entered."""


def shell_user() -> str:
    """Return the user of this shell; "unknown" for a user without a name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def parse_from_now(**span: float) -> datetime:
    """Return the moment that lies this many days or hours ahead. Raises CommandError."""
    try:
        return check_instant(timezone.now() + timedelta(**span))
    except (ValueError, OverflowError):
        ((unit, number),) = span.items()
        raise CommandError(f"there is no time {number:g} {unit} from now") from None


def parse_pairs(typed: Iterable[str]) -> dict[str, str]:
    """Parse KEY=VALUE ... Raises CommandError."""
    found: dict[str, str] = {}
    for word in typed:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise CommandError(f"{word!r} is not KEY=VALUE")
        if found.setdefault(key, value) != value:
            raise CommandError(f"{key} is given twice")
    return found


def parse_windows(typed: Iterable[str]) -> list[LimitSpec]:
    """Parse N/SECONDS ...: at most N calls in any window of SECONDS. Sorted by seconds."""
    found = [_parse_window(word) for word in typed]
    if len({seconds for _, seconds in found}) < len(found):
        raise CommandError("two limits have the same window")
    return sorted(found, key=lambda window: window[1])


def _parse_window(word: str) -> LimitSpec:
    units, slash, seconds = word.partition("/")
    try:
        window = int(units), float(seconds)
    except ValueError:
        raise CommandError(f"{word!r} is not a limit: write N/SECONDS, for example 5/60") from None
    if not slash or not 0 <= window[0] < 2**31 or not 0.01 <= window[1] <= LONGEST_WINDOW:
        most = f"{LONGEST_WINDOW:.0f} (a leap year)"
        raise CommandError(f"{word!r}: the number must be 0 or more, the window from 0.01 to {most} seconds")
    return window


def find_named(
    rows: QuerySet[NamedRow], name: str, complaint: str, field: str = "name", most: int | None = None
) -> NamedRow:
    """Return the row of that name. Raises CommandError: the complaint, then the names that exist, at most `most`."""
    found = rows.filter(**{field: name}).first()
    if found is None:
        known = ", ".join(rows.values_list(field, flat=True)[:most]) or "none yet"
        raise CommandError(f"{complaint}: {known}")
    return found


def find_vendor(slug: str) -> Vendor:
    return find_named(Vendor.objects.all(), slug, f"there is no vendor {slug!r}; there are", "slug")


def find_owner(name: str) -> Any:
    """Return the sponsor of that name; None for an empty name: the installation."""
    sponsor: Any = Vendor._meta.get_field("owner").related_model  # imports may not go up to campaigns
    complaint = f"there is no sponsor {name!r}; there are"
    return find_named(sponsor.objects.all(), name, complaint, most=20) if name else None


def find_credential(of: Vendor, name: str) -> Credential:
    return find_named(of.credentials.all(), name, f"{of.slug} has no credential {name!r}; it has")


def parse_settings(adapter: str, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given settings with the adapter's types, without defaults for the others."""
    try:
        cleaned = adapters.load(adapter).validate(typed)
    except LookupError as error:
        raise CommandError(str(error)) from None
    except InvalidSettings as error:
        raise CommandError("\n".join(error.errors)) from None
    return {key: cleaned[key] for key in typed}


def read_secret(of: Vendor, typed: Iterable[str], file: str | None) -> dict[str, str]:
    """Return the secret from HEADER=VALUE ... and a JSON file, checked by the adapter. No error shows a value."""
    found = (_read_json(file) if file else {}) | parse_pairs(typed)
    try:
        adapters.load(of.adapter).for_credential(of.settings, found)
    except LookupError as error:
        raise CommandError(str(error)) from None
    except InvalidSettings as error:
        raise CommandError("\n".join(error.errors)) from None
    return found


def check_has_secret(of: Vendor, row: Credential) -> None:
    """Check that a credential about to be used has the secret its adapter requires."""
    try:
        configuration.require_secret(row)
    except NoSecret as error:
        raise CommandError(
            f"{row} stays paused: {error}. Enter it: manage.py credential set {of.slug} {row.name} ..."
        ) from None


def read_first_secret(of: Vendor, file: str | None) -> dict[str, Any]:
    """Return fields for a new vendor's first credential: its secret, or a pause if a required one is missing."""
    if file:
        return {"secret": read_secret(of, [], file)}
    try:
        adapters.load(of.adapter).for_credential(of.settings, {})
    except NoSecret as error:
        return configuration.paused_until_secret(error)
    return {}


def _read_json(file: str) -> dict[str, str]:
    try:
        found = json.loads(Path(file).read_text())
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    except ValueError:
        raise CommandError(f"{file} is not JSON") from None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise CommandError(f"{file} must hold one JSON object with texts")
    return found


def one_secret(file: str) -> str:
    """Read a secret from a file, or from standard input (-), without its line end. No error shows it."""
    try:
        found = (sys.stdin.read(MOST_SECRET + 1) if file == "-" else Path(file).read_text()).strip()
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{file} is not a text") from None
    if not found or len(found) > MOST_SECRET or "\0" in found:
        raise CommandError(f"{file} must hold one secret, of at most {MOST_SECRET:,} characters")
    return found


def check_row(row: Model) -> None:
    """Validate the row with its model. Raises CommandError."""
    try:
        row.full_clean(validate_unique=False, validate_constraints=False)
    except ValidationError as error:
        raise refused_error(error) from None


def refused_error(error: ValidationError) -> CommandError:
    """Return a model's complaints about a row, a line for each field."""
    faults = (f"{field}: {' '.join(texts)}" for field, texts in error.message_dict.items())
    return CommandError("\n".join(fault.removeprefix("__all__: ") for fault in faults))


def check_same(row: Model, wanted: Mapping[str, Any], *further: str) -> None:
    """Raise CommandError if an existing row differs from the arguments, or if there are further differences."""
    if faults := [*list_differences(row, wanted), *further]:
        raise CommandError(f"{row} is already there, and differs: " + "; ".join(faults))


def list_differences(row: Model, wanted: Mapping[str, Any]) -> list[str]:
    """Say in sentences where an existing row differs from the arguments; secrets are not shown."""
    return [
        f"{name} is another one" if name == "secret" else f"{name} is {getattr(row, name)}, not {value}"
        for name, value in wanted.items()
        if getattr(row, name) != value
    ]
