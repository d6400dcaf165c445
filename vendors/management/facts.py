"""What commands tell of a vendor, a credential and a caster. Never a secret."""

from typing import Any

from vendors.health import HealthStatus
from vendors.models import Credential, Mailcaster, Vendor


def vendor_facts(row: Vendor) -> dict[str, Any]:
    return {
        "slug": row.slug,
        "name": row.name,
        "channel": row.channel,
        "adapter": row.adapter,
        "settings": row.settings,
        "limits": [_limit(limit) for limit in row.limits.all() if limit.credential_id is None],
        "credentials": [login.name for login in row.credentials.all()],
        "casters": [caster.name for caster in row.mailcasters.all()],
        "threshold": row.small_audience_threshold,
        "dispatch_at": f"{row.dispatch_at:%H:%M}",
        "time_zone": row.time_zone,
        "weekdays": row.weekdays,
        "sandbox": row.sandbox,
        "paused": _paused(row),
    }


def status_facts(row: Vendor, status: HealthStatus) -> dict[str, Any]:
    return {
        "slug": row.slug,
        "paused": _paused(row),
        "state": status.state,
        "good": status.good,
        "bad": status.bad,
        "ratio": status.ratio,
        "closed_seconds": status.seconds,
        "min_requests": row.min_requests,
        "min_ratio": row.min_ratio,
        "health_ttl": row.health_ttl,
        "retry_after": row.retry_after,
    }


def credential_facts(row: Credential) -> dict[str, Any]:
    return {
        "vendor": row.vendor.slug,
        "name": row.name,
        "exclusive": row.exclusive,
        "limits": [_limit(limit) for limit in row.limits.all()],
        "secret": sorted(row.secret),  # the names alone
        "paused": _paused(row),
        "closed_until": row.closed_until,
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


def _limit(row: Any) -> str:
    return f"{row.units}/{row.seconds:g}"


def _paused(row: Vendor | Credential) -> str | None:
    """Why, if it is."""
    return (row.paused_reason or "yes") if row.paused else None
