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

from campaigns.senders.deliverability.dns_questions import DnsQuestions
from campaigns.senders.deliverability.findings import (
    MISSING,
    OK,
    WRONG,
    DnsEntry,
    Finding,
    faults_of_domain,
    parse_tags,
)
from vendors.adapters import dkim
from vendors.adapters.dkim import DkimKey
from vendors.said import Said, gettext_noop

_BLANKS = re.compile(r"\s+")


def check_dkim(dns: DnsQuestions, key: DkimKey | None, relays: Sequence[str], make: str) -> Iterator[Finding]:
    """Check DKIM records. key: mailhub's. relays: names of the relay's records. make: the command that makes a key.

    Raises NoDnsAnswer.
    """
    if key is None and not relays:
        form = gettext_noop(
            "mailhub has no key for it, so it signs nothing: %(command)s; or, if the relay signs, "
            "say --relay-selector NAME"
        )
        yield Finding("DKIM", MISSING, Said(form, command=make))
    if key is not None:
        name = f"{key.selector}._domainkey.{key.domain}".lower()
        enter = DnsEntry(name, "TXT", dkim.dns_record(key))
        yield _check_dkim_record(dns, "DKIM", name, enter, parse_tags(enter.value)["p"])
    for name in relays:
        yield _check_dkim_record(dns, Said(gettext_noop("relay's DKIM")), name, None, "")


def _check_dkim_record(dns: DnsQuestions, about: str, name: str, enter: DnsEntry | None, ours: str) -> Finding:
    """Check one record. ours: the public key expected there, in base64; empty: any."""
    answer = dns.txt_records(name)
    if not answer.values:
        return Finding(about, MISSING, answer.nothing_sentence("TXT"), enter)
    if len(answer.values) > 1:
        form = gettext_noop("%(domain)s has %(count)s TXT records, and must have one")
        return Finding(about, WRONG, Said(form, domain=name, count=str(len(answer.values))), enter)
    try:
        public, is_test = _read_dkim_record(answer.values[0])
        bits = _key_bits(public)
    except ValueError as why:
        return Finding(about, WRONG, faults_of_domain(name, [str(why)]), enter)
    if ours and public != ours:
        form = gettext_noop("%(domain)s has another key than mailhub signs with")
        return Finding(about, WRONG, Said(form, domain=name), enter)
    own = gettext_noop("%(domain)s has the key that mailhub signs with (%(count)s bits)")
    found = Said(own if ours else gettext_noop("%(domain)s has a key of %(count)s bits"), domain=name, count=bits)
    if is_test:
        test = gettext_noop("%(why)s; it says that it is a test (t=y), and receivers may ignore it")
        found = Said(test, why=found)
    return Finding(about, OK, found)


def _read_dkim_record(record: str) -> tuple[str, bool]:
    """Return the public key in base64, and if the record says that it is a test. Raises ValueError."""
    found = parse_tags(record)
    if found.get("v", "DKIM1") != "DKIM1" or ("v" in found and next(iter(found)) != "v"):
        raise ValueError(Said(gettext_noop("v, if there is one, must come first and be DKIM1")))
    if "p" not in found:
        raise ValueError(Said(gettext_noop("it has no key (p=)")))
    public = _BLANKS.sub("", found["p"])
    if not public:
        raise ValueError(Said(gettext_noop("the key is revoked (p= is empty)")))
    if found.get("k", "rsa").lower() != "rsa":
        other = gettext_noop("its key is of the kind %(kind)s, and only RSA is verified everywhere")
        raise ValueError(Said(other, kind=found["k"]))
    if "sha256" not in _colon_parts(found.get("h", "sha256")):
        raise ValueError(Said(gettext_noop("it does not allow SHA-256 (h=)")))
    if not {"*", "email"} & set(_colon_parts(found.get("s", "*"))):
        raise ValueError(Said(gettext_noop("it is not for e-mail (s=)")))
    flags = _colon_parts(found.get("t", ""))
    return public, "y" in flags


def _colon_parts(value: str) -> list[str]:
    return [part.strip().lower() for part in value.split(":")]


def _key_bits(public: str) -> int:
    """Return the number of bits of an RSA key. Raises ValueError for another kind of key or too short a one."""
    try:
        key = serialization.load_der_public_key(base64.b64decode(public, validate=True))
    except (ValueError, binascii.Error, UnsupportedAlgorithm):
        unreadable = gettext_noop("its key (p=) cannot be read; perhaps a part is missing")
        raise ValueError(Said(unreadable)) from None
    if not isinstance(key, rsa.RSAPublicKey):
        raise ValueError(Said(gettext_noop("its key is no RSA key")))
    if key.key_size < dkim.BITS_LEAST:
        short = gettext_noop("its key has %(count)s bits, and receivers want %(least)s at least")
        raise ValueError(Said(short, count=str(key.key_size), least=str(dkim.BITS_LEAST)))
    return key.key_size
