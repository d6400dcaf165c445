"""The page of recipients' answers that somebody has to read: treat one as a stop, or mark it as read."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from campaigns.audience import unread_answers
from campaigns.doors import labels
from campaigns.doors.access import deciding_actor, owners_page
from campaigns.models import Campaign, RecipientAnswer
from campaigns.models.campaigns import sponsor_ids_of, sponsors_of
from vendors.said import show

EACH_PAGE = 50
LOOK, CHANGE = "campaigns.view_recipientanswer", "campaigns.change_recipientanswer"
STATES = {
    "unread": gettext_lazy("Unread"),
    "stop": gettext_lazy("Treated as stop"),
    "read": gettext_lazy("Marked as read"),
}
DECISIONS = {"stop": unread_answers.treat_as_stop, "read": unread_answers.mark_read}
DONE = {
    "stop": gettext_lazy("Nothing more is sent there."),
    "read": gettext_lazy("Marked as read."),
}


@owners_page(LOOK)
@require_GET
def list_answers_page(request: HttpRequest) -> HttpResponse:
    """Show the unread answers to the user's sponsors, the oldest first, or decided ones, the latest first."""
    state = request.GET.get("state", "")
    state = state if state in STATES else "unread"
    rows = unread_answers.filter_by_state(RecipientAnswer.objects.of_sponsors(sponsor_ids_of(request.user)), state)
    after = request.GET.get("after", "")
    if after.isdecimal() and len(after) < 19:
        rows = rows.filter(**{"pk__gt" if state == "unread" else "pk__lt": int(after)})
    some: list[Any] = list(rows.select_related("sponsor")[: EACH_PAGE + 1])
    seen = labels.sees_recipients(request.user)
    names = dict(Campaign.objects.filter(pk__in={row.campaign for row in some}).values_list("pk", "name"))
    for row in some:
        row.writer, row.about = labels.format_recipient(row.sender, seen), names.get(row.campaign, "")
    context = {
        "rows": some[:EACH_PAGE],
        "more": some[EACH_PAGE - 1].pk if len(some) > EACH_PAGE else None,
        "after": after,
        "state": state,
        "states": STATES,
        "seen": seen,
    }
    return render(request, "owners/answers.html", context)


@owners_page(CHANGE)
@require_POST
def decide_answer(request: HttpRequest, pk: int, verb: str) -> HttpResponse:
    """Decide about an answer, once; a second press, or a second person, changes nothing."""
    if verb not in DECISIONS:
        raise Http404
    row = get_object_or_404(RecipientAnswer.objects.of_sponsors(sponsors_of(request.user)), pk=pk)
    try:
        if DECISIONS[verb](row.pk, deciding_actor(request)):
            messages.success(request, str(DONE[verb]))
        else:
            row.refresh_from_db()
            done = _("%(person)s has decided about it already.") % {"person": row.decided_by}
            messages.info(request, done)
    except unread_answers.StartedSince as error:
        messages.error(request, show(str(error)))
    return redirect("answers")
