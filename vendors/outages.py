"""Notes in the home about a store, or a process of `up`, in trouble, written by any process that meets it.

A note gives the beginning of the trouble and does not prove that trouble persists; only the store shows that. A note
not renewed for FORGOTTEN seconds belongs to earlier trouble. Processes on other machines keep their own notes.
"""

import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

FORGOTTEN = 120.0  # longer than the longest pause between two tries
EVERY = 1.0  # seconds between two notes of the same trouble by a process
LONGEST = 300  # characters

_noted: dict[str, float] = {}


class Outage(NamedTuple):
    """A part's trouble, its beginning in UTC, and its own words."""

    part: str
    since: datetime
    sentence: str


def note_outage(part: str, sentence: str) -> None:
    """Note a part's trouble, keeping the beginning of an earlier note. A home without space raises nothing."""
    now = time.monotonic()
    if now - _noted.get(part, float("-inf")) < EVERY:
        return
    _noted[part] = now
    earlier = find_outage(part)
    since = earlier.since if earlier else datetime.now(UTC)
    with suppress(OSError):
        path = _note_path(part)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(f"{since.isoformat()}\n{' '.join(sentence.split())[:LONGEST]}\n")
        draft.replace(path)


def clear_outage(part: str) -> None:
    """Forget the trouble of a part that works again."""
    _noted.pop(part, None)
    with suppress(OSError):
        _note_path(part).unlink(missing_ok=True)


def find_outage(part: str) -> Outage | None:
    """Return the noted trouble of a part, unless it is outdated."""
    with suppress(OSError, ValueError):
        path = _note_path(part)
        if abs(time.time() - path.stat().st_mtime) < FORGOTTEN:
            since, _, sentence = path.read_text().partition("\n")
            return Outage(part, datetime.fromisoformat(since), sentence.strip())
    return None


def find_process_outages() -> list[Outage]:
    """Return the processes of `up` that end again and again."""
    with suppress(OSError):
        names = sorted(path.name for path in _notes_folder().iterdir() if path.name.startswith(PROCESS))
        return [found for name in names if (found := find_outage(name))]
    return []


PROCESS = "process-"  # prefix of the part for a process of `up`


def _note_path(part: str) -> Path:
    return _notes_folder() / part


def _notes_folder() -> Path:
    return Path(settings.MAILHUB_HOME) / "outages"
