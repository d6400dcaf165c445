"""The campaign a draft will become: its credentials, compiled content, letters and estimated cost."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from django.db.models import Q

from campaigns.content import previews
from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.engine.ports import NotEntitled
from campaigns.engine.routes import entries
from campaigns.lists import estimates
from campaigns.lists.drafts import keeping
from campaigns.lists.drafts.blocks import CheckedRows
from campaigns.lists.intake import BadInput, Hours
from campaigns.lists.intake.contents import CampaignContent, compile_content
from campaigns.lists.intake.files import CampaignFiles
from campaigns.models import Campaign, Draft, Identity, Route, Sponsor, TemplateVersion
from campaigns.senders import entitlements
from campaigns.suppression.links import links_of
from campaigns.texts.parts import carried_by
from vendors import mail_classes
from vendors.adapters.base import Attachment, Letter
from vendors.mail_classes import MailClass
from vendors.models import Credential, Vendor
from vendors.said import Said

MOST_TEMPLATES = 500  # templates on offer
MANY = 2  # recipients of a list that nobody has checked yet


def offered_credentials(sponsor: Sponsor) -> list[Credential]:
    """Return the credentials that the sponsor may use."""
    mine = Q(pk__in=())
    for vendor_id, ids in entitlements.allowed_vendors(sponsor.pk).items():
        mine |= Q(vendor=vendor_id) if ids is None else Q(vendor=vendor_id, pk__in=ids)
    rows = Credential.objects.filter(mine).select_related("vendor").defer("secret")
    return list(rows.order_by("vendor__channel", "vendor__name", "name"))


def offered_routes(sponsor: Sponsor) -> dict[Route, list[Credential]]:
    """Return the usable routes, both the sponsor's own and those for all, with their usable credentials."""
    rows = Route.objects.filter(Q(sponsor=None) | Q(sponsor=sponsor)).order_by("channel", "name")
    found = ((route, _usable_or_none(route, sponsor)) for route in rows)
    return {route: logins for route, logins in found if logins}


def _usable_or_none(route: Route, sponsor: Sponsor) -> list[Credential]:
    try:
        return entries.usable_credentials(route, sponsor)
    except NotEntitled:
        return []


def logins_of_draft(draft: Draft) -> list[Credential]:
    """Return the credentials the draft may go by, the first choice first. Raises NotEntitled."""
    if draft.route:
        return entries.usable_credentials(draft.route, draft.sponsor)
    if draft.credential is None:
        raise NotEntitled(Said("it is open by whom it is sent: choose that with the message"))
    entitlements.require_entitlement(draft.sponsor, draft.credential)
    return [draft.credential]


def identity_of_draft(draft: Draft, vendor: Vendor) -> Identity | None:
    """Return the sender identity. Raises NotEntitled."""
    return entitlements.choose_identity_for(draft.sponsor, vendor, draft.identity.name if draft.identity else "")


def content_of_draft(draft: Draft) -> CampaignContent:
    """Return the content, if it could be sent. Raises BadInput, TemplateError, NotEntitled."""
    by = logins_of_draft(draft)
    vendor = by[0].vendor
    identity_of_draft(draft, vendor)
    mail_class(draft, by[0])
    entitlements.choose_topic(draft.sponsor, draft.topic.name if draft.topic else "", draft.transactional)
    subject = draft.subject if draft.channel != Vendor.Channel.SMS else ""
    if draft.channel == Vendor.Channel.EMAIL and not subject.strip():
        raise BadInput(Said("an e-mail needs a subject"))
    if not draft.body.strip():
        raise BadInput(Said("there is no text yet"))
    return compile_content(
        subject,
        draft.body,
        draft.is_html,
        vendor,
        text=draft.text if draft.is_html else "",
        headers=headers_of_draft(draft),
        files=files_of_draft(draft),
        version=template_of_draft(draft),
        transactional=draft.transactional,
        others=entries.vendors_of_route(draft.route) if draft.route else (),
        logins=by,
    )


def mail_class(draft: Draft, login: Credential) -> MailClass:
    """Return the class that the campaign gets over this credential. Raises NotEntitled."""
    recipients = (draft.found or {}).get("good") or MANY
    return entitlements.class_for(draft.sponsor, login, draft.mail_class, recipients, transactional=draft.transactional)


def warn_of_floor(draft: Draft) -> str:
    """Return a warning if the vendor lacks a floor for the draft's class; "" elsewhere. Raises NotEntitled."""
    login = logins_of_draft(draft)[0]
    return mail_classes.warn_of_floor(mail_class(draft, login), login.vendor.name, login.vendor.floor)


