"""The content of a campaign before it is stored. Every door compiles and checks it with the same function."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from campaigns.lists.intake.csv_reader import Table
from campaigns.lists.intake.files import CampaignFiles
from campaigns.models import Campaign, TemplateVersion, Topic
from campaigns.suppression.links import given_values as given_to
from campaigns.texts import templates
from campaigns.texts.addresses import address_rules, check_addresses
from campaigns.texts.bad_input import BadInput, RowError
from campaigns.texts.given_texts import compose_text
from campaigns.texts.headers import Headers, check_beside_body, header_templates
from campaigns.texts.parts import (
    IMAGES,
    carried_by,
    check_carried,
    header_faults,
    image_faults,
    shows_images,
    text_beside,
)
from campaigns.texts.signs import check_signs, sign_check
from campaigns.texts.sizes import check_size, largest_mail
from campaigns.texts.templates import Content
from vendors.models import Credential, Vendor
from vendors.said import Said

# Of HTML, what shows nothing: comments, styles, and all tags but images.
UNSEEN = re.compile(
    r"(?is)<!--.*?-->|<(style|script|title)\b.*?</\1\s*>|<(?!img\b|v:|svg\b)(?![^>]*(?:background|url\())[^>]*>|&nbsp;"
)


@dataclass(frozen=True, slots=True)
class CampaignContent:
    """The checked content of a campaign; the recipients' fields are checked later.

    text: the one given, or made from the HTML. version: of the template with this content.
    """

    subject: str
    body: str
    html: bool
    text: str
    headers: Headers
    files: CampaignFiles | None
    compiled: Content
    version: TemplateVersion | None

    def check_columns(self, table: Table) -> None:
        """Raise BadInput if the list lacks a column that names files."""
        fields = self.files.fields if self.files else ()
        missing = [repr(name) for name in fields if name not in table.fields[1:]]
        if missing:
            columns = ", ".join(filter(None, table.fields[1:])) or "none"
            text = Said(
                "there is no column %(name)s for files; the columns after the first are %(known)s",
                name=", ".join(missing),
                known=columns,
            )
            raise table.header_fault(text)

    def campaign(self, topic: Topic | None, transactional: bool, **fields: Any) -> Campaign:
        """Return an unsaved campaign, for previews."""
        made = Campaign(html=self.html, headers=self.headers, topic=topic, has_files=self.files is not None, **fields)
        made.transactional = transactional
        return made


def compile_content(
    subject: str,
    body: str,
    html: bool,
    vendor: Vendor,
    *,
    text: str = "",
    headers: Headers = (),
    files: CampaignFiles | None = None,
    transactional: bool = False,
    others: Iterable[Vendor] = (),
    logins: Iterable[Credential] = (),
    version: TemplateVersion | None = None,
) -> CampaignContent:
    """Compile and check a content. vendor: the first choice; others: further vendors of the route.

    logins: the credentials that the campaign may go by, for the sizes that their relays have said.

    Raises BadInput, TemplateError.
    """
    subject, body, text = compose_text(subject).strip(), compose_text(body), compose_text(text)
    headers = [(name, compose_text(value)) for name, value in headers]
    if not files and is_blank(body, html):
        raise BadInput(Said("the message is empty: write its text"))
    if html or text or headers or files:
        text = _text_beside_body(body, html, text, headers, files, vendor)
    made = templates.compile_templates(subject, body, html, text=text, given=given_to(transactional))
    made = check_beside_body(made, header_templates(headers), files.faults if files and files.fields else None)
    vendors = (vendor, *others)
    if vendor.channel == Vendor.Channel.EMAIL:
        limits = [largest_mail(one.adapter, one.settings) for one in vendors]
        limits += [largest_mail(of.adapter, of.settings, one.relay_size) for one in logins for of in [one.vendor]]
        made = check_size(made, html, files.size_of if files else None, limits)
    if vendor.channel == Vendor.Channel.PRINT:
        made = check_addresses(made, [address_rules(one.adapter, one.settings) for one in vendors])
        made = check_signs(made, body, html, [sign_check(one.adapter, one.settings) for one in vendors])
    return CampaignContent(subject, body, html, text, headers, files, made, version)


def is_blank(body: str, html: bool) -> bool:
    """Return True if nobody would see anything: no text, and in HTML no image."""
    return not (UNSEEN.sub("", body) if html else body).strip()


def _text_beside_body(
    body: str, html: bool, given: str, headers: Headers, files: CampaignFiles | None, vendor: Vendor
) -> str:
    """Return the text beside the body after checking the other parts. Raises BadInput, TemplateError."""
    faults = [text for _, text in header_faults(headers)]
    faults.extend(image_faults(body, html, [file.cid for file in files.to_all] if files else ()))
    if faults:
        raise BadInput([RowError(0, text) for text in faults])
    carried = carried_by(vendor.adapter, vendor.settings)
    needs = {"text": given, "headers": headers, "attachments": files, IMAGES: files and shows_images(body, html)}
    check_carried([name for name, part in needs.items() if part], carried, vendor.slug)
    return text_beside(body, html, given, carried)
