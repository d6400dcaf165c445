"""Progress bars of long imports: on standard error, and only if that is a terminal."""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import BinaryIO, Self

from rich.console import Console
from rich.progress import Progress


class Bars:
    """A context manager; the bars are gone when it ends."""

    def __init__(self) -> None:
        self.rich = Progress(console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True)

    def __enter__(self) -> Self:
        self.rich.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.rich.stop()

    def reading(self, file: BinaryIO) -> Callable[[], None]:
        """Call what it returns now and then; the position in the (seekable) file is the progress."""
        position = file.tell()
        task = self.rich.add_task("Checking", total=file.seek(0, 2))
        file.seek(position)
        return lambda: self.rich.update(task, completed=file.tell())

    def storing(self, recipients: int) -> Callable[[int], None]:
        """Call what it returns with how many are stored."""
        task = self.rich.add_task("Storing", total=recipients)
        return lambda stored: self.rich.update(task, completed=stored)

    def sending(self, recipients: int) -> Callable[[int], None]:
        """Call what it returns with how many were called and answered."""
        task = self.rich.add_task("Sending", total=recipients)
        return lambda done: self.rich.update(task, completed=done)
