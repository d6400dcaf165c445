"""Addresses that come back to us: each message has a return path of its own (VERP), and an address to unsubscribe.

`bounces@brand.example` becomes `bounces+<token>@brand.example`. The token holds the message's uuid, the number of its
sending and a MAC, whose key says what the address is for. It tells nothing about the recipient, nobody else can make
one, and capitals make no difference, because some mail servers change them.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Literal, get_args
from uuid import UUID

from campaigns import token_keys
from campaigns.models import Identity
from campaigns.models.jobs import Reference

Purpose = Literal["return-path", "unsubscribe"]
MAC = 8  # bytes
TOKEN = 40  # characters: 16 bytes of the uuid, one of the number, and the MAC
TOKENS = re.compile(r"[+=-]([a-z2-7]{40})@", re.IGNORECASE)  # mail servers on the way may write another sign for the +
MOST = 5  # tokens that are looked at in a text


@dataclass(frozen=True, slots=True)
class ReturnPaths:
    """Makes the addresses of an identity's messages. keys: to make tokens with, by purpose."""

    mailbox: str
    keys: dict[Purpose, bytes]

    def of(self, reference: str, purpose: Purpose = "return-path") -> str:
        """The address of one message."""
        local, _, domain = self.mailbox.rpartition("@")
        uuid, _, number = reference.rpartition("-")
        named = UUID(uuid).bytes + bytes([min(int(number), 255)])
        token = base64.b32encode(named + _mac(self.keys[purpose], named)).decode("ascii").lower()
        return f"{local}+{token}@{domain}"


def keys() -> dict[Purpose, bytes]:
    """The keys with which addresses are made now. Raises the database's errors."""
    return {purpose: token_keys.keys(purpose)[0] for purpose in get_args(Purpose)}


def of_identity(identity: Identity | None, known: dict[Purpose, bytes] | None = None) -> ReturnPaths | None:
    """None: bounces of this identity's mails do not come back to mailhub. known: keys that were read already.

    Raises the database's errors if it has to read them.
    """
    return ReturnPaths(identity.bounce_mailbox, known or keys()) if identity and identity.verp else None


def read(text: str, purpose: Purpose) -> Reference | None:
    """The message of the first address of ours for this purpose in a text; None: there is none.

    Its resend_no is at most 255; later sendings have that, too. Raises the database's errors.
    """
    known = token_keys.keys(purpose)
    for _, found in zip(range(MOST), TOKENS.finditer(text), strict=False):
        token = base64.b32decode(found[1].upper())
        named, mac = token[:-MAC], token[-MAC:]
        if any(hmac.compare_digest(mac, _mac(key, named)) for key in known):
            uuid = UUID(bytes=named[:16])
            return Reference(uuid.int >> 80, uuid, named[16])
    return None


def looks_like_one(text: str) -> bool:
    """Whether it contains an address in the form of ours, made by whomever."""
    return TOKENS.search(text) is not None


def _mac(key: bytes, named: bytes) -> bytes:
    return hashlib.blake2b(named, key=key, digest_size=MAC).digest()
