"""The options of send_campaign that say what its letters consist of."""

from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.core.management import CommandError

from campaigns.content import mjml, templates
from campaigns.content.addresses import address_rules, with_addresses
from campaigns.content.headers import header_templates, with_beside
from campaigns.content.parts import (
    IMAGES,
    carried_by,
    check_carried,
    header_faults,
    image_faults,
    parse_header,
    shows_images,
    text_beside,
)
from campaigns.content.templates import Content
from campaigns.intake import BadInput, RowError, Table
from campaigns.intake.csv_reader import field_name
from campaigns.intake.files import CampaignFiles, NewFile, source
from campaigns.management.sponsors import KNOWN
from campaigns.models import Sponsor, TemplateVersion
from campaigns.suppression.links import given as given_to
from campaigns.template_versions import versions
from campaigns.template_versions.versions import TemplateContent
from vendors.models import Vendor
from vendors.printing import sheets


def add_content_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    about = "the sponsor's template of that name, its newest version or this one, instead of --subject to --header"
    add("--template", metavar="NAME[@VERSION]", help=about)
    add("--subject", default="", metavar="TEXT", help="template of the subject")
    add("--body", metavar="TEMPLATE_FILE", help="template of the body, UTF-8; needed without --template")
    add("--html", action="store_true", help="the body is HTML: fields are escaped in it")
    add("--mjml", action="store_true", help="the body is MJML, of which HTML is made")
    add("--text", metavar="TEMPLATE_FILE", help="text beside an HTML body; default: made from the HTML")
    add("--header", action="append", metavar="NAME:VALUE", help="a further header, a template; may be repeated")
    add("--attach", action="append", metavar="FILE", help="a file in each letter; may be repeated")
    add("--image", action="append", metavar="FILE", help="an image that the HTML shows as cid:NAME; may be repeated")
    add("--files", metavar="FOLDER_OR_ZIP", help="where the files of --file-column are")
    add("--file-column", action="append", metavar="COLUMN", help="names each recipient's own file; may be repeated")
    add("--preview", type=int, default=0, metavar="N", help="print the letters of the first rows; store nothing")
    add("--check", action="store_true", help="only check, and say units, cost and end; store nothing")
    about = "write these letters, or the first, as printed, and count their pages; store nothing"
    add("--preview-pdf", metavar="FILE", help=about)
    add("--window", choices=sorted(sheets.WINDOWS), help="of the envelope, instead of the vendor's, in that PDF")


@dataclass(frozen=True, slots=True)
class CampaignContent:
    """The content of a campaign, checked but for the recipients' fields. text: made, or as given.

    version: of the template that says it.
    """

    subject: str
    body: str
    html: bool
    text: str
    headers: Sequence[tuple[str, str]]
    files: CampaignFiles | None
    compiled: Content
    version: TemplateVersion | None

    def check_columns(self, table: Table) -> None:
        """Raises BadInput if the list lacks a column that names files."""
        fields = self.files.fields if self.files else ()
        missing = [repr(name) for name in fields if name not in table.fields[1:]]
        if missing:
            columns = ", ".join(filter(None, table.fields[1:])) or "none"
            text = f"there is no column {', '.join(missing)} for files; the columns after the first are {columns}"
            raise BadInput([RowError(1, text)])


def typed_content(options: dict[str, Any], channel: str) -> TemplateContent:
    """What --subject, --body, --html, --mjml, --text and --header say. Raises CommandError, TemplateError."""
    subject, body, html = options["subject"], _read(options["body"]), options["html"]
    if channel == Vendor.Channel.EMAIL and not subject.strip():
        raise CommandError("an e-mail needs a --subject")
    if options["mjml"]:
        body, html = mjml.to_html(body), True
    headers = [parse_header(line) for line in options["header"] or ()]
    return TemplateContent(subject, body, html, _read(options["text"]) if options["text"] else "", headers)


def _version(options: dict[str, Any], sponsor: Sponsor, channel: str) -> TemplateVersion | None:
    """The version that --template names."""
    named = options["template"]
    if not named:
        if not options["body"]:
            raise CommandError("give a --body, or a --template", returncode=2)
        return None
    if beside := [f"--{name}" for name in ("subject", "body", "html", "mjml", "text", "header") if options[name]]:
        raise CommandError(f"--template says what {', '.join(beside)} would say: give one of both", returncode=2)
    try:
        return versions.find(sponsor.pk, named, channel)
    except versions.TemplateRefused as error:
        known = ", ".join(sponsor.templates.filter(archived_at=None).values_list("name", flat=True)[:KNOWN])
        raise CommandError(f"{error}; {sponsor.name} has: {known or 'none yet'}") from None


def read_content(
    options: dict[str, Any], sponsor: Sponsor, vendor: Vendor, others: Iterable[Vendor] = ()
) -> CampaignContent:
    """others: by which it may go, too. Raises CommandError, BadInput, TemplateError."""
    version = _version(options, sponsor, vendor.channel)
    says = versions.content_of(version) if version else typed_content(options, vendor.channel)
    subject, body, html, given, headers = says.subject, says.body, says.html, says.text, says.headers
    files = _files(options)
    text = _beside(body, html, given, headers, files, vendor) if html or given or headers or files else ""
    compiled = templates.compile(subject, body, html, text=text, given=given_to(options["transactional"]))
    own = files.faults if files and files.fields else None
    compiled = with_beside(compiled, header_templates(headers), own)
    if vendor.channel == Vendor.Channel.PRINT:
        compiled = with_addresses(compiled, [address_rules(one.adapter, one.settings) for one in (vendor, *others)])
    return CampaignContent(subject, body, html, text, headers, files, compiled, version)


def _beside(
    body: str, html: bool, given: str, headers: Sequence[tuple[str, str]], files: CampaignFiles | None, vendor: Vendor
) -> str:
    """The text beside the body, when everything else beside it is right. Raises BadInput, TemplateError."""
    faults = [text for _, text in header_faults(headers)]
    faults.extend(image_faults(body, html, [file.cid for file in files.to_all] if files else ()))
    if faults:
        raise BadInput([RowError(0, text) for text in faults])
    carried = carried_by(vendor.adapter, vendor.settings)
    needs = {"text": given, "headers": headers, "attachments": files, IMAGES: files and shows_images(body, html)}
    check_carried([name for name, part in needs.items() if part], carried, vendor.slug)
    return text_beside(body, html, given, carried)


def _files(options: dict[str, Any]) -> CampaignFiles | None:
    folder, columns = options["files"], [field_name(name) for name in options["file_column"] or ()]
    if bool(folder) != bool(columns):
        raise CommandError("--files and --file-column go together", returncode=2)
    to_all = [_file(name) for name in options["attach"] or ()]
    to_all += [replace(_file(name), cid=Path(name).name) for name in options["image"] or ()]
    if not (to_all or folder):
        return None
    return CampaignFiles(to_all, columns, source(Path(folder)) if folder else None)


def _file(name: str) -> NewFile:
    path = Path(name)
    try:
        return NewFile(path.name, path.stat().st_size, path.read_bytes)
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}") from error


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not UTF-8 (byte {error.start:,})") from error
