"""Tells what goes before a job or a batch: messages of its own sponsor, and other sponsors at the vendor.

Sponsors with queued messages share a vendor by their weights (fair_shares). A place in the queue is therefore counted
in messages that the vendor takes until then, of all sponsors. Operators read names and numbers; owners only read that
others share the vendor, and about which part of it is theirs.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from campaigns import labels
from campaigns.forecast.fair_shares import Claimant, FairShares, split_rate
from campaigns.forecast.queues import LoginQueue, SponsorQueue, VendorQueue
from vendors.limits.values import Limit

MOST_NAMED = 3  # sponsors in a sentence


@dataclass(frozen=True, slots=True)
class Ahead:
    """What goes before a sponsor's messages. own: its messages before them; weight: its own.

    others: the other sponsors with queued messages at the vendor, those with most first.
    """

    own: int
    weight: int = 1
    others: tuple[SponsorQueue, ...] = ()
    name: str = ""

    @property
    def weights(self) -> int:
        return self.weight + sum(one.weight for one in self.others)

    @property
    def for_operators(self) -> str:
        """Say it with names and numbers; "" if nothing goes before them."""
        own = _("behind %(count)s of its own") % {"count": labels.number(self.own)} if self.own else ""
        if not self.others:
            return own
        form = _("%(sponsor)s has %(weight)s of %(weights)s shares of the vendor beside %(others)s")
        shares = form % {
            "sponsor": self.name, "weight": labels.number(self.weight), "weights": labels.number(self.weights),
            "others": name_sponsors(self.others),
        }  # fmt: skip
        return "; ".join(filter(None, (own, shares)))

    @property
    def for_owners(self) -> str:
        """Say it without names and numbers of other sponsors."""
        own = _("behind %(count)s of your own") % {"count": labels.number(self.own)} if self.own else ""
        shares = _("others share this vendor, and you have about %(part)s of it") % {"part": self.part}
        return "; ".join(filter(None, (own, shares if self.others else "")))

    @property
    def rounded(self) -> float:
        """The sponsor's share, rounded so that it does not give away who the others are."""
        return max(0.01, round(20 * self.weight / self.weights) / 20)

    @property
    def part(self) -> str:
        """The sponsor's share in words, or rounded to 5 percent."""
        return describe_part(self.weight / self.weights)


def describe_part(part: float) -> str:
    """Return a part of a whole in words: a third, or about 15 percent."""
    named_parts = {
        1 / 2: _("half"), 1 / 3: _("a third"), 2 / 3: _("two thirds"), 1 / 4: _("a quarter"),
        3 / 4: _("three quarters"), 1 / 5: _("a fifth"), 1 / 10: _("a tenth"),
    }  # fmt: skip
    near = min(named_parts, key=lambda known: abs(known - part))
    if abs(near - part) < 0.02:
        return named_parts[near]
    percent = 5 * round(20 * part) or 1
    return _("%(percent)s percent") % {"percent": percent}


def name_sponsors(others: Collection[SponsorQueue]) -> str:
    """Name sponsors with their weights and queued messages, the first few."""
    form = _("%(sponsor)s (%(weight)s, %(count)s wait)")
    named = [
        form % {"sponsor": one.name, "weight": labels.number(one.weight), "count": labels.number(one.queued)}
        for one in list(others)[:MOST_NAMED]
    ]
    if (more := len(others) - MOST_NAMED) > 0:
        named.append(_("%(count)s more") % {"count": labels.number(more)})
    return ", ".join(named)


def of_sponsor(queue: VendorQueue, sponsor_id: int, own: int, name: str = "") -> Ahead:
    """Return what goes before messages of this sponsor that have `own` more of it before them."""
    return Ahead(own, queue.weights.get(sponsor_id, 1), tuple(others(queue, sponsor_id)), name)


def others(queue: VendorQueue, sponsor_id: int) -> list[SponsorQueue]:
    """Return the other sponsors with queued messages, those with most first."""
    found = (one for one in queue.sponsors.values() if one.id != sponsor_id)
    return sorted(found, key=lambda one: (-one.queued, one.name))


@dataclass(frozen=True, slots=True)
class SharingSponsor:
    """A sponsor with queued messages at a vendor. part: of the vendor's rate, now."""

    sponsor: SponsorQueue
    weights: int
    part: float

    def facts(self) -> dict[str, Any]:
        """Return it for --json."""
        of = self.sponsor
        return {"sponsor": of.name, "weight": of.weight, "messages": of.queued, "share": round(self.part, 3)}


