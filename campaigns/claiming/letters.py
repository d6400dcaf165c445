"""The letters of a leaf that one sender holds: what is needed to make them, read once, and how one is made."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import orjson
from django.conf import settings
from django.db import connection
from django.db.models.expressions import RawSQL

from campaigns.content import templates
from campaigns.content.headers import Headers
from campaigns.content.parts import carried
from campaigns.models import Campaign
from campaigns.models.identities import Identity, NumberPool
from campaigns.return_paths import ReturnPaths, of_identity
from campaigns.suppression.links import LetterLinks, content_of, link_keys, links_missing, links_of
from campaigns.suppression.recent import Asker
from campaigns.threads import columns_of
from vendors import adapters
from vendors.adapters.base import Adapter, Letter, Origin
from vendors.models import Credential, Vendor
from vendors.outcomes import Outcome, Refused

LONG = 0.001  # seconds that it may take to fill a template, before others have their turn
CALL_SIZE = 10_000_000  # characters in the letters of one call: each connection has its call in memory

_Call = TypeVar("_Call")


class NoLinks(LookupError):
    """The letters show the link to unsubscribe, and there is none to give them."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A sender's hold on a job. Statements under an older fence change nothing but late acceptances."""

    job_id: int
    fence: int


class ClaimedMessage(NamedTuple):
    """A message whose call may start: its claim is committed. reference: as Message.reference."""

    id: int
    reference: str
    recipient: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LeasedJob:
    """A leaf that one sender holds: all that it needs of the job, read once.

    end: one past the last message; begin: where its sender begins.
    """

    lease: Lease
    first: int
    end: int
    begin: int
    vendor_id: int
    credential_id: int
    campaign: Campaign
    content: templates.Content
    adapter: Adapter
    destination: int  # where and as whom the adapter calls (vendors/destinations.py)
    connection_key: bytes  # what the adapter was made from: connections are shared where it is equal
    asker: Asker
    links: LetterLinks | None = None
    return_paths: ReturnPaths | None = None
    origin: Origin | None = None
    senders: NumberPool | None = None  # of SMS, instead of the origin

    @property
    def deadline(self) -> datetime | None:
        return self.campaign.deadline

    def letter(self, message: ClaimedMessage) -> Letter | Refused:
        """The message as the vendor gets it; Refused if its template cannot be rendered with its fields."""
        origin = self.senders.of(message.recipient) if self.senders else self.origin
        return letter_of(self.campaign, self.content, message, None, origin, self.links, self.return_paths)


def letter_of(
    campaign: Campaign,
    content: templates.Content,
    message: ClaimedMessage,
    budget: templates.Budget | None = None,
    origin: Origin | None = None,
    links: LetterLinks | None = None,
    return_paths: ReturnPaths | None = None,
) -> Letter | Refused:
    """The message as the vendor gets it; Refused if its template cannot be rendered with its fields.

    links: None if nobody can unsubscribe from the campaign. return_paths: None if bounces do not come back to mailhub.
    """
    given: templates.Values = templates.NOTHING_GIVEN
    listed: Headers = ()
    if links and (links.listed or content.given):
        url = links.url(message.id, message.recipient)
        given = {templates.UNSUBSCRIBE_URL: url}
        if links.listed:
            mailto = return_paths.of(message.reference, "unsubscribe") if return_paths else ""
            listed = links.headers(url, mailto)
    try:
        subject, body, text = content.render(message.recipient, message.params, budget, given)
        headers = campaign.headers_for(message.recipient, message.params, budget)
    except templates.TemplateError as error:
        return Refused("template", str(error))
    parts = (message.reference, message.recipient, subject, body, message.params, campaign.html, text)
    headers = (*headers, *listed) if listed else headers
    return_path = return_paths.of(message.reference) if return_paths else ""
    return Letter(*parts, headers=headers, origin=origin, return_path=return_path)


# A campaign's or identity's version is the transaction that wrote its row and where that lies; another store may have
# had the same. Rows of vendors and credentials change while mail is sent: of those what is used.
USED = """concat_ws(' ', {v}.adapter, {v}.slug, {v}.channel, md5({v}.settings::text), md5({l}.secret), {v}.destination,
        {l}.destination)"""
OF_JOB = f"""
SELECT j.first_message, j.first_message + j.size, coalesce(j.next_message, j.first_message), j.suppressions,
    j.campaign_id, concat_ws(' ', s.adoptions, c.xmin, c.ctid), i.id, concat_ws(' ', s.adoptions, i.xmin, i.ctid),
    j.vendor_id, j.credential_id, {USED.format(v="v", l="l")}
FROM campaigns_job j JOIN campaigns_campaign c ON c.id = j.campaign_id JOIN vendors_vendor v ON v.id = j.vendor_id
    JOIN vendors_credential l ON l.id = j.credential_id LEFT JOIN campaigns_store s ON s.id = 1
    LEFT JOIN campaigns_identity i ON i.id = c.identity_id
WHERE j.id = %(job)s
"""


