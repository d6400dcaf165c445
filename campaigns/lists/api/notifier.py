"""The API's use of the broker: checked before a request is accepted, notified by one thread for many requests.

A request is accepted only if the broker answers (document 002); mailhub/front says how that is checked, as Celery's
broker is known there. A separate thread notifies the vendor's queue at most
once per PAUSE. If a notification is lost, the sweep starts the work.
"""

import os
import threading
from collections.abc import Callable

from campaigns.engine.dispatch.dispatcher import notify_queue

PAUSE = 0.1  # seconds between two rounds of notifications


def _raise_unwired() -> None:
    raise RuntimeError("mailhub/front/api.py sets how the broker is checked")


check: Callable[[], None] = _raise_unwired  # raises Problem if the broker does not answer


class Notifier:
    """Notifies the queues of vendors that have new work, from a thread of this process."""

    def __init__(self) -> None:
        self._wanted: dict[int, str] = {}
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._process = 0  # the thread's process: a fork has no thread

    def notify_soon(self, vendor_id: int, slug: str) -> None:
        """Notify the vendor's queue soon, once for all requests until then."""
        with self._lock:
            self._wanted[vendor_id] = slug
        if self._process != os.getpid():
            self._start_thread()
        self._requested.set()

    def _start_thread(self) -> None:
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                threading.Thread(target=self._notify_wanted, name="notifier", daemon=True).start()

    def _notify_wanted(self) -> None:
        rest = threading.Event()
        while True:
            self._requested.wait()
            self._requested.clear()
            with self._lock:
                wanted, self._wanted = self._wanted, {}
            for vendor_id, slug in wanted.items():
                notify_queue(vendor_id, f"vendor.{slug}")
            rest.wait(PAUSE)


notifier = Notifier()
