"""Mails as the standard library reads them back."""

from __future__ import annotations

import re
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from vendors.adapters.base import Letter
from vendors.adapters.mime import END, address, compose, sender

calm = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
ORIGIN = sender("Us <us@example.org>")
CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def unstuffed(mail: bytes) -> bytes:
    """What a relay stores."""
    assert mail.endswith(END) and mail.count(END) == 1
    return (b"\r\n" + mail[:-3]).replace(b"\r\n.", b"\r\n")[2:]


def read(mail: bytes) -> EmailMessage:
    found = message_from_bytes(unstuffed(mail), policy=default)
    assert isinstance(found, EmailMessage) and not found.defects
    return found


def letter(subject: str = "Hello", body: str = "", html: bool = False) -> Letter:
    return Letter("ref-0", "you@example.org", subject, body, html=html)


@calm
@given(TEXT)
@example("Grüße " * 30)
@example("=?utf-8?q?no?=")
@example(" leading and trailing ")
@example("a" * 2000)
@example("x\r\nBcc: all@example.org")
def test_a_subject_comes_back_as_it_was_or_is_refused(subject: str) -> None:
    if CONTROLS.search(subject):
        with pytest.raises(ValueError, match="one line"):
            compose(ORIGIN, "you@example.org", letter(subject))
        return
    mail = compose(ORIGIN, "you@example.org", letter(subject))
    found = read(mail)
    assert found["Subject"] == subject
    assert [name for name, _ in found.items()] == [
        *("Date", "From", "To", "Subject", "Message-ID"),
        *("MIME-Version", "Content-Type", "Content-Transfer-Encoding"),
    ]


@calm
@given(TEXT)
@example(".\n..\n.end")
@example("a" * 3000)
@example("From me\nto you \n ü\r")
@example("ü" * 3000 + "\n.")
@example("\n.\r\n.\r.\r\nMAIL FROM:<evil@example.org>")
def test_a_body_comes_back_with_canonical_line_ends(body: str) -> None:
    mail = compose(ORIGIN, "you@example.org", letter(body=body))
    lines = re.sub(r"\r\n|\r|\n", "\n", body)
    content = read(mail).get_payload(decode=True)
    assert isinstance(content, bytes)
    assert content.decode().replace("\r\n", "\n") == (lines if lines.endswith("\n") else lines + "\n")


@calm
@given(TEXT, TEXT)
def test_every_mail_is_ascii_in_lines_that_every_relay_takes(subject: str, body: str) -> None:
    mail = compose(ORIGIN, "you@example.org", letter(CONTROLS.sub("", subject), body))
    assert mail.isascii()
    assert not re.search(rb"[^\r]\n|\r[^\n]|\0", mail)
    assert max(map(len, mail.split(b"\r\n"))) <= 998
    assert not re.search(rb"\r\n\.(?!\.|\r\n\Z)", mail)


@calm
@given(st.text(max_size=80))
def test_an_address_holds_nothing_that_ends_a_command(text: str) -> None:
    for candidate in (text, f"{text}@example.org", f"you@{text}"):
        try:
            known = address(candidate)
        except ValueError:
            continue
        assert re.fullmatch(r"[!-~\x80-\U0010ffff]+@[A-Za-z0-9.-]+", known)
        assert known.isprintable() and not set(known) & set('<>,;:\\" ')


@calm
@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=400))
@example("Your order number 4711 of the twenty-second of November is on its way to you, and here is where it is")
@example("a" * 200 + " " + "b" * 70 + "  c")
def test_a_subject_of_plain_letters_is_folded_at_its_blanks(subject: str) -> None:
    mail = compose(ORIGIN, "you@example.org", letter(subject))
    head = mail.partition(b"\r\n\r\n")[0].decode()
    lines = head[head.index("Subject: ") : head.index("\r\nMessage-ID")].split("\r\n")
    assert all(line.strip() or not subject for line in lines)
    assert all(len(line) <= 76 or " " not in line.removeprefix("Subject: ").strip() for line in lines)
    if subject == subject.strip() and "=?" not in subject:
        assert "".join(lines) == f"Subject: {subject}"
    assert read(mail)["Subject"] == subject


def test_other_letters_before_the_at_sign_are_kept_for_relays_that_take_them() -> None:
    assert address("jörg@bücher.example") == "jörg@xn--bcher-kva.example"
    assert b"\r\nTo: j\xc3\xb6rg@example.org\r\n" in compose(ORIGIN, "jörg@example.org", letter())
    with pytest.raises(ValueError, match="not an address that every relay takes"):
        sender("Jörg <jörg@example.org>")


def test_a_foreign_domain_goes_as_ascii() -> None:
    assert address("info@bücher.example") == "info@xn--bcher-kva.example"


NO_ADDRESS = ["", "@", "you", "you@", "@example.org", "a b@example.org", "a@b@c"]
NO_ADDRESS += ["y\u00a0u@example.org", "y\u200bu@example.org", "ö" * 33 + "@example.org"]


@pytest.mark.parametrize("bad", NO_ADDRESS)
def test_what_smtp_cannot_take_is_refused(bad: str) -> None:
    with pytest.raises(ValueError):
        address(bad)


@pytest.mark.parametrize("name", ["Us", 'Us "and" them', "Us, them; all", "Grüße aus Zürich", "A" * 200, "back\\"])
def test_a_sender_keeps_its_name(name: str) -> None:
    quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    mail = compose(sender(f"{quoted} <us@example.org>"), "you@example.org", letter())
    [found] = read(mail)["From"].addresses
    assert (found.display_name, found.addr_spec) == (name.strip(), "us@example.org")


@pytest.mark.parametrize(
    "bad", ["", "Us", "Us <us>", "U" * 201 + " <us@example.org>", "Us\r\nBcc: all@example.org <us@example.org>"]
)
def test_a_sender_without_an_address_is_refused(bad: str) -> None:
    with pytest.raises(ValueError):
        sender(bad)


def test_the_reference_becomes_the_message_id_and_html_its_type() -> None:
    found = read(compose(ORIGIN, "you@example.org", letter(body="<p>Hi", html=True)))
    assert found["Message-ID"] == "<ref-0@example.org>"
    assert found.get_content_type() == "text/html"
    assert found["To"] == "you@example.org"
