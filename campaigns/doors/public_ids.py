"""The ids of rows as programs see them: msg_..., whk_..., sup_..., inb_...

A row's number would tell how many rows all sponsors have, so programs get it encrypted: as sixteen letters, through a
permutation of 64 bits keyed for the installation. The key is the oldest one in `token_keys`. It is never deleted, so
ids stay valid. Ids of earlier versions, with the number in digits, are still understood. Access to the row is checked
separately.
"""

import hashlib
import re
from functools import lru_cache

from campaigns.doors import token_keys

HALF = 32  # bits
LOW = (1 << HALF) - 1
ROUNDS = 6  # of a Feistel network; four independent ones are enough (Luby and Rackoff)
LETTERS = "abcdefghijklmnop"  # for 0 to 15; digits are for ids of earlier versions
WRITTEN = re.compile(r"([a-z]{3})_(?:([a-p]{16})|(\d{1,18}))", re.ASCII)
PATTERN = r"([a-p]{16}|\d{1,18})"  # after the kind and its underscore
_INTO = str.maketrans("0123456789abcdef", LETTERS)
_BACK = str.maketrans(LETTERS, "0123456789abcdef")


def id_of_number(kind: str, number: int) -> str:
    """Return the id of the row of this kind (such as msg) with this number. Raises the database's errors."""
    left, right = number >> HALF, number & LOW
    for salt in _round_salts(kind, _public_id_key()):
        left, right = right, left ^ _mix_half(salt, right)
    return f"{kind}_{format(left << HALF | right, '016x').translate(_INTO)}"


def number_of_id(kind: str, text: str) -> int | None:
    """Return the row number named by an id of this kind, in either form; None for any other text."""
    found = WRITTEN.fullmatch(text)
    if not found or found[1] != kind:
        return None
    if found[3]:
        return int(found[3])
    both = int(found[2].translate(_BACK), 16)
    left, right = both >> HALF, both & LOW
    for salt in reversed(_round_salts(kind, _public_id_key())):
        left, right = right ^ _mix_half(salt, left), left
    whole = left << HALF | right
    return whole if whole < 1 << 63 else None


def _public_id_key() -> bytes:
    return token_keys.keys_for_purpose("public ids")[-1]


@lru_cache(maxsize=64)
def _round_salts(kind: str, key: bytes) -> tuple[bytes, ...]:
    return tuple(hashlib.blake2b(f"{kind} {at}".encode(), key=key, digest_size=32).digest() for at in range(ROUNDS))


def _mix_half(salt: bytes, half: int) -> int:
    return int.from_bytes(hashlib.blake2b(half.to_bytes(4), key=salt, digest_size=4).digest())
