"""The options of send_campaign for a campaign's sponsor and content."""

from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from django.core.management import CommandError

from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.doors.sponsors import KNOWN, new_sponsor
from campaigns.lists.intake import contents
from campaigns.lists.intake.contents import CampaignContent
from campaigns.lists.intake.csv_reader import field_name
from campaigns.lists.intake.files import CampaignFiles, NewFile, open_source
from campaigns.models import Sponsor, TemplateVersion
from campaigns.texts import mjml
from campaigns.texts.given_texts import given_name
from campaigns.texts.parts import parse_header
from vendors.models import Credential, Vendor
from vendors.printing import sheets


def campaign_sponsor(name: str, *, new: bool) -> Sponsor:
    """Return a campaign's sponsor; a new one is stored with its first campaign. new: even if a similar name exists."""
    found = Sponsor.objects.filter(name=name).first()
    if found:
        return found
    alike = get_close_matches(name, Sponsor.objects.values_list("name", flat=True))
    if alike and not new:  # more likely a typing error than a new sponsor
        raise CommandError(f"there is no sponsor {name!r}; did you mean {alike[0]!r}? --new-sponsor creates it")
    return new_sponsor(name)


def add_content_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    about = "the sponsor's template of that name, its newest version or this one, instead of --subject to --header"
    add("--template", metavar="NAME[@VERSION]", help=about)
    add("--subject", default="", metavar="TEXT", help="template of the subject")
    add("--body", metavar="TEMPLATE_FILE", help="template of the body, UTF-8; needed without --template")
    add("--html", action="store_true", help="the body is HTML: fields are escaped in it")
    add("--mjml", action="store_true", help="the body is MJML; HTML is made from it")
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


def typed_content(options: dict[str, Any], channel: str) -> TemplateContent:
    """Return the content of --subject, --body, --html, --mjml, --text and --header.

    Raises CommandError, TemplateError.
    """
    subject, body, html = options["subject"], _read_text_file(options["body"]), options["html"]
    if channel == Vendor.Channel.EMAIL and not subject.strip():
        raise CommandError("an e-mail needs a --subject")
    if options["mjml"]:
        body, html = mjml.mjml_to_html(body), True
    headers = [parse_header(line) for line in options["header"] or ()]
    return TemplateContent(subject, body, html, _read_text_file(options["text"]) if options["text"] else "", headers)


def _named_version(options: dict[str, Any], sponsor: Sponsor, channel: str) -> TemplateVersion | None:
    """Return the version that --template names."""
    named = options["template"]
    if not named:
        if not options["body"]:
            raise CommandError("give a --body, or a --template", returncode=2)
        return None
    if beside := [f"--{name}" for name in ("subject", "body", "html", "mjml", "text", "header") if options[name]]:
        raise CommandError(f"--template says what {', '.join(beside)} would say: give one of both", returncode=2)
    try:
        return versions.find_template_version(sponsor.pk, named, channel)
    except versions.TemplateRefused as error:
        known = ", ".join(sponsor.templates.filter(archived_at=None).values_list("name", flat=True)[:KNOWN])
        raise CommandError(f"{error}; {sponsor.name} has: {known or 'none yet'}") from None


def read_content(
    options: dict[str, Any], sponsor: Sponsor, logins: Sequence[Credential], others: Iterable[Vendor] = ()
) -> CampaignContent:
    """Return the compiled content. logins: those it may go by, the first one first. others: all vendors of the route.

    Raises CommandError, BadInput, TemplateError.
    """
    vendor = logins[0].vendor
    version = _named_version(options, sponsor, vendor.channel)
    says = versions.content_of(version) if version else typed_content(options, vendor.channel)
    subject, body, html, given, headers = says.subject, says.body, says.html, says.text, says.headers
    files = _campaign_files(options)
    return contents.compile_content(
        subject,
        body,
        html,
        vendor,
        text=given,
        headers=headers,
        files=files,
        transactional=options["transactional"],
        others=others,
        logins=logins,
        version=version,
    )


def _campaign_files(options: dict[str, Any]) -> CampaignFiles | None:
    folder, columns = options["files"], [field_name(name) for name in options["file_column"] or ()]
    if bool(folder) != bool(columns):
        raise CommandError("--files and --file-column go together", returncode=2)
    to_all = [_file_to_attach(name) for name in options["attach"] or ()]
    to_all += [replace(_file_to_attach(name), cid=Path(name).name) for name in options["image"] or ()]
    if not (to_all or folder):
        return None
    return CampaignFiles(to_all, columns, open_source(Path(folder)) if folder else None)


def _file_to_attach(name: str) -> NewFile:
    path = Path(name)
    try:
        return NewFile(given_name(path.name), path.stat().st_size, path.read_bytes)
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}") from error


def _read_text_file(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not UTF-8 (byte {error.start:,})") from error
