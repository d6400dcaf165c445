"""Creates rows in beat's table and the groups of users after each migrate.

Beat only starts tasks. A second or late beat changes nothing but the time at which work starts, because tasks decide
from the database (a night runs once per vendor and local date, document 000).

The groups are viewer, campaign owner, campaign approver, integrator, operator, vendor admin, auditor and all sponsors.
An installation may change them. Each migrate adds permissions that a group was never given, so groups grow with mailhub
but removed permissions stay removed. A user who is not in "all sponsors" sees only the mail of sponsors that name the
user.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask, PeriodicTasks

from mailhub.models import GivenPermission
from vendors import alarms
from vendors.models import Vendor

LOOK = ["campaigns.view_*", "waiter.view_parkedtask"]
OPERATE = [
    "campaigns.change_job",
    "campaigns.change_complaintpause",
    "campaigns.add_resolution",
    "campaigns.see_recipients",
    "campaigns.add_suppression",
    "campaigns.change_suppression",
    "campaigns.change_recipientanswer",
    "vendors.operate_vendor",
    "waiter.change_parkedtask",
]
VENDORS = ["vendors.*"]
OFFER = [
    f"campaigns.{verb}_{what}"
    for verb in ("add", "change", "delete")
    for what in ("entitlement", "identity", "topic", "route", "routeentry", "sponsorturn", "sponsorquota")
]
APPS = ("campaigns", "vendors", "mailhub", "waiter", "admin")
OWN = [
    "campaigns.add_campaign",
    "campaigns.change_job",
    "campaigns.see_recipients",
    "campaigns.add_suppression",
    "campaigns.change_recipientanswer",
    "campaigns.add_template",
    "campaigns.change_template",
]
# For people who connect programs to mailhub: what keys with the scopes send and read may do.
INTEGRATE = [
    "campaigns.add_campaign",
    "campaigns.see_recipients",
    *(f"campaigns.{verb}_webhook" for verb in ("add", "change", "delete")),
    *(f"mailhub.{verb}_apikey" for verb in ("view", "add", "change")),
]
ROLES: dict[str, list[str]] = {
    "viewer": LOOK,
    "campaign owner": [*LOOK, *OWN],
    "campaign approver": [*LOOK, "campaigns.approve_campaign", "campaigns.see_recipients"],
    "integrator": [*LOOK, *INTEGRATE],
    "operator": [*LOOK, *OPERATE, "vendors.view_*"],
    "vendor admin": [*LOOK, *VENDORS, *OFFER],
    "auditor": [*LOOK, "campaigns.see_recipients", "vendors.view_*", "admin.view_logentry"],
    "all sponsors": ["campaigns.all_sponsors", "campaigns.suppress_for_all"],
}


def create_groups() -> None:
    """Create missing groups, and give each group any permissions it was never given."""
    known = list(Permission.objects.select_related("content_type"))
    with transaction.atomic():
        _one_at_a_time()
        groups = {one.name: one for one in Group.objects.filter(name__in=ROLES)}
        kept: dict[int, set[int]] = {}
        for group, permission in GivenPermission.objects.values_list("group", "permission"):
            kept.setdefault(group, set()).add(permission)
        for name, rules in sorted(ROLES.items()):
            wanted = {one.pk for one in known if any(_fits_rule(one, rule) for rule in rules)}
            if name not in groups:
                _give_permissions(Group.objects.create(name=name), wanted, set())
            elif not wanted <= kept.get(groups[name].pk, set()):
                _give_permissions(
                    groups[name], wanted, kept.get(groups[name].pk) or _given_before(groups[name], wanted)
                )


def make_permissions() -> None:
    """Create the permissions that groups need; Django may create them only later."""
    for app in APPS:
        create_permissions(apps.get_app_config(app), verbosity=0)


def _give_permissions(group: Group, wanted: set[int], given: set[int]) -> None:
    """Add the permissions that the group was never given, and record all of them as given."""
    new = wanted - given
    group.permissions.add(*new)
    if new and given:  # a new installation makes all groups; that is not news
        logger.info("The group %r has %s more permissions", group.name, len(new))
    rows = [GivenPermission(group=group, permission_id=one) for one in sorted(wanted)]
    GivenPermission.objects.bulk_create(rows, ignore_conflicts=True)


def _given_before(group: Group, wanted: set[int]) -> set[int]:
    """Return which of these permissions earlier versions gave the group, whether or not it still has them.

    They kept no record, but gave a group all permissions that existed at its creation: those not newer than its newest
    one. A group without any of them was emptied on purpose, so all count as given.
    """
    held = wanted & set(group.permissions.values_list("pk", flat=True))
    return {one for one in wanted if one <= max(held)} if held else wanted


def _fits_rule(one: Permission, rule: str) -> bool:
    app, _, codename = rule.partition(".")
    if one.content_type.app_label != app:
        return False
    return one.codename.startswith(codename[:-1]) if codename.endswith("*") else one.codename == codename


OURS = "mailhub: "  # sync_beat maintains rows with this prefix; all others belong to users
SHAPING = {"slug", "dispatch_at", "weekdays", "time_zone"}  # fields of a vendor that shape its row

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BeatEntry:
    """The target state of a row. It is identified by task and args, so a vendor can be renamed."""

    name: str
    task: str
    every: timedelta | None = None
    crontab: tuple[tuple[str, str], ...] = ()
    args: str = "[]"

    def fields(self, row: PeriodicTask) -> dict[str, Any]:
        """Return field values for the row; create its schedule if missing. Raises ValidationError."""
        values: dict[str, Any] = {"name": OURS + self.name, "interval": None, "crontab": None, "expire_seconds": None}
        if self.every:
            # old triggers are useless after a time without workers; a busy worker still finds a fresh one
            expire = max(60, 3 * round(self.every.total_seconds()))
            return {**values, "interval": _interval_schedule(self.every, row.interval), "expire_seconds": expire}
        return {**values, "crontab": _crontab_schedule(dict(self.crontab), row.crontab)}


def sync_beat() -> None:
    """Create, update and delete mailhub's own rows, and notify beat. A row that a user disabled stays disabled."""
    with transaction.atomic():
        _one_at_a_time()
        rows = PeriodicTask.objects.select_related("interval", "crontab")
        ours = list(rows.filter(name__startswith=OURS).order_by("id"))
        found = {(row.task, row.args): row for row in ours}
        wanted = {(row.task, row.args): row for row in _beat_rows()}
        changed = [_store_entry(row, found.get(key)) for key, row in wanted.items()]
        kept = [found[key].pk for key in wanted if key in found]
        gone = PeriodicTask.objects.filter(pk__in={row.pk for row in ours}.difference(kept)).delete()[0]
        if gone or any(changed):
            PeriodicTasks.update_changed()


