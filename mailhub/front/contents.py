"""What the letters of a request have beside subject and body: headers, files, and the text beside an HTML body."""

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from campaigns.content.parts import check_carried, header_faults, image_faults, text_beside
from campaigns.content.templates import Budget, TemplateError
from campaigns.intake import BadInput
from campaigns.intake.files import CampaignFiles, NewFile
from mailhub.front.problems import error, invalid
from mailhub.front.schemas import FileIn, ImageIn, SendRequest
from mailhub.front.vendor_cache import VendorSnapshot

READ = 2  # characters of HTML that are read in a step (campaigns/content/cost.py)


class RequestFiles:
    """The files of a request of which recipients get those that their fields name."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self._contents = contents

    def size(self, name: str) -> int:
        if name not in self._contents:
            raise ValueError(f"there is no file {name!r} in files")
        return len(self._contents[name])

    def read(self, name: str) -> bytes:
        return self._contents[name]


@dataclass(frozen=True, slots=True)
class BesideBody:
    """Checked headers and files of a request."""

    headers: Sequence[tuple[str, str]] = ()
    files: CampaignFiles | None = None


NOTHING = BesideBody()


def read(asked: SendRequest) -> BesideBody:
    """Raises Problem with all that is wrong."""
    if not (asked.headers or asked.attachments or asked.files or asked.file_fields or "cid:" in asked.body):
        return NOTHING
    headers = [(one.name, one.value.strip()) for one in asked.headers]
    errors = [error(f"/headers/{index}", "header", text) for index, text in header_faults(headers)]
    cids = [one.cid or "" for one in asked.attachments]
    errors += [error("/attachments", "image", text) for text in image_faults(asked.body, asked.html, cids)]
    if bool(asked.files) != bool(asked.file_fields):
        errors.append(error("/files", "files", "files and file_fields go together"))
    contents = [_content(one, f"/attachments/{index}", errors) for index, one in enumerate(asked.attachments)]
    own: dict[str, bytes] = {}
    for index, one in enumerate(asked.files):
        if one.name in own:
            errors.append(error(f"/files/{index}/name", "files", f"two files are called {one.name!r}"))
        own[one.name] = _content(one, f"/files/{index}", errors)
    if errors:
        raise invalid(errors)
    if not (contents or own):
        return BesideBody(headers)
    to_all = [_file(one, content) for one, content in zip(asked.attachments, contents, strict=True)]
    try:
        return BesideBody(headers, CampaignFiles(to_all, asked.file_fields, RequestFiles(own)))
    except BadInput as why:
        raise invalid([error("/attachments", "files", str(why))]) from why


def _content(one: FileIn, pointer: str, errors: list[dict[str, str]]) -> bytes:
    try:
        return base64.b64decode(one.content, validate=True)
    except (binascii.Error, ValueError):
        errors.append(error(f"{pointer}/content", "base64", "it is not base64"))
        return b""


def _file(one: ImageIn, content: bytes) -> NewFile:
    return NewFile(one.name, len(content), lambda: content, one.type or "", one.cid or "")


def carrying(asked: SendRequest, beside: BesideBody, vendors: list[VendorSnapshot]) -> list[VendorSnapshot]:
    """Those of the vendors that carry all that the letters have. Raises Problem if none does."""
    needs = [name for name, part in _needs(asked, beside) if part]
    fitting = [vendor for vendor in vendors if vendor.carries.issuperset(needs)]
    if not fitting:
        try:
            check_carried(needs, vendors[0].carries, vendors[0].slug)
        except TemplateError as why:
            raise invalid([error("/vendor" if asked.vendor else "/channel", "carries", str(why))]) from why
    return fitting


def _needs(asked: SendRequest, beside: BesideBody) -> Iterator[tuple[str, object]]:
    yield "text", asked.text.strip()
    yield "headers", beside.headers
    yield "attachments", beside.files


def carried_by_all(vendors: Sequence[VendorSnapshot]) -> frozenset[str]:
    return frozenset.intersection(*(vendor.carries for vendor in vendors))


def text_of(asked: SendRequest, carried: frozenset[str], budget: Budget) -> str:
    """The text beside the body. Raises TemplateError, OverBudget."""
    if asked.html and not asked.text.strip() and "text" in carried:
        budget.spend(len(asked.body) // READ)
    return text_beside(asked.body, asked.html, asked.text, carried)
