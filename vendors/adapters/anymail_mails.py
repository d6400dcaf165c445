"""Converts a letter into a Django mail, from which django-anymail builds requests."""

from __future__ import annotations

import re
from email.encoders import encode_base64
from email.mime.base import MIMEBase

import idna
from django.core.mail import EmailMultiAlternatives

from vendors.adapters.anymail_reports import REFERENCE
from vendors.adapters.base import Attachment, Letter
from vendors.adapters.letter_faults import LetterFault, LetterPart

_ONE_LINE = re.compile(r"[^\r\n\0]*")
_SEVERAL = re.compile(r"[,;<>\s\0]")


def make_mail(letter: Letter, reference: str) -> EmailMultiAlternatives:
    """Return the letter as a mail, with our reference as metadata, as a tag, or (`none`) without it.

    Raises ValueError for text that could add another recipient or header.
    """
    origin = letter.origin
    if origin is None:
        raise LetterFault(LetterPart.SENDER, "there is no sender identity")
    if _SEVERAL.search(letter.recipient):
        raise LetterFault(LetterPart.ADDRESS, "the recipient is not one address")
    lines = [
        letter.subject,
        origin.name,
        origin.address,
        origin.reply_to,
        *(text for one in letter.headers for text in one),
    ]
    if not all(_ONE_LINE.fullmatch(one) for one in lines):
        raise LetterFault(LetterPart.HEADER, "a header has more than one line")
    name = origin.name.replace("\\", "\\\\").replace('"', '\\"')
    message = EmailMultiAlternatives(
        subject=letter.subject,
        body=letter.text if letter.html else letter.body,
        from_email=f'"{name}" <{origin.address}>' if name else origin.address,
        to=[_domain_in_ascii(letter.recipient)],
        reply_to=[origin.reply_to] if origin.reply_to else None,
        headers={one[0]: one[1] for one in letter.headers},
    )
    if letter.html:
        message.attach_alternative(letter.body, "text/html")
    for one in letter.attachments:
        message.attach(_make_part(one))
    if reference == "metadata":
        message.metadata = {REFERENCE: letter.reference}  # type: ignore[attr-defined]
    elif reference == "tag":
        message.tags = [letter.reference]  # type: ignore[attr-defined]
    return message


def _domain_in_ascii(address: str) -> str:
    """Return the address with its domain in ASCII, as services return it. Raises ValueError."""
    local, _, domain = address.rpartition("@")
    return address if domain.isascii() else f"{local}@{idna.encode(domain, uts46=True).decode()}"


def _make_part(one: Attachment) -> MIMEBase:
    part = MIMEBase(*one.content_type.partition("/")[::2])
    part.set_payload(one.content)
    if part.get_content_maintype() == "text":  # django-anymail decodes it
        try:
            one.content.decode(str(part.get_content_charset("utf-8")))
        except (UnicodeError, LookupError):
            part.set_param("charset", "iso-8859-1")  # accepts any bytes
    encode_base64(part)
    part.add_header("Content-Disposition", "inline" if one.cid else "attachment", filename=one.name)
    if one.cid:
        part.add_header("Content-ID", f"<{one.cid}>")
    return part
