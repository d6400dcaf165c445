"""Named points in the code at which a test can kill or freeze the process. They do nothing unless they are armed.

MAILHUB_FAILPOINTS=after_claim,before_record:3 kills the process by SIGKILL when it reaches after_claim, or when it
reaches before_record for the third time; after_call:1:STOP freezes it there instead, until it gets SIGCONT. Each
fires once in a process, or, if MAILHUB_FAILPOINTS_DIR is set, once among all processes that share that folder.
"""

import os
import signal
import threading
from collections import Counter
from pathlib import Path

# In the order in which a message passes them. Tests go through this table, so a failpoint is tested once it is here.
NAMES = (
    "mid_dispatch", "after_dispatch", "after_pick", "after_cut", "before_notify", "after_notify",
    "before_start", "after_start",
    "before_grant", "after_grant", "after_claim", "before_call", "after_call", "before_record", "after_record",
    "before_merge", "mid_merge", "before_done", "after_done",
    "before_put_back", "after_put_back", "before_drain", "after_drain",
    "before_finalise", "mid_finalise", "after_suppress", "after_finalise", "before_finish", "after_finish",
    "after_doubt", "after_recover", "before_rebuild", "mid_rebuild", "after_rebuild",
    "after_due", "before_repeat", "after_repeat", "before_settle", "after_settle",
)  # fmt: skip
OF_ROUTES = ("mid_reroute", "after_reroute")  # on the way of a vendor that takes no work
OF_FETCHED = ("after_fetched",)  # of reports in files
OF_DRAFTS = ("mid_check", "mid_store")  # while a list is checked, and its campaign stored


def _parse(points: str) -> dict[str, tuple[int, signal.Signals]]:
    """{name: (the number of the pass at which it fires, the signal)}; raises ValueError for an unknown name."""
    armed = {}
    for point in filter(None, points.split(",")):
        name, _, rest = point.partition(":")
        nth, _, how = rest.partition(":")
        if name not in (*NAMES, *OF_ROUTES, *OF_FETCHED, *OF_DRAFTS):
            raise ValueError(f"no failpoint is called {name!r}")
        armed[name] = int(nth or 1), signal.Signals[f"SIG{how or 'KILL'}"]
    return armed


_armed = _parse(os.environ.get("MAILHUB_FAILPOINTS", ""))
_passed: Counter[str] = Counter()


def arm(points: str) -> None:
    """Arms these failpoints in a process that is running already; written as in MAILHUB_FAILPOINTS."""
    _passed.clear()
    _armed.clear()
    _armed.update(_parse(points))


def here(name: str) -> None:
    """Marks the failpoint of this name: kills or freezes the process if it is armed and this is the pass."""
    if not _armed or name not in _armed:
        return
    _passed[name] += 1
    nth, how = _armed[name]
    if _passed[name] == nth and _first(name):
        signal.pthread_kill(threading.get_ident(), how)  # this thread, so that it goes no further


def _first(name: str) -> bool:
    """Whether no other process has fired this failpoint yet."""
    folder = os.environ.get("MAILHUB_FAILPOINTS_DIR")
    if not folder:
        return True
    try:
        (Path(folder) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
