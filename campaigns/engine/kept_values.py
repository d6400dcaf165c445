"""A value that a process reads from the database and trusts for a second."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

FRESH = 1.0  # seconds

Value = TypeVar("Value")


class Known(Generic[Value]):
    """The value that this process has read last. read: raises the database's errors."""

    def __init__(self, read: Callable[[], Value]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._last: tuple[float, Value] | None = None

    def get_fresh(self) -> Value:
        with self._lock:
            if self._last is None or time.monotonic() - self._last[0] > FRESH:
                asked, self._last = time.monotonic(), None
                self._last = asked, self._read()
            return self._last[1]

    def forget_value(self) -> None:
        with self._lock:
            self._last = None
