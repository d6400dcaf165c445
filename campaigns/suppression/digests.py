"""The keyed hash by which a suppressed address is found, also after the address itself was erased.

The key is made with the first suppression and is in the database, encrypted like every secret, so it survives a change
of SECRET_KEY (`rotate_keys`). Without it nobody can find out whether an address is in the table.
"""

import hashlib
import secrets
import unicodedata
from collections.abc import Iterable
from typing import Any

from campaigns.models import SuppressionKey
from campaigns.token_keys import Known


def key() -> bytes | None:
    """The key, at most a second old; None: nobody was ever suppressed."""
    return known.get()


def _read() -> bytes | None:
    row: Any = SuppressionKey.objects.first()
    return as_key(row.secret) if row else None


known = Known(_read)


def as_key(secret: dict[str, str]) -> bytes:
    """The key in the decrypted field of its row."""
    return bytes.fromhex(secret["key"])


def made_key() -> bytes:
    """The key; makes it if there is none."""
    secret: Any = {"key": secrets.token_hex(32)}
    SuppressionKey.objects.bulk_create([SuppressionKey(pk=1, secret=secret)], ignore_conflicts=True)
    known.forget()
    found = key()
    assert found, "it has just been stored"
    return found


def digest(key: bytes, channel: str, address: str) -> int:
    """A signed number of 64 bits, the same for each way to write the address: in capitals, with other blanks."""
    if not address.isascii():
        address = unicodedata.normalize("NFC", address)
    text = f"{channel} {' '.join(address.casefold().split())}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, key=key).digest(), signed=True)


def digests(key: bytes, channel: str, addresses: Iterable[str]) -> list[int]:
    """A digest for each address, in their order."""
    return [digest(key, channel, address) for address in addresses]
