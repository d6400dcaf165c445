"""Campaign reports: a page to print, and files of the recipients."""

from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from campaigns.doors import labels
from campaigns.doors.access import LOOK, owners_page
from campaigns.doors.downloads import KINDS
from campaigns.engine.progress import Progress
from campaigns.reporting import accounts, export
from campaigns.reporting.export import Export
from campaigns.reporting.forecast import campaign_states
from campaigns.reporting.pages import campaign as campaign_page
from campaigns.reporting.report_files import file_of

WIDTH = 720  # of a drawing


@owners_page(LOOK, "campaigns.view_message")
def download_report(request: HttpRequest, campaign_id: int, kind: str) -> HttpResponse:
    """Download the recipients as csv or xlsx: all, or with ?state=failed those not reached."""
    if kind not in KINDS:
        raise Http404
    campaign = campaign_page.campaign_of_user(request, campaign_id)
    states = export.FAILURES if request.GET.get("state") == "failed" else ()
    whole = labels.sees_recipients(request.user)
    # files are in one language, for programs and for teams with several
    with translation.override(settings.LANGUAGE_CODE):
        answer: HttpResponse = file_of(Export(campaign, campaign_page.channel_of(campaign), states, whole), kind)
    return answer


@owners_page()
def show_printable(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Show a page for printing, also as PDF."""
    campaign = campaign_page.campaign_of_user(request, campaign_id)
    state = campaign_states.states_of_campaigns([campaign.pk])[campaign.pk]
    found = campaign_page.reasons_with_links(campaign, state)
    most = max((one["reason"].messages for one in found), default=1)
    for one in found:
        one["width"] = round(WIDTH * one["reason"].messages / most, 1)
    context = {
        "campaign": campaign,
        "state": state,
        "means": campaign_page.state_sentence(state),
        "segments": outcome_segments(state.sums, state.reports_deliveries),
        "reasons": found,
        "why_heading": campaign_page.failures_heading(state.sums),
        "cost": accounts.cost_so_far(state.jobs),
        "width": WIDTH,
        "at": timezone.localtime(),
    }
    return render(request, "owners/campaign/report.html", context)


def outcome_segments(sums: Progress, reported: bool) -> list[dict[str, Any]]:
    """Return the recipients by outcome, each counted once, for a bar and a table.

    reported: the vendor reports deliveries.
    """
    sent = _("Sent, nothing reported yet") if reported else _("Accepted by the vendor, which reports no deliveries")
    found = [
        (_("Delivered"), "delivered", sums.delivered),
        (sent, "sent", max(0, sums.accepted - sums.delivered - sums.bounced)),
        (_("Came back"), "bounced", sums.bounced),
        (_("Failed"), "failed", sums.refused),
        (_("Expired"), "expired", sums.expired),
        (_("Not to be written to"), "suppressed", sums.suppressed),
        (_("Needs attention"), "attention", sums.in_doubt),
        (_("Not sent yet"), "open", sums.open_messages),
    ]
    size, x = max(1, sum(count for _name, _look, count in found)), 0.0
    shown: list[dict[str, Any]] = []
    for name, look, count in found:
        if count:
            width = WIDTH * count / size
            shown.append({
                "name": name, "look": look, "count": count, "share": labels.format_share(count / size),
                "x": round(x, 1), "width": round(width, 1),
            })  # fmt: skip
            x += width
    return shown
