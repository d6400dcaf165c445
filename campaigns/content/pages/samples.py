"""Renders a template as a letter, with sample values for its fields."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from campaigns.content import previews
from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.doors.sandboxed import frame_content, show_images
from campaigns.lists.intake import BadInput
from campaigns.models import Campaign
from campaigns.suppression.links import links_of
from campaigns.texts.templates import PARTS, TemplateError
from vendors.adapters.base import Letter
from vendors.adapters.segments import segments
from vendors.models import Vendor

RECIPIENTS = {
    Vendor.Channel.EMAIL.value: "ann@example.com",
    Vendor.Channel.SMS.value: "+442079460000",
    Vendor.Channel.PRINT.value: "Ann Example",
}
PREFIX = "field."  # prefix of the name of a field's input
LONGEST = 10_000  # characters of a sample


@dataclass(frozen=True, slots=True)
class SampleField:
    """A field with its sample. needed: the template requires it."""

    name: str
    sample: str
    needed: bool

    @property
    def input(self) -> str:
        return f"{PREFIX}{self.name}"


@dataclass(frozen=True, slots=True)
class SampleLetter:
    """A preview. fault: why there is no letter. frame: its HTML as content for a frame.

    leaves_out: it shows larger images than a preview that follows an editor has.
    """

    letter: Letter | None = None
    html: bool = False
    leaves_out: bool = False
    fault: str = ""
    fields: list[SampleField] = field(default_factory=list)
    segments: int = 0

    @property
    def frame(self) -> str:
        return (
            frame_content(show_images(self.letter.body, self.letter.attachments)) if self.letter and self.html else ""
        )

    @property
    def part(self) -> str:
        """The part of the letter that the fault is about: subject, body or text."""
        form = getattr(self.fault, "form", "")
        return next((name for name, forms in PARTS.items() if form in forms), "body") if self.fault else ""


def sample_of(channel: str, content: TemplateContent, posted: Mapping[str, str], recipient: str = "") -> SampleLetter:
    """Return the letter with the posted samples; a field without one shows its own name."""
    try:
        compiled = versions.check_content(channel, content)
    except TemplateError as error:
        return SampleLetter(fault=str(error))
    named = sorted(compiled.fields | compiled.optional)
    needed = compiled.fields
    fields = [SampleField(name, _sample_value(name, name in needed, posted), name in needed) for name in named]
    values = {one.name: _parse_sample(one.sample) for one in fields if one.sample or one.needed}
    campaign = Campaign(html=content.html, headers=[list(one) for one in content.headers])
    links = links_of(campaign, channel, {"headers"}, None)
    try:
        letter = previews.render_first_letters(
            campaign, compiled, links, [(recipient or RECIPIENTS[channel], values)], 1
        )[0]
    except BadInput as error:
        return SampleLetter(fault=str(error), fields=fields)
    counted = segments(letter.body) if channel == Vendor.Channel.SMS else 0
    return SampleLetter(letter, content.html, fields=fields, segments=counted)


def _sample_value(name: str, needed: bool, posted: Mapping[str, str]) -> str:
    return posted.get(f"{PREFIX}{name}", f"[{name}]" if needed else "")[:LONGEST]


def _parse_sample(sample: str) -> Any:
    """Parse lists and objects written as JSON; leave any other sample a text."""
    if sample.lstrip().startswith(("{", "[")):
        try:
            return json.loads(sample)
        except (ValueError, RecursionError):
            pass
    return sample
