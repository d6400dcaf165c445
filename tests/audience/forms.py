"""Mails that come back, after the published forms of those who write them. TO: where it went; REF: our reference."""

from campaigns.audience.bounces.parser import Other
from campaigns.models import MessageEvent

Kind = MessageEvent.Kind
REFERENCE = "00000000-002a-8abc-8def-0123456789ab-0"

ORIGINAL = """\
Return-Path: <TO>
Received: from mailhub by relay.example; Mon, 2 Mar 2026 10:00:00 +0000
Date: Mon, 2 Mar 2026 10:00:00 +0000
From: Velma <hello@brand.example>
To: ann@example.org
Subject: News
Message-ID: <REF@brand.example>
MIME-Version: 1.0
Content-Type: text/plain; charset=utf-8
"""


def report(
    status: str,
    *,
    sender: str = "MAILER-DAEMON@relay.example (Mail Delivery System)",
    subject: str = "Undelivered Mail Returned to Sender",
    written_text: str = "I'm sorry to have to inform you that your message could not\nbe delivered.",
    original: str = "message/rfc822",
    extra: str = "",
) -> str:
    return f"""\
Return-Path: <>
From: {sender}
To: TO
Subject: {subject}
Auto-Submitted: auto-replied
{extra}MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="B"

This is a MIME-encapsulated message.

--B
Content-Description: Notification
Content-Type: text/plain; charset=us-ascii

{written_text}

--B
Content-Description: Delivery report
Content-Type: message/delivery-status

Reporting-MTA: dns; relay.example
Arrival-Date: Mon,  2 Mar 2026 10:00:00 +0000 (UTC)

{status}

--B
Content-Description: Undelivered Message
Content-Type: {original}

{ORIGINAL}
Dear Ann
--B--
"""


def failed(status: str, diagnostic: str, action: str = "failed", **more: str) -> str:
    block = (
        f"Final-Recipient: rfc822; ann@example.org\nOriginal-Recipient: rfc822;ann@example.org\nAction: {action}\n"
        f"Status: {status}\nRemote-MTA: dns; mx.example.org\nDiagnostic-Code: {diagnostic}"
    )
    return report(block, **more)


def feedback(kind: str) -> str:
    return f"""\
From: feedback@arf.mail.yahoo.example
To: bounces@brand.example
Subject: FW: News
MIME-Version: 1.0
Content-Type: multipart/report; report-type=feedback-report; boundary="A"

--A
Content-Type: text/plain; charset=US-ASCII

This is an email abuse report for an email message received from brand.example

--A
Content-Type: message/feedback-report

Feedback-Type: {kind}
User-Agent: Yahoo!-Mail-Feedback/2.0
Version: 0.1
Original-Mail-From: <TO>
Original-Rcpt-To: ann@example.org
Reported-Domain: brand.example

--A
Content-Type: message/rfc822

{ORIGINAL}
Dear Ann
--A--
"""


def in_text(sender: str, subject: str, body: str, extra: str = "") -> str:
    return f"""\
From: {sender}
To: TO
Subject: {subject}
{extra}MIME-Version: 1.0
Content-Type: text/plain; charset=us-ascii

{body}"""


