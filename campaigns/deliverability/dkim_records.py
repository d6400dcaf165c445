"""Checks that the DNS has the public half of the DKIM key (RFC 6376).

For a relay that signs, only its record can be checked. Only a received mail shows the relay's signature.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from campaigns.deliverability.dns_questions import DnsQuestions
from campaigns.deliverability.findings import MISSING, OK, WRONG, DnsEntry, Finding, tags
from vendors.adapters import dkim
from vendors.adapters.dkim import DkimKey

_BLANKS = re.compile(r"\s+")


def check(dns: DnsQuestions, key: DkimKey | None, relays: Sequence[str], make: str) -> Iterator[Finding]:
    """Check DKIM records. key: mailhub's. relays: names of the relay's records. make: the command that makes a key.

    Raises NoDnsAnswer.
    """
    if key is None and not relays:
        why = (
            f"mailhub has no key for it, so it signs nothing: {make}; or, if the relay signs, say --relay-selector NAME"
        )
        yield Finding("DKIM", MISSING, why)
    if key is not None:
        name = f"{key.selector}._domainkey.{key.domain}".lower()
        enter = DnsEntry(name, "TXT", dkim.record(key))
        yield _finding(dns, "DKIM", name, enter, tags(enter.value)["p"])
    for name in relays:
        yield _finding(dns, "relay's DKIM", name, None, "")


def _finding(dns: DnsQuestions, about: str, name: str, enter: DnsEntry | None, ours: str) -> Finding:
    """Check one record. ours: the public key expected there, in base64; empty: any."""
    answer = dns.texts(name)
    if not answer.values:
        return Finding(about, MISSING, answer.nothing("TXT"), enter)
    if len(answer.values) > 1:
        return Finding(about, WRONG, f"{name} has {len(answer.values)} TXT records, and must have one", enter)
    try:
        public, notes = _read(answer.values[0])
        bits = _bits(public)
    except ValueError as why:
        return Finding(about, WRONG, f"{name}: {why}", enter)
    if ours and public != ours:
        return Finding(about, WRONG, f"{name} has another key than mailhub signs with", enter)
    found = f"has the key that mailhub signs with ({bits:,} bits)" if ours else f"has a key of {bits:,} bits"
    return Finding(about, OK, f"{name} {found}{notes}")


def _read(record: str) -> tuple[str, str]:
    """Return the public key in base64, and any remarks. Raises ValueError."""
    found = tags(record)
    if found.get("v", "DKIM1") != "DKIM1" or ("v" in found and next(iter(found)) != "v"):
        raise ValueError("v, if there is one, must come first and be DKIM1")
    if "p" not in found:
        raise ValueError("it has no key (p=)")
    public = _BLANKS.sub("", found["p"])
    if not public:
        raise ValueError("the key is revoked (p= is empty)")
    if found.get("k", "rsa").lower() != "rsa":
        raise ValueError(f"its key is of the kind {found['k']}, and only RSA is verified everywhere")
    if "sha256" not in _parts(found.get("h", "sha256")):
        raise ValueError("it does not allow SHA-256 (h=)")
    if not {"*", "email"} & set(_parts(found.get("s", "*"))):
        raise ValueError("it is not for e-mail (s=)")
    flags = _parts(found.get("t", ""))
    return public, "; it says that it is a test (t=y), and receivers may ignore it" if "y" in flags else ""


def _parts(value: str) -> list[str]:
    return [part.strip().lower() for part in value.split(":")]


def _bits(public: str) -> int:
    """Return the number of bits of an RSA key. Raises ValueError for another kind of key or too short a one."""
    try:
        key = serialization.load_der_public_key(base64.b64decode(public, validate=True))
    except (ValueError, binascii.Error, UnsupportedAlgorithm):
        raise ValueError("its key (p=) cannot be read; perhaps a part is missing") from None
    if not isinstance(key, rsa.RSAPublicKey):
        raise ValueError("its key is no RSA key")
    if key.key_size < dkim.BITS_LEAST:
        raise ValueError(f"its key has {key.key_size} bits, and receivers want {dkim.BITS_LEAST} at least")
    return key.key_size
