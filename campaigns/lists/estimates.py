"""Estimates a campaign before it is sent: its units, their price by the current tariff, and the end of its calls.

The units are exact if the vendor counts messages, or if each letter was rendered. For a long list only every nth letter
is rendered, and the estimate says so. Recipients suppressed before the call cost nothing, so this is an upper bound.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import Any, cast

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from campaigns.content.letter_making import letter_of
from campaigns.doors import labels
from campaigns.doors.labels import format_number
from campaigns.engine.claiming.letters import ClaimedMessage
from campaigns.engine.ports import NotEntitled
from campaigns.engine.routes import entries
from campaigns.lists.intake import Recipients
from campaigns.models import Campaign, Message
from campaigns.reporting.forecast import eta, queues
from campaigns.reporting.forecast.eta import Eta
from campaigns.suppression.links import SIZE, LetterLinks, content_of, link_keys, links_of
from campaigns.texts.templates import Budget, Content, OverBudget, TemplateError
from vendors import adapters, prices
from vendors.adapters.base import Adapter, Letter, one_unit
from vendors.adapters.options import InvalidSettings
from vendors.mail_classes import MailClass
from vendors.models import Credential
from vendors.said import Said, show

MOST_MADE = 1_000  # letters rendered for an estimate
SECONDS = 5.0  # for rendering them and reading the list


def _estimated_from(letters: int) -> str:
    said = ngettext(" (estimated from %(count)s letter)", " (estimated from %(count)s letters)", letters)
    return said % {"count": format_number(letters)}


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of sending this many messages. units: exact if `made` is None, else estimated from `made` letters.

    amount: by the current price; None: no price is known. start, end: of its calls, after everything waiting now.
    without_files: the vendor charges for files, and the estimate ignores them. channel: the vendor's.
    """

    messages: int
    units: int
    made: int | None
    currency: str
    amount: Decimal | None
    start: Eta
    end: Eta
    without_files: bool = False
    channel: str = ""

    @property
    def is_exact(self) -> bool:
        return self.made is None and not self.without_files

    def sentence(self, now: datetime) -> str:
        """Say: 2,000 messages: about 3,150 SMS segments (estimated from 1,000 letters); 23.63 EUR; ... 21:20."""
        many = ngettext("%(shown)s message", "%(shown)s messages", self.messages) % {
            "shown": format_number(self.messages)
        }
        if self.units != self.messages:
            many += f": {self._units_text}"
        return f"{many}{self._estimate_basis}; {self._price_text}; {self.describe_time(now)}"

    def describe_cost(self) -> str:
        """Return: about 3,150 SMS segments (estimated from 1,000 letters); about 23.63 EUR at today's price."""
        return (
            f"{self._units_text}{self._estimate_basis}; {self._price_text}"
            if self.units != self.messages
            else self._price_text + self._estimate_basis
        )

    def describe_time(self, now: datetime) -> str:
        """Say when its first and last call would be, were it sent now, or why nobody can know."""
        if self.end.obstacle:
            return _("no end: %(why)s") % {"why": self.end.obstacle.reason_for_owner}
        if not self.end.ends_at:
            return _("were it sent now, the first would go out at once, and the rest as fast as the vendor answers")
        calls = {"first": eta.format_about(self.start.ends_at, now), "last": eta.format_about(self.end.ends_at, now)}
        if calls["first"] == calls["last"]:
            return _("were it sent now, it would go out %(first)s") % calls
        return _("were it sent now, the first would go out %(first)s, the last %(last)s") % calls

    @property
    def _estimate_word(self) -> str:
        return "" if self.is_exact else _("about ")

    @property
    def _units_text(self) -> str:
        return self._estimate_word + labels.format_charged(self.units, self.channel)

    @property
    def _estimate_basis(self) -> str:
        how = "" if self.made is None else _estimated_from(self.made)
        return how + (_(" without its files") if self.without_files else "")

    @property
    def _price_text(self) -> str:
        if self.amount is None:
            return _("no price is known")
        return self._estimate_word + _("%(amount)s at today's price") % {
            "amount": prices.format_amount(self.amount, self.currency)
        }

    def estimate_facts(self) -> dict[str, Any]:
        """Return the estimate as objects for programs."""
        amount = None if self.amount is None else prices.format_digits(self.amount, self.currency)
        return {
            "messages": self.messages,
            "units": self.units,
            "exact": self.is_exact,
            "currency": self.currency or None,
            "amount": amount,
            "starts_at": _end_as_text(self.start),
            "ends_at": _end_as_text(self.end),
        }


