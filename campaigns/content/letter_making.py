"""Makes letters of messages; the engine's port `letters`."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from campaigns.content import return_paths
from campaigns.content.attachments import AttachmentCache, LetterFiles
from campaigns.content.return_paths import Purpose, ReturnPaths
from campaigns.engine.claiming.letters import ClaimedMessage
from campaigns.engine.ports import NoLinks
from campaigns.models import Campaign
from campaigns.models.identities import NumberPool
from campaigns.suppression.links import LetterLinks, LinkKeys, content_of, link_keys, links_missing, links_of
from campaigns.texts import parts, templates
from campaigns.texts.headers import Headers
from campaigns.texts.parts import carried_by
from vendors.adapters.base import Adapter, Letter, Origin
from vendors.causes import AnswerCause
from vendors.models import Vendor
from vendors.outcomes import Refused

__all__ = [
    "cache_files",
    "carried_by",
    "check_vendor",
    "compile_content",
    "files_of",
    "letter_of",
    "prepare_letters",
    "read_keys",
]


class LetterKeys(NamedTuple):
    """The keys of links and of return paths, read from the database."""

    links: LinkKeys | None
    return_paths: dict[Purpose, bytes]


@dataclass(frozen=True, slots=True)
class CampaignLetters:
    """Makes the letters of one campaign. senders: numbers that send SMS, instead of the origin."""

    campaign: Campaign
    content: templates.Content
    links: LetterLinks | None
    return_paths: ReturnPaths | None
    origin: Origin | None
    senders: NumberPool | None

    def letter(self, message: ClaimedMessage) -> Letter | Refused:
        origin = self.senders.of(message.recipient) if self.senders else self.origin
        return letter_of(self.campaign, self.content, message, None, origin, self.links, self.return_paths)


compile_content = content_of


def check_vendor(
    campaign: Campaign, content: templates.Content, vendor: Vendor, adapter: Adapter, messages: range
) -> None:
    parted = campaign.text or campaign.headers or campaign.has_files
    if parted and (missing := campaign.needed_parts - parts.parts_carried(type(adapter), vendor.settings)):
        raise LookupError(f"{vendor.slug} carries no {' and no '.join(sorted(missing))} any more")
    if links_missing(campaign, content, messages):
        raise NoLinks("PUBLIC_URL is not set, and its letters show the link to unsubscribe")


def read_keys() -> LetterKeys:
    return LetterKeys(link_keys(), return_paths.return_path_keys())


def prepare_letters(
    campaign: Campaign, content: templates.Content, vendor: Vendor, adapter: Adapter, keys: LetterKeys | None = None
) -> CampaignLetters:
    carries = adapter.carries(vendor.settings)
    links = links_of(campaign, vendor.channel, carries, keys.links if keys else link_keys())
    identity = campaign.identity
    back = return_paths.return_paths_of(identity, keys.return_paths if keys else None)
    senders = identity.number_pool if identity else None
    origin = identity.origin if identity and not senders else None
    return CampaignLetters(campaign, content, links, back, origin, senders)


def cache_files(rows: Any) -> AttachmentCache:
    return AttachmentCache(rows)


def files_of(campaign: Campaign, cache: AttachmentCache) -> LetterFiles | None:
    return LetterFiles(campaign, cache) if campaign.has_files else None


def letter_of(
    campaign: Campaign,
    content: templates.Content,
    message: ClaimedMessage,
    budget: templates.Budget | None = None,
    origin: Origin | None = None,
    links: LetterLinks | None = None,
    return_paths: ReturnPaths | None = None,
) -> Letter | Refused:
    """Return the message as the vendor gets it; Refused if its template cannot be rendered with its fields.

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
        subject, body, text = content.render_letter(message.recipient, message.params, budget, given)
        headers = campaign.headers_for(message.recipient, message.params, budget)
    except templates.TemplateError as error:
        return Refused("template", str(error), AnswerCause.CONTENT)
    parts = (message.reference, message.recipient, subject, body, message.params, campaign.html, text)
    headers = (*headers, *listed) if listed else headers
    return_path = return_paths.of(message.reference) if return_paths else ""
    return Letter(*parts, headers=headers, origin=origin, return_path=return_path)
