"""Tells what goes before a job or a batch: messages of its own sponsor, and other sponsors at the vendor.

Sponsors with queued messages share a vendor by classes of mail, then by their weights (fair_shares). A place in the
queue is therefore counted in messages that the vendor takes until then, of all sponsors. Operators read names and
numbers; owners only read that others share the vendor, and about which part of it is theirs.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.utils.translation import gettext as _

from campaigns.doors import labels
from campaigns.reporting.forecast.fair_shares import Claimant, FairShares, split_all, split_classes
from campaigns.reporting.forecast.queues import LoginQueue, SponsorQueue, VendorQueue
from vendors.limits.values import Limit
from vendors.mail_classes import MailClass
from vendors.said import show

MOST_NAMED = 3  # sponsors in a sentence
FURTHEST = 1e15  # messages; a place that never comes


@dataclass(frozen=True, slots=True)
class Ahead:
    """What goes before a sponsor's messages. own: its messages before them; weight: its own.

    others: the other sponsors with queued messages of the same class at the vendor; higher: those with more urgent
    ones; each with how many, those with most first. of_class: the part of the vendor that its class has meanwhile.
    """

    own: int
    weight: int = 1
    others: tuple[tuple[SponsorQueue, int], ...] = ()
    name: str = ""
    higher: tuple[tuple[SponsorQueue, int], ...] = ()
    of_class: float = 1.0

    @property
    def sum_of_weights(self) -> int:
        return self.weight + sum(one.weight for one, _count in self.others)

    @property
    def text_for_operators(self) -> str:
        """Say it with names and numbers; "" if nothing goes before them."""
        own = _("behind %(count)s of its own") % {"count": labels.format_number(self.own)} if self.own else ""
        form = _("%(sponsor)s has %(weight)s of %(weights)s shares of the vendor beside %(others)s")
        shares = form % {
            "sponsor": self.name, "weight": labels.format_number(self.weight),
            "weights": labels.format_number(self.sum_of_weights),
            "others": name_sponsors(self.others),
        }  # fmt: skip
        return "; ".join(filter(None, (own, self._describe_higher(), shares if self.others else "")))

    def _describe_higher(self) -> str:
        if not self.higher:
            return ""
        values = {"others": name_sponsors(self.higher), "percent": f"{100 * self.of_class:.0f}"}
        if self.of_class:
            form = _("more urgent mail goes first, but for a floor of %(percent)s percent: %(others)s")
        else:
            form = _("more urgent mail goes first, and there is no floor: %(others)s")
        return form % values

    @property
    def text_for_owners(self) -> str:
        """Say it without names and numbers of other sponsors."""
        own = _("behind %(count)s of your own") % {"count": labels.format_number(self.own)} if self.own else ""
        urgent = _("more urgent mail of others goes first") if self.higher else ""
        shares = _("others share this vendor, and you have about %(part)s of it") % {"part": self.part}
        if self.higher and not self.of_class:
            shares = _("yours waits as long as it comes")
        return "; ".join(filter(None, (own, urgent, shares if self.others or self.higher else "")))

    @property
    def rounded_share(self) -> float:
        """The sponsor's share, rounded to keep the other sponsors' identities secret."""
        return max(0.01, round(20 * self._exact_share) / 20)

    @property
    def part(self) -> str:
        """The sponsor's share in words, or rounded to 5 percent."""
        return describe_part(self._exact_share)

    @property
    def _exact_share(self) -> float:
        return self.of_class * self.weight / self.sum_of_weights


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


def name_sponsors(others: Collection[tuple[SponsorQueue, int]]) -> str:
    """Name the first few sponsors with queued messages, with their weights and counts."""
    form = _("%(sponsor)s (%(weight)s, %(count)s wait)")
    named = [
        form % {"sponsor": one.name, "weight": labels.format_number(one.weight), "count": labels.format_number(count)}
        for one, count in list(others)[:MOST_NAMED]
    ]
    if (more := len(others) - MOST_NAMED) > 0:
        named.append(_("%(count)s more") % {"count": labels.format_number(more)})
    return ", ".join(named)


