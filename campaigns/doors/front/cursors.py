"""Cursors: a page of a list begins after the row that its cursor names."""

from collections.abc import Callable
from typing import Any

from campaigns.doors import public_ids
from campaigns.doors.front.problems import invalid_problem


def read_cursor(kind: str, cursor: str) -> int | None:
    """Return the number of the previous page's last row; None without a cursor. Raises Problem if it names no row."""
    if not cursor:
        return None
    found = public_ids.number_of_id(kind, cursor)
    if found is None:
        detail = "it names no place in this list: take it from the link to the next page"
        raise invalid_problem([{"parameter": "cursor", "code": "cursor", "detail": detail}])
    return found


def page_of(
    rows: Any,
    kind: str,
    here: str,
    limit: int,
    cursor: str,
    facts: Callable[[Any], dict[str, Any]],
    *,
    oldest_first: bool = False,
) -> dict[str, Any]:
    """Return one page of a list, with the links to itself and to the next page. Raises Problem.

    rows: in the order of their numbers, the latest first unless `oldest_first`. kind: the prefix of their names. here:
    the list's address with its limit and filters. facts: makes the answer's item of a row.
    """
    seen = read_cursor(kind, cursor)
    if seen is not None:
        rows = rows.filter(**{"pk__gt" if oldest_first else "pk__lt": seen})
    page = list(rows[: limit + 1])
    more = f"{here}&cursor={public_ids.id_of_number(kind, page[limit - 1].pk)}" if len(page) > limit else None
    return {"data": [facts(row) for row in page[:limit]], "links": {"self": here, "next": more}}
