"""Where a page of a list begins: behind the row that its cursor names."""

from typing import Any

from campaigns import public_ids
from mailhub.front.problems import invalid


def last_seen(kind: str, cursor: str) -> int | None:
    """The number of the last row of the page before; None: there is no cursor. Raises Problem if it names no row."""
    if not cursor:
        return None
    found = public_ids.number(kind, cursor)
    if found is None:
        detail = "it names no place in this list: take it from the link to the next page"
        raise invalid([{"parameter": "cursor", "code": "cursor", "detail": detail}])
    return found


def below(rows: Any, kind: str, cursor: str) -> Any:
    """The rows, the latest first, that come behind the cursor's. Raises Problem."""
    seen = last_seen(kind, cursor)
    return rows if seen is None else rows.filter(pk__lt=seen)
