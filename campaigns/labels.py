"""The labels that users see for the state of a message, a job or a campaign, in admin, API, commands and reports.

The state of a message is which of its columns are set (document 001), and a label names it in plain English. "Sent"
needs evidence (promise P3): a job or a campaign is Sent only when every recipient was accepted, but for those that are
suppressed.
"""

from typing import Any

from django.db.models import Q
from django.utils import formats
from django.utils.translation import gettext as said
from django.utils.translation import gettext_lazy as said_later
from django.utils.translation import gettext_noop as _
from django.utils.translation import ngettext

from campaigns.merging import OWN_ENDS
from campaigns.models import Message, ReportKind
from campaigns.progress import Progress

# In English, as programs read them and the code compares them; pages translate them when they show them.
WAITING, SENDING, SENT, PARTLY_SENT = _("Waiting"), _("Sending"), _("Sent"), _("Partly sent")
DELIVERED, BOUNCED = _("Delivered"), _("Bounced")
FAILED, ATTENTION, STOPPED, PAUSED = _("Failed"), _("Needs attention"), _("Stopped"), _("Paused")
EXPIRED, SUPPRESSED = _("Expired"), _("Suppressed")
LOOKS = {  # how a badge looks: good, going, warn, bad; idle if it is not here
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
# Messages by their label, by the ground truth, which does not tell Waiting from Sending: that is in the claims.
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


def of_message(row: Message, *, in_flight: bool = False, stopped: bool = False) -> str:
    """The label of one message. in_flight: it is in a call; stopped: its job makes no more calls."""
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


def of_sum(sums: Progress) -> str:
    """The label of a job, or of a campaign with all its jobs."""
    if not sums.size:
        return WAITING
    if sums.moving and sums.open:
        return PAUSED if sums.paused else SENDING if sums.begun else WAITING
    if sums.in_doubt:
        return ATTENTION
    if sums.open:
        return STOPPED
    wanted = sums.size - sums.suppressed
    if not wanted:
        return SUPPRESSED
    if sums.accepted == wanted:
        return DELIVERED if sums.delivered == wanted else SENT
    if sums.accepted:
        return PARTLY_SENT
    return EXPIRED if sums.expired == wanted else FAILED


def number(value: int) -> str:
    """1,200, or as the language of the page has it."""
    if 0 <= value < 1000:  # most, and the same in each
        return str(value)
    return str(formats.number_format(value, force_grouping=True))


def share(part: float, places: int = 1) -> str:
    """25.1%, or as the language of the page has it."""
    return f"{formats.number_format(round(100 * part, places), decimal_pos=places)}%"


def units(number_: int) -> str:
    """3,150 units, as the language of the page has it."""
    return ngettext("%(shown)s unit", "%(shown)s units", number_) % {"shown": number(number_)}


def choices(of: Any) -> list[tuple[str, Any]]:
    """Of TextChoices for a form, in the language of the page."""
    return [(value, said_later(label)) for value, label in of.choices]


def reported(sums: Progress) -> str:
    """Counts from delivery reports, to be appended to a label; empty if there are none."""
    counts = {said("delivered"): sums.delivered, said("bounced"): sums.bounced}
    return "".join(f", {number(count)} {what}" for what, count in counts.items() if count)


def cost(sums: Progress) -> str:
    """What the calls cost, to be appended; empty if each call costs one unit."""
    return f", {units(sums.units)}" if sums.units > sums.accepted + sums.refused + sums.in_doubt else ""


def sees_recipients(user: Any) -> bool:
    """Whether the user may read recipients' addresses in full."""
    return bool(user.has_perm("campaigns.see_recipients"))


def recipient(address: str, seen: bool) -> str:
    """The address, or, for users who may not see it, its first letter and the domain after an @."""
    if seen or not address:
        return address
    _, at, domain = address.partition("@")
    return f"{address[0]}…{at}{domain}" if at else f"{address[0]}…"
