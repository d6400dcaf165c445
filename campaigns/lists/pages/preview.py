"""Previews a draft's letters as recipients will see them, and sends a test to oneself; uses the sender's own code."""

import re
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import escape
from django.utils.translation import gettext as _
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_POST

from campaigns.doors.sandboxed import show_images
from campaigns.engine.ports import NotEntitled
from campaigns.lists.drafts import contents, sending
from campaigns.lists.intake import BadInput
from campaigns.lists.pages.drafts import draft_step, render_step
from campaigns.models import Draft
from campaigns.texts.templates import TemplateError
from vendors import said
from vendors.adapters.base import Letter
from vendors.adapters.segments import segments
from vendors.models import Vendor
from vendors.printing import previews as printed

# Letters run no code and load nothing, so a preview never counts as an opening.
POLICY = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:"
# An image on another server, in a tag or its style, which the policy above blocks.
REMOTE = re.compile(
    r"<(?!script\b|iframe\b)[^<>]*\s(?:src|srcset|background)\s*=\s*(?:[\"']\s*)?(?:https?:)?//"
    r"|url\(\s*(?:[\"']\s*)?(?:https?:)?//",
    re.IGNORECASE,
)
# As mail programs show a letter that names no typeface; its own styles win. The doctype keeps it first.
PLAIN = "<!doctype html><style>:root { font: 16px/1.5 system-ui, sans-serif }</style>"
LOOKS = ("", "phone", "dark")
FAULTS = (BadInput, TemplateError, NotEntitled)


@draft_step
def show_preview(request: HttpRequest, draft: Draft, number: int) -> HttpResponse:
    """Show a letter, with links to the ones before and after it."""
    return render_step(request, "preview", draft, letter_context(request, draft, number))


def letter_context(request: HttpRequest, draft: Draft, number: int) -> dict[str, Any]:
    """Return the context to show a letter."""
    most = draft.found["good"] if draft.found else 0
    asked = request.GET.get("letter", "")
    number = max(1, min(int(asked) if asked.isdecimal() and len(asked) < 10 else number, most or 1))
    look = request.GET.get("look", "")
    shown: dict[str, Any] = {"number": number, "most": most, "look": look if look in LOOKS else "", "letter": None}
    if most:
        try:
            letter = contents.letter_of_draft(draft, number)
        except FAULTS as error:
            return {**shown, "fault": str(error)}
        shown["letter"] = letter
        shown["leaves_out"] = draft.is_html and REMOTE.search(letter.body) is not None
        if draft.channel == Vendor.Channel.SMS:
            shown["segments"] = segments(letter.body)
        shown["before"], shown["after"] = number > 1, number < most
    return shown


@draft_step
@xframe_options_sameorigin
def show_letter(request: HttpRequest, draft: Draft, number: int) -> HttpResponse:
    """Return the HTML of a letter, for a frame that runs no code."""
    found = _letter_or_404(draft, number)
    body = found.body if draft.is_html else f"<pre style='white-space:pre-wrap;font:inherit'>{escape(found.body)}</pre>"
    body = show_images(body, found.attachments)
    if request.GET.get("look") == "dark":
        body = f"<meta name='color-scheme' content='dark'>{body}"
    return HttpResponse(PLAIN + body, headers={"Content-Security-Policy": POLICY})


@draft_step
def letter_pdf(request: HttpRequest, draft: Draft, number: int) -> HttpResponse:
    """Return a letter as it will be printed, as PDF."""
    found = _letter_or_404(draft, number)
    vendor = contents.logins_of_draft(draft)[0].vendor
    try:
        made = printed.make_preview([found], vendor.adapter, vendor.settings, {}, seconds=20)
    except (ValueError, LookupError) as error:
        messages.error(request, _("There is no PDF: %(why)s") % {"why": error})
        return redirect("draft_preview", draft.pk, number)
    headers = {"Content-Disposition": f'inline; filename="letter-{number}.pdf"'}
    return HttpResponse(made.pdf, "application/pdf", headers=headers)


def _letter_or_404(draft: Draft, number: int) -> Letter:
    try:
        return contents.letter_of_draft(draft, number)
    except FAULTS as error:
        raise Http404(str(error)) from error


@require_POST
@draft_step
def send_test_letter(request: HttpRequest, draft: Draft) -> HttpResponse:
    """Send one letter to the user's own address; a second press sends nothing."""
    address, number, tests = (request.POST.get(name, "") for name in ("address", "number", "tests"))
    if not (number.isdecimal() and tests.isdecimal()) or len(number) > 9 or len(tests) > 9 or draft.found is None:
        raise Http404
    try:
        job = sending.send_test(draft, address, max(1, int(number)), int(tests), request.user)
    except FAULTS as error:
        messages.error(request, said.show(str(error)))
    else:
        if job is not None:
            messages.success(request, _("A test is on its way to %(address)s.") % {"address": address.strip()})
    return redirect("draft_preview", draft.pk, max(1, int(number)))
