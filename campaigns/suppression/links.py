"""Unsubscribe links, whose tokens only mailhub can make and read.

A token is encrypted and authenticated (AES-SIV, RFC 5297) with a key of campaigns/doors/token_keys.py. It reveals
nothing about the recipient. It needs no rows: it still works after its message or the address has been deleted, and
never expires.
"""

import base64
import binascii
import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from django.conf import settings
from django.utils import timezone

from campaigns.doors import token_keys
from campaigns.engine.suppressed.digests import digest_address, digest_key, made_key
from campaigns.models import Campaign, Message
from campaigns.texts import templates
from campaigns.texts.templates import UNSUBSCRIBE_URL, Content
from vendors.models import Vendor

PURPOSE = "unsubscribe link"  # a purpose of its own; campaigns/content/return_paths.py makes addresses to unsubscribe
PATH = "/unsubscribe/"
PREVIEW = "preview"  # replaces the token in a previewed letter
# Never reuse a number for another channel: people keep letters with old tokens.
NUMBERS = {Vendor.Channel.PRINT.value: 0, Vendor.Channel.EMAIL.value: 1, Vendor.Channel.SMS.value: 2}
CHANNELS = {number: channel for channel, number in NUMBERS.items()}
PLAIN = struct.Struct(">QqQQB")  # message, digest, sponsor, topic or 0, number of the channel
SIZE = 66  # characters of a token
LIST, POST = "List-Unsubscribe", "List-Unsubscribe-Post"  # RFC 2369, RFC 8058
ONE_CLICK = "List-Unsubscribe=One-Click"


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription that a link names: one recipient's to a sponsor's campaigns on a topic, or to those without one.

    digest: of the recipient's address (campaigns/engine/suppressed/digests.py).
    """

    message_id: int
    digest: int
    sponsor_id: int
    topic_id: int | None
    channel: str


@dataclass(frozen=True, slots=True)
class LetterLinks:
    """Makes the links of a campaign's letters. listed: put them into header lines, too.

    cipher: None makes preview links, which unsubscribe nobody. sample: the token of preview links.
    """

    base: str
    listed: bool
    sponsor_id: int = 0
    topic_id: int = 0
    channel: str = ""
    cipher: AESSIV | None = None
    secret: bytes = b""
    sample: str = PREVIEW

    def url(self, message_id: int, recipient: str) -> str:
        """Return the link of one letter."""
        return f"{self.base}{PATH}{self._link_token(message_id, recipient)}"

    def headers(self, url: str, mailto: str = "") -> tuple[tuple[str, str], ...]:
        """Return the header lines of a letter with this link. One-click needs https (RFC 8058).

        mailto: an address that also unsubscribes.
        """
        known = (LIST, f"<{url}>, <mailto:{mailto}?subject=unsubscribe>" if mailto else f"<{url}>")
        return (known, (POST, ONE_CLICK)) if url.startswith("https:") else (known,)

    def _link_token(self, message_id: int, recipient: str) -> str:
        if self.cipher is None:
            return self.sample
        found = digest_address(self.secret, self.channel, recipient)
        plain = PLAIN.pack(message_id, found, self.sponsor_id, self.topic_id, NUMBERS[self.channel])
        return base64.urlsafe_b64encode(self.cipher.encrypt(plain, None)).rstrip(b"=").decode("ascii")


class LinkKeys(NamedTuple):
    """The keys to make links, read from the database. secret: of the digests."""

    cipher: AESSIV
    secret: bytes


def link_keys() -> LinkKeys | None:
    """Return the keys, or None if PUBLIC_URL is not set. Raises the database's errors."""
    if not settings.PUBLIC_URL:
        return None
    return LinkKeys(AESSIV(token_keys.keys_for_purpose(PURPOSE)[0]), digest_key() or made_key())


def links_of(campaign: Campaign, channel: str, carries: Collection[str], keys: LinkKeys | None) -> LetterLinks | None:
    """Return the links of a campaign's letters; None if it is transactional or PUBLIC_URL is not set.

    carries: as Adapter.carries. keys: None for preview links.
    """
    if campaign.transactional or not settings.PUBLIC_URL:
        return None
    links = LetterLinks(settings.PUBLIC_URL, "headers" in carries and channel == Vendor.Channel.EMAIL)
    if keys is None:
        return links
    return LetterLinks(
        links.base, links.listed, campaign.sponsor_id, campaign.topic_id or 0, channel, keys.cipher, keys.secret
    )


def content_of(campaign: Campaign) -> Content:
    """Return the campaign's compiled templates. Raises TemplateError."""
    ours = given_values(campaign.transactional)
    return templates.compile_templates(campaign.subject, campaign.body, campaign.html, text=campaign.text, given=ours)


def links_missing(campaign: Campaign, content: Content, messages: range) -> bool:
    """Return whether letters of a bulk campaign need a link from mailhub although PUBLIC_URL is not set any more.

    messages: ids of those that may be called. A campaign past its deadline needs no links, because nobody is called.
    Nor does a recipient with a field of that name; all rows of a list have it or none, but a program's recipients may
    differ.
    """
    if campaign.transactional or settings.PUBLIC_URL or UNSUBSCRIBE_URL not in content.fields:
        return False
    if campaign.deadline and campaign.deadline <= timezone.now():
        return False
    waiting = Message.objects.filter(id__gte=messages.start, id__lt=messages.stop, dequeued_at=None)
    return waiting.exclude(params__has_key=UNSUBSCRIBE_URL).exists()


def given_values(transactional: bool) -> dict[str, Any]:
    """Return the values that mailhub gives a campaign's templates: a link as long as each letter's will be."""
    if transactional or not settings.PUBLIC_URL:
        return {}
    return {UNSUBSCRIBE_URL: f"{settings.PUBLIC_URL}{PATH}{'x' * SIZE}"}


def read_link(token: str) -> Subscription | None:
    """Return the subscription a token names, or None if mailhub did not make it."""
    if len(token) != SIZE or not token.isascii():
        return None
    try:
        sealed = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    for one in token_keys.keys_for_purpose(PURPOSE):
        try:
            message, found, sponsor, topic, channel = PLAIN.unpack(AESSIV(one).decrypt(sealed, None))
        except InvalidTag:
            continue
        return Subscription(message, found, sponsor, topic or None, CHANNELS[channel])
    return None