@dataclass(frozen=True, slots=True)
class Weight:
    """The units of letters at a vendor, without a price. units, made: as in Estimate.

    counts_messages: each message is one unit, whatever its text. least, most: for one rendered letter.
    """

    units: int
    made: int | None
    counts_messages: bool
    least: int = 1
    most: int = 1


Listed = Iterable[tuple[str, Mapping[str, Any]]]
ByLogin = Mapping[str, Estimate | None]  # by the name of the credential; a route's in its order
NOT_KNOWN = Said("what it costs is not known: the vendor's settings or its secret are not complete")


def estimate_recipients(
    login: Credential,
    campaign: Campaign,
    content: Content,
    links: LetterLinks | None,
    recipients: Listed,
    total: int,
    budget: Budget | None = None,
    share: int = 1,
) -> Estimate | None:
    """Estimate a campaign, stored or not. None: the vendor cannot be used with its settings and secret.

    total: number of recipients. share: number of vendors that share the time. Raises OverBudget if the budget does not
    cover a single letter; if it ends later, the letters rendered so far count.
    """
    if links:
        links = replace(links, sample="x" * SIZE)  # the length of a real one
    chosen = islice(recipients, 0, None, _sample_step(total))
    letters = (ClaimedMessage(0, "estimate", recipient, dict(fields)) for recipient, fields in chosen)
    try:
        weight = _weigh_letters(login, campaign, content, links, letters, total, budget, share)
        return _price_weight(login, weight, total, campaign)
    except (InvalidSettings, LookupError):
        return None


def estimate_table(
    logins: Sequence[Credential], campaign: Campaign, content: Content, recipients: Recipients
) -> ByLogin:
    """Estimate an unsaved list for each credential that may send it."""
    total, found = len(recipients), {}
    for login in logins:
        links = links_of(campaign, login.vendor.channel, _parts_carried_by(login), None)
        found[str(login)] = estimate_recipients(login, campaign, content, links, recipients, total, share=len(logins))
    return found


def weigh_list(
    logins: Sequence[Credential], campaign: Campaign, content: Content, sample: Sequence[tuple[str, Any]], total: int
) -> dict[str, dict[str, Any] | None]:
    """Return the Weights of a list as objects to store, by id of the credential. sample: some of its rows."""
    found: dict[str, dict[str, Any] | None] = {}
    for login in logins:
        links = links_of(campaign, login.vendor.channel, _parts_carried_by(login), None)
        links = replace(links, sample="x" * SIZE) if links else None
        letters = (ClaimedMessage(0, "estimate", recipient, dict(fields)) for recipient, fields in sample)
        try:
            found[str(login.pk)] = asdict(
                _weigh_letters(login, campaign, content, links, letters, total, None, len(logins))
            )
        except (InvalidSettings, LookupError):
            found[str(login.pk)] = None
    return found


def estimate_by_weights(
    logins: Sequence[Credential], weights: Mapping[str, Any], total: int, campaign: Campaign
) -> ByLogin:
    """Turn the results of `weigh_list` into estimates by current prices and queues. None: no weight is known."""
    return {
        str(login): _price_weight(login, Weight(**one), total, campaign)
        if (one := weights.get(str(login.pk)))
        else None
        for login in logins
    }


def describe_stored_campaign(campaign: Campaign) -> str:
    """Return sentences about a stored campaign, as if none of it were sent yet."""
    try:
        return estimate_sentences(estimate_stored(campaign))
    except (NotEntitled, TemplateError) as error:
        return _("not known: %(why)s") % {"why": show(str(error))}


def estimate_stored(campaign: Campaign) -> ByLogin:
    """Return the estimates of a stored campaign, as if none of it were sent yet. Raises NotEntitled, TemplateError."""
    logins = entries.usable_credentials(campaign.route, campaign.sponsor) if campaign.route else []
    logins.sort(key=lambda one: one.pk != campaign.credential_id)  # the one it begins with
    logins = logins or [Credential.objects.select_related("vendor").get(pk=campaign.credential_id)]
    return {str(login): _estimate_stored_by(campaign, login, len(logins)) for login in logins}


def _estimate_stored_by(campaign: Campaign, login: Credential, share: int) -> Estimate | None:
    ids = range(campaign.first_message, campaign.first_message + campaign.size, _sample_step(campaign.size))
    rows = Message.objects.filter(pk__in=list(ids)).order_by("pk").values_list("pk", "recipient", "params")
    letters = (ClaimedMessage(pk, "estimate", recipient, params) for pk, recipient, params in rows.iterator())
    try:
        links = links_of(campaign, login.vendor.channel, _parts_carried_by(login), link_keys())
        weight = _weigh_letters(login, campaign, content_of(campaign), links, letters, campaign.size, None, share)
        return _price_weight(login, weight, campaign.size, campaign)
    except (InvalidSettings, LookupError):
        return None


