"""Child process that renders HTML to PDF, without access to network or files and with limited memory and time.

pages.py starts it as a script without the environment. So it imports none of our code and knows no secret. It reads and
writes frames: four bytes with the length, then the content. A request is a frame of JSON and the frames it announces;
the answer is a frame of JSON, plus one with the PDF if there is one.
"""

import contextlib
import ctypes
import io
import json
import logging
import resource
import signal
import struct
import sys
import time
import unicodedata
from typing import Any, BinaryIO

MEMORY = 1 << 30  # bytes of address space
SIZE_TOLERANCE = 0.75  # millimetres of allowed difference between page and paper
CODE_POINTS = 0x110000
# Signs without a glyph: by category, and those that Unicode lets a renderer ignore.
INVISIBLE = frozenset(("Cc", "Cf", "Zs", "Zl", "Zp"))
IGNORED = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0") | frozenset(
    map(chr, (*range(0xFE00, 0xFE10), *range(0x180B, 0x1810), *range(0xE0100, 0xE01F0)))
)
DOT = b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'  # stands in for a missing image


class Unprintable(BaseException):
    """A letter cannot be rendered; the text says why. Unlike an Exception, no library catches it.

    `part`: at fault, a value of vendors.adapters.letter_faults.LetterPart, which this process does not import.
    """

    def __init__(self, why: str, part: str = "text") -> None:
        super().__init__(why)
        self.part = part


def read_frame(stream: BinaryIO) -> bytes:
    """Read one frame. Raises EOFError."""
    head = stream.read(4)
    if len(head) < 4:
        raise EOFError
    (length,) = struct.unpack(">I", head)
    return stream.read(length)


def write_frames(stream: BinaryIO, *frames: bytes) -> None:
    for frame in frames:
        stream.write(struct.pack(">I", len(frame)) + frame)
    stream.flush()


def _stop_too_long(*_: object) -> None:
    raise Unprintable("it takes too long to make pages of it", "size")


class MissingPart(logging.Handler):
    """Aborts a letter when WeasyPrint reports an omission, such as an unreadable image."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            raise Unprintable(record.getMessage()[:120].rstrip(": "), "file")


class FontSet(ctypes.Structure):
    """fontconfig's FcFontSet."""

    _fields_ = (("nfont", ctypes.c_int), ("sfont", ctypes.c_int), ("fonts", ctypes.POINTER(ctypes.c_void_p)))


def installed_signs(config: Any = None) -> bytes:
    """Return a byte for each code point: 1 if an installed font has it. Raises OSError.

    config: WeasyPrint's FcConfig, with the fonts that letters have brought; None: the machine's.
    """
    library = _load_fontconfig()
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    library.FcInitLoadConfigAndFonts.restype = pointer
    library.FcConfigGetFonts.restype = ctypes.POINTER(FontSet)
    library.FcConfigGetFonts.argtypes = [pointer, ctypes.c_int]
    library.FcPatternGetCharSet.argtypes = [pointer, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(pointer)]
    for name in ("FcCharSetFirstPage", "FcCharSetNextPage"):
        function = getattr(library, name)
        function.argtypes, function.restype = [pointer, ctypes.POINTER(number * 8), ctypes.POINTER(number)], number
    if config is None:
        found = library.FcInitLoadConfigAndFonts()
    else:
        from weasyprint.text.ffi import ffi

        found = int(ffi.cast("uintptr_t", config))
    signs = bytearray(CODE_POINTS)
    for kind in (0, 1):  # FcSetSystem, FcSetApplication
        fonts = library.FcConfigGetFonts(found, kind)
        for at in range(fonts.contents.nfont if fonts else 0):
            charset = pointer()
            if library.FcPatternGetCharSet(fonts.contents.fonts[at], b"charset", 0, ctypes.byref(charset)) == 0:
                _mark_signs(library, charset, signs)
    return bytes(signs)


def _load_fontconfig() -> Any:
    """Return the library that WeasyPrint uses. Raises OSError."""
    for name in ("libfontconfig.so.1", "libfontconfig.1.dylib"):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    raise OSError("there is no libfontconfig")


