"""The second person who lets a change of where mail goes, or as whom, take effect.

Such a change of a vendor (`configuration.moves`) or of a credential (its secret, or the name by which programs get it)
is stored as a `VendorChange` and changes nothing else, until another user with the same right confirms it. It is
then made by the functions that make it without a second person, as one to another account: whoever knows better says so
of the messages in doubt afterwards (campaigns/doubts/resolve.py). The secret of a new credential waits likewise, and a
new vendor is paused so long: no entitlement and no route of one person leads mail to a place that nobody else has seen.
A shell is the installation's, and needs nobody.
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
from django.utils.translation import gettext_noop

from vendors import configuration, history, locks, ownership
from vendors.history import Actor
from vendors.models import Credential, Vendor, VendorChange

OF_VENDORS = ("adapter", "settings", "sandbox")
OF_CREDENTIALS = ("secret", "name")
RIGHT = "vendors.change_vendorchange"
WAITS = "it waits until a second person confirms its secret"
NEW = "it is new, and waits until a second person confirms it"  # a vendor that is paused with it has no such person
BEGIN: Any = {"paused": False, "paused_reason": ""}  # what is asked for then


class CannotConfirm(ValueError):
    """A sentence: why this user does not confirm or refuse this change."""


def is_needed() -> bool:
    """Whether changes wait for a second person: as VENDOR_SECOND_PERSON says, or with more than one sponsor."""
    said = settings.VENDOR_SECOND_PERSON
    return not ownership.are_alone() if said == "auto" else bool(said == "yes")


def hold_vendor(row: Vendor, fields: Collection[str], by: Actor) -> list[str]:
    """Hold back those of the changed fields that need a second person: their columns have the stored values again.

    Returns their names; none: nothing needs one. A vendor that is new is changed at once, and asked for anew
    (`hold_new`); so that it is not confirmed in between, this is in the transaction that stores the change.
    """
    held = [name for name in OF_VENDORS if name in fields]
    if not held or not is_needed() or not configuration.moves(row):
        return []
    wanted = {name: getattr(row, name) for name in held}
    with transaction.atomic():
        stored = locks.lock_vendor(row.pk)
        if _is_new(stored):
            return []
        _ask(stored, None, wanted, {}, by)
    for name in held:
        setattr(row, name, getattr(stored, name))
    return held


def hold_credential(row: Credential, fields: Collection[str], by: Actor) -> list[str]:
    """The same for the changed fields of a stored credential."""
    held = [name for name in OF_CREDENTIALS if name in fields]
    if not held or not is_needed():
        return []
    wanted: Any = {name: getattr(row, name) for name in held}
    secret = wanted.pop("secret", {})
    with transaction.atomic():
        vendor = locks.lock_vendor(row.vendor_id)
        stored = Credential.objects.get(pk=row.pk)
        _ask(vendor, stored, wanted, secret, by)
    for name in held:
        setattr(row, name, getattr(stored, name))
    return held


def hold_new_credential(row: Any, by: Actor) -> bool:
    """Store a new credential paused and without its secret, which waits; False: it needs nobody.

    Also the first of its vendor: whoever removes the only one could else put an account of his own in its place.
    """
    if not row.secret or not is_needed():
        return False
    secret: Any = row.secret
    with transaction.atomic():
        vendor = locks.lock_vendor(row.vendor_id)
        row.secret, row.paused, row.paused_reason = {}, True, WAITS
        row.save()
        _ask(vendor, row, {}, secret, by)
    return True


def hold_new_vendor(row: Vendor, by: Actor) -> bool:
    """Store a new vendor paused until a second person confirms it; False: it needs nobody."""
    if not is_needed():
        return False
    with transaction.atomic():
        row.paused, row.paused_reason = True, NEW
        row.save()
        _ask(row, None, BEGIN, {}, by)
    return True


def hold_new(vendor_id: int, by: Actor) -> bool:
    """Ask for a new vendor as it is now, if nobody has confirmed it; False: it is not new, or needs nobody."""
    if not is_needed():
        return False
    with transaction.atomic():
        vendor = locks.lock_vendor(vendor_id)
        if _is_new(vendor):
            _ask(vendor, None, BEGIN, {}, by)
            return True
    return False


def name_pause(vendor_id: int, reason: str) -> str:
    """The words under which a shell's pause is stored: a vendor that is new stays so, whoever resumes it on a page."""
    return f"{NEW}; {reason}" if _is_new(Vendor.objects.get(pk=vendor_id)) else reason


def _is_new(vendor: Vendor) -> bool:
    return vendor.paused and vendor.paused_reason.startswith(NEW)


def waiting(vendor: Vendor) -> list[VendorChange]:
    """What waits of a vendor and its credentials."""
    return list(VendorChange.objects.filter(vendor=vendor, outcome="").select_related("vendor", "credential__vendor"))


def describe(change: VendorChange) -> list[tuple[str, Any, Any]]:
    """Of each field its name, its stored and its wanted value, in brief; of secrets only that they are replaced."""
    return [(name, history.brief(old), history.brief(new)) for name, old, new in _described(change)]


def show(change: VendorChange) -> list[tuple[str, Any, Any]]:
    """The same for who decides: of a text of several lines, as a description, all that is changed in it."""
    return [line for name, old, new in _described(change) for line in _lines(name, old, new)]


def _described(change: VendorChange) -> Iterator[tuple[str, Any, Any]]:
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


