"""Checks that each mail is as small as the vendor takes it, before anything is stored.

The texts are encoded as the mail will be. Files are counted in the size that base64 gives them, and are not read.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from campaigns.texts.templates import Budget, Content, TemplateError, Values
from vendors import adapters
from vendors.adapters import mime_parts
from vendors.said import Said, gettext_noop

HEAD = 2_000  # bytes for the headers
SMALL = 16  # a text of less than this share of the limit cannot reach it, unless its fields are large
TOO_LARGE = gettext_noop("the mail would have %(size)s bytes, and the vendor takes %(most)s")
FileSizes = Callable[[Values], int]


def largest_mail(adapter: str, settings: Any, relay_size: int | None = None) -> int:
    """Return the bytes of a mail that a vendor takes with this adapter and these settings; 0: unknown.

    relay_size: the one that it said itself (Credential.relay_size). The smaller one counts.
    """
    try:
        stated = adapters.load(adapter).largest_mail(settings)
    except (LookupError, ImportError, ValueError):
        stated = 0  # other faults of the settings are reported where the adapter is used
    return min(filter(None, (stated, relay_size)), default=0)


def check_size(content: Content, html: bool, files: FileSizes | None, limits: Iterable[int]) -> Content:
    """Return the content with the size of each recipient's mail checked.

    files: the bytes of a recipient's files. limits: of the vendors that the campaign may go by; 0: unknown.
    """
    most = min((one for one in limits if one), default=0)
    if not most:
        return content
    source = content.source
    fixed = HEAD + (len(source.body.encode()) + len(source.text.encode()) if source else most)
    before = content.further

    def find_size_faults(recipient: str, fields: Values, budget: Budget | None) -> Iterator[str]:
        yield from before(recipient, fields, budget) if before else ()  # which looks for the files
        attached = mime_parts.encoded_size(files(fields)) if files else 0
        given = sum(len(one) if isinstance(one, str) else len(str(one)) for one in fields.values())
        if attached > most or (fixed + given) * SMALL + attached > most:
            size = HEAD + attached + _size_of_texts(content, html, recipient, fields, budget)
            if size > most:
                yield Said(TOO_LARGE, size=size, most=most)

    return replace(content, further=find_size_faults)


def _size_of_texts(content: Content, html: bool, recipient: str, fields: Values, budget: Budget | None) -> int:
    try:
        _, body, text = content.render_letter(recipient, fields, budget)
    except (TemplateError, LookupError):
        return 0  # reported by the check of the fields
    beside = len(mime_parts.text_part(text, "plain")) if text else 0
    return beside + len(mime_parts.text_part(body, "html" if html else "plain"))