def _one_at_a_time() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('mailhub.schedule'))")


def interval_entries() -> list[BeatEntry]:
    """Return the periodic tasks. Workers run a late one without beat (mailhub/watchdog.py)."""
    return [
        BeatEntry("sweep", "campaigns.tasks.sweep", timedelta(seconds=settings.SWEEP_SECONDS)),
        BeatEntry("settle doubts", "campaigns.tasks.settle_doubts", timedelta(seconds=30)),
        BeatEntry("sessions", "campaigns.tasks.sweep_sessions", timedelta(seconds=30)),
        BeatEntry("pause campaigns", "campaigns.tasks.pause_campaigns", timedelta(seconds=settings.PAUSE_SECONDS)),
        BeatEntry("drafts", "mailhub.tasks.sweep_drafts", timedelta(seconds=30)),
        BeatEntry("fetch reports", "mailhub.tasks.fetch_reports", timedelta(minutes=1)),
        BeatEntry("audit", "campaigns.tasks.audit", timedelta(minutes=10)),
        BeatEntry("unread answers", "mailhub.tasks.tell_unread_answers", timedelta(hours=1)),
        BeatEntry("release parked tasks", "waiter.release", settings.WAITER_SWEEP),
    ]


def _beat_rows() -> Iterator[BeatEntry]:
    yield from interval_entries()
    night = {"minute": "30", "hour": "3", "day_of_week": "*", "timezone": settings.TIME_ZONE}
    yield BeatEntry("clear expired sessions", "mailhub.tasks.clear_sessions", crontab=tuple(night.items()))
    yield BeatEntry("delete unused files", "campaigns.tasks.delete_files", crontab=tuple(night.items()))
    yield BeatEntry("delete old events", "mailhub.tasks.delete_events", crontab=tuple(night.items()))
    for vendor in Vendor.objects.only("id", *SHAPING):
        if vendor.weekdays:
            yield _night_entry(vendor)


def _night_entry(vendor: Vendor) -> BeatEntry:
    crontab = {
        "minute": str(vendor.dispatch_at.minute),
        "hour": str(vendor.dispatch_at.hour),
        "day_of_week": ",".join(sorted(str(day % 7) for day in vendor.weekdays)),  # cron's Sunday is 0
        "timezone": vendor.time_zone,
    }
    name = f"nightly dispatch of {vendor.slug} ({vendor.pk})"
    return BeatEntry(name, "campaigns.tasks.dispatch_night", crontab=tuple(crontab.items()), args=f"[{vendor.pk}]")


def _store_entry(wanted: BeatEntry, found: PeriodicTask | None) -> bool:
    """Write the row if it differs. Returns True if it was written. No signals: each would notify beat once more."""
    try:
        row = found or PeriodicTask(task=wanted.task, args=wanted.args)
        fields = wanted.fields(row)
        if found and all(getattr(found, name) == value for name, value in fields.items()):
            return False
        for name, value in fields.items():
            setattr(row, name, value)
        row.validate_unique()
        if found:
            PeriodicTask.objects.filter(pk=found.pk).update(**fields, date_changed=timezone.now())
        else:
            PeriodicTask.objects.bulk_create([row])
    except ValidationError as why:  # one vendor's wrong time zone must not stop the others' nights
        alarms.NO_BEAT_ROW.log(logger, wanted.name, why)
        return False
    return True


def _interval_schedule(every: timedelta, had: IntervalSchedule | None) -> IntervalSchedule:
    seconds = every.total_seconds()
    whole = seconds.is_integer()
    period = IntervalSchedule.SECONDS if whole else IntervalSchedule.MICROSECONDS
    return _find_schedule(IntervalSchedule, had, every=round(seconds if whole else seconds * 1_000_000), period=period)


def _crontab_schedule(fields: dict[str, str], had: CrontabSchedule | None) -> CrontabSchedule:
    return _find_schedule(CrontabSchedule, had, day_of_month="*", month_of_year="*", **fields)


def _find_schedule(model: Any, had: Any, **fields: Any) -> Any:
    """Return a schedule with these fields, preferably the row's own; users may have created several equal ones."""
    if had and all(str(getattr(had, name)) == str(value) for name, value in fields.items()):
        return had
    return model.objects.filter(**fields).order_by("id").first() or model.objects.bulk_create([model(**fields)])[0]
