"""Letters of texts still being typed: the preview that follows an editor. Nothing is stored.

static/mailhub/editor.js posts the texts, one request at a time. The answer is a part of the page: the letter, or the
fault with its part of the letter, so the last good letter can stay.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from campaigns.content.pages.samples import PREFIX, SampleLetter, sample_of
from campaigns.content.pages.templates import LOOK
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.doors.access import owners_page
from campaigns.lists.drafts import contents, keeping
from campaigns.lists.pages.drafts import find_draft
from campaigns.lists.pages.uploads import MAKE
from campaigns.models import Draft
from vendors.models import Vendor

MOST_BYTES = 500_000  # of images in a preview sent about once a second
NO_SUBJECT = "…"  # an e-mail needs a subject, which may be typed last


@require_POST
@owners_page(LOOK)
def show_typed_template(request: HttpRequest) -> HttpResponse:
    """Return the letter of a template's form, with its sample values."""
    posted = request.POST
    html = posted.get("html") == "on"
    content = TemplateContent(
        posted.get("subject", ""), posted.get("body", ""), html, posted.get("text", "") if html else ""
    )
    return _answer_typed(request, posted.get("channel", ""), content, posted.dict(), shows_samples=True)


@require_POST
@owners_page(*MAKE)
def show_typed_draft(request: HttpRequest) -> HttpResponse:
    """Return the letter of a campaign's form, for the first recipient of its list if there is one."""
    posted, channel = request.POST, request.POST.get("channel", "")
    body, text = posted.get("html", ""), posted.get("text", "")
    html = bool(body.strip()) and channel != Vendor.Channel.SMS
    content = TemplateContent(posted.get("subject", ""), body if html else text, html, text if html else "")
    number = posted.get("draft", "")
    draft = find_draft(request, int(number)) if number.isdecimal() and len(number) < 19 else None
    recipient, fields = _find_first_recipient(draft) if draft else ("", {})
    samples = {f"{PREFIX}{name}": str(value) for name, value in fields.items() if value not in ("", None)}
    return _answer_typed(request, channel, content, samples, recipient, draft)


def _find_first_recipient(draft: Draft) -> tuple[str, Mapping[str, Any]]:
    return next(islice(contents.checked_recipients(draft).since(0), 1), ("", {}))


def _answer_typed(
    request: HttpRequest,
    channel: str,
    content: TemplateContent,
    samples: Mapping[str, str],
    recipient: str = "",
    draft: Draft | None = None,
    shows_samples: bool = False,
) -> HttpResponse:
    channel = channel if channel in Vendor.Channel.values else Vendor.Channel.EMAIL.value
    content = content.made_uniform()
    is_unnamed = channel == Vendor.Channel.EMAIL and not content.subject.strip()
    if channel == Vendor.Channel.SMS or is_unnamed:
        content = replace(content, subject=NO_SUBJECT if is_unnamed else "")
    letter = sample_of(channel, content, samples, recipient) if content.body.strip() else SampleLetter()
    if draft:
        letter = _add_images(letter, draft)
    facts = {"preview": letter, "following": True, "samples": shows_samples}
    return render(request, "owners/editor/letter.html", facts)


def _add_images(preview: SampleLetter, draft: Draft) -> SampleLetter:
    """Return the preview with the draft's images that its letter shows."""
    if preview.letter is None or not preview.html:
        return preview
    images, leaves_out = keeping.images_within(draft, preview.letter.body, MOST_BYTES)
    return replace(preview, letter=preview.letter._replace(attachments=images), leaves_out=leaves_out)
