"""Templates that sponsors keep. A version is compiled before it is stored, and never changed or deleted.

A save names the version it started from and is refused if a newer one exists (NewerVersion). A save equal to the newest
version stores nothing, so saves can be repeated.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.utils import timezone

from campaigns.models import Template, TemplateVersion
from campaigns.suppression.links import given_values
from campaigns.texts import templates
from campaigns.texts.given_texts import compose_text
from campaigns.texts.headers import check_beside_body, header_templates
from campaigns.texts.parts import header_faults, text_beside
from campaigns.texts.templates import PARTS, Budget, Content, TemplateError
from vendors import history
from vendors.history import Actor
from vendors.mail_classes import MailClass
from vendors.models import Vendor
from vendors.said import Said, gettext_noop

MOST_USES = 1_000  # campaigns to count
LINE_ENDS = ("\r\n", "\r")


class TemplateRefused(ValueError):
    """The request about a template was refused. The text says why, for users."""


class NewerVersion(Exception):
    """Somebody else has added a version: `newest`; None: the template was deleted, or does not exist yet."""

    def __init__(self, newest: TemplateVersion | None) -> None:
        what = f"version {newest.number} by {newest.made_by} is newer" if newest else "there is no version yet"
        super().__init__(f"{what} than the one that this started from")
        self.newest = newest


@dataclass(frozen=True, slots=True)
class TemplateContent:
    """The content of a version. text: beside an HTML body; empty: made from the HTML if the vendor carries it."""

    subject: str
    body: str
    html: bool = False
    text: str = ""
    headers: Sequence[tuple[str, str]] = ()

    def made_uniform(self) -> "TemplateContent":
        """Return the content with composed letters and line feeds: browsers send other line ends than files have."""
        body, text = compose_text(self.body), compose_text(self.text)
        for end in LINE_ENDS:
            body, text = body.replace(end, "\n"), text.replace(end, "\n")
        headers = [(name.strip(), compose_text(value).strip()) for name, value in self.headers]
        return replace(self, subject=compose_text(self.subject), body=body, text=text, headers=headers)


@dataclass(frozen=True, slots=True)
class AddedVersion:
    """The result of a save. new: False if the newest version has the same content."""

    version: TemplateVersion
    new: bool


@dataclass(frozen=True, slots=True)
class VersionUse:
    """The use of a version. campaigns: counted up to MOST_USES. last_id, last_name: of the newest campaign."""

    campaigns: int
    last_id: int | None = None
    last_name: str = ""


def content_of(version: TemplateVersion) -> TemplateContent:
    """Return the content of a stored version."""
    headers = [(name, value) for name, value in version.headers or ()]
    return TemplateContent(version.subject, version.body, version.html, version.text, headers)


def check_content(channel: str, content: TemplateContent, budget: Budget | None = None) -> Content:
    """Compile a content as a campaign would. Raises TemplateError, and OverBudget if there is a budget."""
    for what, text in (("subject", content.subject), ("body", content.body), ("text", content.text)):
        if "\0" in text:
            raise TemplateError(Said("the %(what)s has a NUL character in it", what=what))
    if channel == Vendor.Channel.EMAIL and not content.subject.strip():
        raise TemplateError(Said(PARTS["subject"].fault, why=Said("an e-mail needs one")))
    if not content.body.strip():
        raise TemplateError(Said(PARTS["body"].fault, why=Said("it is empty")))
    if channel == Vendor.Channel.SMS and content.html:
        raise TemplateError(Said(PARTS["body"].fault, why=Said("an SMS is a text, not HTML")))
    for _, fault in header_faults(content.headers):
        raise TemplateError(fault)
    if content.headers and channel != Vendor.Channel.EMAIL:
        raise TemplateError(Said("only e-mails can have additional headers"))
    text = text_beside(content.body, content.html, content.text, frozenset())
    compiled = templates.compile_templates(
        content.subject, content.body, content.html, budget, text, given_values(transactional=False)
    )
    return check_beside_body(compiled, header_templates(content.headers), None)


def fields_of(version: TemplateVersion) -> tuple[list[str], list[str]]:
    """Return the required and the optional fields; none if the version does not compile any more."""
    try:
        compiled = check_content(version.template.channel, content_of(version))
    except TemplateError:
        return [], []
    return sorted(compiled.fields), sorted(compiled.optional)


def add_version(
    sponsor_id: int,
    name: str,
    channel: str,
    content: TemplateContent,
    by: Actor,
    remark: str = "",
    based_on: int | None = None,
    budget: Budget | None = None,
) -> AddedVersion:
    """Store the next version of the template of that name; create the template if necessary.

    based_on: the version it started from; 0: none, so the template must be new; None: any. Raises TemplateError,
    TemplateRefused, NewerVersion, and OverBudget if there is a budget; then nothing is stored.
    """
    content = content.made_uniform()
    check_content(channel, content, budget)
    if len(remark) > 255 or not remark.replace("\n", " ").isprintable():
        raise TemplateRefused(Said("a remark is one line of at most 255 characters"))
    with transaction.atomic():
        template = _hold_template(sponsor_id, name, channel)
        newest = template.versions.first()
        if newest and content_of(newest) == content:
            return AddedVersion(newest, new=False)
        if based_on is not None and based_on != (newest.number if newest else 0):
            raise NewerVersion(newest)
        if template.archived_at:
            raise TemplateRefused(Said("the template %(name)s is archived; restore it first", name=repr(name)))
        version = TemplateVersion.objects.create(
            template=template,
            number=newest.number + 1 if newest else 1,
            subject=content.subject,
            body=content.body,
            html=content.html,
            text=content.text,
            headers=[list(one) for one in content.headers] or None,
            remark=remark.strip(),
            made_by=by.name[:150],
        )
        what = Said(gettext_noop("version %(number)s added"), number=str(version.number))
        history.record_changes(by, Template, [(template.pk, what)], remark, CHANGE if newest else ADDITION)
        return AddedVersion(version, new=True)


def _hold_template(sponsor_id: int, name: str, channel: str) -> Template:
    """Return the template, created if necessary and locked, so that versions are added one at a time."""
    made = Template(sponsor_id=sponsor_id, name=name, channel=channel)
    try:
        made.full_clean(validate_unique=False, validate_constraints=False)
    except ValidationError as error:
        raise TemplateRefused("; ".join(error.messages)) from None
    Template.objects.bulk_create([made], ignore_conflicts=True)
    template = Template.objects.select_for_update(no_key=True).get(sponsor=sponsor_id, name=name)
    if template.channel != channel:
        raise TemplateRefused(
            Said(
                "the template %(name)s is one for %(channel)s", name=repr(name), channel=template.get_channel_display()
            )
        )
    return template


def find_template_version(sponsor_id: int | None, reference: str, channel: str) -> TemplateVersion:
    """Find the version for NAME or NAME@VERSION; without a number the newest. Raises TemplateRefused."""
    name, at, number = reference.rpartition("@") if "@" in reference else (reference, "", "")
    if at and not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise TemplateRefused(
            Said("%(name)s is no template; write NAME, or NAME@VERSION like welcome@3", name=repr(reference))
        )
    rows = TemplateVersion.objects.select_related("template").filter(template__sponsor=sponsor_id, template__name=name)
    found = (rows.filter(number=int(number)) if at else rows).first() if name.isprintable() else None
    if found is None:
        raise TemplateRefused(Said("there is no template %(name)s", name=repr(reference)))
    if found.template.archived_at:
        raise TemplateRefused(Said("the template %(name)s is archived", name=repr(name)))
    if found.template.channel != channel:
        raise TemplateRefused(
            Said(
                "the template %(name)s is one for %(channel)s",
                name=repr(name),
                channel=found.template.get_channel_display(),
            )
        )
    return found


def set_class(template: Template, mail_class: int | None, by: Actor) -> bool:
    """Set the class of campaigns that name none; None: by their kind. Return False if it was so already."""
    with transaction.atomic():
        before = Template.objects.values_list("mail_class", flat=True).get(pk=template.pk)
        is_changed = before != mail_class and Template.objects.filter(pk=template.pk, mail_class=before).update(
            mail_class=mail_class
        )
        template.mail_class = mail_class
        if is_changed:
            what = history.change_sentence("class", _class_word(before), _class_word(mail_class))
            history.record_changes(by, Template, [(template.pk, what)])
        return bool(is_changed)


def _class_word(mail_class: int | None) -> str:
    return Said(MailClass(mail_class).word) if mail_class else Said(gettext_noop("by its kind"))


def archive_template(template: Template, by: Actor) -> bool:
    """Archive a template: new campaigns cannot name it. Return False if it was archived already."""
    return _set_archived(template, by, "archived", archived_at__isnull=True)


def restore_template(template: Template, by: Actor) -> bool:
    """Make an archived template usable again. Return False if it was not archived."""
    return _set_archived(template, by, "restored", archived_at__isnull=False)


@transaction.atomic
def _set_archived(template: Template, by: Actor, what: str, **was: Any) -> bool:
    at = timezone.now() if what == "archived" else None
    if not Template.objects.filter(pk=template.pk, **was).update(archived_at=at):
        return False
    template.archived_at = at
    done = gettext_noop("archived") if what == "archived" else gettext_noop("restored")
    history.record_changes(by, Template, [(template.pk, Said(done))])
    return True


USES = """
SELECT v.id, u.count, l.id, l.name FROM unnest(%s::bigint[]) AS v(id)
CROSS JOIN LATERAL (SELECT count(*) FROM (
    SELECT FROM campaigns_campaign WHERE template_version_id = v.id LIMIT %s) AS counted) u
CROSS JOIN LATERAL (
    SELECT id, name FROM campaigns_campaign WHERE template_version_id = v.id ORDER BY id DESC LIMIT 1) l
"""


def campaign_uses(versions: Iterable[TemplateVersion]) -> dict[int, VersionUse]:
    """Return the campaigns' use of these versions, by id; unused versions are missing."""
    with connection.cursor() as cursor:
        cursor.execute(USES, [[version.pk for version in versions], MOST_USES])
        return {id: VersionUse(*use) for id, *use in cursor.fetchall()}


def newest_of(found: Collection[Template]) -> dict[int, TemplateVersion]:
    """Return the newest version of each template, without its content."""
    rows = TemplateVersion.objects.filter(template__in=found).order_by("template_id", "-number").distinct("template_id")
    return {row.template_id: row for row in rows.defer("subject", "body", "text", "headers")}