def queue_before_sponsor(queue: VendorQueue, sponsor_id: int, own: int, mail_class: int, name: str = "") -> Ahead:
    """Return what goes before messages of this sponsor and class that have `own` more of both before them."""
    rest, mine = list_other_sponsors(queue, sponsor_id), queue.sponsors.get(sponsor_id)
    beside = [(one, count) for one in rest if (count := one.count(mail_class))]
    higher = [(one, count) for one in rest if (count := one.count_higher(mail_class))]
    there = {mail_class, *(of for one in rest for of in one.classes)}
    return Ahead(
        own + (mine.count_higher(mail_class) if mine else 0),
        queue.weights.get(sponsor_id, 1),
        _sort_by_queued(beside),
        name,
        _sort_by_queued(higher),
        split_classes(1.0, queue.floor / 100, dict.fromkeys(there, math.inf))[mail_class],
    )


def _sort_by_queued(found: list[tuple[SponsorQueue, int]]) -> tuple[tuple[SponsorQueue, int], ...]:
    return tuple(sorted(found, key=lambda one: (-one[1], one[0].name)))


def list_other_sponsors(queue: VendorQueue, sponsor_id: int) -> list[SponsorQueue]:
    """Return the other sponsors with queued messages, those with most first."""
    found = (one for one in queue.sponsors.values() if one.id != sponsor_id)
    return sorted(found, key=lambda one: (-one.count_queued, one.name))


@dataclass(frozen=True, slots=True)
class SharingSponsor:
    """A sponsor with queued messages at a vendor. part: of the vendor's rate, now."""

    sponsor: SponsorQueue
    weights: int
    part: float

    def sharing_facts(self) -> dict[str, Any]:
        """Return it for --json."""
        of = self.sponsor
        classes = {MailClass(one).word: of.count(one) for one in of.classes}
        return {
            "sponsor": of.name, "weight": of.weight, "messages": of.count_queued, "classes": classes,
            "share": round(self.part, 3),
        }  # fmt: skip


def list_sharing(queue: VendorQueue, now: datetime) -> list[SharingSponsor]:
    """Return the sponsors with queued messages at a vendor, those with most first, with their shares now."""
    sponsors = list_other_sponsors(queue, 0)
    weights, rate = sum(one.weight for one in sponsors), queue.message_rate(queue.limits)
    is_limited = 0 < rate < math.inf
    if is_limited and sponsors:
        claimants = SharedPlaces(queue, sponsors[0].id, now, sponsors[0].classes[0]).list_claimants()
    else:
        rate = 1.0
        claimants = [Claimant(one.id, one.weight, 1.0, mail_class=of) for one in sponsors for of in one.classes]
    parts = dict[int, float]()
    for (_class, sponsor), share in split_all(rate, queue.floor / 100, claimants).items():
        parts[sponsor] = parts.get(sponsor, 0.0) + share / rate
    return [SharingSponsor(one, weights, parts.get(one.id, 0.0)) for one in sponsors]


def describe_sharing(queue: VendorQueue) -> list[str]:
    """Say for operators which classes and sponsors share a vendor, if more than one has queued messages."""
    return list(filter(None, (_describe_sponsors(list_other_sponsors(queue, 0)), describe_classes(queue))))


def describe_classes(queue: VendorQueue) -> str:
    """Say for operators how many messages of each class wait; "" if all are of one."""
    found = queue.queued_by_class
    if len(found) < 2:
        return ""
    form = _("%(class)s %(count)s")
    named = [form % {"class": show(MailClass(one).label), "count": labels.format_number(found[one])} for one in found]
    form = _("classes: %(classes)s; floor %(percent)s percent") if queue.floor else _("classes: %(classes)s; no floor")
    return form % {"classes": ", ".join(named), "percent": queue.floor}


def _describe_sponsors(found: Sequence[SponsorQueue]) -> str:
    if len(found) < 2:
        return ""
    form = _("%(sponsor)s has %(weight)s of %(weights)s (%(count)s wait)")
    weights = labels.format_number(sum(one.weight for one in found))
    named = [
        form % {
            "sponsor": one.name, "weight": labels.format_number(one.weight), "weights": weights,
            "count": labels.format_number(one.count_queued),
        }
        for one in found[:MOST_NAMED]
    ]  # fmt: skip
    if (more := len(found) - MOST_NAMED) > 0:
        named.append(_("%(count)s more") % {"count": labels.format_number(more)})
    return _("shares: %(sponsors)s") % {"sponsors": ", ".join(named)}


