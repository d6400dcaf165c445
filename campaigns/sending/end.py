"""Why a stream ended, and when its job may go on."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Why the stream ended. drained: nothing was left. until: when it may go on; words: why it waits.

    held: the job itself has to wait until then; else its credential has, and a person may open that earlier.
    paused: only a person can.
    """

    drained: bool = False
    until: datetime | None = None
    words: str = ""
    held: bool = False
    paused: bool = False


def put_off(until: datetime) -> StreamEnd:
    """The vendor has put off all that is left; nobody waits for it meanwhile."""
    return StreamEnd(until=until, words="some are to be tried again", held=True)
