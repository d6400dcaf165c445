"""Mails as the standard library reads them back."""

from __future__ import annotations

import re
from dataclasses import replace
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from vendors.adapters import mime
from vendors.adapters.base import Attachment, Letter, Origin
from vendors.adapters.mime import END, FromAddress, parse_address, parse_origin, parse_sender

calm = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
ORIGIN = parse_sender("Us <us@example.org>")
CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def compose(origin: FromAddress, recipient: str, made: Letter) -> bytes:
    return b"".join(mime.compose_mail(origin, recipient, made))


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
            known = parse_address(candidate)
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
    assert parse_address("jörg@bücher.example") == "jörg@xn--bcher-kva.example"
    assert b"\r\nTo: j\xc3\xb6rg@example.org\r\n" in compose(ORIGIN, "jörg@example.org", letter())
    with pytest.raises(ValueError, match="not an address that every relay takes"):
        parse_sender("Jörg <jörg@example.org>")


def test_a_foreign_domain_goes_as_ascii() -> None:
    assert parse_address("info@bücher.example") == "info@xn--bcher-kva.example"


NO_ADDRESS = ["", "@", "you", "you@", "@example.org", "a b@example.org", "a@b@c"]
NO_ADDRESS += ["y\u00a0u@example.org", "y\u200bu@example.org", "ö" * 33 + "@example.org"]


@pytest.mark.parametrize("bad", NO_ADDRESS)
def test_what_smtp_cannot_take_is_refused(bad: str) -> None:
    with pytest.raises(ValueError):
        parse_address(bad)


@pytest.mark.parametrize("name", ["Us", 'Us "and" them', "Us, them; all", "Grüße aus Zürich", "A" * 200, "back\\"])
def test_a_sender_keeps_its_name(name: str) -> None:
    quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    mail = compose(parse_sender(f"{quoted} <us@example.org>"), "you@example.org", letter())
    [found] = read(mail)["From"].addresses
    assert (found.display_name, found.addr_spec) == (name.strip(), "us@example.org")


@pytest.mark.parametrize(
    "bad", ["", "Us", "Us <us>", "U" * 201 + " <us@example.org>", "Us\r\nBcc: all@example.org <us@example.org>"]
)
def test_a_sender_without_an_address_is_refused(bad: str) -> None:
    with pytest.raises(ValueError):
        parse_sender(bad)


def test_the_reference_becomes_the_message_id_and_html_its_type() -> None:
    found = read(compose(ORIGIN, "you@example.org", letter(body="<p>Hi", html=True)))
    assert found["Message-ID"] == "<ref-0@example.org>"
    assert found.get_content_type() == "text/html"
    assert found["To"] == "you@example.org"


PDF = b"%PDF-1.7\r\n.\r\n" + bytes(range(256)) * 4000
TERMS = Attachment("AGB für Köln.pdf", "application/pdf", PDF)
LOGO = Attachment("logo.png", "image/png", b"\x89PNG" + bytes(100), cid="logo.png")
NEWS = Letter(
    "ref-0", "you@example.org", "News", "<p>Grüße</p>\n.", html=True, text=".Grüße\n..\n", attachments=(TERMS, LOGO)
)


def shown(mail: EmailMessage, kind: str) -> str:
    part = mail.get_body([kind])
    assert part is not None
    return str(part.get_content()).replace("\r\n", "\n")


def tree(part: EmailMessage) -> object:
    """The types of a mail's parts, as they hold each other."""
    if not part.is_multipart():
        return part.get_content_type()
    return part.get_content_type(), [tree(one) for one in part.iter_parts()]  # type: ignore[arg-type]


def test_text_html_images_and_files_are_put_together_as_mail_programs_expect_them() -> None:
    found = read(compose(ORIGIN, "you@example.org", NEWS))
    html = ("multipart/related", ["text/html", "image/png"])
    assert tree(found) == (
        "multipart/mixed",
        [("multipart/alternative", ["text/plain", html]), "application/pdf"],
    )
    assert (shown(found, "plain"), shown(found, "html")) == (".Grüße\n..\n", "<p>Grüße</p>\n.\n")
    [terms] = found.iter_attachments()
    assert (terms.get_filename(), terms.get_content()) == ("AGB für Köln.pdf", PDF)
    logo = next(part for part in found.walk() if part.get_content_type() == "image/png")
    assert (logo["Content-ID"], logo.get_content_disposition()) == ("<logo.png>", "inline")
    assert logo.get_payload(decode=True) == LOGO.content


