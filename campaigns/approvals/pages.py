"""Pages of campaigns that wait for a second person's approval: the list, the details, and the decision."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from campaigns.approvals import frozen_parts
from campaigns.content import previews
from campaigns.doors import labels
from campaigns.doors.access import owners_page
from campaigns.doors.sandboxed import frame_content, guard_frames, show_images
from campaigns.engine import progress
from campaigns.engine.ports import NotEntitled
from campaigns.lists import estimates
from campaigns.lists.intake import BadInput
from campaigns.models import Approval, Message
from campaigns.models.campaigns import sponsor_ids_of, sponsors_of
from campaigns.operations import approving
from campaigns.operations.approving import CannotDecide
from campaigns.texts.templates import TemplateError
from vendors.adapters.base import Letter
from vendors.said import show

HEAVY = ("frozen", "changed", "campaign__body", "campaign__text", "campaign__subject")
LATEST = 20  # decided ones in the list
MOST = 200  # waiting ones in the list
LONGEST = 2_000  # characters of a remark


@owners_page()
@require_GET
def list_approvals_page(request: HttpRequest) -> HttpResponse:
    """Show waiting campaigns, oldest first, and recent decisions."""
    whole = Approval.objects.select_related("campaign__sponsor")
    mine = whole.of_sponsors(sponsor_ids_of(request.user)).defer(*HEAVY)  # ids keep the order of the index
    waiting = list(mine.filter(*approving.waiting_conditions()).order_by("id")[:MOST])
    decided = list(mine.filter(verdict__isnull=False).order_by("-decided_at")[:LATEST])
    return render(request, "owners/approvals.html", {"waiting": waiting, "decided": decided})


@owners_page()
@require_http_methods(["GET", "HEAD", "POST"])
def show_approval(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Show what waits for approval, with the letter of any row; POST decides."""
    found = _visible_approval(request, campaign_id)
    if request.method == "POST":
        return _decide_on_page(request, found)
    campaign, user = found.campaign, request.user
    rows = campaign.size
    row = _clamp_row(request.GET.get("row", ""), rows)
    sees = labels.sees_recipients(user)
    letter, fault = _letter_of_row(found, row) if sees else (None, "")
    changed = frozen_parts.list_changes(found, whole=False) if found.verdict is None else []
    context = {
        "approval": found,
        "changed": changed,
        "seen": frozen_parts.changes_token(changed),
        "campaign": campaign,
        "sums": progress.progress_of_campaigns([campaign.pk])[campaign.pk],
        "may": approving.may_decide(user),
        "why_not": approving.approval_obstacle(found, user),
        "live": found.verdict is None,
        "paused": found.verdict is None and campaign.stays_paused,
        "row": row,
        "before": row - 1 if row > 1 else None,
        "after": row + 1 if row < rows else None,
        "sees": sees,
        "letter": letter,
        "html": frame_content(show_images(letter.body, letter.attachments)) if letter and campaign.html else "",
        "fault": fault,
        "files": campaign.files.filter(to_all=True).select_related(None).order_by("id").values("name", "content_type"),
        "longest": LONGEST,
    }
    return guard_frames(render(request, "owners/approval.html", context))


def _decide_on_page(request: HttpRequest, found: Approval) -> HttpResponse:
    user: Any = request.user
    if not approving.may_decide(user):
        raise PermissionDenied
    verdict, remark = request.POST.get("verdict", ""), request.POST.get("remark", "")
    if verdict not in Approval.Verdict.values or len(remark) > LONGEST:
        messages.error(request, _("Choose whether it is approved or refused; a remark has up to 2,000 characters."))
    else:
        try:
            answer = approving.decide_approval(
                found.campaign_id, verdict, user, remark, seen=request.POST.get("seen", "")
            )
            level = messages.SUCCESS if answer.changed else messages.INFO
            messages.add_message(request, level, _sentence_of_text(show(answer.message)))
        except CannotDecide as why:
            messages.error(request, _sentence_of_text(show(str(why))))
    return redirect("approval", found.campaign_id)


@owners_page()
@require_GET
def show_cost(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Show cost and forecast, which may take some seconds; the page loads them separately."""
    campaign = _visible_approval(request, campaign_id).campaign
    lines, why, now = [], "", timezone.now()
    try:
        for name, one in estimates.estimate_stored(campaign).items():
            lines.append(
                (name, one.describe_cost(), _sentence_of_text(one.describe_time(now))) if one else (name, "", "")
            )
    except (NotEntitled, TemplateError) as error:
        why = show(str(error))
    context = {"campaign": campaign, "lines": lines, "why": why, "whole": "HX-Request" not in request.headers}
    return render(request, "owners/approval_cost.html", context)


def _visible_approvals(request: HttpRequest) -> Any:
    rows = Approval.objects.of_sponsors(sponsors_of(request.user))
    return rows.select_related("campaign__sponsor")


def _visible_approval(request: HttpRequest, campaign_id: int) -> Approval:
    of = ("campaign__identity", "campaign__topic", "campaign__route", "campaign__credential__vendor")
    found: Approval | None = _visible_approvals(request).select_related(*of).filter(campaign=campaign_id).first()
    if found is None:
        raise Http404
    return found


def _clamp_row(typed: str, rows: int) -> int:
    number = int(typed) if typed.isascii() and typed.isdecimal() and len(typed) < 12 else 1
    return min(max(1, number), rows)


def _letter_of_row(found: Approval, row: int) -> tuple[Letter | None, str]:
    """Return the letter of a row, counted from 1, or why there is none."""
    message = Message.objects.filter(pk=found.campaign.first_message + row - 1).first()
    if message is None:
        return None, _("There is no such row.")
    message.campaign = found.campaign
    try:
        return previews.render_message(message), ""
    except (BadInput, TemplateError, ValueError, LookupError) as why:
        return None, str(why)


def _sentence_of_text(text: str) -> str:
    """Format a text as a sentence, with a capital and a full stop."""
    return text if not text else f"{text[0].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


def waiting_for(user: Any) -> int:
    """Count the waiting campaigns that the user may see, up to MOST."""
    return approving.count_waiting(user, MOST)


def urls() -> list[URLPattern]:
    return [
        path("approvals/", list_approvals_page, name="approvals"),
        path("campaigns/<int:campaign_id>/approval/", show_approval, name="approval"),
        path("campaigns/<int:campaign_id>/approval/cost/", show_cost, name="approval-cost"),
    ]
