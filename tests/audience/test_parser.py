"""What a mail that comes back is: known forms are told apart, and no other bytes do harm."""

import time
from base64 import b64encode
from email.header import Header

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.audience.bounces.kinds import classify_bounce
from campaigns.audience.bounces.parser import MOST, parse_bounce
from campaigns.models import MessageEvent
from tests.audience.forms import FORMS, REFERENCE, failed, feedback, in_text, written

KINDS = set(MessageEvent.Kind)
EVENTS = {name: form for name, form in FORMS.items() if form[1] in KINDS}


@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_told_apart_with_its_code(name: str) -> None:
    form, what, code = FORMS[name]
    found = parse_bounce(written(form))
    assert (found.what, found.code) == (what, code), found


@pytest.mark.parametrize("name", EVENTS)
def test_a_report_names_our_message_by_the_original_that_it_holds(name: str) -> None:
    if "REF" in EVENTS[name][0]:
        assert parse_bounce(written(EVENTS[name][0])).reference == REFERENCE


def test_lines_may_end_as_they_like_and_most_of_the_original_may_be_missing() -> None:
    for name, (form, what, code) in FORMS.items():
        found = parse_bounce(written(form).replace(b"\r\n", b"\n"))
        assert (found.what, found.code) == (what, code), name
    long = written(FORMS["postfix, unknown"][0]).replace(b"Dear Ann", b"Dear Ann " * MOST)
    assert parse_bounce(long).what == MessageEvent.Kind.HARD_BOUNCE


# As Exchange, Gmail and others begin the subject of an automatic answer.
AUTOMATIC = [
    *("Automatic reply: News", "Automatische Antwort: News", "Automatisch antwoord: nieuws", "Automatisk svar: Nyt"),
    *("Autosvar: Nyheter", "Automatiskt svar: Nyheter", "Automaattinen vastaus: x", "Odpowiedź automatyczna: x"),
    *("Automatická odpověď: x", "Resposta automática: x", "Respuesta automática: x", "Réponse automatique : x"),
    *("Risposta automatica: x", "Автоответ: x", "自動応答: x", "自动答复: x", "Otomatik yanıt: x", "OOO Re: x"),
    *("Absence du bureau : x", "Fuera de la oficina: x", "Fuori ufficio: x", "I'm out of the office", "Afwezig: x"),
    *("Currently out of office Re: News", "Away from the office", "On vacation Re: x", "Ikke på kontoret"),
]


@pytest.mark.parametrize("subject", AUTOMATIC)
def test_an_automatic_answer_is_known_by_its_subject_in_any_language(subject: str) -> None:
    shown = in_text("Ann <ann@example.org>", Header(subject).encode(), "I am away until Monday.\n")
    assert parse_bounce(written(shown)).what == "auto_reply"


OURS = "bounces+abc12@brand.example"
# Words of a DSN that has come to OURS, and whether they speak of us.
QUOTED = [
    (f"550 5.1.1 <{OURS}>: User unknown", True),
    (f"550 5.1.8 {OURS.upper()}: does not exist", True),
    (f"553 5.1.3 ({OURS}), no such mailbox", True),
    ("550 5.1.1 <ann@example.org>: User unknown", False),
    (f"550 5.1.1 <ann@example.org>: User unknown (from <{OURS}>)", False),
    ("550 5.1.1 <bounces@brand.example>: User unknown", False),
    ("550 5.1.1 User unknown", False),
    (f"552 5.2.2 mailbox full, {OURS}", False),
]


@pytest.mark.parametrize(("said", "is_ours"), QUOTED)
def test_words_that_quote_our_return_path_alone_are_about_us(said: str, is_ours: bool) -> None:
    kind = failed(said.split()[1], f"smtp; {said}")
    found = parse_bounce(written(kind, OURS), [OURS, "other@brand.example"])
    assert (found.cause, found.what == MessageEvent.Kind.BLOCKED) == ("us" if is_ours else "", is_ours)
    prose = in_text("MAILER-DAEMON@mx.example", "Undelivered Mail", f"The server said:\n{said}\n")
    assert parse_bounce(written(prose, OURS), [OURS]).cause == ("us" if is_ours else "")
    assert parse_bounce(written(kind, OURS)).cause == ""


LATE = [
    *("Entrega retrasada", "Todavía no se ha entregado el mensaje", "Consegna ritardata", "Bezorging vertraagd"),
    *("Задержка доставки", "Entrega atrasada", "A mensagem ainda não foi entregue", "配信が遅延しています", "邮件延迟"),
    *(
        "Opóźnione: News",
        "Leveransen är försenad",
        "Forsinket: News",
        "Viivästynyt: News",
        "Zpožděno: News",
        "배달 지연",
    ),
]


@pytest.mark.parametrize("subject", LATE)
def test_a_warning_in_prose_is_no_bounce_in_any_language(subject: str) -> None:
    shown = in_text("MAILER-DAEMON@mx.example", Header(subject).encode(), "ann@example.org: 451 4.4.1 timeout\n")
    assert parse_bounce(written(shown)).what == "delayed"