@pytest.mark.parametrize("text", ["", "Hello"])
@pytest.mark.parametrize("files", [(), (TERMS,), (LOGO,), (LOGO, TERMS)])
def test_each_combination_of_parts_reads_back_and_holds_to_the_lines_of_smtp(
    text: str, files: tuple[Attachment, ...]
) -> None:
    mail = compose(ORIGIN, "you@example.org", NEWS._replace(text=text, attachments=files))
    found = read(mail)
    assert shown(found, "html") == "<p>Grüße</p>\n.\n"
    assert len([part for part in found.walk() if part.get_filename()]) == len(files)
    assert mail.isascii() and not re.search(rb"[^\r]\n|\r[^\n]|\0", mail)
    assert max(map(len, mail.split(b"\r\n"))) <= 998


def test_a_file_is_encoded_once_and_the_same_bytes_go_to_all() -> None:
    first, second = (
        mime.compose_mail(ORIGIN, f"{n}@example.org", NEWS._replace(reference=f"ref-{n}")) for n in ("one", "two")
    )
    shared = {id(piece) for piece in first} & {id(piece) for piece in second}
    assert sum(len(piece) for piece in first if id(piece) in shared) > len(PDF) * 4 / 3
    assert sum(len(piece) for piece in first if id(piece) not in shared) < 5_000


def test_no_field_can_end_a_part() -> None:
    mails = [compose(ORIGIN, "you@example.org", NEWS) for _ in range(2)]
    boundaries = [set(re.findall(rb'boundary="([^"]+)"', mail)) for mail in mails]
    assert len(boundaries[0]) == 3 and not boundaries[0] & boundaries[1]


def with_header(name: str, value: str) -> EmailMessage:
    return read(compose(ORIGIN, "you@example.org", letter()._replace(headers=((name, value),))))


UNSUBSCRIBE = f"<https://example.org/u/{'a' * 80}>, <mailto:u@example.org?subject={'b' * 60}>"


@pytest.mark.parametrize("value", ["bulk", "Grüße aus Köln " * 20, UNSUBSCRIBE])
def test_a_header_of_ones_own_comes_back_as_it_was(value: str) -> None:
    found = with_header("X-Campaign", value)
    assert found["X-Campaign"] == value.strip()
    assert found["Message-ID"] and found["MIME-Version"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "x") for name in ("", "X Y", "X:", "X\r\nBcc", "Ü", "Subject", "from", "Content-Type", "a" * 77)),
        *(("X-One", value) for value in ("", " ", "a\r\nBcc: all@example.org", "a\nb", "a\0", "a" * 1000)),
    ],
)
def test_a_header_that_could_be_another_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="header"):
        with_header(name, value)


def test_the_origin_of_a_letter_is_its_from_reply_to_and_return_path() -> None:
    origin = parse_origin(Origin("brand@example.com", "Größe, Inc.", "Help <help@example.com>", "bounces@example.net"))
    found = read(compose(origin, "you@example.org", letter()))
    assert found["From"] == '"Größe, Inc." <brand@example.com>'
    assert found["Reply-To"] == "Help <help@example.com>"
    assert found["Message-ID"] == "<ref-0@example.com>"
    assert origin.return_path == "bounces@example.net"
    assert parse_origin(Origin("brand@example.com")).return_path == "brand@example.com"


@pytest.mark.parametrize("field", ["name", "address", "reply_to", "return_path"])
def test_no_part_of_an_origin_can_begin_another_header(field: str) -> None:
    origin = Origin("a@example.com", "A", "b@example.com", "c@example.com")
    for end in ("\r\n", "\n", "\r", "\0"):
        with pytest.raises(ValueError):
            parse_origin(replace(origin, **{field: f"x@example.com{end}Bcc: y@example.com"}))
