"""Copies a campaign's message into a new draft, for somebody who sends much the same again.

The copy has the message, its files, the credential or route, the identity, the topic and the template. The time and the
recipients are chosen anew. A campaign's list is deleted after sending, so a copy cannot send to anybody twice.
"""

from typing import Any
from uuid import UUID, uuid5

from campaigns.lists.drafts import keeping
from campaigns.models import Campaign, Draft, DraftFile
from campaigns.texts.parts import carried_by, text_beside
from campaigns.texts.templates import TemplateError

OF_COPIES = UUID("6f2d3f1e-9f0c-4d6e-8d5b-0c3f5e1f7a27")


def copy_campaign(campaign: Campaign, key: str, user: Any, name: str) -> Draft:
    """Return the copy; the same key returns the same draft. Raises BadInput if the sponsor has too many drafts."""
    values = {
        "name": name[:200],
        "credential_id": None if campaign.route_id else campaign.credential_id,
        "route_id": campaign.route_id,
        "identity_id": campaign.identity_id,
        "topic_id": campaign.topic_id,
        "transactional": campaign.transactional,
        "mail_class": _named_class(campaign),
        "template_version_id": campaign.template_version_id,
        "subject": campaign.subject,
        "html": campaign.body if campaign.html else "",
        "text": _text_if_written(campaign) if campaign.html else campaign.body,
        "headers": campaign.headers,
    }
    files = campaign.files.filter(to_all=True).order_by("id")
    named = [DraftFile(file_id=one.file_id, name=one.cid or one.name, content_type=one.content_type) for one in files]
    return keeping.create_draft(campaign.sponsor, uuid5(OF_COPIES, f"{campaign.pk} {key}"), user, values, named)


def _named_class(campaign: Campaign) -> int | None:
    """Return the class that somebody has named; None if it is that of its kind, or a single letter is urgent."""
    by_kind = campaign.mail_class in (None, campaign.class_by_kind) or campaign.size == 1
    return None if by_kind else campaign.mail_class


def _text_if_written(campaign: Campaign) -> str:
    """Return the text beside the HTML if somebody wrote it; a text made from the HTML is left out and made anew."""
    vendor = campaign.credential.vendor
    try:
        made = text_beside(campaign.body, True, "", carried_by(vendor.adapter, vendor.settings))
    except (TemplateError, LookupError):
        made = ""
    return "" if campaign.text == made else campaign.text
