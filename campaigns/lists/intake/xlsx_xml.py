"""Readers of a spreadsheet's XML, packed as ZIP, in bounded memory.

Depth, length of texts and tags, and the number of kinds of elements are limited. A document type is refused,
because its entities could expand without bound.
"""

import re
import zipfile
from collections.abc import Iterator
from typing import IO, Any
from xml.parsers import expat

from campaigns.lists.intake.fields import MAX_CELL
from campaigns.texts.bad_input import BadInput
from vendors.said import Said

LONGEST_TAG = 1_000_000  # bytes, with its attributes
DEEPEST, MOST_NAMES = 50, 1_000
BLOCK = 1 << 16
ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")
_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a sign: some programs write both halves as escapes


class XmlPart:
    """Reads a part and calls its subclass for each element, without prefixes. Raises BadInput, expat.ExpatError."""

    def __init__(self) -> None:
        self._depth, self._tags, self._names = 0, dict[str, str](), set[str]()
        self._texts: list[str] | None = None  # pieces of the text that `want_text` asked for
        self._length = 0

    def read_in_blocks(self, source: IO[bytes]) -> Iterator[int]:
        """Read block by block; yield the size of each."""
        parser = self._make_parser()
        fed = 0
        while block := source.read(BLOCK):
            fed += len(block)
            parser.Parse(block, False)
            if fed - parser.CurrentByteIndex > LONGEST_TAG:
                raise BadInput(damaged_sentence(Said("a tag does not end")))
            yield len(block)
        parser.Parse(b"", True)
        yield 0

    def _make_parser(self) -> Any:
        made = expat.ParserCreate()
        made.buffer_text = True
        made.StartDoctypeDeclHandler = self._refuse_doctype
        made.StartElementHandler, made.EndElementHandler = self._open_element, self._close_element
        made.CharacterDataHandler = self._take_text
        return made

    def start_tag(self, tag: str, attributes: dict[str, str]) -> None: ...

    def end_tag(self, tag: str) -> None: ...

    def text(self) -> str:
        """Return the text of the element that ends."""
        found = "".join(self._texts or ())
        self._texts = None
        return found

    def want_text(self) -> None:
        self._texts, self._length = [], 0

    def _open_element(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if name not in self._tags or not self._names.issuperset(attributes):
            self._tags[name] = name.rpartition(":")[2]
            self._names.update(attributes)
        if self._depth > DEEPEST or len(self._tags) + len(self._names) > MOST_NAMES:
            raise BadInput(damaged_sentence(Said("it is nested too deeply, or has too many kinds of elements")))
        self.start_tag(self._tags[name], attributes)

    def _close_element(self, name: str) -> None:
        self._depth -= 1
        self.end_tag(self._tags[name])

    def _take_text(self, text: str) -> None:
        if self._texts is not None:
            self._length += len(text)
            if self._length > 2 * MAX_CELL:
                self.raise_too_long()
            self._texts.append(text)

    def raise_too_long(self) -> None:
        raise BadInput(Said("a cell of the spreadsheet is larger than %(most)s characters", most=MAX_CELL))

    def _refuse_doctype(self, *_: Any) -> None:
        raise BadInput(damaged_sentence(Said("it has a document type")))


class ZippedXml:
    """The parts of a ZIP file. most: the largest number of unpacked bytes, over all parts."""

    def __init__(self, archive: zipfile.ZipFile, most: int) -> None:
        self._archive, self._most, self._left = archive, most, most

    def has_part(self, path: str) -> bool:
        return path in self._archive.NameToInfo

    def feed_part(self, path: str, handler: XmlPart) -> None:
        """Feed a part to the handler, block by block. Raises BadInput, expat.ExpatError, and zipfile's errors."""
        try:
            info = self._archive.getinfo(path)
        except KeyError:
            raise BadInput(
                Said("the file is a zip file, but no XLSX spreadsheet: it has no %(path)s", path=path)
            ) from None
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BadInput(Said("the spreadsheet is packed in a way that is not usual: save it as XLSX"))
        with self._archive.open(info) as source:
            for size in handler.read_in_blocks(source):
                self._left -= size
                if self._left < 0:
                    raise BadInput(
                        Said("the spreadsheet unpacks to more than %(most)s bytes: save it as CSV", most=self._most)
                    )


def unescape_text(text: str) -> str:
    """Replace escapes such as `_x000D_`, by which spreadsheets write characters that XML forbids."""
    if "_x" not in text:
        return text
    plain = ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _SURROGATE.search(plain) else plain


def damaged_sentence(why: str | Exception) -> Said:
    """Return the sentence that the spreadsheet is damaged."""
    return Said("the spreadsheet is damaged: %(why)s", why=why)


def parse_whole_number(text: str) -> int:
    """Return the number that the file must have here. Raises BadInput."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadInput(damaged_sentence(Said("%(name)s should be a number", name=repr(text[:20]))))
    return int(text)
