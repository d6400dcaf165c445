"""The ids that lines of the log carry: of the request, the Celery task, and the job and vendor of a call."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

IDS: ContextVar[Mapping[str, str]] = ContextVar("mailhub_log_ids")


def find_ids() -> Mapping[str, str]:
    """Return the ids of what this thread or asyncio task works on; empty outside."""
    return IDS.get({})


@contextmanager
def noted_ids(**ids: object) -> Iterator[None]:
    """Let lines logged within the block carry these ids, besides those of the block around it."""
    token = IDS.set({**find_ids(), **{name: str(one) for name, one in ids.items()}})
    try:
        yield
    finally:
        IDS.reset(token)