Expected = tuple[str, MessageEvent.Kind | Other, str]  # the mail, what it is, and its code
FORMS: dict[str, Expected] = {
    "a block list of which the answer gives the link alone": (
        failed("5.1.3", "smtp; 553 http://www.spamhaus.org/query/bl?ip=192.0.2.222"),
        Kind.BLOCKED,
        "5.1.3",
    ),
    "a relay whose name precedes its words": (
        failed(
            "5.4.4", "X-Outbound-Mail-Relay; Host or domain name not found. Name service error for name=example.org"
        ),
        Kind.HARD_BOUNCE,
        "5.4.4",
    ),
    "mimecast, with blanks before its colons": (
        report(
            "DISPLAY_DATE_FORMAT : EEE, dd MMM yyyy\nAction : failed\nStatus : 5.0.0\n"
            "Diagnostic-Code : smtp;550 5.1.1 User unknown\nRemote-MTA : example.org\n"
        ),
        Kind.HARD_BOUNCE,
        "5.1.1",
    ),
    "messagelabs, whose answer goes on at the beginning of lines": (
        report(
            "Last-Attempt-Date: Mon, 2 Mar 2026 10:00:00 +0000\n"
            "Diagnostic-Code: smtp; 550-Please turn on SMTP Authentication in your mail client.\n"
            "550-mx.example.org [198.51.100.21] is not permitted to\n550 relay through this server.\n"
            "Status: 5.0.0\nAction: failed\nFinal-Recipient: rfc822; ann@example.org"
        ),
        Kind.BLOCKED,
        "550",
    ),
    "exim at a hosting company, whose bounces call themselves answers": (
        in_text(
            '"Mail Delivery System" <mailer-daemon@kundenserver.example>',
            "Mail delivery failed: returning message to sender",
            "This message was created automatically by mail delivery software.\n\nThe following address(es)\nfailed:"
            "\n\n"
            "ann@example.org:\nSMTP error from remote server for RCPT TO command, host: mx.example.org (192.0.2.65) "
            "reason: 550 5.1.1\n User unknown\n\n--- The header of the original message is following. ---\n\n"
            + ORIGINAL,
            "Auto-Submitted: auto-replied\n",
        ),
        Kind.HARD_BOUNCE,
        "5.1.1",
    ),
    "exim, still trying, and it calls that an answer": (
        in_text(
            "Mail Delivery System <mailer-daemon@mx.example>",
            "Warning: message 1abc delayed 24 hours",
            "A message that you sent has not yet been delivered.\n    Delay reason: SMTP error after MAIL FROM:\n"
            "    450 later\n",
            "Auto-Submitted: auto-replied\n",
        ),
        "delayed",
        "450",
    ),
    "exim, refused at MAIL, so whatever does not exist is no recipient": (
        in_text(
            "Mail Delivery System <mailer-daemon@mx.example>",
            "Mail delivery failed: returning message to sender",
            "The following address(es) failed:\n\n  ann@example.org\n    SMTP error from remote mail server after "
            "MAIL FROM:<TO> SIZE=1022:\n    553 5.1.0 neko brand.example does not exist E2110\n\n",
        ),
        Kind.BLOCKED,
        "5.1.0",
    ),
    "postfix, whose line ends after the code": (
        in_text(
            "MAILER-DAEMON@relay.example (Mail Delivery System)",
            "Undelivered Mail Returned to Sender",
            "<ann@example.org>: host\n    mx.example.org[192.0.2.22] said: 550\n    <ann@example.org>: User unknown\n",
        ),
        Kind.HARD_BOUNCE,
        "550",
    ),
    "imail, without any code": (
        in_text(
            '"Postmaster" <postmaster@mx.example>',
            "Undeliverable Mail",
            "Unknown user: ann@example.org\n\n\nOriginal.\n",
        ),
        Kind.HARD_BOUNCE,
        "",
    ),
    "imail, a full mailbox, without any code": (
        in_text(
            "<postmaster@mx.example>", "Undeliverable Mail", "User mailbox exceeds allowed size: ann@example.org\n"
        ),
        Kind.SOFT_BOUNCE,
        "",
    ),
    "a postmaster who writes himself": (
        in_text("<postmaster@mx.example>", "Our mail server moves", "Dear customers, we move tonight.\n"),
        "not_a_report",
        "",
    ),
    "lotus notes, without any code": (
        in_text(
            "POSTMASTER@mx.example",
            "Undeliverable message",
            "------- Failure Reasons  --------\n\nUser ann not listed in public Name & Address Book\nann@example.org\n",
        ),
        Kind.HARD_BOUNCE,
        "",
    ),
    "exchange online, which quotes a server without a code of RFC 3463": (
        failed(
            "5.1.351",
            "smtp; 550 5.1.351 Remote server returned unknown recipient or mailbox unavailable -> "
            "550 <ann@example.org>: User unknown",
        ),
        Kind.HARD_BOUNCE,
        "550",
    ),
    "exchange online, which quotes a full mailbox": (
        failed(
            "5.1.351", "smtp; Remote server returned unknown recipient or mailbox unavailable -> 552 5.2.2 mailbox full"
        ),
        Kind.SOFT_BOUNCE,
        "5.2.2",
    ),
    "a report whose boundary a relay has changed": (
        failed("5.1.1", "smtp; 550 5.1.1 <ann@example.org>: User unknown").replace('boundary="B"', 'boundary="C"'),
        Kind.HARD_BOUNCE,
        "5.1.1",
    ),
    "opensmtpd, still trying": (
        in_text(
            "Mailer Daemon <MAILER-DAEMON@mx.example>",
            "Delivery status notification: warning",
            "    A message is delayed for more than 10 minutes for the following\n    list of recipients:\n\n"
            "ann@example.org: Network error on destination MXs\n\n    Please note that this is only a temporary "
            "failure\n    report.\n",
        ),
        "delayed",
        "",
    ),
    "apple mail, with which a person unsubscribes": (
        in_text(
            "Ann <ann@example.org>",
            "unsubscribe",
            "Apple Mail sent this email to unsubscribe.\n",
            "Auto-Submitted: auto-replied\nX-Apple-Unsubscribe: true\n",
        ),
        "not_a_report",
        "",
    ),
    "postfix, unknown": (
        failed("5.1.1", "smtp; 550 5.1.1 <ann@example.org>: Recipient address rejected: User unknown"),
        Kind.HARD_BOUNCE,
        "5.1.1",
    ),
    "postfix, full for days": (
        failed("4.2.2", "smtp; 452 4.2.2 <ann@example.org>: Recipient mailbox is full"),
        Kind.SOFT_BOUNCE,
        "4.2.2",
    ),
    "postfix, delayed": (
        failed("4.4.1", "X-Postfix; connect to mx.example.org[192.0.2.1]:25: Connection timed out", "delayed"),
        "delayed",
        "4.4.1",
    ),
    "postfix, delivered": (failed("2.0.0", "smtp; 250 2.0.0 OK", "delivered"), "other_report", ""),
    "postfix, no such domain": (
        failed("5.4.4", "X-Postfix; Host or domain name not found. Name service error for name=x.example type=AAAA"),
        Kind.HARD_BOUNCE,
        "5.4.4",
    ),
    "postfix, headers only": (
        failed("5.1.1", "smtp; 550 5.1.1 User unknown", original="text/rfc822-headers"),
        Kind.HARD_BOUNCE,
        "5.1.1",
    ),
    "full, though 5.x": (
        failed("5.2.2", "smtp; 552 5.2.2 The email account that you tried to reach is over quota."),
        Kind.SOFT_BOUNCE,
        "5.2.2",
    ),
    "unknown by its code, full by its text": (
        failed("5.1.1", "smtp; 550 5.1.1 mailbox full"),
        Kind.SOFT_BOUNCE,
        "5.1.1",
    ),
    "gmail, unknown": (
        failed(
            "5.1.1",
            "smtp; 550-5.1.1 The email account that you tried to reach does not exist. Please try\n"
            " 550-5.1.1 double-checking the recipient's email address for typos or\n"
            " 550 5.1.1 unnecessary spaces. For more information, go to\n"
            " https://support.google.com/mail/?p=NoSuchUser x si1234.5 - gsmtp",
            sender="Mail Delivery Subsystem <mailer-daemon@googlemail.com>",
            subject="Delivery Status Notification (Failure)",
            extra="X-Failed-Recipients: ann@example.org\n",
        ),
        Kind.HARD_BOUNCE,
        "5.1.1",
    ),
    "gmail, too fast": (
        failed("5.2.1", "smtp; 550 5.2.1 The user you are trying to contact is receiving mail at a rate that prevents"),
        Kind.SOFT_BOUNCE,
        "5.2.1",
    ),
    "gmail, not authenticated": (
        failed("5.7.26", "smtp; 550-5.7.26 This mail has been blocked because the sender is unauthenticated."),
        Kind.BLOCKED,
        "5.7.26",
    ),
    "gmail, as spam": (
        failed("5.7.1", "smtp; 550 5.7.1 Our system has detected that this message is likely unsolicited mail."),
        Kind.BLOCKED,
        "5.7.1",
    ),
    "exchange, unknown": (
        failed(
            "5.1.10",
            "smtp;550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup",
            sender="Microsoft Outlook <MicrosoftExchange329e71ec88ae4615bbc36ab6ce41109e@example.org>",
            subject="Undeliverable: News",
        ),
        Kind.HARD_BOUNCE,
        "5.1.10",
    ),
    "exchange, unknown at its edge": (
        failed("5.4.1", "smtp;550 5.4.1 Recipient address rejected: Access denied. AS(201806281)"),
        Kind.HARD_BOUNCE,
        "5.4.1",
    ),
    "exchange, expired": (
        failed("5.4.300", "smtp;550 5.4.300 Message expired -> 451 4.4.0 Remote server did not answer"),
        Kind.SOFT_BOUNCE,
        "5.4.300",
    ),
    "exchange, list of blocked senders": (
        failed("5.7.606", "smtp;550 5.7.606 Access denied, banned sending IP [192.0.2.9]. To request removal"),
        Kind.BLOCKED,
        "5.7.606",
    ),
    "outlook.com, unknown": (
        failed("5.5.0", "smtp;550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302)."),
        Kind.HARD_BOUNCE,
        "5.5.0",
    ),
    "yahoo, unknown, without a code of its own": (
        failed(
            "5.0.0",
            "smtp; 554 delivery error: dd This user doesn't have a yahoo.com account (ann@yahoo.example) [0] - mta1",
        ),
        Kind.HARD_BOUNCE,
        "554",
    ),
    "yahoo, disabled": (
        failed("5.0.0", "smtp; 554 30 Sorry, your message cannot be delivered. This mailbox is disabled (554.30)."),
        Kind.HARD_BOUNCE,
        "554",
    ),
    "too large": (failed("5.3.4", "smtp; 552 5.3.4 Message size exceeds fixed limit"), Kind.BLOCKED, "5.3.4"),
    "no reason": (failed("5.0.0", "smtp; 550 Denied"), Kind.SOFT_BOUNCE, "550"),
    "sendmail, reason in words only": (
        report(
            "Final-Recipient: RFC822; ann@example.org\nAction: failed\nStatus: 5.1.1",
            written_text="   ----- The following addresses had permanent fatal errors -----\n<ann@example.org>\n"
            "    (reason: 550 5.1.1 <ann@example.org>... User unknown)",
        ),
        Kind.HARD_BOUNCE,
        "5.1.1",
    ),
    "opensmtpd": (
        failed("5.0.0", "smtp; 550 Invalid recipient: <ann@example.org>", "error"),
        Kind.HARD_BOUNCE,
        "550",
    ),
    "one of two recipients failed": (
        report(
            "Final-Recipient: rfc822; a@example.org\nAction: delayed\nStatus: 4.0.0\n\n"
            "Final-Recipient: rfc822; b@example.org\nAction: failed\nStatus: 5.1.1"
        ),
        Kind.HARD_BOUNCE,
        "5.1.1",
    ),
    "exim, in words": (
        in_text(
            "Mail Delivery System <Mailer-Daemon@mx.example.org>",
            "Mail delivery failed: returning message to sender",
            "This message was created automatically by mail delivery software.\n\nA message that you sent could not be "
            "delivered to one or more of its\nrecipients. This is a permanent error. The following address(es) failed:"
            "\n\n  ann@example.org\n    Unrouteable address\n\n"
            f"------ This is a copy of the message, including all the headers. ------\n\n{ORIGINAL}\nDear Ann\n",
            "X-Failed-Recipients: ann@example.org\nAuto-Submitted: auto-replied\n",
        ),
        Kind.HARD_BOUNCE,
        "",
    ),
    "exim, the remote server's words": (
        in_text(
            "Mail Delivery System <Mailer-Daemon@mx.example.org>",
            "Mail delivery failed: returning message to sender",
            "This message was created automatically by mail delivery software.\n\n  ann@example.org\n"
            "    SMTP error from remote mail server after RCPT TO:<ann@example.org>:\n"
            "    host mx.example.org [192.0.2.1]: 550 5.1.1 User unknown\n\n"
            f"------ This is a copy of the message, including all the headers. ------\n\n{ORIGINAL}\n",
            "X-Failed-Recipients: ann@example.org\nAuto-Submitted: auto-replied\n",
        ),
        Kind.HARD_BOUNCE,
        "5.1.1",
    ),
    "exim, a warning": (
        in_text(
            "Mail Delivery System <Mailer-Daemon@mx.example.org>",
            "Warning: message 1abc-0001-AB delayed 24 hours",
            "This message was created automatically by mail delivery software.\nA message that you sent has not yet "
            "been delivered to one or more of its\nrecipients after more than 24 hours on the queue on mx.example.org."
            "\n\n  ann@example.org\n    Delay reason: Connection timed out\n",
        ),
        "delayed",
        "",
    ),
    "qmail": (
        in_text(
            "MAILER-DAEMON@mx.example.org",
            "failure notice",
            "Hi. This is the qmail-send program at mx.example.org.\nI'm afraid I wasn't able to deliver your message "
            "to the following addresses.\nThis is a permanent error; I've given up. Sorry it didn't work out.\n\n"
            "<ann@example.org>:\nSorry, no mailbox here by that name. (#5.1.1)\n\n"
            f"--- Below this line is a copy of the message.\n\n{ORIGINAL}\nDear Ann\n",
        ),
        Kind.HARD_BOUNCE,
        "5.1.1",
    ),
    "qmail, full": (
        in_text(
            "MAILER-DAEMON@mx.example.org",
            "failure notice",
            "Hi. This is the qmail-send program at mx.example.org.\nI'm afraid I wasn't able to deliver your message.\n"
            "\n<ann@example.org>:\n192.0.2.1 does not like recipient.\nRemote host said: 552 mailbox is full\n\n"
            f"--- Below this line is a copy of the message.\n\n{ORIGINAL}",
        ),
        Kind.SOFT_BOUNCE,
        "552",
    ),
    "qmail, no reason": (
        in_text(
            "MAILER-DAEMON@mx.example.org",
            "failure notice",
            "Hi. This is the qmail-send program at mx.example.org.\nI'm afraid I wasn't able to deliver your message.\n"
            "\n<ann@example.org>:\nSomething happened.\n\n"
            f"--- Below this line is a copy of the message.\n\n{ORIGINAL}",
        ),
        Kind.SOFT_BOUNCE,
        "",
    ),
    "yahoo, feedback": (feedback("abuse"), Kind.COMPLAINT, ""),
    "feedback that it is no spam": (feedback("not-spam"), "other_report", ""),
    "feedback about fraud": (feedback("fraud"), "complaint", ""),
    "outlook.com, feedback": (
        f"From: staff@hotmail.com\nTo: bounces@brand.example\nSubject: complaint about message from 192.0.2.9\n"
        f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="J"\n\n--J\nContent-Type: message/rfc822\n\n'
        f"X-HmXmrOriginalRecipient: ann@example.org\n{ORIGINAL}\nDear Ann\n--J--\n",
        Kind.COMPLAINT,
        "",
    ),
    "out of office": (
        in_text(
            "Ann <ann@example.org>",
            "Automatic reply: News",
            "I am away. For urgent matters the address bob@example.org does not exist any more: 550 5.1.1.\n",
            "Auto-Submitted: auto-replied\nX-Auto-Response-Suppress: All\n",
        ),
        "auto_reply",
        "",
    ),
    "vacation, by its subject only": (
        in_text("Ann <ann@example.org>", "Abwesenheitsnotiz", "Ich bin im Urlaub.\n"),
        "auto_reply",
        "",
    ),
    "challenge": (
        in_text(
            "Ann <ann@example.org>", "Please confirm your message", "Answer this mail to prove that you are one.\n"
        ),
        "not_a_report",
        "",
    ),
    "a person answers": (
        in_text("Ann <ann@example.org>", "Re: News", f"Thank you! 550 5.1.1 is a code.\n\n> {ORIGINAL}"),
        "not_a_report",
        "",
    ),
    "a person answers a mail about delivery": (
        in_text(
            "Bob <bob@example.org>",
            "Re: Your delivery status",
            "This mail account is no longer in use. Call me at +49 555 123 or 800-555-1234.\n",
        ),
        "not_a_report",
        "",
    ),
    "a robot answers a mail about delivery": (
        in_text(
            "Bob <bob@example.org>",
            "Re: Mail delivery",
            "I have left; this address is no longer in use. New: 500 Main Street\n",
            "Auto-Submitted: auto-generated\n",
        ),
        "not_a_report",
        "",
    ),
    "a postmaster's telephone": (
        in_text(
            "postmaster@example.org",
            "Re: Spring news",
            "This mailbox is no longer monitored. Please call 555 1234.\n",
        ),
        "not_a_report",
        "",
    ),
    "delayed, in German": (
        in_text(
            "MAILER-DAEMON@mx.example.org",
            "Verzoegerte Zustellung (Delivery Status Notification)",
            "Ihre Nachricht konnte seit 4 Stunden nicht zugestellt werden. Der Server versucht es weiter.\n"
            "550 5.1.1 ann@example.org\n",
        ),
        "delayed",
        "5.1.1",
    ),
    "delayed, in French": (
        in_text(
            "MAILER-DAEMON@mx.example.org",
            "Delivery Status Notification",
            "La remise est retard\u00e9e. Une nouvelle tentative suivra.\n550 5.1.1 ann@example.org\n",
        ),
        "delayed",
        "5.1.1",
    ),
    "empty": ("", "not_a_report", ""),
}


def written(form: str, to: str = "bounces@brand.example", reference: str = REFERENCE) -> bytes:
    """The mail as it comes over SMTP, about this message."""
    return form.replace("TO", to).replace("REF", reference).replace("\n", "\r\n").encode()
