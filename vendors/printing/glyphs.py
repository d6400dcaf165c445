"""Finds the signs that the machine's fonts can show, so a list is checked before a letter with empty boxes is made.

The fonts are read by the child process that makes pages (process.py), and kept for some minutes. While they cannot be
read, no sign counts as missing: the letters are checked again at their making.
"""

import subprocess
import sys
import time
from pathlib import Path
from threading import Lock

from vendors.printing import pages, process

FRESH = 300.0  # seconds for which the installed fonts are kept
SECONDS = 60.0  # for the process
_lock = Lock()
_known: tuple[float, bytes | None] = (float("-inf"), None)


def known_signs() -> bytes | None:
    """Return a byte for each code point, 1 if an installed font has it; None: nothing is known."""
    global _known
    with _lock:
        read_at, signs = _known
        if time.monotonic() - read_at > FRESH:
            signs = None if pages.missing_libraries() else _read_signs()
            _known = time.monotonic(), signs
        return signs


def forget_signs() -> None:
    """Read the fonts again at the next need."""
    global _known
    with _lock:
        _known = (float("-inf"), None)


def _read_signs() -> bytes | None:
    command = [sys.executable, "-I", process.__file__, "signs"]
    try:
        made = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            env=pages.process_environment(),
            cwd=Path("/"),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return made.stdout if made.returncode == 0 and len(made.stdout) == process.CODE_POINTS else None


# Some signs of each script: a font that has them has the rest of daily use, too.
SCRIPTS = {
    "Latin": "aäßøłğ€",
    "Vietnamese": "ệờữ",
    "Greek": "αώ",
    "Cyrillic": "жїћ",
    "Armenian": "ա",
    "Georgian": "ა",
    "Hebrew": "א",
    "Arabic": "عپ",
    "Devanagari": "अि",
    "Bengali": "অ",
    "Tamil": "அ",
    "Thai": "กำ",
    "Chinese": "北国國",
    "Japanese": "あア東",
    "Korean": "한글",
    "emoji": "😀",
}


def scripts_of_fonts() -> tuple[list[str], list[str]]:
    """Return the scripts that the installed fonts have, and those they lack; both empty: unknown."""
    if (signs := known_signs()) is None:
        return [], []
    lacking = [name for name, some in SCRIPTS.items() if process.missing_signs(some, signs)]
    return [name for name in SCRIPTS if name not in lacking], lacking


def find_missing_glyphs(text: str) -> str:
    """Return a text's signs that no installed font has, with their numbers, or ""."""
    if text.isascii() or (signs := known_signs()) is None:
        return ""
    missing = process.missing_signs(text, signs)
    return process.named_signs(missing) if missing else ""
