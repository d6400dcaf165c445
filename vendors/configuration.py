"""Changes of a vendor's configuration that have rules.

- `save_vendor`: deletes stored secrets if their destination changes. Otherwise a person who may edit a vendor could
  read its secrets by sending one letter to an address of their own.
- `save_vendor`, `save_secret`: only a person settles calls made in another account (destinations.py).
- `pause_vendor`, `resume_vendor`, `pause_credential`, `resume_credential`: for commands and pages alike.
- Rate limits of a vendor or a credential: replaced as a whole, and described in a sentence.
- `create_default_casters`: the mailcasters of a new vendor (document 003).
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

from django.contrib.postgres.functions import TransactionNow
from django.db import ProgrammingError, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.dispatch import Signal

from vendors import adapters, destinations, history, locks, said
from vendors.adapters.options import InvalidSettings, NoSecret
from vendors.limits.values import Limit
from vendors.models import Credential, Mailcaster, RateLimit, Vendor
from vendors.said import Said, gettext_noop

LimitSpec = tuple[int, float]  # units, and seconds of the window

# MC1 takes only small jobs, so a long broadcast never delays a single letter. MC2 cuts small children (sizes of
# document 003's example), so it is soon free for the next small job. MC3 and MC4 use the document's defaults.
DEFAULT = (
    ("MC1", Mailcaster.Kind.SMALL_ONLY, 200, 2000),
    ("MC2", Mailcaster.Kind.SMALL_PRIORITY, 200, 2000),
    ("MC3", Mailcaster.Kind.LARGE_PRIORITY, 2000, 10_000),
    ("MC4", Mailcaster.Kind.LARGE_PRIORITY, 2000, 10_000),
)
PERCENTAGE = 3
calls_may_start = Signal()  # a person has ended what kept jobs of vendor_id from being sent
SAME_ACCOUNT = Said(gettext_noop("said to reach the same account as before"))


def create_default_casters(vendor: Vendor) -> list[Mailcaster]:
    """Create a vendor's default casters. Returns them in the order in which they wake."""
    return [
        Mailcaster.objects.create(
            vendor=vendor, name=name, kind=kind, min_size=low, max_size=high, percentage=PERCENTAGE
        )
        for name, kind, low, high in DEFAULT
    ]


LATENCIES = (0.2, 1.0)  # seconds, as examples


def rate_limits(vendor: Vendor, credential: Credential | None = None) -> list[LimitSpec]:
    """Return the rate limits of the vendor, or only those of the credential."""
    rows = RateLimit.objects.filter(vendor=vendor, credential=credential)
    return [(row.units, row.seconds) for row in rows]


@transaction.atomic
def replace_rate_limits(vendor: Vendor, credential: Credential | None, windows: Iterable[LimitSpec]) -> bool:
    """Replace the rate limits, in force from the next grant. Equal ones are kept. Returns False if nothing changed."""
    locks.lock_vendor(vendor.pk)  # serialises two replacements
    wanted = {seconds: units for units, seconds in windows}
    there = RateLimit.objects.filter(vendor=vendor, credential=credential)
    gone = [row for row in there if wanted.get(row.seconds) != row.units]
    kept = {row.seconds for row in there} - {row.seconds for row in gone}
    there.filter(pk__in=[row.pk for row in gone]).delete()
    fresh = {seconds: units for seconds, units in wanted.items() if seconds not in kept}
    for seconds, units in fresh.items():
        RateLimit.objects.create(vendor=vendor, credential=credential, units=units, seconds=seconds)
    if gone or fresh:
        _announce_start_of_calls(vendor.pk)
    return bool(gone or fresh)


@transaction.atomic
def edit_rate_limits(
    vendor: Vendor, credential: Credential | None, gone: Collection[int], put: Iterable[LimitSpec]
) -> bool:
    """Apply the edits of a form to the limits now in the database; concurrent edits by others stay.

    gone: ids of the rows that the form has deleted or changed. put: new and changed limits; each replaces one of its
    window. Returns False if nothing changed.
    """
    locks.lock_vendor(vendor.pk)
    there = RateLimit.objects.filter(vendor=vendor, credential=credential).exclude(pk__in=gone)
    windows = {row.seconds: row.units for row in there} | {seconds: units for units, seconds in put}
    return replace_rate_limits(vendor, credential, [(units, seconds) for seconds, units in windows.items()])


def describe_rate_limit(window: LimitSpec) -> str:
    """Say in a sentence which rate a limit allows. A place is held until its window has passed since the call ended."""
    units, seconds = window
    if not units:
        return f"0/{seconds:g}: paused"
    reached = [(units * seconds / (seconds + wait), wait) for wait in LATENCIES]
    span = Limit(units, seconds).span
    rates = ", ".join(f"{rate:{',.0f' if rate >= 1000 else '.4g'}} with {wait:g} s" for rate, wait in reached)
    return (
        f"{units}/{seconds:g}: never more than {units:,} calls in any {span}. Reached are "
        f"{units:,} × {seconds:g}/({seconds:g} + the vendor's latency): {rates}. "
        "The longest window that the contract allows is the fastest."
    )


