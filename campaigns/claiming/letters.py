"""The letters of a leaf that one sender holds: what is needed to make them, read once, and how one is made."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from campaigns.content import templates
from campaigns.content.headers import Headers
from campaigns.models import Campaign, Job
from campaigns.return_paths import ReturnPaths, of_identity
from campaigns.suppression.links import LetterLinks, content_of, link_keys, links_missing, links_of
from campaigns.suppression.recent import Asker
from vendors import adapters
from vendors.adapters.base import Adapter, Letter, Origin
from vendors.outcomes import Refused

LONG = 0.001  # seconds that it may take to fill a template, before others have their turn


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
    origin: Origin | None
    content: templates.Content
    adapter: Adapter
    connection_key: bytes  # what the adapter was made from: connections are shared where it is equal
    asker: Asker
    links: LetterLinks | None = None
    return_paths: ReturnPaths | None = None

    @property
    def deadline(self) -> datetime | None:
        return self.campaign.deadline

    def letter(self, message: ClaimedMessage) -> Letter | Refused:
        """The message as the vendor gets it; Refused if its template cannot be rendered with its fields."""
        return letter_of(self.campaign, self.content, message, None, self.origin, self.links, self.return_paths)


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


def load(lease: Lease) -> LeasedJob:
    """The job with its content and adapter. Raises what one of them says if it cannot be made ready, and NoLinks."""
    job: Any = Job.objects.select_related("campaign__identity", "vendor", "credential").get(pk=lease.job_id)
    adapter = adapters.load(job.vendor.adapter)(job.vendor.settings, job.credential.secret)
    campaign = job.campaign
    parted = campaign.text or campaign.headers or campaign.has_files
    if parted and (missing := campaign.needs - adapter.carries(job.vendor.settings)):
        raise LookupError(f"{job.vendor.slug} carries no {' and no '.join(sorted(missing))} any more")
    vendor, login = job.vendor, job.credential
    content = content_of(campaign)
    if links_missing(campaign, content):
        raise NoLinks("PUBLIC_URL is not set, and its letters show the link to unsubscribe")
    links = links_of(campaign, vendor.channel, adapter.carries(vendor.settings), link_keys())
    key = orjson.dumps([vendor.adapter, vendor.settings, login.secret])
    begin = job.next_message or job.first_message
    asker = Asker(job.sponsor_id, vendor.channel, job.suppressions, campaign.topic_id, campaign.transactional)
    origin = campaign.identity.origin if campaign.identity else None
    return LeasedJob(
        lease, job.first_message, job.end, begin, vendor.pk, login.pk, campaign, origin, content, adapter, key, asker,
        links, of_identity(campaign.identity),
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
