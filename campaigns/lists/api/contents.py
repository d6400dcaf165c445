"""The content of an API request: template, headers, files, and the text beside HTML."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from campaigns.content.template_versions import versions
from campaigns.doors.front.problems import invalid_problem, make_error
from campaigns.doors.front.schemas import HeaderIn
from campaigns.doors.front.vendor_cache import VendorSnapshot
from campaigns.lists.api.schemas import FILE_ID, FileIn, ImageIn, SendRequest
from campaigns.lists.intake import BadInput, uploads
from campaigns.lists.intake.contents import is_blank
from campaigns.lists.intake.files import CampaignFiles, NewFile
from campaigns.lists.intake.uploads import Owner, Uploaded
from campaigns.texts import apart, plain_text
from campaigns.texts.parts import IMAGES, check_carried, header_faults, image_faults, shows_images, text_beside
from campaigns.texts.templates import Budget, TemplateError
from vendors.mail_classes import MailClass
from vendors.said import Said

READ = 2  # characters of HTML read in one step (campaigns/texts/cost.py)


class RequestFiles:
    """Files of a request; each recipient gets those named in its fields."""

    def __init__(self, files: dict[str, NewFile]) -> None:
        self._files = files

    def size(self, name: str) -> int:
        if name not in self._files:
            raise ValueError(f"there is no file {name!r} in files")
        return self._files[name].size

    def read_named(self, name: str) -> bytes:
        return self._files[name].read()

    def digest(self, name: str) -> bytes | None:
        return self._files[name].digest


@dataclass(frozen=True, slots=True)
class BesideBody:
    """Checked headers and files of a request."""

    headers: Sequence[tuple[str, str]] = ()
    files: CampaignFiles | None = None


NOTHING = BesideBody()


OF_A_TEMPLATE = ("subject", "body", "html", "text", "headers", "mjml")


def fill_from_template(asked: SendRequest, sponsor_id: int, channel: str) -> tuple[SendRequest, int | None]:
    """Return the request with the content of its template, and the version's id. Raises Problem."""
    if asked.template is None:
        if not asked.body:
            raise invalid_problem([make_error("/body", "missing", "give a body, or a template")])
        if not (asked.attachments or asked.files) and is_blank(asked.body, asked.html):
            raise invalid_problem([make_error("/body", "empty", Said("the message is empty: write its text"))])
        return asked, None
    if beside := [name for name in OF_A_TEMPLATE if name in asked.model_fields_set]:
        raise invalid_problem(
            [make_error(f"/{name}", "template", "a template says it; give one of both") for name in beside]
        )
    try:
        version = versions.find_template_version(sponsor_id, asked.template, channel)
    except versions.TemplateRefused as why:
        raise invalid_problem([make_error("/template", "template", str(why))]) from why
    says = versions.content_of(version)
    headers = [HeaderIn(name=name, value=value) for name, value in says.headers]
    given = {"subject": says.subject, "body": says.body, "html": says.html, "text": says.text, "headers": headers}
    if asked.mail_class is None and version.template.mail_class:
        given["mail_class"] = MailClass(version.template.mail_class).word
    return asked.model_copy(update=given), version.pk


def read_beside(asked: SendRequest, of: Owner) -> BesideBody:
    """Check headers and files. `of`: whose uploaded files it may use. Raises Problem with all mistakes."""
    if not (asked.headers or asked.attachments or asked.files or asked.file_fields or "cid:" in asked.body):
        return NOTHING
    headers = [(one.name, one.value.strip()) for one in asked.headers]
    errors = [make_error(f"/headers/{index}", "header", text) for index, text in header_faults(headers)]
    cids = [one.cid or "" for one in asked.attachments]
    errors += [make_error("/attachments", "image", text) for text in image_faults(asked.body, asked.html, cids)]
    if bool(asked.files) != bool(asked.file_fields):
        errors.append(make_error("/files", "files", "files and file_fields go together"))
    ids = (re.fullmatch(FILE_ID, one.file or "") for one in (*asked.attachments, *asked.files))
    named = {bytes.fromhex(id[1]) for id in ids if id}
    known = uploads.find_uploads(of, named) if named else {}
    to_all = [
        _read_request_file(one, f"/attachments/{index}", known, errors) for index, one in enumerate(asked.attachments)
    ]
    own: dict[str, NewFile] = {}
    for index, one in enumerate(asked.files):
        if one.name in own:
            errors.append(
                make_error(f"/files/{index}/name", "files", Said("two files are called %(name)s", name=repr(one.name)))
            )
        own[one.name] = _read_request_file(one, f"/files/{index}", known, errors)
    if errors:
        raise invalid_problem(errors)
    if not (to_all or own):
        return BesideBody(headers)
    try:
        return BesideBody(headers, CampaignFiles(to_all, asked.file_fields, RequestFiles(own)))
    except BadInput as why:
        raise invalid_problem([make_error("/attachments", "files", str(why))]) from why


def _read_request_file(
    one: FileIn, pointer: str, known: Mapping[bytes, Uploaded], errors: list[dict[str, str]]
) -> NewFile:
    """Return the file. `known`: the sponsor's uploaded files that the request refers to."""
    content, size, digest = b"", 0, None
    if (one.content is None) == (one.file is None):
        errors.append(make_error(pointer, "file", "give its content or the id of an uploaded file, one of them"))
    elif one.file is None:
        try:
            content = base64.b64decode(one.content or "", validate=True)
        except (binascii.Error, ValueError):
            errors.append(make_error(f"{pointer}/content", "base64", "it is not base64"))
        size = len(content)
    elif found := known.get(bytes.fromhex(one.file.removeprefix("file_"))):
        size, digest = found.size, found.digest
    else:
        errors.append(make_error(f"{pointer}/file", "file", "you have no such file; POST /files uploads one"))
    cid = one.cid or "" if isinstance(one, ImageIn) else ""
    return NewFile(one.name, size, lambda: content, one.type or "", cid, digest=digest)


def vendors_carrying(asked: SendRequest, beside: BesideBody, vendors: list[VendorSnapshot]) -> list[VendorSnapshot]:
    """Return the vendors that carry everything in the letters. Raises Problem if none does."""
    needs = [name for name, part in _needed_parts(asked, beside) if part]
    fitting = [vendor for vendor in vendors if vendor.carries.issuperset(needs)]
    if not fitting:
        try:
            check_carried(needs, vendors[0].carries, vendors[0].slug)
        except TemplateError as why:
            raise invalid_problem([make_error("/vendor" if asked.vendor else "/channel", "carries", str(why))]) from why
    return fitting


def _needed_parts(asked: SendRequest, beside: BesideBody) -> Iterator[tuple[str, object]]:
    yield "text", asked.text.strip()
    yield "headers", beside.headers
    yield "attachments", beside.files
    yield IMAGES, beside.files and shows_images(asked.body, asked.html)


def carried_by_all(vendors: Sequence[VendorSnapshot]) -> frozenset[str]:
    return frozenset.intersection(*(vendor.carries for vendor in vendors))


def text_of(asked: SendRequest, carried: frozenset[str], budget: Budget) -> str:
    """Return the text beside the body. Raises TemplateError, OverBudget."""
    if asked.html and not asked.text.strip() and "text" in carried:
        budget.spend_budget(len(asked.body) // READ)
        if len(asked.body) > plain_text.SHORT:
            budget.spend_budget(apart.STEPS)
    return text_beside(asked.body, asked.html, asked.text, carried)
