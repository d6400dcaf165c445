"""Named places in the code where a test can let a process die. They do nothing unless the environment arms them.

MAILHUB_FAILPOINTS=after_claim,before_record:3 kills the process with -9 at its first pass by after_claim, or its third
by before_record; after_call:1:STOP lets it freeze there instead, until somebody sends SIGCONT. Each fires once: with
MAILHUB_FAILPOINTS_DIR set, once over all processes that share the folder.
"""

import os
import signal
import threading
from collections import Counter
from pathlib import Path

# In the order in which a message meets them; tests walk this table, so a new place is tested by being named here.
NAMES = (
    "mid_dispatch", "after_dispatch", "after_pick", "after_cut", "before_bell", "after_bell",
    "before_take", "after_take", "after_start", "before_enqueue", "after_enqueue",
    "before_grant", "after_grant", "after_claim", "before_call", "after_call", "before_record", "after_record",
    "before_done", "after_done", "before_put_back", "after_put_back", "before_drain", "after_drain",
    "before_finalise", "mid_finalise", "after_finalise", "before_finish", "after_finish",
    "after_doubt", "after_recover", "before_rebuild", "mid_rebuild", "after_rebuild",
    "after_due", "before_repeat", "after_repeat", "before_settle", "after_settle",
)  # fmt: skip


def _parse(words: str) -> dict[str, tuple[int, signal.Signals]]:
    """{name: the pass at which it fires, and what it does to the process}"""
    armed = {}
    for word in filter(None, words.split(",")):
        name, _, rest = word.partition(":")
        nth, _, how = rest.partition(":")
        if name not in NAMES:
            raise ValueError(f"no failpoint is called {name!r}")
        armed[name] = int(nth or 1), signal.Signals[f"SIG{how or 'KILL'}"]
    return armed


_armed = _parse(os.environ.get("MAILHUB_FAILPOINTS", ""))
_passed: Counter[str] = Counter()


def arm(words: str) -> None:
    """As the environment does, for a process that is running already."""
    _passed.clear()
    _armed.clear()
    _armed.update(_parse(words))


def here(name: str) -> None:
    """The process is at this place."""
    if not _armed or name not in _armed:
        return
    _passed[name] += 1
    nth, how = _armed[name]
    if _passed[name] == nth and _first(name):
        signal.pthread_kill(threading.get_ident(), how)  # of a process with threads this one goes no step further


def _first(name: str) -> bool:
    """Has no other process fired here yet?"""
    folder = os.environ.get("MAILHUB_FAILPOINTS_DIR")
    if not folder:
        return True
    try:
        (Path(folder) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