def _announce_start_of_calls(vendor_id: int) -> None:
    transaction.on_commit(lambda: calls_may_start.send(Vendor, vendor_id=vendor_id))


def pause_vendor(row: Vendor, reason: str, again: bool = False) -> bool:
    """Pause the vendor. Returns False if it was paused. again: then its reason is replaced."""
    return _pause_row(Vendor, row.pk, row.pk, reason, again, {})


@transaction.atomic
def resume_vendor(row: Vendor) -> bool:
    """Resume a vendor, also one that nobody has confirmed yet. Returns False if it was not paused."""
    locks.take_turn(row.pk)
    running = {"paused": False, "unconfirmed": False, **said.columns("paused_reason", "")}
    resumed = bool(Vendor.objects.filter(pk=row.pk, paused=True).update(**running))
    if resumed:
        _announce_start_of_calls(row.pk)
    return resumed


def pause_credential(login: Credential, reason: str, again: bool = False) -> bool:
    """Pause the credential. Returns False if it was paused. again: then its reason is replaced."""
    return _pause_row(Credential, login.pk, login.vendor_id, reason, again, {"awaits_secret": False})


@transaction.atomic
def _pause_row(
    model: type[Vendor | Credential], pk: int, vendor_id: int, reason: str, again: bool, more: Mapping[str, bool]
) -> bool:
    locks.take_turn(vendor_id)
    rows = model._default_manager.filter(pk=pk)
    pause = {"paused": True, **more, **said.columns("paused_reason", reason)}
    paused = bool(rows.filter(paused=False).update(**pause))
    if again and not paused:
        rows.update(**pause)
    return paused


def resume_credential(login: Credential) -> tuple[bool, bool]:
    """Resume the credential and end the wait that its vendor asked for. Returns whether each of both was there.

    Raises NoSecret if it has not the secret that its adapter requires.
    """
    require_secret(login)
    with transaction.atomic():
        return _resume_login(login), end_wait(login)


def paused_until_secret(why: NoSecret) -> dict[str, Any]:
    """Return the columns of a new credential, paused until its first secret is entered."""
    reason = Said(gettext_noop("it waits for its secret: %(why)s"), why=str(why))
    return {"paused": True, "awaits_secret": True, **said.columns("paused_reason", reason)}


@transaction.atomic
def resume_with_secret(login: Credential) -> bool:
    """Resume a credential that was paused until its first secret is entered. Returns False for any other."""
    return _resume_login(login, awaits_secret=True)


def _resume_login(login: Credential, **only: bool) -> bool:
    logins = Credential.objects.filter(pk=login.pk, paused=True, **only)
    resumed = bool(logins.update(paused=False, awaits_secret=False, **said.columns("paused_reason", "")))
    if resumed:
        _announce_start_of_calls(login.vendor_id)
    return resumed


def require_secret(login: Credential) -> None:
    """Raise NoSecret if a credential about to be used lacks the secret that its adapter requires."""
    secret: Any = login.secret
    try:
        adapters.load(login.vendor.adapter).for_credential(login.vendor.settings, secret)
    except NoSecret:
        raise
    except (LookupError, InvalidSettings):  # other faults are reported where they matter
        return


def end_wait(login: Credential) -> bool:
    """End the wait that a vendor asked for (Retry-After). Returns False if there is none.

    If it asks again immediately, the next wait is at least twice the last one, up to some minutes. A wait after a
    recovery of the store, when windows are unknown, is kept.
    """
    waits = Credential.objects.filter(pk=login.pk, asked_wait__isnull=False, retry_after_until__gt=TransactionNow())
    ended = bool(waits.update(retry_after_until=None))
    if ended:
        _announce_start_of_calls(login.vendor_id)
    return ended


@transaction.atomic
def hold_brake(login: Credential) -> bool:
    """Hold the brake of a credential: until its release nobody calls over it, not even a probe. False: it was held.

    See vendors/condition/brake.py. A probe under way ends and is recorded.
    """
    locks.take_turn(login.vendor_id)
    rows = Credential.objects.filter(pk=login.pk, brake_held_at=None)
    # Without a brake a wait of another reason may be running, which the release must not end.
    return bool(rows.update(brake_held_at=TransactionNow(), probe_no=F("probe_no") + 1))


