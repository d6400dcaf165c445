"""Limits of receiving domains: their one change, for the command and the admin's forms, and the words for them.

The database raises `limits_version` with each row, so an edit is in force from the next claim.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from vendors import history, locks, receiver_domains
from vendors.models import AT_A_TIME, Credential, ReceiverLimit, Vendor
from vendors.said import Said, gettext_noop

LIMITED = gettext_noop("limits of %(receiver)s: %(before)s → %(after)s")
NONE = gettext_noop("no limit")
TWICE = gettext_noop("Two limits of %(receiver)s have the same window.")


def read_receiver_limits(of: Vendor, login: Credential | None, receiver: str) -> list[ReceiverLimit]:
    """Return a receiver's limits at the vendor, or those at this credential alone."""
    rows = ReceiverLimit.objects.filter(vendor=of, credential=login, receiver=receiver)
    return list(rows.select_related("vendor"))


def change_receiver_limits(
    of: Vendor,
    login: Credential | None,
    receiver: str,
    wanted: Iterable[ReceiverLimit],
    by: history.Actor,
    *,
    keeps_warm_up: bool = True,
    may_be_gone: bool = False,
) -> bool:
    """Replace a receiver's limits by these rows, in force from the next grant.

    Equal rows are kept; so is, with `keeps_warm_up`, a warm-up that began with the same number and growth on another
    day. may_be_gone: the receiver needs no domain any more. Returns False if nothing changed. Raises ValidationError.
    """
    receiver_domains.refresh_domains(at_once=True)
    rows = {row.seconds: row for row in _check_limits(of, login, receiver, wanted, may_be_gone)}
    with transaction.atomic():
        locks.lock_vendor(of.pk)
        there = read_receiver_limits(of, login, receiver)
        known = {row.seconds: row for row in there}
        gone = [row for row in there if row.seconds not in rows]
        fresh = [row for row in rows.values() if row.seconds not in known]
        edited = [
            (known[row.seconds], row)
            for row in rows.values()
            if row.seconds in known and not _is_same(known[row.seconds], row, keeps_warm_up)
        ]
        if not (gone or fresh or edited):
            return False
        before = describe_limits(there)
        ReceiverLimit.objects.filter(pk__in=[row.pk for row in gone]).delete()
        for old, new in edited:
            ReceiverLimit.objects.filter(pk=old.pk).update(
                units=new.units, grows_from=new.grows_from, growth=new.growth
            )
        for row in fresh:
            row.save(force_insert=True)
        after = describe_limits(read_receiver_limits(of, login, receiver))
        changed = Said(LIMITED, receiver=receiver, before=before, after=after)
        about: Any = (Credential, login.pk) if login else (Vendor, of.pk)
        history.record_changes(by, about[0], [(about[1], changed)])
    return True


def edit_receiver_limits(
    of: Vendor,
    login: Credential | None,
    gone: Collection[int],
    put: Iterable[ReceiverLimit],
    by: history.Actor,
) -> bool:
    """Apply the edits of a form to the limits now in the database; concurrent edits by others stay.

    gone: ids of the rows that the form has deleted or changed. put: new and changed rows, unsaved; each replaces one of
    its window. Returns False if nothing changed. Raises ValidationError.
    """
    with transaction.atomic():
        locks.lock_vendor(of.pk)
        wanted: dict[str, dict[float, ReceiverLimit]] = defaultdict(dict)
        touched, stored = set[str](), set[str]()
        for row in ReceiverLimit.objects.filter(vendor=of, credential=login).select_related("vendor"):
            stored.add(row.receiver)
            if row.pk in gone:
                touched.add(row.receiver)
            else:
                wanted[row.receiver][row.seconds] = row
        for row in put:
            touched.add(row.receiver)
            wanted[row.receiver][row.seconds] = row
        changed = [
            change_receiver_limits(
                of, login, one, wanted[one].values(), by, keeps_warm_up=False, may_be_gone=one in stored
            )
            for one in sorted(touched)
        ]
    return any(changed)


def describe_limits(rows: Iterable[ReceiverLimit]) -> Said:
    """Say the limits of one receiver in a sentence."""
    terms = [row.terms for row in rows]
    return Said.join_parts(", ", terms) if terms else Said(NONE)


def limit_facts(row: ReceiverLimit) -> dict[str, Any]:
    """Return a limit for --json, with its units for today and tomorrow by the vendor's clock."""
    today = vendor_today(row.vendor)
    return {
        "units": row.units,
        "seconds": row.seconds,
        "at_a_time": row.seconds == AT_A_TIME,
        "grows_from": row.grows_from,
        "growth": row.growth if row.grows_from else None,
        "today": row.units_on(today),
        "tomorrow": row.units_on(today + timedelta(days=1)),
    }


def vendor_today(of: Vendor) -> date:
    """Return the day by the vendor's clock."""
    return timezone.localdate(timezone=ZoneInfo(of.time_zone))


def _check_limits(
    of: Vendor, login: Credential | None, receiver: str, wanted: Iterable[ReceiverLimit], may_be_gone: bool
) -> list[ReceiverLimit]:
    rows = list(wanted)
    for row in rows:
        row.vendor, row.credential, row.receiver = of, login, receiver
        row.may_be_gone = may_be_gone
        row.full_clean(validate_unique=False, validate_constraints=False)
    if len({row.seconds for row in rows}) < len(rows):
        raise ValidationError(Said(TWICE, receiver=receiver))
    return rows


def _is_same(old: ReceiverLimit, new: ReceiverLimit, keeps_warm_up: bool) -> bool:
    """Return True if nothing changes. A running warm-up continues; a repeated command does not begin it anew."""
    if not keeps_warm_up and old.grows_from != new.grows_from:
        return False
    if (old.units, old.grows_from is None) != (new.units, new.grows_from is None):
        return False
    return new.grows_from is None or old.growth == new.growth
