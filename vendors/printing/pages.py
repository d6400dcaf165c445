"""Renders letters to PDF in a child process that can be killed, so it cannot block or harm senders."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from vendors.adapters.base import Attachment, Letter
from vendors.adapters.letter_faults import LetterPart
from vendors.printing import sheets

KEPT = ("HOME", "LANG", "LC_ALL", "FONTCONFIG_FILE", "FONTCONFIG_PATH", "XDG_CACHE_HOME", "LD_LIBRARY_PATH")
MOST = 64 << 20  # bytes in one answer
LIBRARIES = (
    ("libpango-1.0.so.0", "libpango-1.0.dylib", "libpango-1.0-0.dll"),
    ("libpangoft2-1.0.so.0", "libpangoft2-1.0.dylib", "libpangoft2-1.0-0.dll"),
)
EXTRAS = ("weasyprint", "pypdf")


class Printed(NamedTuple):
    """A letter as PDF."""

    pages: int
    pdf: bytes


class NotPrintable(Exception):
    """This letter cannot be rendered; the text says why. `part`: at fault."""

    def __init__(self, why: str, part: LetterPart = LetterPart.SIZE) -> None:
        super().__init__(why)
        self.part = part


class Stopped(Exception):
    """The process died or was too slow; the fate of its letter is unknown.

    `for_good`: every letter will fail until a person fixes the installation.
    """

    def __init__(self, reason: str, *, for_good: bool = False) -> None:
        super().__init__(reason)
        self.for_good = for_good


@cache
def missing_libraries(*more: str) -> str:
    """Return a sentence about what this machine lacks for rendering, or "". `more`: further packages required."""
    absent = [name for name in (*EXTRAS, *more) if find_spec(name) is None]
    if absent:
        return f"{' and '.join(absent)} must be installed: pip install --require-hashes -r requirements-extras.txt"
    for names in LIBRARIES:
        if not any(map(_can_load, names)):
            return f"WeasyPrint needs the library {names[0]}: on Debian install libpango-1.0-0 libpangoft2-1.0-0"
    return ""


def process_environment() -> dict[str, str]:
    """Return the environment of the process. An empty PATH, or WeasyPrint would run a compiler for each library."""
    return {"PATH": "", **{name: os.environ[name] for name in KEPT if name in os.environ}}


def _can_load(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


class Look(NamedTuple):
    """Print settings of a vendor. `pages_max`: pages in a letter; `seconds`: processor time for one letter."""

    paper: str = "A4"
    window: str = "none"
    pages_max: int = 20
    seconds: float = 20.0

    @property
    def address_window(self) -> sheets.Window | None:
        return sheets.WINDOWS.get(self.window)

    def page_request(self, letter: Letter, address: Sequence[str], *, frame: bool = False) -> dict[str, Any]:
        """Build the request for the process. `frame`: also draw the window's edge."""
        window = self.address_window
        over = sheets.address_page(self.paper, window, address, frame=frame) if window and (address or frame) else ""
        return {
            "what": "letter",
            "html": letter.body if letter.html else sheets.page_of_text(letter.body),
            "css": [sheets.default_style(self.paper, window)],
            "over": over,
            "whole": True,
            "paper": sheets.PAPERS[self.paper],
            "pages_max": self.pages_max,
            "seconds": self.seconds,
        }


class PageMaker:
    """One child process, for one caller at a time. It starts on demand, and again after it has ended."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._given: dict[str, Attachment] = {}

    async def render_letter(self, question: dict[str, Any], files: Sequence[Attachment]) -> Printed:
        """Render a letter. Raises NotPrintable and Stopped. On cancellation the process is killed.

        If the letter ends the process twice and another letter can be rendered, the letter itself is to blame: it
        raises NotPrintable and is not called again.
        """
        with suppress(Stopped):
            return await self._render_letter(question, files)
        try:
            return await self._render_letter(question, files)
        except Stopped as error:
            if error.for_good:
                raise
        await self._render_letter(question | {"html": "<p>letter</p>", "over": ""}, ())
        raise NotPrintable("it takes too much memory or time to make pages of it")

    async def _render_letter(self, question: dict[str, Any], files: Sequence[Attachment]) -> Printed:
        frames: list[bytes] = []
        if self._process is None:
            self._given.clear()
        for one in files:
            if not one.cid:
                raise NotPrintable(
                    f"the file {one.name} is no image within the letter: it cannot be printed", LetterPart.FILE
                )
            if self._given.get(one.cid) is not one:
                self._given[one.cid] = one
                said = {"what": "file", "name": one.cid, "type": one.content_type}
                frames += [orjson.dumps(said), one.content]
        found, pdf = await self._ask_process([*frames, orjson.dumps(question | {"files": [one.cid for one in files]})])
        if why := found.get("why"):
            raise NotPrintable(why, LetterPart(found.get("part", LetterPart.TEXT)))
        return Printed(found["pages"], pdf)

    async def merge_parts(self, parts: Sequence[bytes], *, fronts: bool) -> bytes:
        """Merge PDFs. `fronts`: each begins on the front of a sheet printed on both sides. Raises Stopped."""
        if len(parts) == 1:
            return parts[0]
        return (
            await self._ask_process([orjson.dumps({"what": "merge", "parts": len(parts), "fronts": fronts}), *parts])
        )[1]

    async def close(self) -> None:
        """Kill the process."""
        process, self._process = self._process, None
        self._given.clear()
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _ask_process(self, frames: Sequence[bytes]) -> tuple[dict[str, Any], bytes]:
        try:
            process = self._process or await self._start_process()
            assert process.stdin is not None
            assert process.stdout is not None
            for frame in frames:
                process.stdin.write(struct.pack(">I", len(frame)) + frame)
                await process.stdin.drain()
            said = orjson.loads(await self._read_frame(process.stdout))
            if "broken" in said:
                await self.close()
                raise Stopped(f"no pages can be made on this machine: {said['broken']}", for_good=True)
            return said, b"" if "why" in said else await self._read_frame(process.stdout)
        except (OSError, EOFError, asyncio.IncompleteReadError) as error:
            await self.close()
            raise Stopped(f"the process that makes pages has ended ({type(error).__name__})") from None
        except Stopped:
            raise
        except BaseException:  # also on cancellation: a late answer would be taken for the next one
            await asyncio.shield(self.close())
            raise

    async def _start_process(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(Path(__file__).with_name("process.py")),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=process_environment(),
            cwd="/",
            start_new_session=True,
            limit=1 << 20,
        )
        return self._process

    @staticmethod
    async def _read_frame(stream: asyncio.StreamReader) -> bytes:
        (length,) = struct.unpack(">I", await stream.readexactly(4))
        if length > MOST * 4:
            raise EOFError
        return await stream.readexactly(length)