@transaction.atomic
def release_brake(login: Credential) -> bool:
    """Release the brake of a credential, held or not: calls may start again immediately.

    Returns False if it is not on.
    """
    locks.take_turn(login.vendor_id)
    released = {"brake_released_at": Now(), "retry_after_until": None, "brake_wait": 0.0}
    rows = Credential.objects.filter(pk=login.pk, braked_at__isnull=False)
    is_released = bool(rows.update(braked_at=None, brake_held_at=None, **released)) or bool(
        Credential.objects.filter(pk=login.pk, brake_held_at__isnull=False).update(brake_held_at=None)
    )
    if is_released:
        _announce_start_of_calls(login.vendor_id)
    return is_released


def release_all_brakes(vendor: Vendor) -> list[Credential]:
    """Release the brakes of all credentials of a vendor, held or not. Returns the credentials that had one."""
    return [login for login in vendor.credentials.select_related("vendor") if release_brake(login)]


def note_reports(sender: Any, instance: Vendor, raw: bool = False, **_: Any) -> None:
    """Before a vendor is saved, note how its reports name letters; queries use it (campaigns/engine/vendor_ids.py)."""
    if not raw:
        try:
            instance.reports_by_id = adapters.load(instance.adapter).reports_by_id(instance.settings)
        except (LookupError, ValueError):  # an unusable vendor sends no reports
            instance.reports_by_id = False


def note_stored_reports(using: str, **_: Any) -> None:
    """Do so for all stored vendors after an upgrade, which may read their settings differently."""
    try:
        with transaction.atomic(using):
            for row in Vendor.objects.using(using).order_by("pk"):
                before = row.reports_by_id
                note_reports(Vendor, row)
                if row.reports_by_id != before:
                    Vendor.objects.using(using).filter(pk=row.pk).update(reports_by_id=row.reports_by_id)
    except ProgrammingError:  # migrate may have run for another app, or to an earlier state
        return


def moved_fields(row: Vendor) -> list[str]:
    """Return the names of unsaved changes to where calls go or which account they use."""
    before = Vendor.objects.get(pk=row.pk)
    moved = destinations.changed_settings((before.adapter, before.settings), (row.adapter, row.settings))
    return [*moved, *(["sandbox"] if before.sandbox != row.sandbox else [])]


def save_vendor(
    row: Vendor, fields: Collection[str], by: history.Actor, same_account: bool = False
) -> list[Credential]:
    """Save these fields of a vendor. Its adapter and settings are changed only here.

    `same_account`: a person says that calls reach the same account even if settings say otherwise; then the vendor can
    still settle earlier doubts. Returns the credentials whose secrets were deleted; they are paused until new ones are
    entered.
    """
    with transaction.atomic():
        before = locks.lock_vendor(row.pk)
        elsewhere = moved_fields(row)
        with destinations.keep_number(row) if same_account or not elsewhere else nullcontext():
            row.save(update_fields={*fields, "reports_by_id"})
        if "paused" in fields and not row.paused:
            _announce_start_of_calls(row.pk)
        if same_account and elsewhere:
            history.record_changes(by, Vendor, [(row.pk, SAME_ACCOUNT)])
        if elsewhere:  # the answers of the former relay
            Credential.objects.filter(vendor=row, relay_size__isnull=False).update(relay_size=None)
        after = Vendor.objects.get(pk=row.pk)
        moved = destinations.compare_settings(
            (before.adapter, before.settings),
            (after.adapter, after.settings),
            lambda adapter, settings: adapter.destination(settings),
        )
        if not moved:
            return []
        reason = Said(
            gettext_noop("its secret is forgotten, for its vendor's %(what)s changed: enter it again"),
            what=" and ".join(moved),
        )
        logins: Any = after.credentials.select_for_update(no_key=True, of=["self"]).select_related("vendor")
        forgotten: list[Any] = [login for login in logins if login.secret]
        for login in forgotten:
            login.secret = {}
            again = Said(gettext_noop("%(why)s (was paused: %(before)s)"), why=reason, before=login.why_paused)
            for name, value in said.columns("paused_reason", again if login.paused else reason).items():
                setattr(login, name, value)
            login.paused = True
            with destinations.keep_number(
                login
            ):  # deleting a secret does not change the destination; the next secret does
                login.save(update_fields=["secret", "paused", "paused_reason", "paused_reason_said"])
        history.record_changes(
            by, Credential, [(login.pk, Said(gettext_noop("paused: %(why)s"), why=reason)) for login in forgotten]
        )
        return forgotten


def save_secret(row: Credential, secret: Mapping[str, str], by: history.Actor, same_account: bool = False) -> None:
    """Replace a credential's secret.

    `same_account`: a person says that the new one belongs to the same account. Otherwise it may belong to another one,
    and doubts about calls with the old one need a person.
    """
    with transaction.atomic():
        locks.lock_vendor(row.vendor_id)
        with destinations.keep_number(row) if same_account else nullcontext():
            Credential.objects.filter(pk=row.pk).update(secret=secret)
        if same_account:
            history.record_changes(by, Credential, [(row.pk, SAME_ACCOUNT)])