def hours_of_draft(draft: Draft) -> Hours | None:
    """Return the sending hours, or None. Raises BadInput."""
    if draft.hours_from is None or draft.hours_to is None:
        return None
    return Hours(draft.hours_from, draft.hours_to, draft.time_zone, draft.hours_of_each)


def headers_of_draft(draft: Draft) -> list[tuple[str, str]]:
    """Return the draft's further headers, copied from its template."""
    return [(name, value) for name, value in draft.headers or ()]


def template_of_draft(draft: Draft) -> TemplateVersion | None:
    """Return the template version whose content the draft has; None if it was archived or the text was edited."""
    version = draft.template_version
    if version is None or version.template.archived_at or version.template.channel != draft.channel:
        return None
    beside = draft.text if draft.is_html else ""
    own = TemplateContent(draft.subject, draft.body, draft.is_html, beside, headers_of_draft(draft))
    return version if own == versions.content_of(version) else None


def offered_templates(sponsor: Sponsor, chosen: TemplateVersion | None) -> list[TemplateVersion]:
    """Return the newest version of each template in use, without contents; a chosen older version comes first."""
    found = {one.pk: one for one in sponsor.templates.filter(archived_at=None).order_by("name")[:MOST_TEMPLATES]}
    newest = versions.newest_of(list(found.values()))
    for pk, version in newest.items():
        version.template = found[pk]
    offered = [newest[pk] for pk in found if pk in newest]
    return [chosen, *offered] if chosen and chosen.template_id in found and chosen not in offered else offered


def files_of_draft(draft: Draft) -> CampaignFiles | None:
    """Return the files of each letter, or None. Raises BadInput."""
    found = [keeping.make_new_file(one, draft.html) for one in keeping.list_draft_files(draft)]
    return CampaignFiles(found) if found else None


def checked_recipients(draft: Draft) -> CheckedRows:
    """Return the recipients that the last check found good."""
    found = draft.found or {"version": 0, "good": 0}
    return CheckedRows(draft.pk, found["version"], found["good"])


def _unsaved_campaign(draft: Draft, content: CampaignContent, vendor: Vendor) -> Campaign:
    return content.campaign(
        draft.topic, draft.transactional, sponsor=draft.sponsor, identity=identity_of_draft(draft, vendor)
    )


def letter_of_draft(draft: Draft, number: int) -> Letter:
    """Return the letter to a recipient, counted from 1, with the images within its HTML.

    Raises BadInput, TemplateError, NotEntitled.
    """
    content, vendor = content_of_draft(draft), logins_of_draft(draft)[0].vendor
    campaign = _unsaved_campaign(draft, content, vendor)
    links = links_of(campaign, vendor.channel, carried_by(vendor.adapter, vendor.settings), None)
    one = islice(checked_recipients(draft).since(number - 1), 1)
    found = previews.render_first_letters(campaign, content.compiled, links, one, 1)
    if not found:
        raise BadInput(Said("there is no recipient %(number)s", number=number))
    return found[0]._replace(attachments=tuple(_images_of_content(content)))


def _images_of_content(content: CampaignContent) -> Iterator[Attachment]:
    for one in content.files.to_all if content.files else ():
        if one.cid:
            yield Attachment(one.name, one.kind, one.read(), one.cid)


def weigh_draft(
    draft: Draft, content: CampaignContent, sample: Sequence[tuple[str, Any]], total: int
) -> dict[str, Any]:
    """Return the weights that the check stores for estimates of the cost, as estimates.weigh_list does.

    Raises NotEntitled.
    """
    found = logins_of_draft(draft)
    campaign = _unsaved_campaign(draft, content, found[0].vendor)
    return estimates.weigh_list(found, campaign, content.compiled, sample, total)


def estimate_draft(draft: Draft) -> estimates.ByLogin:
    """Return the estimated cost by credential, from results stored by the check, without reading the list.

    Raises BadInput, TemplateError, NotEntitled.
    """
    content, found = content_of_draft(draft), draft.found or {"good": 0}
    by = logins_of_draft(draft)
    campaign = Campaign(
        sponsor_id=draft.sponsor_id, has_files=content.files is not None, mail_class=mail_class(draft, by[0])
    )
    return estimates.estimate_by_weights(by, found.get("weights", {}), found["good"], campaign)
