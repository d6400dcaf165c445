"""Since when a store, or a process of `up`, is in trouble: noted in the home by whoever meets it.

Whether it still is, only a question to it tells. A note that nobody has renewed for FORGOTTEN seconds is of an earlier
trouble. Processes of other machines have notes of their own.
"""

import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

FORGOTTEN = 120.0  # longer than the longest pause between two tries of anybody
EVERY = 1.0  # seconds; a process notes one trouble no more often
LONGEST = 300  # characters

_noted: dict[str, float] = {}


class Outage(NamedTuple):
    """A trouble of a part since a time in UTC, as the part says it."""

    part: str
    since: datetime
    sentence: str


def note(part: str, sentence: str) -> None:
    """Note the trouble of a part; one that is noted already keeps its beginning. A home without room is no error."""
    now = time.monotonic()
    if now - _noted.get(part, float("-inf")) < EVERY:
        return
    _noted[part] = now
    earlier = find(part)
    since = earlier.since if earlier else datetime.now(UTC)
    with suppress(OSError):
        path = _path(part)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(f"{since.isoformat()}\n{' '.join(sentence.split())[:LONGEST]}\n")
        draft.replace(path)


def clear(part: str) -> None:
    """Forget the trouble of a part that is well again."""
    _noted.pop(part, None)
    with suppress(OSError):
        _path(part).unlink(missing_ok=True)


def find(part: str) -> Outage | None:
    """The noted trouble of a part, unless it is forgotten."""
    with suppress(OSError, ValueError):
        path = _path(part)
        if abs(time.time() - path.stat().st_mtime) < FORGOTTEN:
            since, _, sentence = path.read_text().partition("\n")
            return Outage(part, datetime.fromisoformat(since), sentence.strip())
    return None


def of_processes() -> list[Outage]:
    """The processes of `up` that end again and again."""
    with suppress(OSError):
        names = sorted(path.name for path in _folder().iterdir() if path.name.startswith(PROCESS))
        return [found for name in names if (found := find(name))]
    return []


PROCESS = "process-"  # begins the part of a process of `up`


def _path(part: str) -> Path:
    return _folder() / part


def _folder() -> Path:
    return Path(settings.MAILHUB_HOME) / "outages"