def list_sharing(queue: VendorQueue, now: datetime) -> list[SharingSponsor]:
    """Return the sponsors with queued messages at a vendor, those with most first, with their shares now."""
    sponsors = others(queue, 0)
    weights, rate = sum(one.weight for one in sponsors), queue.message_rate(queue.limits)
    rates = dict[int, float]()
    if 0 < rate < math.inf and sponsors:
        rates = split_rate(rate, SharedPlaces(queue, sponsors[0].id, now).claimants())
    return [
        SharingSponsor(one, weights, rates.get(one.id, 0.0) / rate if rates else one.weight / weights)
        for one in sponsors
    ]


def describe_sharing(queue: VendorQueue, now: datetime) -> str:
    """Say for operators which sponsors share a vendor; "" if fewer than two have queued messages."""
    found = list_sharing(queue, now)
    if len(found) < 2:
        return ""
    form = _("%(sponsor)s has %(weight)s of %(weights)s (%(count)s wait)")
    named = [
        form % {
            "sponsor": one.sponsor.name, "weight": labels.number(one.sponsor.weight),
            "weights": labels.number(one.weights), "count": labels.number(one.sponsor.queued),
        }
        for one in found[:MOST_NAMED]
    ]  # fmt: skip
    if (more := len(found) - MOST_NAMED) > 0:
        named.append(_("%(count)s more") % {"count": labels.number(more)})
    return _("shares: %(sponsors)s") % {"sponsors": ", ".join(named)}


class SharedPlaces:
    """Places in a vendor's queue, in messages that the vendor, or one of its credentials, takes until then.

    sponsor: whose places are asked for; more: its further messages, not among those that were counted.
    """

    def __init__(self, queue: VendorQueue, sponsor: int, now: datetime, more: int = 0) -> None:
        self._queue, self._sponsor, self._now, self._more = queue, sponsor, now, more

    def of_vendor(self, own: int) -> int:
        """Return the place of the sponsor's nth message at the vendor. Without a limit it is `own`."""
        return self._place(own, self._queue.limits, 0)

    def of_login(self, own: int, login: LoginQueue) -> int:
        """Return the place of the sponsor's nth message at the credential."""
        return self._place(own, login.limits, login.id)

    def _place(self, own: int, limits: Iterable[Limit], login_id: int) -> int:
        rate = self._queue.message_rate(limits)
        if not (0 < rate < math.inf and own > 0):
            return own
        before = rate * self._fair(rate, login_id).seconds_until(self._sponsor, own - 1)
        return max(own, math.floor(before + 1e-6) + 1)

    def _fair(self, rate: float, login_id: int) -> FairShares:
        """Return the model, kept with the queue if it is the same for every sponsor that is asked about."""
        key = login_id, rate
        if self._more or self._waits(self._sponsor):
            return FairShares(rate, self.claimants(login_id))
        if key not in self._queue.fair:
            self._queue.fair[key] = FairShares(rate, self.claimants(login_id))
        found: FairShares = self._queue.fair[key]
        return found

    def claimants(self, login_id: int = 0) -> list[Claimant]:
        """Return the sponsors that share the vendor, or a credential, now."""
        found = [
            Claimant(one.id, one.weight, _queued(one, login_id), math.inf if login_id else self._cap(one))
            for one in self._queue.sponsors.values()
            if one.id != self._sponsor and not self._waits(one.id)
        ]
        own = self._queue.sponsors.get(self._sponsor) or SponsorQueue(
            self._sponsor, "", self._queue.weights.get(self._sponsor, 1)
        )
        units = _queued(own, login_id) + self._more
        return [*found, Claimant(own.id, own.weight, units, math.inf if login_id else self._cap(own))]

    def _waits(self, sponsor: int) -> bool:
        """Return whether all credentials of a sponsor's messages wait as the vendor asked."""
        logins = self._queue.sponsors[sponsor].by_login if sponsor in self._queue.sponsors else ()
        until = [self._queue.logins[login].retry_after_until for login in logins if login in self._queue.logins]
        return bool(until) and all(at is not None and at > self._now for at in until)

    def _cap(self, of: SponsorQueue) -> float:
        """Return the messages a second that a sponsor's credentials allow it. Others may use them, too."""
        found = 0.0
        for login_id in of.by_login:
            rate = self._queue.message_rate(self._queue.logins[login_id].limits)
            if rate == math.inf:
                return rate
            weights = sum(one.weight for one in self._queue.sponsors.values() if login_id in one.by_login)
            found += rate * of.weight / weights
        return found or math.inf


def _queued(of: SponsorQueue, login_id: int) -> int:
    return of.by_login.get(login_id, 0) if login_id else of.queued
