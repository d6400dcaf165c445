"""How a vendor stands in one badge: paused, closed or working, and how its last answers were."""

from django.conf import settings
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from vendors import health
from vendors.listing import badge
from vendors.models import Vendor


def shown(vendor: Vendor) -> SafeString:
    if vendor.paused:
        return format_html("{} <span>{}</span>", badge("paused", "warn"), vendor.paused_reason)
    try:
        seen = health.at(settings.REDIS_URL).look(vendor.pk, health.HealthPolicy.of(vendor))
    except health.HealthStoreUnreachable:
        return badge("unknown: Redis is away")
    state = badge("works", "good") if seen.accepting else badge("closed", "bad")
    total = seen.good + seen.bad
    if not total:
        return state
    facts = {"share": f"{seen.good / total:.0%}", "total": f"{total:,}"}
    return format_html("{} <span>{}</span>", state, _("%(share)s good of %(total)s") % facts)
