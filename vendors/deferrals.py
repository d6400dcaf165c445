"""Waiting receiving domains, for pages, commands and metrics: their names, reasons, and the way to end a wait."""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models import Count, Min, Q, QuerySet
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone

from vendors import alarms, history
from vendors.instants import write_time
from vendors.models import Credential, ReceiverDomain, ReceiverWait, Vendor
from vendors.own_reasons import read_reason
from vendors.ownership import governs_vendor
from vendors.receivers import table_groups
from vendors.remedies import OPERATE
from vendors.said import Said, gettext_noop, show

log = logging.getLogger(__name__)

SLOWED = gettext_noop("%(receiver)s waits until %(at)s: it asked us to slow down")
REFUSES = gettext_noop("%(receiver)s waits until %(at)s: it refuses our mail, whoever the recipient is")
TRIED = gettext_noop("%(receiver)s is tried with one mail at a time: it asked us to slow down")
LASTING = gettext_noop("vendor %(vendor)s: %(receiver)s has accepted nothing since %(at)s: %(answer)s")
ENDED = gettext_noop("the wait of %(receiver)s ended")
MOST_SHOWN = 5
"""Receivers that a page names, of a vendor or a campaign."""
MOST_LISTED = 200
"""Receivers on the page of a credential."""
LONG = timedelta(hours=4)
"""After so long without an acceptance a person should look; longer waits than this have no rule."""


class ShownWait(NamedTuple):
    """A wait on a page. `address`: of the page that ends it; "" for readers who may not."""

    said: str
    address: str


class VendorWaits(NamedTuple):
    """The receivers that wait at one vendor: the longest waits, and the number of all."""

    rows: tuple[ReceiverWait, ...] = ()
    total: int = 0


NO_WAITS = VendorWaits()


def receiver_waits(credential_ids: Iterable[int], most: int | None = None) -> list[ReceiverWait]:
    """Return the receivers that wait on these credentials or have accepted nothing since, the longest wait first."""
    return list(_named_waits(credential_ids)[:most])


def _named_waits(credential_ids: Iterable[int]) -> "QuerySet[ReceiverWait]":
    rows = ReceiverWait.objects.filter(credential__in=list(credential_ids))
    named = rows.select_related("credential__vendor").defer("credential__secret")
    return named.order_by("-until", "receiver")


def shown_waits(
    credential_ids: Collection[int], is_disclosed: Callable[[Vendor], bool], most: int = MOST_SHOWN
) -> list[ReceiverWait]:
    """Return the waits that one reader may see, the longest first. is_disclosed: whether all of a vendor's.

    Several sponsors share a credential. A domain in no group may be known to one of them alone, so the others see only
    receivers of the table and of operators' rows.
    """
    found = receiver_waits(credential_ids, most)
    if all(one.receiver in table_groups() for one in found):
        return found
    vendors = Vendor.objects.filter(credentials__in=list(credential_ids)).distinct()
    disclosed = [of.pk for of in vendors if is_disclosed(of)]
    known = Q(receiver__in=[*table_groups()]) | Q(receiver__in=ReceiverDomain.objects.values("receiver"))
    rows = _named_waits(credential_ids).filter(known | Q(credential__vendor__in=disclosed))
    return list(rows[:most])


LONGEST_WAITS = """
SELECT vendor_id, total, id FROM (
    SELECT l.vendor_id, w.id, count(*) OVER (PARTITION BY l.vendor_id) AS total,
        row_number() OVER (PARTITION BY l.vendor_id ORDER BY w.until DESC, w.receiver) AS place
    FROM vendors_receiverwait w JOIN vendors_credential l ON l.id = w.credential_id
    WHERE l.vendor_id = ANY(%(vendors)s)
) placed WHERE place <= %(most)s ORDER BY vendor_id, place
"""


def waits_of_vendors(vendor_ids: Collection[int], most: int = MOST_SHOWN) -> dict[int, VendorWaits]:
    """Return the receivers that wait at these vendors: one statement if none does, else two."""
    with connection.cursor() as cursor:
        cursor.execute(LONGEST_WAITS, {"vendors": list(vendor_ids), "most": most})
        placed = cursor.fetchall()
    if not placed:
        return dict.fromkeys(vendor_ids, NO_WAITS)
    named = ReceiverWait.objects.select_related("credential__vendor").defer("credential__secret")
    rows = named.in_bulk([pk for _vendor, _total, pk in placed])
    found, totals = defaultdict[int, list[ReceiverWait]](list), defaultdict[int, int](int)
    for vendor, total, pk in placed:
        if pk in rows:  # a wait may have ended since
            found[vendor].append(rows[pk])
            totals[vendor] = total
    return {vendor: VendorWaits(tuple(found[vendor]), totals[vendor]) for vendor in vendor_ids}


