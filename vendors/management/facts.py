"""Facts about vendors, credentials and mailcasters for commands, without secrets; and their history.

Each change by a command is logged with the shell's user in the history that the admin shows for each row.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE, DELETION
from django.db import models, transaction

from vendors import history
from vendors.condition.values import Condition, describe_condition
from vendors.health import HealthStatus
from vendors.instants import write_time
from vendors.limits.values import Limit
from vendors.management.arguments import shell_user
from vendors.management.output import value_word
from vendors.models import Credential, Mailcaster, Vendor
from vendors.said import Said, gettext_noop


def log_added(row: models.Model) -> None:
    _write_entry(row, Said(gettext_noop("added")), ADDITION)


def log_removed(row: models.Model) -> None:
    """Log the removal. Call it before the row is deleted, in the same transaction."""
    _write_entry(row, Said(gettext_noop("removed")), DELETION)


def log_changed(row: models.Model, change: str) -> None:
    _write_entry(row, change, CHANGE)


@contextmanager
def log_changes(row: models.Model, facts: Callable[[Any], Mapping[str, Any]]) -> Iterator[None]:
    """Run the block in a transaction and log each changed fact of the row, old and new."""
    with transaction.atomic():
        before = facts(_stored_row(row))
        yield
        after = facts(_stored_row(row))
        parts = [
            history.change_sentence(name, _show_value(before[name]), _show_value(value))
            for name, value in after.items()
            if before[name] != value
        ]
        if parts:
            log_changed(row, Said.join_parts("; ", parts))


def _show_value(value: object) -> str:
    """Return a value as the commands show it: words of the program as a `Said`, a person's as they are."""
    shown = value_word(value)
    if not shown:
        return Said(gettext_noop("none"))
    return Said(gettext_noop("yes")) if value is True else shown


def _stored_row(row: models.Model) -> models.Model:
    """Return the row as stored now, without cached relations."""
    return type(row)._default_manager.get(pk=row.pk)


def _write_entry(row: models.Model, change: str, flag: int) -> None:
    history.record_changes(history.Actor(shell_user()), type(row), [(row.pk, change)], flag=flag)


def vendor_facts(row: Vendor) -> dict[str, Any]:
    return {
        "slug": row.slug,
        "name": row.name,
        "owner": row.owner.name if row.owner else None,
        "channel": row.channel,
        "adapter": row.adapter,
        "settings": history.shorten_settings(row.settings),
        "limits": [_limit_text(limit) for limit in row.limits.all() if limit.credential_id is None],
        "credentials": [login.name for login in row.credentials.all()],
        "casters": [caster.name for caster in row.mailcasters.all()],
        "threshold": row.small_audience_threshold,
        "floor": row.floor,
        "dispatch_at": f"{row.dispatch_at:%H:%M}",
        "time_zone": row.time_zone,
        "weekdays": row.weekdays,
        "catch_up": _span_text(row.catch_up),
        "sandbox": row.sandbox,
        "paused": _pause_reason(row),
    }


def condition_facts(condition: Condition) -> dict[str, Any]:
    """Return a condition for --json."""
    return {
        "kind": condition.kind,
        "since": condition.since,
        "tries": condition.tries,
        "last_answer": condition.answer,
        "cause": condition.cause,
        "reason": condition.reason,
        "until": condition.until,
        "who": condition.mending.mender,
        "command": condition.mending.command,
    }


def shown_condition(condition: Condition, *, as_json: bool) -> dict[str, Any]:
    """Return a condition for a list: a sentence with the command that mends it, or all facts for --json."""
    if as_json:
        return {"condition": condition_facts(condition)}
    command = f"\nmanage.py {condition.mending.command}" if condition.mending.command else ""
    return {"condition": describe_condition(condition, write_time) + command}


def status_facts(row: Vendor, condition: Condition, status: HealthStatus, reports: Mapping[str, int]) -> dict[str, Any]:
    return {
        "slug": row.slug,
        "paused": _pause_reason(row),
        "condition": condition_facts(condition),
        "state": status.state,
        "good": status.good,
        "bad": status.bad,
        "ratio": status.ratio,
        "closed_seconds": status.seconds,
        "min_requests": row.min_requests,
        "min_ratio": row.min_ratio,
        "health_ttl": row.health_ttl,
        "retry_after": row.retry_after,
        "reports_today": reports,
    }


def credential_facts(row: Credential) -> dict[str, Any]:
    return {
        "vendor": row.vendor.slug,
        "name": row.name,
        "exclusive": row.exclusive,
        "limits": [_limit_text(limit) for limit in row.limits.all()],
        "secret": sorted(row.secret),  # only the names
        "paused": _pause_reason(row),
        "retry_after_until": row.retry_after_until,
        "brake": "held" if row.brake_held_at else "on" if row.braked_at else None,
    }


def caster_facts(row: Mailcaster) -> dict[str, Any]:
    return {
        "vendor": row.vendor.slug,
        "name": row.name,
        "kind": row.kind,
        "min": row.min_size,
        "max": row.max_size,
        "percentage": row.percentage,
        "enabled": row.enabled,
    }


def limit_texts(row: Vendor) -> list[str]:
    """Return its own limits as texts such as 5 per 60 s."""
    return [str(Limit(one.units, one.seconds)) for one in row.limits.all() if one.credential_id is None]


def _limit_text(row: Any) -> str:
    return f"{row.units}/{row.seconds:g}"


def _span_text(span: timedelta) -> str:
    """Format hours and minutes, and seconds if there are any (a form can store them)."""
    minutes, seconds = divmod(round(span.total_seconds()), 60)
    return f"{minutes // 60}:{minutes % 60:02}" + (f":{seconds:02}" if seconds else "")


def _pause_reason(row: Vendor | Credential) -> str | None:
    """Return the reason if it is paused, else None."""
    return (row.paused_reason or "yes") if row.paused else None
