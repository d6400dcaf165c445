"""Addresses that come back to us: each message has its own return path (VERP) and its own address to unsubscribe.

`bounces@brand.example` becomes `bounces+<token>@brand.example`. The token contains the message's uuid, its resend
number and a MAC; the MAC's key depends on the purpose of the address. It reveals nothing about the recipient, nobody
else can make one, and case does not matter, because some mail servers change it.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Literal, get_args
from uuid import UUID

from campaigns.doors import token_keys
from campaigns.models import Identity
from campaigns.models.jobs import Reference

Purpose = Literal["return-path", "unsubscribe"]
MAC = 8  # bytes
TOKEN = 40  # characters in base32: 16 bytes of uuid, one of the number, and the MAC
TOKENS = re.compile(r"[+=-]([a-z2-7]{40})@", re.IGNORECASE)  # mail servers may replace the +
MOST = 5  # tokens tried in a text


@dataclass(frozen=True, slots=True)
class ReturnPaths:
    """Makes the addresses of an identity's messages. keys: the newest key for each purpose."""

    mailbox: str
    keys: dict[Purpose, bytes]

    def of(self, reference: str, purpose: Purpose = "return-path") -> str:
        """Return the address of one message."""
        local, _, domain = self.mailbox.rpartition("@")
        uuid, _, number = reference.rpartition("-")
        named = UUID(uuid).bytes + bytes([min(int(number), 255)])
        token = base64.b32encode(named + _sign_reference(self.keys[purpose], named)).decode("ascii").lower()
        return f"{local}+{token}@{domain}"


def return_path_keys() -> dict[Purpose, bytes]:
    """Return the keys that make addresses now. Raises the database's errors."""
    return {purpose: token_keys.keys_for_purpose(purpose)[0] for purpose in get_args(Purpose)}


def return_paths_of(identity: Identity | None, known: dict[Purpose, bytes] | None = None) -> ReturnPaths | None:
    """Return the identity's ReturnPaths, or None if its bounces do not come back to mailhub.

    known: keys already read. Without them, raises the database's errors.
    """
    return ReturnPaths(identity.bounce_mailbox, known or return_path_keys()) if identity and identity.verp else None


def read_return_path(text: str, purpose: Purpose) -> Reference | None:
    """Return the message named by the first address of ours for this purpose in a text, or None.

    Its resend_no is at most 255, which also stands for later sendings. Raises the database's errors.
    """
    known = token_keys.keys_for_purpose(purpose)
    for _, found in zip(range(MOST), TOKENS.finditer(text), strict=False):
        token = base64.b32decode(found[1].upper())
        named, mac = token[:-MAC], token[-MAC:]
        if any(hmac.compare_digest(mac, _sign_reference(key, named)) for key in known):
            uuid = UUID(bytes=named[:16])
            return Reference(uuid.int >> 80, uuid, named[16])
    return None


def looks_like_one(text: str) -> bool:
    """Tell if the text contains an address in our form, no matter who made it."""
    return TOKENS.search(text) is not None


def _sign_reference(key: bytes, named: bytes) -> bytes:
    return hashlib.blake2b(named, key=key, digest_size=MAC).digest()