def describe_wait(wait: ReceiverWait, now: datetime | None = None) -> Said:
    """Return a sentence with the end of the receiver's wait, or one saying that the wait is over and a try is due."""
    if wait.until <= (now or timezone.now()):
        return Said(TRIED, receiver=wait.receiver)
    return Said(REFUSES if wait.refused else SLOWED, receiver=wait.receiver, at=write_time(wait.until))


def show_waits(waits: Iterable[ReceiverWait], user: Any) -> list[ShownWait]:
    """Return the waits as sentences in the reader's language and time, with the page that ends each."""
    return [
        ShownWait(
            show(describe_wait(wait)),
            waits_address(wait.credential_id) if _may_end(user, wait.credential.vendor_id) else "",
        )
        for wait in waits
    ]


def _may_end(user: Any, vendor_id: int) -> bool:
    """Return True if the user operates the vendor."""
    return bool(user.is_staff and user.has_perm(OPERATE)) and governs_vendor(user, vendor_id)


def waits_address(credential_id: int) -> str:
    """Return the page of the receivers that wait on a credential."""
    return reverse("admin:vendors_credential_receivers", args=[credential_id])


def wait_facts(row: ReceiverWait) -> dict[str, Any]:
    """Return a wait for --json."""
    return {
        "vendor": row.credential.vendor.slug,
        "credential": row.credential.name,
        "receiver": row.receiver,
        "since": row.since,
        "until": row.until,
        "cause": row.cause,
        "answers": row.answers,
        "answer": row.answer,
    }


def lasting_waits(vendor_ids: Collection[int] | None = None) -> list[Said]:
    """Return a sentence for each receiver that has accepted nothing for long, oldest first, up to MOST_SHOWN."""
    rows = ReceiverWait.objects.filter(since__lt=Now() - LONG)
    if vendor_ids is not None:
        if not vendor_ids:
            return []
        rows = rows.filter(credential__vendor__in=list(vendor_ids))
    named = rows.select_related("credential__vendor").defer("credential__secret").order_by("since")[:MOST_SHOWN]
    return [
        Said(
            LASTING,
            vendor=row.credential.vendor.slug,
            receiver=row.receiver,
            at=write_time(row.since),
            answer=read_reason(row.answer),
        )
        for row in named
    ]


def warn_of_lasting_waits() -> None:
    """Log each receiver that has accepted nothing for long, once. Concurrent calls do no harm."""
    with transaction.atomic():
        rows = ReceiverWait.objects.filter(since__lt=Now() - LONG, warned_at=None)
        late = list(rows.select_for_update(skip_locked=True, of=["self"]).order_by("pk")[:MOST_LISTED])
        ReceiverWait.objects.filter(pk__in=[row.pk for row in late]).update(warned_at=Now())
        known = Credential.objects.select_related("vendor").defer("secret").in_bulk({row.credential_id for row in late})
    for row in late:
        if login := known.get(row.credential_id):
            alarms.RECEIVER_WAITS_LONG.log(log, login.vendor.slug, row.receiver, row.since.isoformat(), row.answer)


def count_waits() -> list[tuple[int, int, float]]:
    """Return for each vendor how many receivers wait and for how many seconds the first one has accepted nothing."""
    rows = ReceiverWait.objects.order_by().values_list("credential__vendor")
    now = timezone.now()
    return [
        (vendor, number, max(0.0, (now - since).total_seconds()))
        for vendor, number, since in rows.annotate(number=Count("*"), first=Min("since"))
    ]


def end_wait(login: Credential, receiver: str, by: history.Actor, reason: str = "") -> bool:
    """Call the receiver again as if it had not asked to wait. Returns False if it does not wait.

    Jobs that wait for it look again within a minute.
    """
    with transaction.atomic():
        found, _ = ReceiverWait.objects.filter(credential=login, receiver=receiver).delete()
        if found:
            history.record_changes(by, Credential, [(login.pk, Said(ENDED, receiver=receiver))], reason)
    return bool(found)
