"""The ids of rows as programs see them: msg_..., whk_..., sup_..., inb_...

A row's number tells how many rows all sponsors have. So programs get it encrypted: a permutation of 64 bits by a key of
the installation, as sixteen letters. The key is the oldest one in `token_keys`, which is never deleted, so an id stays
what it is. Ids of versions before, with the number in figures, are still understood; who may see a row is asked anyway.
"""

import hashlib
import re
from functools import lru_cache

from campaigns import token_keys

HALF = 32  # bits
LOW = (1 << HALF) - 1
ROUNDS = 6  # of a Feistel network; four with independent functions are enough (Luby and Rackoff)
LETTERS = "abcdefghijklmnop"  # for 0 to 15: no figures, which are of ids of versions before
WRITTEN = re.compile(r"([a-z]{3})_(?:([a-p]{16})|(\d{1,18}))", re.ASCII)
PATTERN = r"([a-p]{16}|\d{1,18})"  # after the kind and its underscore
_INTO = str.maketrans("0123456789abcdef", LETTERS)
_BACK = str.maketrans(LETTERS, "0123456789abcdef")


def name(kind: str, number: int) -> str:
    """The id of the row of this kind, as msg, with this number. Raises the database's errors."""
    left, right = number >> HALF, number & LOW
    for salt in _salts(kind, _key()):
        left, right = right, left ^ _mixed(salt, right)
    return f"{kind}_{format(left << HALF | right, '016x').translate(_INTO)}"


def number(kind: str, text: str) -> int | None:
    """The number of the row that an id of this kind names, in either form; None: it is no such id."""
    found = WRITTEN.fullmatch(text)
    if not found or found[1] != kind:
        return None
    if found[3]:
        return int(found[3])
    both = int(found[2].translate(_BACK), 16)
    left, right = both >> HALF, both & LOW
    for salt in reversed(_salts(kind, _key())):
        left, right = right ^ _mixed(salt, left), left
    whole = left << HALF | right
    return whole if whole < 1 << 63 else None


def _key() -> bytes:
    return token_keys.keys("public ids")[-1]


@lru_cache(maxsize=64)
def _salts(kind: str, key: bytes) -> tuple[bytes, ...]:
    return tuple(hashlib.blake2b(f"{kind} {at}".encode(), key=key, digest_size=32).digest() for at in range(ROUNDS))


def _mixed(salt: bytes, half: int) -> int:
    return int.from_bytes(hashlib.blake2b(half.to_bytes(4), key=salt, digest_size=4).digest())
