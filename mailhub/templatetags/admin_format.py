"""Template tags of the operators' pages: numbers, states as badges, progress bars."""

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from campaigns import labels
from campaigns.failover import recovery as takeover
from campaigns.progress import Progress
from mailhub.operations import views
from mailhub.owners import approvals

register = template.Library()
LOOKS = {
    labels.SENT: "good",
    labels.DELIVERED: "good",
    labels.SENDING: "going",
    labels.WAITING: "idle",
    labels.STOPPED: "idle",
    labels.PARTLY_SENT: "warn",
    labels.ATTENTION: "warn",
    labels.PAUSED: "warn",
    labels.FAILED: "bad",
    labels.BOUNCED: "bad",
    labels.EXPIRED: "bad",
    labels.SUPPRESSED: "idle",
}


@register.filter
def number(value: Any) -> str:
    """1,200; an empty value stays empty."""
    return f"{value:,}" if isinstance(value, int) else str(value or "")


@register.simple_tag
def badge(word: str, chosen: str = "") -> SafeString:
    """A state as text on a colour, never as a colour alone."""
    return format_html('<span class="badge {}">{}</span>', chosen or look(word), word)


@register.filter
def look(word: str) -> str:
    """The CSS class of a state."""
    return LOOKS.get(word, "idle")


@register.inclusion_tag("admin/operations/halt.html", takes_context=True)
def halt(context: dict[str, Any]) -> dict[str, Any]:
    """The notice that nothing is called, with the reason; empty if calls are made."""
    return {"halt": takeover.halt(), "may": context["request"].user.has_perms(views.MAY_RECOVER)}


@register.simple_tag(takes_context=True)
def approvals_waiting(context: dict[str, Any]) -> int:
    """How many campaigns of the user's sponsors wait for approval."""
    return approvals.waiting_for(context["user"])


@register.inclusion_tag("admin/campaigns/bar.html")
def bar(sums: Progress) -> dict[str, Any]:
    """A bar of messages: accepted, in flight, in doubt, refused or expired; the rest waits or is suppressed.

    Below it stands what the vendor has reported of those that it accepted.
    """
    failed = sums.refused + sums.expired
    parts = [("good", sums.accepted), ("going", sums.in_flight), ("warn", sums.in_doubt), ("bad", failed)]
    counts = {
        "sent": sums.accepted,
        "in flight": sums.in_flight,
        "need attention": sums.in_doubt,
        "failed": failed,
        "suppressed": sums.suppressed,
    }
    title = _counted(counts) or "nothing sent yet"
    reported = _counted({"delivered": sums.delivered, "bounced": sums.bounced})
    done = sums.size - sums.open
    title = f"{title} of {sums.size:,}"
    return {
        "parts": parts, "rest": sums.waiting, "title": title, "reported": reported, "done": done, "size": sums.size
    }  # fmt: skip


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
