"""Compares mailhub's rows with the vendors' own books, message by message."""

from dataclasses import dataclass
from io import StringIO

from django.core.management import CommandError, call_command

from campaigns.models import Job, Message
from sandbox.demo.processes import SandboxVendor


@dataclass(frozen=True, slots=True)
class Account:
    """The comparison for one vendor.

    `missing`: messages not refused in our rows and not in the vendor's books. `unknown`: messages in the vendor's books
    that our rows do not have, or have with another id.
    """

    vendor: str
    recipients: int
    accepted: int
    refused: int
    vendor_accepted: int
    duplicates: int
    missing: int
    unknown: int
    worst: int
    limit: int
    seconds: float

    @property
    def agrees(self) -> bool:
        wrong = self.duplicates or self.missing or self.unknown or self.accepted != self.vendor_accepted
        return not wrong and self.worst <= self.limit and self.accepted + self.refused == self.recipients


def compare(vendor: SandboxVendor) -> Account:
    """Compare every message of the vendor with its books."""
    theirs = vendor.books()
    rows = Message.objects.filter(campaign__credential__vendor__slug=vendor.slug)
    names = ("uuid", "resend_no", "message_id", "error_code")
    ours: dict[str, str] = {}
    refused = open_ = 0
    for uuid, resend_no, vendor_id, error in rows.values_list(*names).iterator(chunk_size=10_000):
        if vendor_id is not None:
            # Mailgun has one id for many; our reference follows it
            ours[f"{uuid}-{resend_no}"] = vendor_id.partition(" ")[0]
        elif error is not None:
            refused += 1
        else:
            open_ += 1
    booked = {reference: entry.id.strip("<>") for reference, entry in theirs.accepted.items()}
    return Account(
        vendor=vendor.slug,
        recipients=len(ours) + refused + open_,
        accepted=len(ours),
        refused=refused,
        vendor_accepted=len(theirs.acceptances),
        duplicates=len(theirs.duplicates()),
        missing=open_ + len(ours.keys() - booked.keys()),
        unknown=sum(ours.get(reference) != vendor_id for reference, vendor_id in booked.items()),
        worst=theirs.worst_window(vendor.limit.seconds),
        limit=vendor.limit.units,
        seconds=vendor.limit.seconds,
    )


def children() -> dict[int, int]:
    """Return the children of document 003's job 101: id -> size."""
    return dict(Job.objects.filter(parent=101).order_by("id").values_list("id", "size"))


def audit() -> str:
    """Return the breaches found by manage.py audit, or "" if the rows keep all promises."""
    said = StringIO()
    try:
        call_command("audit", stdout=said)
    except CommandError:
        return "\n".join(line for line in said.getvalue().splitlines() if "BREACH" in line)
    return ""