@pytest.mark.parametrize("prefix", ["Fwd:", "FW:", "WG:", "Re:", "TR :", "RV:", "转发："])
def test_a_person_who_passes_a_bounce_on_is_no_mail_server(prefix: str) -> None:
    said = "See below.\n550 5.1.1 <ann@example.org>: User unknown\n"
    shown = in_text("Bob <bob@example.org>", Header(f"{prefix} Undelivered Mail").encode(), said)
    assert parse_bounce(written(shown)).what == "not_a_report"


@pytest.mark.parametrize(
    "header",
    [
        "Auto-Submitted: auto-generated",
        "Auto-Submitted: (by a rule) auto-replied (vacation)",
        "X-Mail-Autoreply: yes",
        "X-Autogenerated: Reply",
        "X-MS-Exchange-Generated-Message-Source: Mailbox Rules Agent",
    ],
)
def test_an_automatic_answer_is_known_by_its_headers(header: str) -> None:
    assert (
        parse_bounce(written(in_text("Ann <ann@example.org>", "Re: News", "Away.\n", f"{header}\n"))).what
        == "auto_reply"
    )


@pytest.mark.parametrize("subject", ["Automatic payments", "Office party", "Re: your vacation offer", "Ooops"])
def test_a_person_is_no_machine_by_a_subject(subject: str) -> None:
    assert parse_bounce(written(in_text("Ann <ann@example.org>", subject, "Hello.\n"))).what == "not_a_report"


def packed(form: str, kind: str) -> str:
    """Return a form whose report stands in base64 (RFC 6533 permits it)."""
    before, after = form.split(f"Content-Type: {kind}\n\n")
    report, rest = after.split("\n--", 1)
    packed = b64encode(report.encode()).decode()
    return f"{before}Content-Type: {kind}\nContent-Transfer-Encoding: base64\n\n{packed}\n\n--{rest}"


def test_a_report_is_read_in_base64_and_with_comments() -> None:
    complaint = parse_bounce(written(packed(feedback("abuse"), "message/feedback-report")))
    assert (complaint.what, complaint.reference) == (MessageEvent.Kind.COMPLAINT, REFERENCE)
    assert parse_bounce(written(feedback("abuse (by its button)"))).what == MessageEvent.Kind.COMPLAINT
    bounced = failed("5.1.1", "smtp; 550 5.1.1 User unknown")
    found = parse_bounce(written(packed(bounced, "message/delivery-status")))
    assert (found.what, found.code) == (MessageEvent.Kind.HARD_BOUNCE, "5.1.1")
    assert parse_bounce(written(bounced.replace("Action: failed\n", ""))).what == MessageEvent.Kind.HARD_BOUNCE
    delayed = failed("4.4.7", "smtp; 451 4.4.1 timeout").replace("Action: failed\n", "")
    assert parse_bounce(written(delayed)).what == "delayed"


@pytest.mark.parametrize(
    "subject",
    [
        "No se puede entregar: hola",
        "Non remis : été",
        "Недоставленное сообщение: x",
        "配信不能: x",
        "Unzustellbar: Größe",
    ],
)
def test_prose_about_a_returned_mail_is_known_by_its_subject_in_any_language(subject: str) -> None:
    form = in_text("admin@example.org", Header(subject).encode(), "550 5.1.1 ann@example.org\n")
    assert parse_bounce(written(form)).what == MessageEvent.Kind.HARD_BOUNCE


def test_a_servers_words_are_read_in_their_charset() -> None:
    form = in_text("MAILER-DAEMON@mx.example.org", "failure notice", "550 5.1.1 Empf\u00e4nger unbekannt\n")
    raw = written(form).decode().replace("us-ascii", "iso-8859-1").encode("iso-8859-1")
    assert parse_bounce(raw).note == "550 5.1.1 Empf\u00e4nger unbekannt"


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
    parse_bounce(junk)
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
        ("5.1.1", "450 4.2.0 <ann@example.org>: Recipient address rejected: Delayed by Postgrey"),
    ],
)
def test_what_does_not_say_that_nobody_is_there_is_not_hard(status: str, text: str) -> None:
    assert classify_bounce(status, text).kind in {MessageEvent.Kind.SOFT_BOUNCE, MessageEvent.Kind.BLOCKED}


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
    assert classify_bounce("5.0.0", text).kind == MessageEvent.Kind.HARD_BOUNCE


def test_a_domain_that_may_be_ours_does_not_make_a_bounce_hard() -> None:
    assert classify_bounce("5.0.0", "550 Domain example.org not found").kind == MessageEvent.Kind.BLOCKED


@settings(max_examples=300)
@given(st.binary(max_size=2000))
def test_no_bytes_make_an_error(junk: bytes) -> None:
    assert parse_bounce(junk).what not in {MessageEvent.Kind.COMPLAINT, MessageEvent.Kind.HARD_BOUNCE}


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
    found = parse_bounce(bytes(mail))
    assert len(found.note) <= 255 and len(found.code) <= 20 and found.note.isprintable()
