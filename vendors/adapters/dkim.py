"""Signs mails with DKIM (RFC 6376): rsa-sha256 and relaxed/relaxed, using OpenSSL's RSA.

The library dkimpy computes RSA in Python, which is far slower (docs/decisions/0020-we-sign-by-openssl.md). The tests
use it to verify our signatures.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from vendors.said import Said

BITS_LEAST = 1024  # RFC 8301
BITS = 2048  # of a new key
FOLD = 72  # characters of the signature per line

# Listed once more than they occur, so that nobody can add one (RFC 6376, 8.15).
GUARDED = ("from", "reply-to", "subject", "date", "to", "list-unsubscribe", "list-unsubscribe-post")

_TABS = bytes.maketrans(b"\t", b" ")


@dataclass(frozen=True, slots=True)
class DkimKey:
    """A private key in PEM. Its public key is in the DNS at <selector>._domainkey.<domain>."""

    domain: str
    selector: str
    private_key: str = field(repr=False)


def new_private_key() -> str:
    """Return a new RSA key in PEM."""
    return _key_as_pem(rsa.generate_private_key(65537, BITS))


def private_key(text: str) -> str:
    """Return the key in PEM. Raises ValueError, which never shows the key."""
    try:
        key = serialization.load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError):  # TypeError: it has a password
        raise ValueError(Said("not an RSA private key in PEM without a password")) from None
    if not isinstance(key, rsa.RSAPrivateKey) or key.key_size < BITS_LEAST:
        raise ValueError(Said("not an RSA key of at least %(bits)s bits", bits=str(BITS_LEAST)))
    return _key_as_pem(key)


def dns_record(key: DkimKey) -> str:
    """Return the TXT record for <selector>._domainkey.<domain>."""
    public = _load_key(key.private_key).public_key()
    bare = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"v=DKIM1; k=rsa; p={base64.b64encode(bare).decode('ascii')}"


def sign_mail(key: DkimKey, pieces: Sequence[bytes]) -> bytes:
    """Return the DKIM-Signature header line of a mail.

    `pieces`: the mail as SMTP transmits it, in whole lines, without the final dot. The first piece has all headers.
    """
    head, _, begin = pieces[0].partition(b"\r\n\r\n")
    fields = _relaxed_fields(head)
    names = [one.partition(b":")[0].decode("ascii") for one in fields] + list(GUARDED)
    digest = base64.b64encode(_body_hash([begin, *pieces[1:]])).decode("ascii")
    listed = ":\r\n ".join(":".join(names[at : at + 5]) for at in range(0, len(names), 5))
    unsigned = (
        f" v=1; a=rsa-sha256; c=relaxed/relaxed;\r\n d={key.domain}; s={key.selector};\r\n"
        f" h={listed};\r\n bh={digest};\r\n b="
    )
    signed = b"\r\n".join(fields + _relaxed_fields(b"DKIM-Signature:" + unsigned.encode()))
    seal = _load_key(key.private_key).sign(signed, padding.PKCS1v15(), hashes.SHA256())
    text = base64.b64encode(seal).decode("ascii")
    folded = "\r\n ".join(text[at : at + FOLD] for at in range(0, len(text), FOLD))
    return f"DKIM-Signature:{unsigned}{folded}\r\n".encode()


def _relaxed_fields(head: bytes) -> list[bytes]:
    """Return the lines of a header in relaxed form, each unfolded (RFC 6376, 3.4.2)."""
    unfolded = _single_blanks(head).replace(b"\r\n ", b" ")
    parted = (line.partition(b":") for line in _single_blanks(unfolded).split(b"\r\n"))
    return [b"%b:%b" % (name.strip(b" ").lower(), value.strip(b" ")) for name, _, value in parted]


def _body_hash(pieces: Sequence[bytes]) -> bytes:
    """Return the hash of the body without SMTP's dots, trailing blanks and trailing empty lines."""
    digest, last = hashlib.sha256(), len(pieces) - 1
    for number, piece in enumerate(pieces):
        plain = _relaxed_lines(piece)
        if number == last:
            bare = plain.rstrip(b"\r\n")
            plain = bare + b"\r\n" if bare else b""
        digest.update(plain)
    return digest.digest()


def _relaxed_lines(lines: bytes) -> bytes:
    """Return whole lines in relaxed form. Files need no change and are not copied."""
    lines = _single_blanks(lines).replace(b" \r\n", b"\r\n").replace(b"\r\n..", b"\r\n.")
    return lines[1:] if lines.startswith(b"..") else lines


def _single_blanks(lines: bytes) -> bytes:
    """Return the lines with a blank for each run of blanks and tabs."""
    if b"\t" in lines:
        lines = lines.translate(_TABS)
    while b"  " in lines:
        lines = lines.replace(b"  ", b" ")
    return lines


def _key_as_pem(key: rsa.RSAPrivateKey) -> str:
    kind = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption()).decode("ascii")


@lru_cache(maxsize=1000)
def _load_key(pem: str) -> rsa.RSAPrivateKey:
    key = serialization.load_pem_private_key(pem.encode(), None)
    assert isinstance(key, rsa.RSAPrivateKey), "it was stored as one"
    return key
