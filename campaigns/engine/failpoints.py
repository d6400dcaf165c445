"""Named points in the code at which a test can kill or freeze the process. They do nothing unless armed.

MAILHUB_FAILPOINTS=after_claim,before_record:3 sends SIGKILL to the process at after_claim, or at the third pass of
before_record. after_call:1:STOP freezes it there until it gets SIGCONT. Each failpoint fires once in a process. If
MAILHUB_FAILPOINTS_DIR is set, it fires once among all processes that share that folder.
"""

import os
import signal
import threading
from collections import Counter
from pathlib import Path

# In the order in which a message passes them. Tests iterate over this table, so every failpoint listed here is tested.
NAMES = (
    "mid_dispatch", "after_dispatch", "after_pick", "after_cut", "before_notify", "after_notify",
    "before_start", "after_start",
    "before_grant", "after_grant", "after_claim", "before_mark_waits", "after_mark_waits",
    "before_mark_called", "after_mark_called", "before_call", "after_call", "before_mark_answered",
    "after_mark_answered", "before_record", "after_record", "before_mark_stored", "after_mark_stored",
    "before_merge", "mid_merge", "before_done", "after_done",
    "before_put_back", "after_put_back", "before_drain", "after_drain",
    "before_finalise", "mid_finalise", "after_suppress", "after_finalise", "before_finish", "after_finish",
    "mid_journal", "after_take_job", "before_forget_journal", "after_forget_journal",
    "after_doubt", "after_recover", "before_rebuild", "mid_rebuild", "after_rebuild",
    "after_due", "before_repeat", "after_repeat", "before_settle", "after_settle",
)  # fmt: skip
OF_ROUTES = ("mid_reroute", "after_reroute")  # moving jobs of a vendor that takes no work
OF_FETCHED = ("after_fetched",)  # reading delivery reports in files
OF_DRAFTS = ("mid_check", "mid_store")  # checking a list, and storing its campaign
OF_COMPLAINTS = ("mid_complaints",)  # counted, not judged yet


def _parse_points(points: str) -> dict[str, tuple[int, signal.Signals]]:
    """Return {name: (number of the pass at which it fires, the signal)}. Raises ValueError for an unknown name."""
    armed = {}
    for point in filter(None, points.split(",")):
        name, _, rest = point.partition(":")
        nth, _, how = rest.partition(":")
        if name not in (*NAMES, *OF_ROUTES, *OF_FETCHED, *OF_DRAFTS, *OF_COMPLAINTS):
            raise ValueError(f"no failpoint is called {name!r}")
        armed[name] = int(nth or 1), signal.Signals[f"SIG{how or 'KILL'}"]
    return armed


_armed = _parse_points(os.environ.get("MAILHUB_FAILPOINTS", ""))
_passed: Counter[str] = Counter()


def arm_failpoints(points: str) -> None:
    """Arm these failpoints in a running process, written as in MAILHUB_FAILPOINTS."""
    _passed.clear()
    _armed.clear()
    _armed.update(_parse_points(points))


def here(name: str) -> None:
    """Mark the failpoint of this name: kill or freeze the process if it is armed for this pass."""
    if not _armed or name not in _armed:
        return
    _passed[name] += 1
    nth, how = _armed[name]
    if _passed[name] == nth and _is_first_firing(name):
        signal.pthread_kill(threading.get_ident(), how)  # this thread, so that it goes no further


def _is_first_firing(name: str) -> bool:
    """Return False if another process has already fired this failpoint."""
    folder = os.environ.get("MAILHUB_FAILPOINTS_DIR")
    if not folder:
        return True
    try:
        (Path(folder) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
