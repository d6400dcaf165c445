"""What a mail that comes back is: known forms are told apart, and no other bytes do harm."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.audience.bounces.kinds import of_bounce
from campaigns.audience.bounces.parser import MOST, parse
from campaigns.models import MessageEvent
from tests.audience.forms import FORMS, REFERENCE, written

KINDS = set(MessageEvent.Kind)
EVENTS = {name: form for name, form in FORMS.items() if form[1] in KINDS}


@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_told_apart_with_its_code(name: str) -> None:
    form, what, code = FORMS[name]
    found = parse(written(form))
    assert (found.what, found.code) == (what, code), found


@pytest.mark.parametrize("name", EVENTS)
def test_a_report_names_our_message_by_the_original_that_it_holds(name: str) -> None:
    if "REF" in EVENTS[name][0]:
        assert parse(written(EVENTS[name][0])).reference == REFERENCE


def test_lines_may_end_as_they_like_and_most_of_the_original_may_be_missing() -> None:
    for name, (form, what, code) in FORMS.items():
        found = parse(written(form).replace(b"\r\n", b"\n"))
        assert (found.what, found.code) == (what, code), name
    long = written(FORMS["postfix, unknown"][0]).replace(b"Dear Ann", b"Dear Ann " * MOST)
    assert parse(long).what == MessageEvent.Kind.HARD_BOUNCE


@pytest.mark.parametrize(
    "junk",
    [
        b"\0" * 1000,
        b"Content-Type: multipart/report; boundary=x\r\n\r\n" + b"--x\r\nContent-Type: message/rfc822\r\n\r\n" * 5000,
        b"".join(b"Content-Type: multipart/mixed; boundary=%d\r\n\r\n--%d\r\n" % (n, n) for n in range(5000)),
        b"From: mailer-daemon@x\r\nSubject: failure notice\r\n\r\n" + b"5." * MOST,
        b"From: mailer-daemon@x\r\nSubject: failure notice\r\n\r\n" + b"<a@b " * MOST,
        b"From: mailer-daemon@x\r\nSubject: failure notice\r\n\r\n" + b"user " * MOST,
        b"From: mailer-daemon@x\r\nSubject: failure notice\r\nX-Failed-Recipients: " + b"a@b, " * MOST,
        b"Subject: " + b"=?utf-8?q?=" * MOST,
        b"Content-Type: message/delivery-status\r\n\r\n" + b"Action: failed\r\n\r\n" * 9999,
        b"Content-Type: text/html\r\nFrom: mailer-daemon@x\r\n\r\n" + b"<" * MOST,
        b"Content-Type: multipart/report; boundary=\xff\xfe\r\nFrom: \xff\xfe\r\n\r\n--\xff\xfe",
        b'Content-Type: multipart/mixed; boundary="' + b";" * MOST,
        b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: multipart/mixed; a=" + b";" * MOST,
        b"".join(b"Content-Type: multipart/mixed; boundary=%d\n\n--%d\n" % (n, n) for n in range(250)) + b"--\n" * MOST,
        b"".join(b"Content-Type: multipart/mixed; boundary=%d\n\n--%d\n" % (n, n) for n in range(250)) + b"\n" * MOST,
        b"Content-Type: message/delivery-status\r\n\r\n" + b"\n" * MOST,
    ],
    ids=lambda junk: repr(junk[:40]),
)
def test_junk_is_read_in_bounded_time(junk: bytes) -> None:
    began = time.process_time()
    parse(junk)
    assert time.process_time() - began < 12  # seconds of a processor; it takes a fraction of one


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ("5.3.0", "554 5.3.0 Recipient's mail service unavailable"),
        ("5.0.0", "554 Recipient server closed connection unexpectedly"),
        ("5.0.0", "554 5.0.0 Service unavailable; mailbox server unavailable"),
        ("5.0.0", "550 5.0.0 Recipient rejected: invalid HELO name"),
        ("5.1.0", "550 5.1.0 Address rejected, unknown protocol error"),
        ("5.5.0", "550 5.5.0 message to this recipient has an invalid Message-ID header"),
        ("5.0.0", "554 5.0.0 Mailbox database unavailable"),
        ("5.0.0", "550 user account connection closed by remote host"),
        ("5.0.0", "550 The recipient's server rejected your message for an unknown reason"),
        ("4.4.1", "connect to 203.0.113.9: said 5.1.1 User unknown"),
        ("4.0.0", "550 5.1.1 User unknown"),
        ("", "450 <ann@example.org>: 5.1.1 User unknown"),
        ("", "550 4.2.1 User unknown"),
        ("5.0.0", "450 User unknown"),
        ("5.1.1", "552 5.1.1 mailbox over limit"),
        ("5.2.1", "550 5.2.1 mailbox over limit"),
        ("5.2.1", "550 5.2.1 user exceeded allotted space"),
        ("5.2.1", "550 5.2.1 This mailbox is receiving mail too often"),
        ("5.2.1", "550 5.2.1 The user's mailbox is under maintenance"),
        ("5.2.1", "550 5.2.1 user suspended"),
    ],
)
def test_what_does_not_say_that_nobody_is_there_is_not_hard(status: str, text: str) -> None:
    assert of_bounce(status, text)[0] in {MessageEvent.Kind.SOFT_BOUNCE, MessageEvent.Kind.BLOCKED}


@pytest.mark.parametrize(
    "text",
    [
        "550 Requested action not taken: mailbox unavailable",
        "550 The email account that you tried to reach is disabled",
        "550 User <ann@example.org> unknown",
        "550 Unknown user: ann@example.org",
        "550 No such user on this server",
        "550 This account is no longer available",
        "550 Recipient address rejected: User unknown in virtual mailbox table",
        "550 Recipient domain example.org not found",
        "550 Domain example.org not found (in reply to RCPT TO command)",
    ],
)
def test_what_says_that_nobody_is_there_is_hard(text: str) -> None:
    assert of_bounce("5.0.0", text)[0] == MessageEvent.Kind.HARD_BOUNCE


def test_a_domain_that_may_be_ours_does_not_make_a_bounce_hard() -> None:
    assert of_bounce("5.0.0", "550 Domain example.org not found")[0] == MessageEvent.Kind.BLOCKED


@settings(max_examples=300)
@given(st.binary(max_size=2000))
def test_no_bytes_make_an_error(junk: bytes) -> None:
    assert parse(junk).what not in {MessageEvent.Kind.COMPLAINT, MessageEvent.Kind.HARD_BOUNCE}


@settings(max_examples=300)
@given(st.sampled_from(sorted(FORMS)), st.data())
def test_no_damaged_report_makes_an_error(name: str, data: st.DataObject) -> None:
    mail = bytearray(written(FORMS[name][0]))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(mail)))
        if data.draw(st.booleans()):
            del mail[at : at + data.draw(st.integers(0, 200))]
        else:
            mail[at:at] = data.draw(st.binary(max_size=40))
    found = parse(bytes(mail))
    assert len(found.note) <= 255 and len(found.code) <= 20 and found.note.isprintable()
