"""Confirmation by a second person of changes to where mail goes or which account sends it.

Such a change concerns a vendor (`configuration.moved_fields`) or a credential (its secret, or the name by which
programs find it). It is stored as a `VendorChange` and does nothing until another user with the same right confirms it.
It is then applied by the same functions as an unconfirmed change, and treated as a move to another account. If it is
still the same account, a person can settle the messages in doubt (campaigns/engine/doubts/resolve.py).

The secret of a new credential waits in the same way, and a new vendor stays paused until it is confirmed. So no
entitlement or route made by one person can lead mail to a place that nobody else has seen. Commands in a shell need no
confirmation.
"""

import hashlib
import json
from collections.abc import Collection, Iterator
from itertools import takewhile
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models.functions import Now

from vendors import configuration, history, locks, ownership
from vendors.history import Actor
from vendors.models import Credential, Vendor, VendorChange
from vendors.said import Said, gettext_noop

OF_VENDORS = ("adapter", "settings", "sandbox")
OF_CREDENTIALS = ("secret", "name")
RIGHT = "vendors.change_vendorchange"
WAITS = Said(gettext_noop("it waits until a second person confirms its secret"))
NEW = Said(gettext_noop("it is new, and waits until a second person confirms it"))
BEGIN: Any = {"paused": False, "paused_reason": ""}  # the change requested for a new vendor
BEGUN: Any = {"unconfirmed": False, "paused_reason_said": None}  # and made with it


class CannotConfirm(ValueError):
    """This user may not confirm or refuse the change. The message is a sentence that says why."""


def is_needed() -> bool:
    """Return True if changes need a second person: VENDOR_SECOND_PERSON, or `auto` with more than one sponsor."""
    said = settings.VENDOR_SECOND_PERSON
    return not ownership.are_alone() if said == "auto" else bool(said == "yes")


def hold_vendor(row: Vendor, fields: Collection[str], by: Actor) -> list[str]:
    """Hold back the changed fields that need a second person, and reset them on `row` to their stored values.

    Returns the names of the fields held back; empty if no confirmation is needed. A new vendor is changed right away,
    and its confirmation requested anew (`hold_new`). Both happen in the transaction that stores the change, so nobody
    can confirm the vendor in between.
    """
    held = [name for name in OF_VENDORS if name in fields]
    if not held or not is_needed() or not configuration.moved_fields(row):
        return []
    wanted = {name: getattr(row, name) for name in held}
    with transaction.atomic():
        stored = locks.lock_vendor(row.pk)
        if _is_new(stored):
            return []
        _store_request(stored, None, wanted, {}, by)
    for name in held:
        setattr(row, name, getattr(stored, name))
    return held


def hold_credential(row: Credential, fields: Collection[str], by: Actor) -> list[str]:
    """Hold back the changed fields of a stored credential, like hold_vendor."""
    held = [name for name in OF_CREDENTIALS if name in fields]
    if not held or not is_needed():
        return []
    wanted: Any = {name: getattr(row, name) for name in held}
    secret = wanted.pop("secret", {})
    with transaction.atomic():
        vendor = locks.lock_vendor(row.vendor_id)
        stored = Credential.objects.get(pk=row.pk)
        _store_request(vendor, stored, wanted, secret, by)
    for name in held:
        setattr(row, name, getattr(stored, name))
    return held


def hold_new_credential(row: Any, by: Actor) -> bool:
    """Store a new credential paused and hold back its secret. Returns False if no confirmation is needed.

    This includes a vendor's first credential; otherwise one person could remove the only one and add an account of
    their own in its place.
    """
    if not row.secret or not is_needed():
        return False
    secret: Any = row.secret
    with transaction.atomic():
        vendor = locks.lock_vendor(row.vendor_id)
        row.secret, row.paused = {}, True
        row.paused_reason, row.paused_reason_said = WAITS, WAITS.data
        row.save()
        _store_request(vendor, row, {}, secret, by)
    return True


def hold_new_vendor(row: Vendor, by: Actor) -> bool:
    """Store a new vendor, paused until a second person confirms it. Returns False if no confirmation is needed."""
    if not is_needed():
        return False
    with transaction.atomic():
        row.paused, row.unconfirmed = True, True
        row.paused_reason, row.paused_reason_said = NEW, NEW.data
        row.save()
        _store_request(row, None, BEGIN, {}, by)
    return True