def estimate_sentences(by: ByLogin) -> str:
    """Return one sentence for each vendor, which is named if there are several."""
    now = timezone.now()
    texts = {name: one.sentence(now) if one else _(NOT_KNOWN) for name, one in by.items()}
    if len(texts) < 2:
        return "".join(texts.values())
    return "\n".join(_("by %(name)s: %(text)s") % {"name": name, "text": text} for name, text in texts.items())


def estimate_as_facts(name: str, estimate: Estimate | None) -> dict[str, Any]:
    """Return an estimate as objects for programs."""
    return {"by": name, **(estimate.estimate_facts() if estimate else {"messages": None, "why": NOT_KNOWN})}


def _parts_carried_by(login: Any) -> frozenset[str]:
    return adapters.load(login.vendor.adapter).carries(login.vendor.settings)


def choose_sample(total: int) -> Callable[[int], bool]:
    """Return a function that says whether an estimate renders the recipient of this number, counted from 0."""
    step = _sample_step(total)
    return lambda number: number % step == 0


def _sample_step(total: int) -> int:
    return max(1, -(-total // MOST_MADE))


def _weigh_letters(
    login: Any,
    campaign: Campaign,
    content: Content,
    links: LetterLinks | None,
    messages: Iterable[ClaimedMessage],
    total: int,
    budget: Budget | None,
    share: int,
) -> Weight:
    vendor = login.vendor
    adapter = adapters.load(vendor.adapter)(vendor.settings, cast(Any, login.secret))
    if adapter.capabilities.cost is one_unit:
        return Weight(total, None, counts_messages=True)
    origin = campaign.identity.origin if campaign.identity_id and campaign.identity else None
    letters: list[Letter | None] = []  # None: a refused letter, which costs nothing
    latest = time.monotonic() + SECONDS / share
    for message in messages:
        try:
            letter = letter_of(campaign, content, message, budget, origin, links)
        except OverBudget:
            if not letters:
                raise
            break
        letters.append(letter if isinstance(letter, Letter) else None)
        if time.monotonic() > latest:
            break
    costs = asyncio.run(_weigh_in_time(adapter, letters, SECONDS / share))
    made = len(costs)
    units = sum(costs) if made >= total else -(-total * sum(costs) // max(1, made))
    costly = [cost for cost in costs if cost] or [1]
    return Weight(units, None if made >= total else made, False, min(costly), max(costly))


def _price_weight(login: Any, weight: Weight, total: int, campaign: Campaign) -> Estimate:
    """Price a weight by the current tariff, after everything of the sponsor that waits now."""
    price = prices.price_on(login.vendor_id, login.pk, prices.pricing_day())
    amount = weight.units * price.per_unit + total * price.per_message if price else None
    currency = price.currency if price else ""
    without_files = campaign.has_files and not weight.counts_messages
    by_kind = MailClass.BULK if total > 1 and not campaign.transactional else MailClass.USUAL
    start, end = _forecast_calls(login, weight.units, campaign.sponsor_id, campaign.mail_class or by_kind)
    channel = login.vendor.channel
    return Estimate(total, weight.units, weight.made, currency, amount, start, end, without_files, channel)


async def _weigh_in_time(adapter: Adapter, letters: Iterable[Letter | None], seconds: float) -> list[int]:
    """Return the cost of the first letters, until time runs out; at least one."""
    await adapter.open()
    try:
        costs: list[int] = []
        latest = time.monotonic() + seconds
        for letter in letters:
            costs.append(0 if letter is None else max(1, await adapter.weigh(letter)))
            if time.monotonic() > latest:
                break
        return costs
    finally:
        await adapter.close()


def _forecast_calls(login: Any, units: int, sponsor_id: int | None, mail_class: int) -> tuple[Eta, Eta]:
    """Forecast the first and last call for these units of a sponsor, after its own that wait at the vendor now."""
    now = timezone.now()
    queue = queues.queues_of_vendors([login.vendor_id], now)[login.vendor_id]
    sizes = 1, math.ceil(units / queue.each)
    first, last = (eta.forecast_batch(queue, login.pk, sponsor_id, 0, many, now, mail_class) for many in sizes)
    return first, last


def _end_as_text(end: Eta) -> str | None:
    return end.ends_at.isoformat(timespec="seconds") if end.ends_at else None
