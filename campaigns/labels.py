"""The words that people see for a message, a job and a campaign. Admin, API, commands and reports all use them.

A row's shape is its state (document 001); the words are the shape in plain English. "Sent" needs evidence (promise
P3): a sum of a job or a campaign is Sent only when every recipient was accepted.
"""

from typing import Any

from campaigns.models import Delivery, ReportKind
from campaigns.progress import Progress

WAITING, SENDING, SENT, PARTLY_SENT = "Waiting", "Sending", "Sent", "Partly sent"
DELIVERED, BOUNCED = "Delivered", "Bounced"
FAILED, ATTENTION, STOPPED, EXPIRED = "Failed", "Needs attention", "Stopped", "Expired"


def of_message(row: Delivery, stopped: bool = False, receipt: str | None = None) -> str:
    """row: the ops row while its job is being sent, else the message itself; stopped: its job makes no more calls.

    receipt: what the vendor reported later, which only the message itself has.
    """
    if receipt is not None:
        return BOUNCED if receipt == ReportKind.BOUNCED else DELIVERED
    if row.message_id is not None:
        return SENT
    if row.error_code is not None:
        return EXPIRED if row.error_code == "expired" else FAILED
    if row.in_doubt_at:
        return ATTENTION
    if row.sent_at:
        return SENDING
    return STOPPED if stopped else WAITING


def of_sum(sums: Progress) -> str:
    """One word for a job, or for a campaign with all its jobs."""
    if not sums.size:
        return WAITING
    if sums.moving and sums.open:
        return SENDING if sums.begun else WAITING
    if sums.in_doubt:
        return ATTENTION
    if sums.open:
        return STOPPED
    if sums.accepted == sums.size:
        return DELIVERED if sums.delivered == sums.size else SENT
    if sums.accepted:
        return PARTLY_SENT
    return EXPIRED if sums.expired == sums.size else FAILED


def reported(sums: Progress) -> str:
    """What the vendor reported later, to be put after the rest; empty where it has reported nothing."""
    told = {"delivered": sums.delivered, "bounced": sums.bounced}
    return "".join(f", {count:,} {what}" for what, count in told.items() if count)


def cost(sums: Progress) -> str:
    """What its calls cost, to be put after the rest; empty where each costs one."""
    return f", {sums.units:,} units" if sums.units > sums.accepted + sums.refused + sums.in_doubt else ""


def sees_recipients(user: Any) -> bool:
    return bool(user.has_perm("campaigns.see_recipients"))


def recipient(address: str, seen: bool) -> str:
    """Whole, or as those see it who may not know it: its first letter and what follows an @."""
    if seen or not address:
        return address
    _, at, domain = address.partition("@")
    return f"{address[0]}…{at}{domain}" if at else f"{address[0]}…"
