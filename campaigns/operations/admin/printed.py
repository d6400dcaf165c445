"""Shows a message's letter as it is printed, to users who may see its recipient."""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html

from campaigns.content import previews
from campaigns.doors import labels
from campaigns.lists.intake import BadInput
from campaigns.models import Message
from campaigns.texts.templates import TemplateError
from vendors.models import Vendor
from vendors.printing import previews as printed

SECONDS = 30.0
LINK = "printed_message"


def pdf_link(message: Message) -> str:
    """Return a link to the PDF for the message's page; "-" for other channels."""
    if message.pk is None or message.campaign.credential.vendor.channel != Vendor.Channel.PRINT:
        return "-"
    return format_html('<a href="{}">PDF</a>', reverse(f"admin:{LINK}", args=[message.pk]))


def pdf_page(request: HttpRequest, message: Message | None) -> HttpResponse:
    """Return the PDF with the envelope's window drawn, or a sentence that explains why it is missing.

    message: None if it is not of the viewer's sponsors.
    """
    if message is None or message.campaign.credential.vendor.channel != Vendor.Channel.PRINT:
        raise Http404
    user: Any = request.user
    if not labels.sees_recipients(user):
        raise PermissionDenied
    vendor = message.campaign.credential.vendor
    try:
        letter = previews.render_message(message)
        made = printed.make_preview([letter], vendor.adapter, vendor.settings, {}, seconds=SECONDS)
    except (BadInput, TemplateError, ValueError, LookupError) as why:
        return HttpResponse(f"No PDF: {why}", status=422, content_type="text/plain; charset=utf-8")
    headers = {"Content-Disposition": f'inline; filename="message-{message.pk}.pdf"', "Cache-Control": "no-store"}
    return HttpResponse(made.pdf, content_type="application/pdf", headers=headers)