def _mark_signs(library: Any, charset: Any, signs: bytearray) -> None:
    """Mark the code points of an FcCharSet, which gives them as pages of 256 bits."""
    bits, following = (ctypes.c_uint32 * 8)(), ctypes.c_uint32()
    page = library.FcCharSetFirstPage(charset, ctypes.byref(bits), ctypes.byref(following))
    while page != 0xFFFFFFFF:
        for word, mask in enumerate(bits):
            while mask:
                signs[page + 32 * word + (mask & -mask).bit_length() - 1] = 1
                mask &= mask - 1
        page = library.FcCharSetNextPage(charset, ctypes.byref(bits), ctypes.byref(following))


def missing_signs(text: str, signs: bytes) -> list[str]:
    """Return the signs of a text that need a glyph and have none, in order. signs: of installed_signs."""
    return [
        one
        for one in sorted(set(unicodedata.normalize("NFC", text)))
        if not signs[ord(one)]
        and unicodedata.category(one) not in INVISIBLE
        and one not in IGNORED
        and not all(signs[ord(part)] for part in unicodedata.normalize("NFD", one))
    ]


def named_signs(missing: list[str]) -> str:
    """Return the first signs with their numbers, such as '日' (U+65E5)."""
    shown = ", ".join(f"{one!r} (U+{ord(one):04X})" for one in missing[:3])
    return f"{shown} and {len(missing) - 3} more" if len(missing) > 3 else shown