def _lines(name: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Lines that are alike at both ends of a text are left out."""
    if not (isinstance(old, str) and isinstance(new, str) and "\n" in old + new):
        yield name, old, new
        return
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    alike = _alike(before, after)
    before, after = before[alike:], after[alike:]
    ends = _alike(before[::-1], after[::-1])
    yield f"{name}:{alike + 1}", "".join(before[: len(before) - ends]), "".join(after[: len(after) - ends])


def _alike(one: list[str], other: list[str]) -> int:
    """How many lines are the same from the first one on."""
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(one, other, strict=False)))


def may_confirm(change: VendorChange, user: User) -> bool:
    """Whether the user is a second person: not who has asked, and with the right, for a vendor that he governs."""
    asked = change.asked_by_id == user.pk or change.asked_name == user.get_username()
    return not asked and user.has_perm(RIGHT) and ownership.owns(user, change.vendor_id)


def confirm(change_id: int, user: User) -> list[Credential]:
    """Make the change. Returns the credentials that it has paused. Raises CannotConfirm.

    One that is outdated is ended.
    """
    with transaction.atomic():
        change, vendor = _locked(change_id)
        by, paused = Actor(user.get_username(), user.pk), list[Credential]()
        if not may_confirm(change, user):
            raise CannotConfirm(
                gettext_noop("somebody else has to confirm it, who may change vendors and has not asked for it")
            )
        fits = change.basis == _basis(vendor, change.credential)
        if fits:
            paused = _made(change, vendor, by)
        _decide(change, VendorChange.Outcome.CONFIRMED if fits else VendorChange.Outcome.OUTDATED, by)
    if not fits:
        raise CannotConfirm(
            gettext_noop("it was changed since this was asked for, so nothing was done: ask for it again")
        )
    return paused


def refuse(change_id: int, user: User) -> VendorChange.Outcome:
    """End the change without making it: who has asked withdraws it, anybody else refuses it. Raises CannotConfirm."""
    with transaction.atomic():
        change, _vendor = _locked(change_id)
        mine = change.asked_by_id == user.pk
        if not mine and not may_confirm(change, user):
            raise CannotConfirm(gettext_noop("you may not decide about changes of this vendor"))
        outcome = VendorChange.Outcome.WITHDRAWN if mine else VendorChange.Outcome.REFUSED
        _decide(change, outcome, Actor(user.get_username(), user.pk))
        return outcome


def _locked(change_id: int) -> tuple[VendorChange, Vendor]:
    """The open change with its vendor, locked as for every change of one: of two who decide the second is refused."""
    found = VendorChange.objects.filter(pk=change_id).values_list("vendor", flat=True).first()
    locks.take_turn(found or 0)
    vendor = Vendor.objects.select_for_update(no_key=True).filter(pk=found or 0).first()
    rows = VendorChange.objects.select_for_update(of=["self"]).select_related("credential")
    change = rows.filter(pk=change_id, outcome="").first()
    if vendor is None or change is None:
        raise CannotConfirm(gettext_noop("it does not wait any more: somebody has decided about it"))
    return change, vendor


def _made(change: VendorChange, vendor: Vendor, by: Actor) -> list[Credential]:
    """Makes the change by the functions that make one at once; tells the history who asked and who confirmed."""
    parts = [f"{name} {'replaced' if name == 'secret' else f'{old} → {new}'}" for name, old, new in describe(change)]
    what = f"{'; '.join(parts)} (asked for by {change.asked_name}, confirmed by {by.name})"
    login = change.credential
    if login is None:
        for name, value in change.fields.items():
            setattr(vendor, name, value)
        history.record(by, Vendor, [(vendor.pk, what)])
        return configuration.save_vendor(vendor, change.fields, by)
    if change.fields:
        Credential.objects.filter(pk=login.pk).update(**change.fields)
    if change.secret:
        configuration.save_secret(login, change.secret, by)
    history.record(by, Credential, [(login.pk, what)])
    return []


def _decide(change: VendorChange, outcome: VendorChange.Outcome, by: Actor) -> None:
    """A secret that was decided about is not kept beside the credential's."""
    VendorChange.objects.filter(pk=change.pk, outcome="").update(
        outcome=outcome, decided_by=by.name[:150], decided_at=Now(), secret={}
    )
    if outcome != VendorChange.Outcome.CONFIRMED:
        model = Credential if change.credential_id else Vendor
        history.record(by, model, [(change.credential_id or change.vendor_id, f"change {change.pk} {outcome.value}")])


def _ask(vendor: Vendor, login: Credential | None, fields: Any, secret: Any, by: Actor) -> None:
    """Store what is asked for, in place of what was asked for before. The vendor is locked."""
    earlier = VendorChange.objects.filter(vendor=vendor, credential=login, outcome="")
    earlier.update(outcome=VendorChange.Outcome.WITHDRAWN, decided_by=by.name[:150], decided_at=Now(), secret={})
    change = VendorChange(
        vendor=vendor, credential=login, fields=fields, secret=secret, basis=_basis(vendor, login), asked_by_id=by.id,
        asked_name=by.name[:150],
    )  # fmt: skip
    change.save()
    parts = [f"{name}{'' if name == 'secret' else f' → {new}'}" for name, _old, new in describe(change)]
    what = f"asked for {'; '.join(parts) or 'nothing'}: it waits for a second person"
    history.record(by, Credential if login else Vendor, [((login or vendor).pk, what)])


def _basis(vendor: Vendor, login: Credential | None) -> str:
    """A digest of what the change is about: of a credential also of where its secret would go."""
    vendor = Vendor.objects.get(pk=vendor.pk)
    facts: list[Any] = [vendor.adapter, vendor.settings, vendor.sandbox]
    if login is None and _is_new(vendor):
        facts.append(vendor.paused_reason)  # somebody may have paused it besides
    if login is not None:
        stored = Credential.objects.only("name", "destination").get(pk=login.pk)
        facts += [stored.name, vendor.destination, stored.destination]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