CAMPAIGN = f"SELECT {columns_of(Campaign, 'c')} FROM campaigns_campaign c WHERE id = %(campaign)s"


# These are read once for each version of their rows, for all streams of the process.
@lru_cache(maxsize=64)
def _identity(identity_id: int, version: str) -> Identity:
    return Identity.objects.get(pk=identity_id)


@lru_cache(maxsize=16)
def _campaign(
    campaign_id: int, version: str, identity: int | None, of_identity: str, public_url: str
) -> tuple[Campaign, templates.Content]:
    """of_identity: the version of that; public_url: templates are compiled for the length of its links."""
    (campaign,) = Campaign.objects.raw(CAMPAIGN, {"campaign": campaign_id})
    campaign.identity = _identity(identity, of_identity) if identity else None
    return campaign, content_of(campaign)


class Outdated(Exception):
    """The rows have changed since their version was read."""


@lru_cache(maxsize=64)
def _login(vendor_id: int, credential_id: int, version: str) -> tuple[Vendor, int, bytes]:
    """The vendor, LeasedJob.destination and LeasedJob.connection_key. Raises Outdated: nothing is kept then."""
    used = RawSQL(USED.format(v="vendors_vendor", l="vendors_credential"), ())
    rows: Any = Credential.objects.select_related("vendor").annotate(used=used)
    login = rows.get(pk=credential_id, vendor=vendor_id)
    if login.used != version:
        raise Outdated
    destination = login.vendor.destination + login.destination
    return login.vendor, destination, orjson.dumps([login.vendor.adapter, login.vendor.settings, login.secret])


def _read(lease: Lease) -> tuple[tuple[Any, ...], tuple[Vendor, int, bytes]]:
    """The row of OF_JOB, and what `_login` has of that version."""
    while True:
        with connection.cursor() as cursor:
            cursor.execute(OF_JOB, {"job": lease.job_id})
            row = cursor.fetchone()
        with suppress(Outdated):
            return row, _login(*row[-3:])


def load(lease: Lease) -> LeasedJob:
    """The job with its content and adapter. Raises what one of them says if it cannot be made ready, and NoLinks."""
    row, (vendor, destination, key) = _read(lease)
    first, end, begin, suppressions, *written, vendor_id, credential_id, _ = row
    campaign, content = _campaign(*written, settings.PUBLIC_URL)
    name, its_settings, secret = orjson.loads(key)  # of its own: no adapter changes another one's
    adapter = adapters.load(name).for_credential(its_settings, secret)
    parted = campaign.text or campaign.headers or campaign.has_files
    if parted and (missing := campaign.needs - carried(type(adapter), vendor.settings)):
        raise LookupError(f"{vendor.slug} carries no {' and no '.join(sorted(missing))} any more")
    if links_missing(campaign, content, range(first, end)):
        raise NoLinks("PUBLIC_URL is not set, and its letters show the link to unsubscribe")
    links = links_of(campaign, vendor.channel, adapter.carries(vendor.settings), link_keys())
    asker = Asker(campaign.sponsor_id, vendor.channel, suppressions, campaign.topic_id, campaign.transactional)
    identity = campaign.identity
    origin = identity.origin if identity and not identity.senders else None
    return LeasedJob(
        lease, first, end, begin, vendor_id, credential_id, campaign, content, adapter,
        destination, key, asker,
        links, of_identity(identity), origin, identity.senders if identity else None,
    )  # fmt: skip


async def letters_in_turn(job: LeasedJob, messages: Iterable[ClaimedMessage]) -> list[Letter | Refused]:
    """Makes the letters one by one; after one that took long the event loop runs other tasks, like the heartbeat."""
    letters = []
    for message in messages:
        began = time.monotonic()
        letters.append(job.letter(message))
        if time.monotonic() - began > LONG:
            await asyncio.sleep(0)
    return letters


def by_size(made: list[tuple[_Call, Letter | Outcome]]) -> list[list[tuple[_Call, Letter | Outcome]]]:
    """Those that go out in one call, the calls one after the other: a letter that alone is too large has its own."""
    if len(made) == 1:
        return [made]
    calls, size = [made[:1]], _size(made[0][1])
    for one in made[1:]:
        size += (own := _size(one[1]))
        if size > CALL_SIZE:
            calls.append([])
            size = own
        calls[-1].append(one)
    return calls


def _size(letter: Letter | Outcome) -> int:
    if not isinstance(letter, Letter):
        return 0
    files = sum(len(one.content) for one in letter.attachments)
    return len(letter.body) + len(letter.text) + files * 4 // 3  # in base64
