"""What a campaign's letters have beside subject and body: checked for every door by the same functions.

Each returns or raises sentences for the user; nothing is stored by them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from campaigns.content import plain_text
from campaigns.content.headers import SHOWS, check_value, compiled
from campaigns.content.templates import TemplateError
from vendors import adapters
from vendors.adapters import mime
from vendors.adapters.base import Adapter

IMAGE = re.compile(r"""["'(=]\s*cid:([^"')\s>{]+)""", re.IGNORECASE)
MOST_HEADERS = 20
IMAGES = "images"
PARTS = {
    "text": "a text beside the HTML",
    "headers": "further headers",
    "attachments": "files",
    IMAGES: "images within the HTML",
}
# Who it is from, to whom it goes and how it came are not for a campaign to say, nor what mailhub signs and links.
RESERVED = mime.OURS | {
    *("sender", "reply-to", "cc", "bcc", "return-path", "received", "delivered-to", "authentication-results"),
    *("dkim-signature", "list-unsubscribe", "list-unsubscribe-post", "errors-to", "apparently-to", "envelope-to"),
}
RESERVED_BEGINNINGS = ("content-", "resent-", "arc-", "x-mailhub-")


def carried_by(adapter: str, settings: Any) -> frozenset[str]:
    """Which of PARTS a vendor with this adapter and these settings carries."""
    try:
        return carried(adapters.load(adapter), settings)
    except (LookupError, ImportError, ValueError):
        return frozenset()  # what else it says is told where its adapter is used


def carried(adapter: type[Adapter], settings: Any) -> frozenset[str]:
    """The same. Raises ValueError."""
    found = adapter.carries(settings)
    return found | {IMAGES} if "attachments" in found and adapter.shows_images(settings) else found


def shows_images(body: str, html: bool) -> bool:
    return html and IMAGE.search(body) is not None


def check_carried(needs: Iterable[str], carried: frozenset[str], vendor: str) -> None:
    """Raises TemplateError if a campaign needs what its vendor does not carry. vendor: its slug."""
    missing = [PARTS[name] for name in PARTS if name in set(needs) - carried]
    if missing:
        raise TemplateError(
            f"the vendor {vendor} does not carry {' or '.join(missing)}: its adapter or settings say so"
        )


def text_beside(body: str, html: bool, given: str, carried: frozenset[str]) -> str:
    """The text beside an HTML body, as a template: the one given, else one made from the HTML if it can be carried.

    Raises TemplateError for a text beside a body that is a text itself, or if none can be made.
    """
    if given.strip():
        if not html:
            raise TemplateError("a text goes beside an HTML body, and this body is a text itself")
        return given
    return plain_text.made_from(body) if html and "text" in carried else ""


def header_faults(headers: Sequence[tuple[str, str]]) -> Iterator[tuple[int, str]]:
    """What is wrong with headers, each with its index."""
    seen: set[str] = set()
    for index, (name, value) in enumerate(headers):
        known = name.strip().lower()
        if index >= MOST_HEADERS:
            yield index, f"a campaign may have {MOST_HEADERS} headers"
            return
        if known in RESERVED or known.startswith(RESERVED_BEGINNINGS):
            yield index, f"the header {name} is mailhub's own"
        elif known in seen:
            yield index, f"the header {name} is there twice"
        else:
            try:
                check_value(name, value)
                if SHOWS.search(value):
                    compiled(name, value)
            except TemplateError as error:
                yield index, str(error)
        seen.add(known)


def parse_header(line: str) -> tuple[str, str]:
    """Reads `Name: value`. Raises TemplateError."""
    name, colon, value = line.partition(":")
    if not colon:
        raise TemplateError(f"{line[:80]!r} is no header; write it like 'Precedence: bulk'")
    return name.strip(), value.strip()


def image_faults(body: str, html: bool, cids: Iterable[str]) -> Iterator[str]:
    """Images that are not shown, and those shown that are not there. cids: of the images that are given."""
    given = set(filter(None, cids))
    shown = set(IMAGE.findall(body)) if html else set()
    if given and not html:
        yield "only an HTML body can show images"
        return
    for cid in sorted(given - shown):
        yield f"the HTML shows no cid:{cid}"
    for cid in sorted(shown - given):
        yield f"the HTML shows cid:{cid}, and there is no such image"
