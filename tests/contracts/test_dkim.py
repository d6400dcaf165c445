"""Mails that we sign, as dkimpy verifies them."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import dkim as judge
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.contracts.test_mime import LOGO, NEWS, TERMS, compose, letter, unstuffed
from vendors.adapters import dkim
from vendors.adapters.base import Attachment, Origin
from vendors.adapters.mime import parse_origin

calm = settings(
    deadline=None, max_examples=50, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
BODY = st.text(st.sampled_from(" \t\n\r.aü=—"), max_size=300)


@cache
def origin() -> Origin:
    key = dkim.DkimKey("example.com", "mh1", dkim.new_private_key())
    return Origin("ann@example.com", "Ann Größe", "help@example.com", dkim=key)


def signed(subject: str = "Hello", body: str = "Dear you,\n.\nbye") -> bytes:
    """A signed mail as a relay stores it."""
    return unstuffed(compose(parse_origin(origin()), "you@example.org", letter(subject, body)))


def good(mail: bytes) -> bool:
    key = origin().dkim
    assert key

    def dns(name: bytes, timeout: int = 0) -> bytes:
        assert name.rstrip(b".") == b"mh1._domainkey.example.com"
        return dkim.dns_record(key).encode()

    return bool(judge.verify(mail, dnsfunc=dns))


@calm
@given(BODY)
@example("")
@example("\n\n.\n..\n \n\t\n")
@example("a  b\t \tc \n\n\n")
@example("<td>\t  x</td>\n" * 3000)
def test_every_body_is_signed_so_that_others_verify_it(body: str) -> None:
    assert good(signed(body=body))


@pytest.mark.parametrize("files", [(), (TERMS,), (LOGO,), (LOGO, TERMS)])
def test_texts_and_files_are_signed_together(files: tuple[Attachment, ...]) -> None:
    made = NEWS._replace(attachments=files, headers=(("List-Unsubscribe", "<https://example.com/u>"),))
    mail = unstuffed(compose(parse_origin(origin()), "you@example.org", made))
    assert good(mail) and b"list-unsubscribe" in mail.partition(b"bh=")[0]
    assert not good(mail.replace(b"example.com/u", b"example.com/v"))


def test_nobody_adds_a_second_link_to_unsubscribe() -> None:
    lines = (("List-Unsubscribe", "<https://example.com/u>"), ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"))
    mail = unstuffed(compose(parse_origin(origin()), "you@example.org", NEWS._replace(headers=lines)))
    assert good(mail) and max(map(len, mail.split(b"\r\n"))) <= 78
    for name, _ in lines:
        for place in (b"Subject: ", b"MIME-Version: "):
            assert mail.count(place) == 1 and not good(mail.replace(place, name.encode() + b": x\r\n" + place))


def test_headers_that_are_folded_or_encoded_are_signed_too() -> None:
    mail = signed("Grüße  an alle, die es angeht, und an die anderen auch " * 4)
    assert good(mail) and mail.count(b"=?utf-8?b?") > 3
    assert max(map(len, mail.split(b"\r\n"))) <= 78


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"bye", b"Bye"),
        (b"Subject: Hello", b"Subject: hello"),
        (b"To: you@", b"To: yov@"),
        (b"From: =?utf-8?", b"From: bob@example.net\r\nFrom: =?utf-8?"),
        (b"Subject: Hello", b"Subject: Hello\r\nSubject: Buy this"),
        (b"Reply-To: help@", b"Reply-To: held@"),
        (b"Subject: Hello", b"Subject: Hello\r\nList-Unsubscribe: <https://example.net/>"),
        (b"Subject: Hello", b"Subject: Hello\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click"),
    ],
)
def test_what_is_changed_or_added_on_the_way_is_noticed(old: bytes, new: bytes) -> None:
    mail = signed()
    assert mail.count(old) == 1 and good(mail)
    assert not good(mail.replace(old, new))


def test_relays_may_fold_anew_and_change_blanks_at_the_ends_of_lines() -> None:
    mail = signed("one two three", "a  b \n\n\n")
    assert good(mail.replace(b"one two", b"one\r\n  two").replace(b"a  b ", b"a b"))


def test_a_mail_without_a_key_is_not_signed() -> None:
    mail = compose(parse_origin(replace(origin(), dkim=None)), "you@example.org", letter())
    assert b"DKIM-Signature" not in mail


def test_a_key_is_taken_in_pem_and_shown_in_no_error() -> None:
    fair = dkim.new_private_key()
    assert dkim.private_key(fair) == fair

    def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, old: bool = False) -> str:
        kind = serialization.PrivateFormat.TraditionalOpenSSL if old else serialization.PrivateFormat.PKCS8
        return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption()).decode()

    assert "BEGIN PRIVATE KEY" in dkim.private_key(pem(rsa.generate_private_key(65537, 1024), old=True))
    others = [pem(ec.generate_private_key(ec.SECP256R1())), "s3cret", "", fair[:200]]
    for text in others:
        with pytest.raises(ValueError) as caught:
            dkim.private_key(text)
        assert "RSA" in str(caught.value) and not re.search("s3cret|BEGIN", str(caught.value))
    assert fair not in repr(origin())
