"""A certificate for 127.0.0.1, trusted only by those who are told to."""

from __future__ import annotations

import datetime
import functools
import ipaddress
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Its own server uses it, too.
SIGNS = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@functools.cache
def authority() -> Path:
    """Return the path of a certificate and its key in one file. It lasts as long as the process."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = _builder("vendor", "127.0.0.1", days=2).issuer_name(_name("vendor")).public_key(key.public_key())
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), True).add_extension(SIGNS, True)
    return _stored(key, made, key)


@functools.cache
def _of_authority(host: str, days: int) -> Path:
    signs = serialization.load_pem_private_key(authority().read_bytes(), None)
    assert isinstance(signs, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    made = _builder("leaf", host, days=days).issuer_name(_name("vendor")).public_key(key.public_key())
    return _stored(key, made, signs)


def _name(word: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, word)])


def _builder(name: str, host: str, *, days: int) -> x509.CertificateBuilder:
    """Return a builder for a certificate valid from two days ago until `days` from now."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), False)
    )


def _stored(key: ec.EllipticCurvePrivateKey, made: x509.CertificateBuilder, signs: ec.EllipticCurvePrivateKey) -> Path:
    """Sign and store it, with the identifiers of keys that Python 3.13 asks for."""
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    made = made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signs.public_key()), False)
    folder.append(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
    path = Path(folder[-1].name) / "certificate.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.sign(signs, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
    return path


folder: list[tempfile.TemporaryDirectory[str]] = []


def server_tls(host: str = "127.0.0.1", days: int = 2) -> ssl.SSLContext:
    """Return the misbehaving vendor's TLS context: for that host, valid for `days` more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority() if (host, days) == ("127.0.0.1", 2) else _of_authority(host, days))
    return context
