"""Rows of lists that pages poll every few seconds; an unchanged row is not rendered again.

A row depends only on the facts in its tuple, the language and the time zone, so these form the cache key.
"""

from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from django import template
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

from campaigns.doors import labels
from campaigns.engine.lifecycle import GROUPS
from campaigns.engine.progress import Progress
from mailhub.operations.charts import WindowUsage
from mailhub.operations.dashboard import RunningJob, VendorRow
from vendors.deferrals import ShownWait, show_waits
from vendors.mail_classes import MailClass

register = template.Library()
KEPT = 2_000  # rows, of about a kilobyte


class JobRow(NamedTuple):
    """A job in the operators' list."""

    pk: int
    parent: int | None
    sponsor: str
    campaign: str
    vendor: str
    channel: str
    mail_class: str
    size: int
    sums: Progress
    word: str
    status: str
    next: str
    ends: str
    created: datetime
    pickable: bool
    verbs: str
    is_held: bool


class PartRow(NamedTuple):
    """A part of a job below it."""

    pk: int
    mailcaster: str
    first: int
    last: int
    sums: Progress
    word: str
    next: str


class VendorFacts(NamedTuple):
    """A vendor on the operations page; the fields are those of VendorRow."""

    pk: int
    slug: str
    meters: tuple[WindowUsage, ...]
    waiting: int
    ends: str
    ratio: str
    total: int
    threshold: str
    brief: str
    first: str
    calm: str
    why: tuple[str, ...]
    look: str
    notes: tuple[str, ...]
    asks: str
    button: str
    address: str
    doubts: int
    governed: bool
    receivers: tuple[ShownWait, ...]


class CampaignRow(NamedTuple):
    """A campaign in its owner's list."""

    pk: int
    name: str
    sponsor: str
    sums: Progress
    label: str
    why: str
    made: datetime


def status_of(status: str, word: str) -> str:
    """Return the name of a waiting job's tab, if its label does not say it."""
    group = next((name for name, members in GROUPS.items() if status in members), "")
    return group if group in ("Rendered", "Dispatched") and word in (labels.WAITING, labels.PAUSED) else ""


@register.simple_tag
def job_row(job: Any, pickable: bool, *, is_held: bool = False) -> SafeString:
    """Render a job's row. is_held: the reason of its wait stands above its group."""
    campaign, vendor = job.campaign, job.vendor
    facts = JobRow(
        job.pk, job.parent_id, campaign.sponsor.name, campaign.name, vendor.slug, vendor.get_channel_display(),
        MailClass(job.mail_class).word, job.size, job.sums, job.word, status_of(job.status, job.word),
        "" if is_held else job.next, job.later, job.created_at, bool(pickable),
        " ".join(job.verbs) if pickable else "", is_held,
    )  # fmt: skip
    return _render_row("admin/campaigns/job/row.html", facts)


@register.simple_tag
def part_row(job: Any) -> SafeString:
    name = job.mailcaster.name if job.mailcaster else ""
    next_ = "" if getattr(job, "is_held", False) else job.next  # it stands above the parts that wait for it
    facts = PartRow(job.pk, name, job.from_message, job.to_message, job.sums, job.word, next_)
    return _render_row("admin/campaigns/job/part.html", facts)


@register.simple_tag
def running_row(job: RunningJob) -> SafeString:
    return _render_row("admin/operations/running.html", job)


@register.simple_tag
def vendor_row(row: VendorRow, user: Any) -> SafeString:
    """Render a vendor's line, with the button that mends its condition if the user may press it."""
    return _render_row("admin/operations/vendor_row.html", vendor_facts(row, user))


@register.simple_tag
def vendor_state(row: VendorRow, user: Any) -> SafeString:
    """Render the same of one vendor, for its own page."""
    return _render_row("admin/operations/vendor_state.html", vendor_facts(row, user))


def vendor_facts(row: VendorRow, user: Any) -> VendorFacts:
    """Return a vendor's facts for a page. Each reason appears once: `why` leaves out reasons in the other words."""
    remedy = row.remedy
    address = remedy.address if remedy and remedy.is_offered_to(user) else ""
    obstacle = row.obstacle if row.obstacle not in row.state else ""
    why = [*([row.state] if row.state != row.brief else []), *([obstacle] if obstacle else [])]
    notes = [*row.notes, *filter(None, [row.more_receivers, row.refused_reports])]
    doubts = (
        ngettext("%(number)s without a known answer", "%(number)s without a known answer", row.doubts)
        % {"number": labels.format_number(row.doubts)}
        if row.doubts
        else ""
    )
    receivers = tuple(show_waits(row.receivers.rows, user))
    others = [obstacle, doubts, *notes]
    first = next((one for one in (*others, *(one.said for one in receivers)) if one), "")
    calm = row.apart[0] if row.apart and not first else ""
    button = remedy.button if remedy and address else ""
    return VendorFacts(
        row.vendor.pk, row.vendor.slug, tuple(row.meters), row.waiting, _("no end") if row.obstacle else row.ends,
        row.ratio, row.total, row.threshold, row.brief, first, calm, (*why, *row.apart), row.look, tuple(notes),
        remedy.asks if remedy else "", button, address, row.doubts, row.governed, receivers,
    )  # fmt: skip


@register.simple_tag
def campaign_row(campaign: Any) -> SafeString:
    state = campaign.state
    facts = CampaignRow(
        campaign.pk, campaign.name, campaign.sponsor.name, state.sums, state.label, state.why, campaign.created_at
    )
    return _render_row("owners/home_row.html", facts)


def _render_row(name: str, facts: tuple[Any, ...]) -> SafeString:
    return _render_cached(name, facts, get_language(), timezone.get_current_timezone_name())


@lru_cache(maxsize=KEPT)
def _render_cached(name: str, facts: tuple[Any, ...], _language: str | None, _zone: str) -> SafeString:
    return render_to_string(name, {"row": facts})