def hold_new(vendor_id: int, by: Actor) -> bool:
    """Request confirmation of a new vendor as it is now. Returns False if it is not new or needs no confirmation."""
    if not is_needed():
        return False
    with transaction.atomic():
        vendor = locks.lock_vendor(vendor_id)
        if _is_new(vendor):
            _store_request(vendor, None, BEGIN, {}, by)
            return True
    return False


def name_pause(vendor_id: int, reason: str) -> str:
    """Return the reason to store for a shell's pause. A new vendor stays new, so resuming it needs confirmation."""
    return Said.join_parts("; ", [NEW, reason]) if _is_new(Vendor.objects.get(pk=vendor_id)) else reason


def _is_new(vendor: Vendor) -> bool:
    """Return True if nobody has resumed or confirmed the vendor since it was added.

    A version without the column `unconfirmed` leaves the open request alone.
    """
    asked = VendorChange.objects.filter(vendor=vendor, credential=None, fields=BEGIN, outcome="")
    return vendor.paused and (vendor.unconfirmed or asked.exists())


def open_changes(vendor: Vendor) -> list[VendorChange]:
    """Return the open changes of a vendor and its credentials."""
    return list(VendorChange.objects.filter(vendor=vendor, outcome="").select_related("vendor", "credential__vendor"))


def describe_change(change: VendorChange) -> list[tuple[str, Any, Any]]:
    """Return name, stored value and wanted value of each field, shortened. Secrets are only said to be replaced."""
    return [
        (name, history.shorten_settings(old), history.shorten_settings(new)) for name, old, new in _change_lines(change)
    ]


def show_change(change: VendorChange) -> list[tuple[str, Any, Any]]:
    """Return name, stored value and wanted value of each field, a row for each changed line of longer texts."""
    return [line for name, old, new in _change_lines(change) for line in _changed_lines(name, old, new)]


def _change_lines(change: VendorChange) -> Iterator[tuple[str, Any, Any]]:
    row: Any = change.credential or change.vendor
    if change.fields == BEGIN:
        facts = {"adapter": row.adapter, **row.settings, "sandbox": row.sandbox}
        yield from (("new vendor" if name == "adapter" else name, "", value) for name, value in facts.items())
        return
    for name, wanted in change.fields.items():
        before = getattr(row, name)
        if name != "settings":
            yield name, before, wanted
            continue
        for key in sorted({*before, *wanted}):
            old, new = before.get(key), wanted.get(key)
            if old != new:
                yield key, old, new
    if change.secret:
        yield "secret", "", ", ".join(sorted(change.secret))


