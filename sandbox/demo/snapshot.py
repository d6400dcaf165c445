"""The state of the demo at one moment: mailhub's rows and the vendors' own accounts."""

import time
from dataclasses import dataclass, field, replace
from typing import Any

from campaigns.models import Job
from campaigns.models.states import DONE, PARENTS
from sandbox.demo.processes import DemoLimits, SandboxVendor

NAMES = (
    "id", "parent_id", "status", "size", "remaining", "accepted", "refused", "in_doubt", "delivered", "bounced",
    "vendor__slug", "mailcaster__name", "campaign__name",
)  # fmt: skip

COUNTS = ("accepted", "refused", "in_doubt", "delivered", "bounced")


@dataclass(frozen=True, slots=True)
class JobView:
    """A job at that moment. `caster`: the mailcaster that sends it, or "". A parent has the sums of its children."""

    id: int
    parent: int | None
    status: str
    size: int
    remaining: int
    accepted: int
    refused: int
    in_doubt: int
    delivered: int
    bounced: int
    vendor: str
    caster: str
    name: str

    @property
    def is_parent(self) -> bool:
        return self.status in PARENTS

    @property
    def done(self) -> bool:
        return self.status in DONE

    @property
    def answered(self) -> int:
        return self.accepted + self.refused + self.in_doubt


@dataclass(frozen=True, slots=True)
class VendorView:
    """A vendor's account: total calls, calls per second now, its fullest window, calls above its limit.

    `reports`: letters by kind of report that was acknowledged.
    """

    limit: DemoLimits
    calls: int
    speed: float
    worst: int
    violations: int
    reports: dict[str, int]


@dataclass(frozen=True, slots=True)
class Facts:
    """The whole state. `at`: seconds of time.monotonic."""

    at: float
    jobs: dict[int, JobView] = field(default_factory=dict)
    vendors: dict[str, VendorView] = field(default_factory=dict)

    def children(self, parent: int) -> list[JobView]:
        return [job for job in self.jobs.values() if job.parent == parent]

    def caster(self, vendor: str, name: str) -> JobView | None:
        """Return the job that this caster sends now."""
        mine = (job for job in self.jobs.values() if (job.vendor, job.caster) == (vendor, name) and not job.done)
        return next(mine, None)

    @property
    def progress(self) -> tuple[Any, ...]:
        """A value that changes whenever a job does."""
        return tuple((job.id, job.status, job.answered, job.delivered, job.bounced) for job in self.jobs.values())


def look(vendors: dict[str, SandboxVendor], before: Facts) -> Facts:
    """Read rows and vendors. Raises Broken if a vendor does not answer."""
    now = time.monotonic()
    return Facts(now, _jobs(), {slug: _vendor(vendor, before, now) for slug, vendor in vendors.items()})


def _jobs() -> dict[int, JobView]:
    rows = [
        JobView(*row[:-3], *(word or "" for word in row[-3:])) for row in Job.objects.order_by("id").values_list(*NAMES)
    ]
    return {row.id: _summed(row, [child for child in rows if child.parent == row.id]) for row in rows}


def _summed(row: JobView, children: list[JobView]) -> JobView:
    if not row.is_parent:
        return row
    counts = {name: sum(getattr(child, name) for child in children) for name in COUNTS}
    return replace(row, **counts)


def _vendor(vendor: SandboxVendor, before: Facts, now: float) -> VendorView:
    ledger = vendor.ledger()
    last = before.vendors.get(vendor.slug)
    speed = (ledger["calls"] - last.calls) / (now - before.at) if last and now > before.at else 0.0
    if last:
        speed += (last.speed - speed) * 0.6  # smoothed, so that people can read it
    worst = ledger["worst_window"][f"{vendor.limit.seconds:g}"]
    return VendorView(vendor.limit, ledger["calls"], speed, worst, ledger["violations"], ledger["reports"])
