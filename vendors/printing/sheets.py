"""Papers, and the envelope windows through which addresses show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

INCH = 25.4


@dataclass(frozen=True, slots=True)
class Window:
    """An envelope's window on the first page of the folded letter, in millimetres from its top left corner.

    `inset`: distance from the window's edge to the address, so it stays visible if the letter slides.
    """

    left: float
    top: float
    width: float
    height: float
    inset: tuple[float, float]
    free: float
    """How far down the letter itself begins."""


PAPERS = {"A4": (210.0, 297.0), "Letter": (8.5 * INCH, 11 * INCH)}
WINDOWS = {
    # DIN 5008 form B: a field of 85 x 45 mm, its upper 17.7 mm for the return address and remarks
    "din5008b": Window(20, 45, 85, 45, (5, 17.7), 98.5),
    # folded in three in a US #10 envelope: 4 1/2 x 1 1/8 in, 7/8 in from the left, 1/2 in from the bottom
    "us10": Window(0.875 * INCH, 2.04 * INCH, 4.5 * INCH, 1.125 * INCH, (0.125 * INCH, 0.125 * INCH), 3.5 * INCH),
}
LINE = 4.6  # millimetres between lines of an address
FAMILY = "'Liberation Sans', Arial, Helvetica, 'DejaVu Sans', sans-serif"
FONT = f"font: 10pt/4.6mm {FAMILY}"


def default_style(paper: str, window: Window | None) -> str:
    """Return default CSS; the letter's own CSS overrides it."""
    width, height = PAPERS[paper]
    first = f" @page :first {{ margin-top: {window.free:.2f}mm }}" if window else ""
    pages = f"@page {{ size: {width}mm {height}mm; margin: 20mm 20mm 20mm 25mm }}{first}"
    return f"{pages} body {{ font: 11pt/1.4 {FAMILY} }}"


def lines_seen(window: Window) -> int:
    """Return how many address lines show through the window."""
    return int((window.height - window.inset[1]) / LINE)


def address_page(paper: str, window: Window, lines: Sequence[str], *, frame: bool) -> str:
    """Return a page with the address at the window. `frame`: draw the window's edge."""
    width, height = PAPERS[paper]
    place = f"left: {window.left:.2f}mm; top: {window.top:.2f}mm; width: {window.width:.2f}mm"
    place += f"; height: {window.height:.2f}mm"
    text = "<br>".join(escape(line) for line in lines)
    inner = f"position: absolute; left: {window.inset[0]:.2f}mm; top: {window.inset[1]:.2f}mm; white-space: pre"
    edge = "; outline: 0.3mm dashed #d0021b" if frame else ""
    return (
        f"<style>@page {{ size: {width}mm {height}mm; margin: 0 }} body {{ margin: 0 }}</style>"
        f'<div style="position: absolute; {place}{edge}"><div style="{inner}; {FONT}">{text}</div></div>'
    )


def page_of_text(text: str) -> str:
    """Wrap a plain-text letter in HTML."""
    return f'<body><div style="white-space: pre-wrap">{escape(text)}</div></body>'
