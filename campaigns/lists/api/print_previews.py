"""Letters of a dry run as PDF, as they will be printed; rendered in a child process, for one request at a time."""

import base64
from collections.abc import Sequence
from typing import Any

from campaigns.doors.front.problems import Problem, invalid_problem, make_error
from campaigns.doors.front.rate_limits import take_render_steps
from campaigns.doors.front.vendor_cache import VendorSnapshot
from campaigns.lists.intake.files import CampaignFiles
from vendors.adapters.base import Attachment, Letter
from vendors.models import Vendor
from vendors.printing import previews

SECONDS = 30.0
LARGEST = 10_000_000  # bytes of a PDF in an answer
STEPS, STEPS_OF_A_LETTER = 4_000_000, 1_000_000  # of the sponsor's budget: about a second, and some 50 pages a second


def print_preview(
    letters: Sequence[Letter], files: CampaignFiles | None, vendor: VendorSnapshot, sponsor_id: int
) -> dict[str, Any]:
    """Return the PDF in base64, and the pages of each letter. Raises Problem: validation, rate-limited."""
    if vendor.channel != Vendor.Channel.PRINT:
        raise invalid_problem([make_error("/preview_pdf", "preview", f"{vendor.slug} delivers no letters on paper")])
    if not letters:
        raise invalid_problem([make_error("/preview_pdf", "preview", "say with preview how many letters are shown")])
    take_render_steps(sponsor_id, STEPS + STEPS_OF_A_LETTER * len(letters))
    try:
        made = _make_preview(letters, files, Vendor.objects.get(pk=vendor.id))
    except previews.Busy as why:
        raise Problem("rate-limited", f"{why}".capitalize(), retry_after=5) from why
    except (ValueError, LookupError) as why:
        raise invalid_problem([make_error("/preview_pdf", "unprintable", str(why))]) from why
    return {"pdf": base64.b64encode(made.pdf).decode(), "pages": list(made.pages), "sheets": made.sheets}


def _make_preview(letters: Sequence[Letter], files: CampaignFiles | None, vendor: Vendor) -> previews.PrintPreview:
    """Return the preview. Raises ValueError with a sentence."""
    shown = [letter._replace(attachments=images_of_letters(files)) for letter in letters]
    made = previews.make_preview(shown, vendor.adapter, vendor.settings, {}, seconds=SECONDS)
    if len(made.pdf) > LARGEST:
        raise ValueError(f"the PDF has {len(made.pdf):,} bytes, more than {LARGEST:,}: ask for fewer letters")
    return made


def images_of_letters(files: CampaignFiles | None) -> tuple[Attachment, ...]:
    """Return the images in the HTML of each letter."""
    all_of_them = files.to_all if files else ()
    return tuple(Attachment(one.name, one.kind, one.read(), one.cid) for one in all_of_them if one.cid)
