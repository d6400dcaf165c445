"""Find a recipient by address, our reference or the vendor's id, in all campaigns the user may see.

The search text is posted, so that addresses stay out of logs and browser histories. Links name a message by number.
"""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from campaigns.audience import finding
from campaigns.doors.access import LOOK, owners_page
from campaigns.models.campaigns import sponsor_ids_of


@owners_page(LOOK, "campaigns.see_recipients")
@require_http_methods(["GET", "HEAD", "POST"])
def show_find_page(request: HttpRequest) -> HttpResponse:
    """Show the search box and the result."""
    number = request.GET.get("message", "")
    text = request.POST.get("what", "")[: finding.LONGEST + 1]
    if not text and number.isascii() and number.isdecimal():
        text = f"msg_{number}"
    found = finding.look_for(text, sponsor_ids_of(request.user)) if text.strip() else None
    context = {"what": text, "found": found, "most": finding.MOST, "longest": finding.LONGEST}
    return render(request, "owners/find.html", context)
