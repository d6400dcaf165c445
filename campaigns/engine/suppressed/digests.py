"""The keyed hash that finds a suppressed address, even after the address was erased.

The key is made with the first suppression. It is stored in the database, encrypted like every secret, so a new
SECRET_KEY does not change it (`rotate_keys`). Without the key nobody can tell whether an address is in the table.
"""

import hashlib
import secrets
import unicodedata
from collections.abc import Iterable
from typing import Any

from campaigns.engine.kept_values import Known
from campaigns.models import SuppressionKey


def digest_key() -> bytes | None:
    """Return the key, at most a second old; None: there has never been a suppression."""
    return known.get_fresh()


def _read_key() -> bytes | None:
    row: Any = SuppressionKey.objects.first()
    return key_from_secret(row.secret) if row else None


known = Known(_read_key)


def key_from_secret(secret: dict[str, str]) -> bytes:
    """Return the key from the decrypted field of its row."""
    return bytes.fromhex(secret["key"])


def made_key() -> bytes:
    """Return the key; make it if necessary."""
    secret: Any = {"key": secrets.token_hex(32)}
    SuppressionKey.objects.bulk_create([SuppressionKey(pk=1, secret=secret)], ignore_conflicts=True)
    known.forget_value()
    found = digest_key()
    assert found, "it has just been stored"
    return found


def digest_address(key: bytes, channel: str, address: str) -> int:
    """Return a signed 64-bit digest, the same for all spellings of an address (case, blanks)."""
    if not address.isascii():
        address = unicodedata.normalize("NFC", address)
    text = f"{channel} {' '.join(address.casefold().split())}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, key=key).digest(), signed=True)


def digest_addresses(key: bytes, channel: str, addresses: Iterable[str]) -> list[int]:
    """Return a digest for each address, in order."""
    return [digest_address(key, channel, address) for address in addresses]
