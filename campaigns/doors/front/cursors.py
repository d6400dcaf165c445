"""Cursors: a page of a list begins after the row that its cursor names."""

from typing import Any

from campaigns.doors import public_ids
from campaigns.doors.front.problems import invalid


def last_seen(kind: str, cursor: str) -> int | None:
    """Return the number of the previous page's last row; None without a cursor. Raises Problem if it names no row."""
    if not cursor:
        return None
    found = public_ids.number(kind, cursor)
    if found is None:
        detail = "it names no place in this list: take it from the link to the next page"
        raise invalid([{"parameter": "cursor", "code": "cursor", "detail": detail}])
    return found


def below(rows: Any, kind: str, cursor: str) -> Any:
    """Return the rows after the cursor's, latest first. Raises Problem."""
    seen = last_seen(kind, cursor)
    return rows if seen is None else rows.filter(pk__lt=seen)
