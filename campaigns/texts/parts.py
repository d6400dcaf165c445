"""Checks what a campaign's letters have besides subject and body, for every door alike.

Faults are yielded or raised as sentences for the user. Nothing is stored here.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from campaigns.texts import plain_text
from campaigns.texts.headers import SHOWS, check_value, compile_header
from campaigns.texts.templates import TemplateError
from vendors import adapters
from vendors.adapters import mime
from vendors.adapters.base import Adapter
from vendors.said import Said

IMAGE = re.compile(r"""["'(=]\s*cid:([^"')\s>{]+)""", re.IGNORECASE)
MOST_HEADERS = 20
IMAGES = "images"
PARTS = {
    "text": Said("a text beside the HTML"),
    "headers": Said("further headers"),
    "attachments": Said("files"),
    IMAGES: Said("images within the HTML"),
}
# Sender, recipient and trace headers are not the campaign's to set, nor those that mailhub signs or links.
RESERVED = mime.OURS | {
    *("sender", "reply-to", "cc", "bcc", "return-path", "received", "delivered-to", "authentication-results"),
    *("dkim-signature", "list-unsubscribe", "list-unsubscribe-post", "errors-to", "apparently-to", "envelope-to"),
}
RESERVED_BEGINNINGS = ("content-", "resent-", "arc-", "x-mailhub-")


def carried_by(adapter: str, settings: Any) -> frozenset[str]:
    """Return which of PARTS a vendor with this adapter and these settings carries."""
    try:
        return parts_carried(adapters.load(adapter), settings)
    except (LookupError, ImportError, ValueError):
        return frozenset()  # other faults of the settings are reported where the adapter is used


def parts_carried(adapter: type[Adapter], settings: Any) -> frozenset[str]:
    """Return which of PARTS this adapter carries with these settings. Raises ValueError."""
    found = adapter.carries(settings)
    return found | {IMAGES} if "attachments" in found and adapter.shows_images(settings) else found


def shows_images(body: str, html: bool) -> bool:
    return html and IMAGE.search(body) is not None


def check_carried(needs: Iterable[str], carried: frozenset[str], vendor: str) -> None:
    """Raise TemplateError if a campaign needs a part its vendor does not carry. vendor: its slug."""
    missing = [PARTS[name] for name in PARTS if name in set(needs) - carried]
    if missing:
        raise TemplateError(
            Said(
                "the vendor %(vendor)s does not carry %(names)s: its adapter or settings say so",
                vendor=vendor,
                names=Said.join_either(missing),
            )
        )


def text_beside(body: str, html: bool, given: str, carried: frozenset[str]) -> str:
    """Return the text beside an HTML body, as a template: the given one, or one made from the HTML if the vendor
    carries it.

    Raises TemplateError if a text is given beside a text body, or if none can be made.
    """
    if given.strip():
        if not html:
            raise TemplateError(Said("a text goes beside an HTML body, and this body is a text itself"))
        return given
    return plain_text.made_from(body) if html and "text" in carried else ""


def header_faults(headers: Sequence[tuple[str, str]]) -> Iterator[tuple[int, str]]:
    """Yield the faults of headers, each with the header's index."""
    seen: set[str] = set()
    for index, (name, value) in enumerate(headers):
        known = name.strip().lower()
        if index >= MOST_HEADERS:
            yield index, Said("a campaign may have %(most)s headers", most=MOST_HEADERS)
            return
        if known in RESERVED or known.startswith(RESERVED_BEGINNINGS):
            yield index, Said("the header %(name)s is mailhub's own", name=name)
        elif known in seen:
            yield index, Said("the header %(name)s is there twice", name=name)
        else:
            try:
                check_value(name, value)
                if SHOWS.search(value):
                    compile_header(name, value)
            except TemplateError as error:
                yield index, str(error)
        seen.add(known)


def parse_header(line: str) -> tuple[str, str]:
    """Reads `Name: value`. Raises TemplateError."""
    name, colon, value = line.partition(":")
    if not colon:
        raise TemplateError(Said("%(name)s is no header; write it like 'Precedence: bulk'", name=repr(line[:80])))
    return name.strip(), value.strip()


def image_faults(body: str, html: bool, cids: Iterable[str]) -> Iterator[str]:
    """Yield images given but not shown in the body, and images shown but not given. cids: of the given images."""
    given = set(filter(None, cids))
    shown = set(IMAGE.findall(body)) if html else set()
    if given and not html:
        yield Said("only an HTML body can show images")
        return
    for cid in sorted(given - shown):
        yield Said("the HTML shows no cid:%(name)s", name=cid)
    for cid in sorted(shown - given):
        yield Said("the HTML shows cid:%(name)s, and there is no such image", name=cid)