class SharedPlaces:
    """Places in a vendor's queue, in messages that the vendor, or one of its credentials, takes until then.

    sponsor, mail_class: whose places are asked for; more: its further messages, beyond the counted ones.
    """

    def __init__(self, queue: VendorQueue, sponsor: int, now: datetime, mail_class: int, more: int = 0) -> None:
        self._queue, self._sponsor, self._now, self._class, self._more = queue, sponsor, now, mail_class, more

    def place_at_vendor(self, own: int) -> int:
        """Return the place of the sponsor's nth message of the class at the vendor. Without a limit it is `own`."""
        return self._fair_place(own, self._queue.limits, 0)

    def place_at_login(self, own: int, login: LoginQueue) -> int:
        """Return the place of the sponsor's nth message of the class at the credential."""
        return self._fair_place(own, login.limits, login.id)

    def _fair_place(self, own: int, limits: Iterable[Limit], login_id: int) -> int:
        rate = self._queue.message_rate(limits)
        if not (0 < rate < math.inf and own > 0):
            return own
        before = rate * self._fair_model(rate, login_id).seconds_until(self._sponsor, own - 1, self._class)
        return max(own, math.floor(min(before, FURTHEST) + 1e-6) + 1)

    def _fair_model(self, rate: float, login_id: int) -> FairShares:
        """Return the model, kept with the queue if it is the same for every requested sponsor."""
        key = login_id, rate
        if self._more or self._is_waiting_sponsor(self._sponsor):
            return FairShares(rate, self.list_claimants(login_id), self._queue.floor / 100)
        if key not in self._queue.fair:
            self._queue.fair[key] = FairShares(rate, self.list_claimants(login_id), self._queue.floor / 100)
        found: FairShares = self._queue.fair[key]
        return found

    def list_claimants(self, login_id: int = 0) -> list[Claimant]:
        """Return the sponsors that share the vendor, or a credential, now, with each of their classes."""
        found = [
            self._make_claimant(one, login_id, mail_class)
            for one in self._queue.sponsors.values()
            if one.id == self._sponsor or not self._is_waiting_sponsor(one.id)
            for mail_class in one.classes
            if not (self._more and one.id == self._sponsor and mail_class == self._class)
        ]
        if self._more:
            weight = self._queue.weights.get(self._sponsor, 1)
            own = self._queue.sponsors.get(self._sponsor) or SponsorQueue(self._sponsor, "", weight)
            found.append(self._make_claimant(own, login_id, self._class, self._more))
        return found

    def _make_claimant(self, of: SponsorQueue, login_id: int, mail_class: int, more: int = 0) -> Claimant:
        cap = math.inf if login_id else self._sponsor_cap(of, mail_class)
        return Claimant(of.id, of.weight, of.count(mail_class, login_id) + more, cap, mail_class)

    def _is_waiting_sponsor(self, sponsor: int) -> bool:
        """Return whether all credentials of a sponsor's messages wait as the vendor asked."""
        if not self._waiting_logins or sponsor not in self._queue.sponsors:
            return False
        logins = self._queue.sponsors[sponsor].login_ids & self._queue.logins.keys()
        return bool(logins) and logins <= self._waiting_logins

    @cached_property
    def _waiting_logins(self) -> set[int]:
        """The credentials that wait as the vendor asked."""
        until = {pk: one.retry_after_until for pk, one in self._queue.logins.items()}
        return {pk for pk, at in until.items() if at is not None and at > self._now}

    @cached_property
    def _weights_by_login(self) -> Counter[tuple[int, int]]:
        """The weights of the sponsors with messages of a class at a credential, together."""
        sums = Counter[tuple[int, int]]()
        for one in self._queue.sponsors.values():
            sums.update(dict.fromkeys(one.by_class, one.weight))
        return sums

    def _sponsor_cap(self, of: SponsorQueue, mail_class: int) -> float:
        """Return the messages a second that a sponsor's credentials allow it in a class. Others may use them, too.

        Its other classes are left out: the places at the credential tell which of them goes first there.
        """
        found = 0.0
        for login_id in (login for one, login in of.by_class if one == mail_class):
            rate = self._queue.message_rate(self._queue.logins[login_id].limits)
            if rate == math.inf:
                return rate
            found += rate * of.weight / self._weights_by_login[mail_class, login_id]
        return found or math.inf