def _changed_lines(name: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the change, without the equal lines at both ends of a multi-line text."""
    if not (isinstance(old, str) and isinstance(new, str) and "\n" in old + new):
        yield name, old, new
        return
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    alike = _count_alike(before, after)
    before, after = before[alike:], after[alike:]
    ends = _count_alike(before[::-1], after[::-1])
    yield f"{name}:{alike + 1}", "".join(before[: len(before) - ends]), "".join(after[: len(after) - ends])


def _count_alike(one: list[str], other: list[str]) -> int:
    """Return the number of equal lines from the start."""
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(one, other, strict=False)))


def may_confirm(change: VendorChange, user: User) -> bool:
    """Return True if the user may confirm: did not request it, has the right, and governs the vendor."""
    asked = change.asked_by_id == user.pk or change.asked_name == user.get_username()
    return not asked and user.has_perm(RIGHT) and ownership.owns_vendor(user, change.vendor_id)


def confirm_change(change_id: int, user: User) -> list[Credential]:
    """Make the change. Returns the credentials that this paused. Raises CannotConfirm.

    An outdated change is closed instead.
    """
    with transaction.atomic():
        change, vendor = _lock_change(change_id)
        by, paused = Actor(user.get_username(), user.pk), list[Credential]()
        if not may_confirm(change, user):
            raise CannotConfirm(
                gettext_noop("somebody else has to confirm it, who may change vendors and has not asked for it")
            )
        fits = change.basis == _digest_basis(vendor, change.credential)
        if fits:
            paused = _make_change(change, vendor, by)
        _close_change(change, VendorChange.Outcome.CONFIRMED if fits else VendorChange.Outcome.OUTDATED, by)
    if not fits:
        raise CannotConfirm(
            gettext_noop("it was changed since this was asked for, so nothing was done: ask for it again")
        )
    return paused


def refuse_change(change_id: int, user: User) -> VendorChange.Outcome:
    """Close the change without making it: withdrawn if its requester decides, else refused. Raises CannotConfirm."""
    with transaction.atomic():
        change, _vendor = _lock_change(change_id)
        mine = change.asked_by_id == user.pk
        if not mine and not may_confirm(change, user):
            raise CannotConfirm(gettext_noop("you may not decide about changes of this vendor"))
        outcome = VendorChange.Outcome.WITHDRAWN if mine else VendorChange.Outcome.REFUSED
        _close_change(change, outcome, Actor(user.get_username(), user.pk))
        return outcome


def _lock_change(change_id: int) -> tuple[VendorChange, Vendor]:
    """Lock the open change and its vendor, like every change of a vendor. The later of two deciders is refused."""
    found = VendorChange.objects.filter(pk=change_id).values_list("vendor", flat=True).first()
    locks.take_turn(found or 0)
    vendor = Vendor.objects.select_for_update(no_key=True).filter(pk=found or 0).first()
    rows = VendorChange.objects.select_for_update(of=["self"]).select_related("credential")
    change = rows.filter(pk=change_id, outcome="").first()
    if vendor is None or change is None:
        raise CannotConfirm(gettext_noop("it does not wait any more: somebody has decided about it"))
    return change, vendor


def _make_change(change: VendorChange, vendor: Vendor, by: Actor) -> list[Credential]:
    """Make the change with the functions for immediate changes, and record who requested and who confirmed it."""
    parts = [
        history.replaced_sentence(name) if name == "secret" else history.change_sentence(name, old, new)
        for name, old, new in describe_change(change)
    ]
    what = Said(
        gettext_noop("%(changes)s (asked for by %(asker)s, confirmed by %(person)s)"),
        changes=Said.join_parts("; ", parts), asker=change.asked_name, person=by.name,
    )  # fmt: skip
    login = change.credential
    if login is None:
        fields = change.fields | (BEGUN if change.fields == BEGIN else {})
        for name, value in fields.items():
            setattr(vendor, name, value)
        history.record_changes(by, Vendor, [(vendor.pk, what)])
        return configuration.save_vendor(vendor, fields, by)
    if change.fields:
        Credential.objects.filter(pk=login.pk).update(**change.fields)
    if change.secret:
        configuration.save_secret(login, change.secret, by)
    history.record_changes(by, Credential, [(login.pk, what)])
    return []


def _close_change(change: VendorChange, outcome: VendorChange.Outcome, by: Actor) -> None:
    """Close the change and erase its secret; only the credential keeps one."""
    VendorChange.objects.filter(pk=change.pk, outcome="").update(
        outcome=outcome, decided_by=by.name[:150], decided_at=Now(), secret={}
    )
    if outcome != VendorChange.Outcome.CONFIRMED:
        model = Credential if change.credential_id else Vendor
        what = Said(gettext_noop("change %(change)s %(outcome)s"), change=str(change.pk), outcome=Said(outcome.value))
        history.record_changes(by, model, [(change.credential_id or change.vendor_id, what)])


def _store_request(vendor: Vendor, login: Credential | None, fields: Any, secret: Any, by: Actor) -> None:
    """Store the request in place of an earlier open one. The vendor must be locked."""
    earlier = VendorChange.objects.filter(vendor=vendor, credential=login, outcome="")
    earlier.update(outcome=VendorChange.Outcome.WITHDRAWN, decided_by=by.name[:150], decided_at=Now(), secret={})
    change = VendorChange(
        vendor=vendor, credential=login, fields=fields, secret=secret, basis=_digest_basis(vendor, login),
        asked_by_id=by.id, asked_name=by.name[:150],
    )  # fmt: skip
    change.save()
    parts = [
        Said(name) if name == "secret" else Said("%(name)s → %(new)s", name=Said(name), new=str(new))
        for name, _old, new in describe_change(change)
    ]
    what = Said(
        gettext_noop("asked for %(changes)s: it waits for a second person"),
        changes=Said.join_parts("; ", parts or [Said(gettext_noop("nothing"))]),
    )
    history.record_changes(by, Credential if login else Vendor, [((login or vendor).pk, what)])


def _digest_basis(vendor: Vendor, login: Credential | None) -> str:
    """Return a digest of the rows the change is about; for a credential that includes where its secret would go."""
    vendor = Vendor.objects.get(pk=vendor.pk)
    facts: list[Any] = [vendor.adapter, vendor.settings, vendor.sandbox]
    if login is None and _is_new(vendor):
        facts.append(vendor.paused_reason)  # somebody may have paused it for another reason too
    if login is not None:
        stored = Credential.objects.only("name", "destination").get(pk=login.pk)
        facts += [stored.name, vendor.destination, stored.destination]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
