"""The preview of `send_campaign` before anything is stored: letters as text, JSON and PDF, and the cost."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from campaigns.content import previews
from campaigns.lists import estimates
from campaigns.lists.intake import Recipients
from campaigns.lists.intake.contents import CampaignContent
from campaigns.lists.intake.files import CampaignFiles
from campaigns.models import Campaign
from campaigns.suppression.links import links_of
from campaigns.texts.parts import carried_by
from vendors.adapters.base import Attachment, Letter
from vendors.models import Credential, Vendor
from vendors.printing import previews as printed

Notes = dict[str, Any]  # quotas: what they would say; floor: what to expect from a vendor without one, or ""
Looked = tuple[list[Letter], estimates.ByLogin, Notes]  # letters, cost and notes, of an unsaved campaign


def letters_to_show(options: dict[str, Any]) -> int:
    """Return the number of letters to show; 0: store the campaign. Raises CommandError."""
    if not 0 <= options["preview"] <= previews.MOST:
        raise CommandError(f"--preview shows 1 to {previews.MOST} letters", returncode=2)
    if options["window"] and not options["preview_pdf"]:
        raise CommandError("--window goes with --preview-pdf", returncode=2)
    if options["preview_pdf"] and Path(options["preview_pdf"]).exists():
        raise CommandError(f"{options['preview_pdf']} is there already: name a new file")
    return options["preview"] or (1 if options["preview_pdf"] else 0)


def preview_campaign(
    content: CampaignContent,
    logins: Sequence[Credential],
    campaign: Campaign,
    recipients: Recipients,
    options: dict[str, Any],
    notes: Notes,
) -> Looked:
    """Make letters and cost of an unsaved campaign, and a PDF if requested. Raises CommandError.

    logins: credentials of the route; the letters are for the first.
    """
    vendor = logins[0].vendor
    links = links_of(campaign, vendor.channel, carried_by(vendor.adapter, vendor.settings), None)
    made = previews.render_first_letters(campaign, content.compiled, links, recipients, options["preview"])
    if options["preview_pdf"]:
        sys.stderr.write(f"{_write_pdf(made, content.files, vendor, options)}\n")
    return made, estimates.estimate_table(logins, campaign, content.compiled, recipients), notes


def write_preview(
    made: Sequence[Letter], by: estimates.ByLogin, notes: Notes, options: dict[str, Any], out: OutputWrapper
) -> None:
    """Print the preview as text or JSON, except letters already in a PDF."""
    shown = [] if options["preview_pdf"] else made
    if not options["json"]:
        out.write(f"\n\n{'=' * 72}\n\n".join([*map(previews.letter_as_text, shown), estimates.estimate_sentences(by)]))
        for said in filter(None, (*notes["quotas"], notes["floor"])):
            out.write(said)
    elif options["check"]:
        out.write("\n".join(json.dumps({**estimates.estimate_as_facts(*one), **notes}) for one in by.items()))
    else:
        out.write(json.dumps([previews.letter_facts(letter) for letter in made]))


def _write_pdf(made: Sequence[Letter], files: CampaignFiles | None, vendor: Vendor, options: dict[str, Any]) -> str:
    """Write the letters as PDF, as they will be printed, with images; return a sentence about their pages.

    Raises CommandError.
    """
    images = tuple(
        Attachment(one.name, one.kind, one.read(), one.cid) for one in (files.to_all if files else ()) if one.cid
    )
    shown = [letter._replace(attachments=images) for letter in made]
    try:
        preview = printed.make_preview(shown, vendor.adapter, vendor.settings, {"window": options["window"] or ""})
        Path(options["preview_pdf"]).write_bytes(preview.pdf)
    except (ValueError, LookupError) as error:
        raise CommandError(f"no PDF: {error}") from None
    except OSError as error:
        raise CommandError(f"cannot write {options['preview_pdf']}: {error.strerror}") from None
    return f"{options['preview_pdf']}: {preview.sentence}"