class PdfMaker:
    """Renders PDFs. `files`: what letters may show as cid:NAME, with its type."""

    def __init__(self) -> None:
        self._fonts: Any = None
        self._signs = b""
        self._files: dict[str, tuple[str, bytes]] = {}
        self._shown: set[str] = set()  # of the current letter

    def load_libraries(self) -> None:
        """Load what letters need. Raises ImportError and OSError.

        Merging PDFs does without it and saves the time.
        """
        if self._fonts is None:
            from weasyprint.text.fonts import FontConfiguration

            logging.getLogger("weasyprint").addHandler(MissingPart())
            self._fonts = FontConfiguration()
            self._signs = installed_signs(self._fonts._config)

    def keep_file(self, name: str, kind: str, content: bytes) -> None:
        self._files[name] = kind, content

    def _check_signs(self, pages: list[Any], part: str) -> None:
        """Abort a letter that shows a sign that no font has: it would be an empty box."""
        boxes = (box for page in pages for box in page._page_box.descendants(placeholders=True))
        text = "".join({sign for box in boxes for sign in getattr(box, "text", "")})
        if missing_signs(text, self._signs):
            self._signs = installed_signs(self._fonts._config)  # a letter may bring fonts
        if missing := missing_signs(text, self._signs):
            raise Unprintable(f"it shows {named_signs(missing)}, which no installed font has", part)

    def render_letter(self, asked: dict[str, Any]) -> tuple[int, bytes]:
        """Render a letter. Returns its number of pages and the PDF. Raises Unprintable. Call `prepare` first.

        Keys of `asked`: html, css, over (HTML drawn over the first page), files (by name), paper, pages_max, seconds;
        whole: no file is missing.
        """
        self._shown, self._whole = set(asked["files"]), asked["whole"]
        signal.setitimer(signal.ITIMER_PROF, asked["seconds"])
        resource.setrlimit(
            resource.RLIMIT_CPU, (int(time.process_time() + asked["seconds"]) + 3, resource.RLIM_INFINITY)
        )
        try:
            document = self._lay_out(asked["html"], asked["css"])
            if len(document.pages) > asked["pages_max"]:
                raise Unprintable(f"it has {len(document.pages)} pages, more than {asked['pages_max']}", "size")
            for number, page in enumerate(document.pages, start=1):
                self._check_size(number, page.width / 96 * 25.4, page.height / 96 * 25.4, asked["paper"])
            self._check_signs(document.pages, "character")
            made = document.write_pdf()
            if asked["over"]:
                over = self._lay_out(asked["over"], [])
                self._check_signs(over.pages, "address")
                made = self._lay_over(made, over.write_pdf())
            return len(document.pages), made
        except (MemoryError, RecursionError) as error:
            why = f"it is too large or too deep to make pages of it ({type(error).__name__})"
            raise Unprintable(why, "size") from None
        except Exception as error:  # HTML may contain anything
            raise Unprintable(f"no pages can be made of it: {type(error).__name__}: {error}"[:200]) from None
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def merge_parts(self, parts: list[bytes], fronts: bool) -> bytes:
        """Merge the parts in order. `fronts`: each begins on the front of a sheet printed on both sides."""
        import pypdf

        writer = pypdf.PdfWriter()
        for part in parts:
            if fronts and len(writer.pages) % 2:
                writer.add_blank_page()  # in the size of the last one
            writer.append(io.BytesIO(part))
        out = io.BytesIO()
        writer.write(out)
        return out.getvalue()

    def _lay_out(self, html: str, css: list[str]) -> Any:
        import weasyprint

        sheets = [weasyprint.CSS(string=one, url_fetcher=self._fetch_part, font_config=self._fonts) for one in css]
        page = weasyprint.HTML(string=html, base_url="letter:", url_fetcher=self._fetch_part)
        return page.render(stylesheets=sheets, font_config=self._fonts)

    def _fetch_part(self, url: str, *_: object, **__: object) -> Any:
        """Return content that the letter carries. Raises Unprintable for anything else, which print would lack."""
        from weasyprint.urls import URLFetcher, URLFetcherResponse

        if url.lower().startswith("data:"):
            return URLFetcher(allowed_protocols=("data",)).fetch(url)
        name = url.removeprefix("cid:")
        if name != url and name in self._shown:
            kind, content = self._files[name]
            return URLFetcherResponse(url, io.BytesIO(content), {"Content-Type": kind})
        if name != url and not self._whole:
            return URLFetcherResponse(url, io.BytesIO(DOT), {"Content-Type": "image/svg+xml"})
        raise Unprintable(f"it shows {url[:100]}, which is not within the letter", "file")

    @staticmethod
    def _check_size(number: int, width: float, height: float, paper: tuple[float, float]) -> None:
        if abs(width - paper[0]) > SIZE_TOLERANCE or abs(height - paper[1]) > SIZE_TOLERANCE:
            have, want = f"{width:.0f} x {height:.0f} mm", f"{paper[0]:.0f} x {paper[1]:.0f} mm"
            raise Unprintable(f"page {number} is {have}, and the paper is {want}", "size")

    @staticmethod
    def _lay_over(made: bytes, over: bytes) -> bytes:
        import pypdf

        writer = pypdf.PdfWriter(clone_from=io.BytesIO(made))
        writer.pages[0].merge_page(pypdf.PdfReader(io.BytesIO(over)).pages[0])
        out = io.BytesIO()
        writer.write(out)
        return out.getvalue()


def serve_requests(asked: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the input ends."""
    pages = PdfMaker()
    while True:
        question = json.loads(read_frame(asked))
        match question["what"]:
            case "file":
                pages.keep_file(question["name"], question["type"], read_frame(asked))
            case "merge":
                made = pages.merge_parts([read_frame(asked) for _ in range(question["parts"])], question["fronts"])
                write_frames(answers, b"{}", made)
            case "letter":
                try:
                    pages.load_libraries()
                    number, made = pages.render_letter(question)
                except (ImportError, OSError) as error:  # from WeasyPrint's libraries
                    write_frames(answers, json.dumps({"broken": f"{type(error).__name__}: {error}"[:200]}).encode())
                    return
                except Unprintable as why:
                    write_frames(answers, json.dumps({"why": str(why), "part": why.part}).encode())
                else:
                    write_frames(answers, json.dumps({"pages": number}).encode(), made)


def main() -> None:
    answers = open(sys.stdout.fileno(), "wb", closefd=False)  # noqa: SIM115 nothing that a library prints gets there
    sys.stdout = sys.stderr
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.argv[1:] == ["signs"]:
        answers.write(installed_signs())
        return
    signal.signal(signal.SIGPROF, _stop_too_long)
    try:
        serve_requests(sys.stdin.buffer, answers)
    except EOFError:
        return


if __name__ == "__main__":
    main()
