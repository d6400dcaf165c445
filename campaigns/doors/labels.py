"""Labels that users see for the state of a message, job or campaign, in the admin, API, commands and campaign reports.

The columns set in its row make the state of a message (document 001), and a label names it in plain English. "Sent"
needs evidence (promise P3): a job or campaign is Sent only when every recipient was accepted, apart from suppressed
ones.
"""

import math
from typing import Any

from django.db.models import Q
from django.utils import formats
from django.utils.translation import gettext as said
from django.utils.translation import gettext_lazy as said_later
from django.utils.translation import gettext_noop as _
from django.utils.translation import ngettext

from campaigns.engine.progress import Progress
from campaigns.models import Message, ReportKind
from campaigns.models.states import OWN_ENDS
from vendors.models import Vendor

# In English, because programs read them and code compares them; pages translate them.
WAITING, SENDING, SENT, PARTLY_SENT = _("Waiting"), _("Sending"), _("Sent"), _("Partly sent")
DELIVERED, BOUNCED = _("Delivered"), _("Bounced")
FAILED, ATTENTION, STOPPED, PAUSED = _("Failed"), _("Needs attention"), _("Stopped"), _("Paused")
EXPIRED, SUPPRESSED = _("Expired"), _("Suppressed")
MOST_STEPS = 4  # of the axis of a picture
LOOKS = {  # the style of a badge: good, going, warn, bad; idle for all others
    SENT: "good",
    DELIVERED: "good",
    SENDING: "going",
    PARTLY_SENT: "warn",
    ATTENTION: "warn",
    PAUSED: "warn",
    FAILED: "bad",
    BOUNCED: "bad",
    EXPIRED: "bad",
}
OWN = {"expired": EXPIRED, "suppressed": SUPPRESSED}
OPEN = _("Without an end")
# Messages by label, from the ground truth. It does not tell Waiting from Sending; the claims do.
SHAPES = {
    SENT: Q(message_id__isnull=False, report=None),
    DELIVERED: Q(report=ReportKind.DELIVERED),
    BOUNCED: Q(report=ReportKind.BOUNCED),
    FAILED: Q(error_code__isnull=False) & ~Q(error_code__in=OWN_ENDS),
    EXPIRED: Q(error_code="expired"),
    SUPPRESSED: Q(error_code="suppressed"),
    ATTENTION: Q(in_doubt_at__isnull=False),
    OPEN: Q(message_id=None, error_code=None, in_doubt_at=None),
}


def label_of_message(row: Message, *, in_flight: bool = False, stopped: bool = False) -> str:
    """Return the label of one message. in_flight: it is in a call. stopped: its job makes no more calls."""
    if row.report is not None:
        return BOUNCED if row.report == ReportKind.BOUNCED else DELIVERED
    if row.message_id is not None:
        return SENT
    if row.error_code is not None:
        return OWN.get(row.error_code, FAILED)
    if row.in_doubt_at:
        return ATTENTION
    if in_flight:
        return SENDING
    return STOPPED if stopped else WAITING


def label_of_sum(sums: Progress, *, stands: bool = False) -> str:
    """Return the label of a job, or of a campaign with all its jobs. stands: no new call is made meanwhile."""
    if not sums.size:
        return WAITING
    if sums.moving and sums.open_messages:
        is_sent_now = sums.begun and (sums.in_flight or not stands)
        return PAUSED if sums.paused else SENDING if is_sent_now else WAITING
    if sums.in_doubt:
        return ATTENTION
    if sums.open_messages:
        return STOPPED
    wanted = sums.size - sums.suppressed
    if not wanted:
        return SUPPRESSED
    if sums.accepted == wanted:
        return DELIVERED if sums.delivered == wanted else SENT
    if sums.accepted:
        return PARTLY_SENT
    return EXPIRED if sums.expired == wanted else FAILED


def format_number(value: int) -> str:
    """Format 1,200 in the language of the page."""
    if 0 <= value < 1000:  # the same in each language, and most frequent
        return str(value)
    return str(formats.number_format(value, force_grouping=True))


def format_share(part: float, places: int = 1) -> str:
    """Format 25.1% in the language of the page."""
    return format_percent(formats.number_format(round(100 * part, places), decimal_pos=places))


def format_percent(number: int | str) -> str:
    """Format a number of percent, or one already formatted, with its sign as the language of the page writes it."""
    return said("%(share)s%%") % {"share": number}


def format_units(number_: int) -> str:
    """Format 3,150 units in the language of the page."""
    return ngettext("%(shown)s unit", "%(shown)s units", number_) % {"shown": format_number(number_)}


def format_charged(number_: int, channel: str) -> str:
    """Format what a vendor counts beside messages, for campaign owners: 3,150 SMS segments."""
    shown = {"shown": format_number(number_)}
    if channel == Vendor.Channel.SMS:
        return ngettext("%(shown)s SMS segment", "%(shown)s SMS segments", number_) % shown
    if channel == Vendor.Channel.PRINT:
        return ngettext("%(shown)s page or sheet", "%(shown)s pages or sheets", number_) % shown
    return ngettext("%(shown)s mail by size", "%(shown)s mails by size", number_) % shown


def form_choices(of: Any) -> list[tuple[str, Any]]:
    """Return the TextChoices for a form, in the language of the page."""
    return [(value, said_later(label)) for value, label in of.choices]


def format_reported(sums: Progress) -> str:
    """Return counts from delivery reports to append to a label, or ""."""
    counts = {said("delivered"): sums.delivered, said("bounced"): sums.bounced}
    return "".join(f", {format_number(count)} {what}" for what, count in counts.items() if count)


def sees_recipients(user: Any) -> bool:
    """Return True if the user may read recipients' addresses in full."""
    return bool(user.has_perm("campaigns.see_recipients"))


def format_recipient(address: str, seen: bool) -> str:
    """Return the address or, for users who may not see it, its first letter and the domain."""
    if seen or not address:
        return address
    _, at, domain = address.partition("@")
    return f"{address[0]}…{at}{domain}" if at else f"{address[0]}…"


def scale_to(most: int) -> tuple[int, ...]:
    """Return up to five whole numbers for an axis from above `most` down to 0, in steps of 1, 2, 5, 10 or so."""
    power = 10 ** max(0, math.floor(math.log10(most)) - 1)
    step = next(step for step in (one * power for one in (1, 2, 5, 10, 20, 50)) if step * MOST_STEPS >= most)
    return tuple(range(-(-most // step) * step, -1, -step))
