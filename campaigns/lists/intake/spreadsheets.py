"""Reads spreadsheets of every kind, each by its own reader, and names the fault of an unreadable file."""

import zipfile
import zlib
from typing import BinaryIO
from xml.parsers import expat

from campaigns.lists.intake import ods_reader, xls_reader, xlsx_reader
from campaigns.lists.intake.sheets import MOST_UNPACKED, SheetRows, name_other_file
from campaigns.lists.intake.xlsx_xml import damaged_sentence
from campaigns.texts.bad_input import BadInput
from vendors.said import Said

ZIP, OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
MAGIC = len(ZIP)
# Parts of packed files of other kinds; the first one that the file has names it.
OTHER_KINDS = {
    "word/document.xml": Said("a text document"),
    "ppt/presentation.xml": Said("a presentation"),
    "xl/workbook.bin": Said("a binary Excel file (XLSB)"),
    "Index/Document.iwa": Said("a document of Apple's Numbers, Pages or Keynote"),
    "Index.zip": Said("a document of Apple's Numbers, Pages or Keynote"),
    "index.xml": Said("a document of Apple's Numbers, Pages or Keynote"),
    "index.apxl": Said("a document of Apple's Numbers, Pages or Keynote"),
}
RELATIONS = "_rels/.rels"  # of every Office file (ECMA-376, part 2, 6.5)
OPEN_DOCUMENTS = {  # by the end of their type (OpenDocument 1.3, part 2, 3.3)
    b".text": Said("a text document"),
    b".presentation": Said("a presentation"),
    b".graphics": Said("a picture"),
}


def is_spreadsheet(start: bytes) -> bool:
    """Return True if a file with these first MAGIC bytes is a spreadsheet."""
    return start in (ZIP, OLE)


def convert_to_csv(file: BinaryIO, most: int | None = None) -> SheetRows:
    """Return the first visible sheet. Raises BadInput.

    most: limit of unpacked bytes and of CSV bytes written, at most MOST_UNPACKED.
    """
    most = min(most or MOST_UNPACKED, MOST_UNPACKED)
    rows = SheetRows(most)
    try:
        _read_by_kind(file, most, rows)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, zlib.error) as error:
        raise BadInput(
            Said("the spreadsheet cannot be read: %(why)s", why=str(error) or Said("it is damaged"))
        ) from error
    except expat.ExpatError as error:
        raise BadInput(damaged_sentence(error)) from error
    rows.end_sheet()
    return rows


def _read_by_kind(file: BinaryIO, most: int, rows: SheetRows) -> None:
    file.seek(0)
    if file.read(MAGIC) == OLE:
        xls_reader.read_xls(file, most, rows)
        return
    with zipfile.ZipFile(file) as archive:
        if ods_reader.is_ods(archive):
            ods_reader.read_ods(archive, most, rows)
        elif other := _find_other_kind(archive):
            raise BadInput(name_other_file(other))
        else:
            xlsx_reader.read_xlsx(archive, most, rows)


def _find_other_kind(archive: zipfile.ZipFile) -> Said | None:
    """Return the kind of a packed file that is no spreadsheet, with its article; None for an XLSX."""
    names = archive.NameToInfo
    found = next((kind for part, kind in OTHER_KINDS.items() if part in names), None)
    if found or RELATIONS in names:
        return found
    stated = ods_reader.read_type(archive)
    return next((kind for end, kind in OPEN_DOCUMENTS.items() if end in stated), Said("a packed archive"))
