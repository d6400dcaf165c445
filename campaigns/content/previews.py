"""Previews of a campaign's letters, rendered by the code that sends."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from campaigns.content.letter_making import letter_of
from campaigns.engine.claiming.letters import ClaimedMessage
from campaigns.models import Campaign, Message
from campaigns.suppression.links import LetterLinks, content_of, link_keys, links_of
from campaigns.texts.bad_input import BadInput
from campaigns.texts.templates import Budget, Content
from vendors import adapters
from vendors.adapters.base import Attachment, Letter
from vendors.said import Said

MOST = 20  # letters of a preview
Previewed = Iterable[tuple[str, Mapping[str, Any]]]  # checked recipients with their fields


def render_first_letters(
    campaign: Campaign,
    content: Content,
    links: LetterLinks | None,
    recipients: Previewed,
    number: int,
    budget: Budget | None = None,
) -> list[Letter]:
    """Render the letters of the first recipients, without attachments. The campaign need not be stored.

    links: of a preview. Raises BadInput, and OverBudget if there is a budget.
    """
    made = []
    for id, (recipient, fields) in enumerate(islice(recipients, number), start=1):
        message = ClaimedMessage(id, f"preview-{id}", recipient, dict(fields))
        letter = letter_of(campaign, content, message, budget, links=links)
        if not isinstance(letter, Letter):
            raise BadInput(Said.join_parts(": ", (recipient, letter.sub_type)))
        made.append(letter)
    return made


def render_message(message: Message) -> Letter:
    """Render a stored message's letter, with the images in its HTML. Raises BadInput, TemplateError."""
    campaign = message.campaign
    vendor = campaign.credential.vendor
    carries = adapters.load(vendor.adapter).carries(vendor.settings)
    links = links_of(campaign, vendor.channel, carries, link_keys())
    claimed = ClaimedMessage(message.pk, message.reference, message.recipient, message.params)
    letter = letter_of(campaign, content_of(campaign), claimed, links=links)
    if not isinstance(letter, Letter):
        raise BadInput(letter.sub_type)
    rows = campaign.files.filter(to_all=True).exclude(cid="").select_related("file").order_by("id")
    files = (Attachment(one.name, one.content_type, bytes(one.file.content), one.cid) for one in rows)
    return letter._replace(attachments=tuple(files))


def letter_facts(letter: Letter) -> dict[str, Any]:
    """Return a letter for programs: to, subject, body, text, headers."""
    headers = [{"name": name, "value": value} for name, value in letter.headers]
    shown = {"to": letter.recipient, "subject": letter.subject, "body": letter.body}
    return {**shown, "text": letter.text, "headers": headers}


def letter_as_text(letter: Letter) -> str:
    """Return a letter for people."""
    head = [f"To: {letter.recipient}"]
    if letter.subject:
        head.append(f"Subject: {letter.subject}")
    head.extend(f"{name}: {value}" for name, value in letter.headers)
    parts = ["\n".join(head), letter.body]
    if letter.text:
        parts.extend(("---- the text beside it", letter.text))
    return "\n\n".join(parts)
