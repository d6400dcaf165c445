"""Writes a spreadsheet row by row, as bytes that are ready to go: in constant memory, however many rows there are.

Every cell is a text: what a list said stays what it said, like 0049 or 1/2. A sheet holds 1,048,576 rows; what comes
after them begins another one.
"""

import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

MOST_ROWS = 1_048_576  # of a sheet
MOST_TEXT = 32_767  # characters of a cell
ROWS = 1_000  # written at a time
NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml."
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
SHEET = f'{HEAD}<worksheet xmlns="{MAIN}"><sheetData>'
SHEET_END = "</sheetData></worksheet>"
STYLES = f"""{HEAD}<styleSheet xmlns="{MAIN}"><fonts count="1"><font/></fonts><fills count="1"><fill/></fills>
<borders count="1"><border/></borders><cellStyleXfs count="1"><xf/></cellStyleXfs><cellXfs count="1"><xf/></cellXfs>
</styleSheet>"""


class _Outgoing:
    """A file that cannot be sought in, whose bytes are taken away as they come."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def chunks(header: Sequence[str], rows: Iterable[Sequence[str]], title: str) -> Iterator[bytes]:
    """The file in pieces. title: of the first sheet."""
    out, left, number = _Outgoing(), iter(rows), 0
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:  # type: ignore[call-overload]
        more: Sequence[str] | None = next(left, None)
        while more is not None or not number:
            number += 1
            with archive.open(f"xl/worksheets/sheet{number}.xml", "w", force_zip64=True) as sheet:
                sheet.write(SHEET.encode() + _row(header))
                written = 1
                while more is not None and written < MOST_ROWS:
                    block: list[bytes] = []
                    while more is not None and len(block) < ROWS and written < MOST_ROWS:
                        block.append(_row(more))
                        written += 1
                        more = next(left, None)
                    sheet.write(b"".join(block))
                    if piece := out.take():
                        yield piece
                sheet.write(SHEET_END.encode())
        _write_rest(archive, number, title)
    yield out.take()


def _row(cells: Sequence[str]) -> bytes:
    return f"<row>{''.join(map(_cell, cells))}</row>".encode()


def _cell(text: str) -> str:
    if not text:
        return "<c/>"
    return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(NO_XML.sub("", text[:MOST_TEXT]))}</t></is></c>'


def _write_rest(archive: zipfile.ZipFile, sheets: int, title: str) -> None:
    """What names the sheets. A program that reads the file begins at its end, so it may come last."""
    name = re.sub(r"[\[\]:*?/\\']", " ", NO_XML.sub("", title))[:25].strip() or "Report"
    numbers = range(1, sheets + 1)
    named = "".join(
        f'<sheet name={quoteattr(name if one == 1 else f"{name} {one}")} sheetId="{one}" r:id="rId{one}"/>'
        for one in numbers
    )
    parts = {
        "xl/workbook.xml": f'{HEAD}<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>{named}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": _relations(
            [(f"{OFFICE}/worksheet", f"worksheets/sheet{one}.xml") for one in numbers]
            + [(f"{OFFICE}/styles", "styles.xml")]
        ),
        "xl/styles.xml": STYLES,
        "_rels/.rels": _relations([(f"{OFFICE}/officeDocument", "xl/workbook.xml")]),
        "[Content_Types].xml": f'{HEAD}<Types xmlns="{TYPES}">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{KIND}sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{KIND}styles+xml"/>'
        + "".join(
            f'<Override PartName="/xl/worksheets/sheet{one}.xml" ContentType="{KIND}worksheet+xml"/>' for one in numbers
        )
        + "</Types>",
    }
    for path, text in parts.items():
        archive.writestr(path, text)


def _relations(targets: Iterable[tuple[str, str]]) -> str:
    rows = "".join(
        f'<Relationship Id="rId{number}" Type="{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, start=1)
    )
    return f'{HEAD}<Relationships xmlns="{RELATIONS}">{rows}</Relationships>'
