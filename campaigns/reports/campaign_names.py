"""Campaigns whose names begin so, in capitals or not, the newest first.

Of a million campaigns a hundred thousand may begin like "Campaign 4", and no index has those by their age. So of a
common beginning the newest campaigns are looked through, and those that come first by name; whoever misses one types
more.
"""

from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.utils.translation import gettext_noop

MOST_NAMED = 5_000  # campaigns whose names begin so: with more the beginning is common
COMMON = gettext_noop("So many campaigns begin like this that older ones may be missing here: type more of the name.")
LOOKED_THROUGH = 20_000  # campaigns, the newest, for a common beginning
OF_SPONSORS = 5_000  # the same of some sponsors together, whose campaigns lie apart
OF_ONE = 2_000  # of one sponsor at most; for more the planner would sort all that the sponsor has

OLDER = "(%(before)s::bigint IS NULL OR c.id < %(before)s::bigint)"
BY_NAME = """
SELECT c.id FROM campaigns_campaign c WHERE lower(c.name) LIKE %(like)s
ORDER BY lower(c.name) USING ~<~ LIMIT %(named)s
"""
# By an index of the sponsor's names: what others have decides nothing of what these sponsors are shown.
BY_NAME_OF_SPONSORS = """
SELECT c.id FROM unnest(%(sponsors)s::bigint[]) s(id) CROSS JOIN LATERAL (
    SELECT c.id FROM campaigns_campaign c WHERE c.sponsor_id = s.id AND lower(c.name) LIKE %(like)s LIMIT %(named)s
) c LIMIT %(named)s
"""
NEWEST_OF_ALL = f"""
SELECT c.id FROM (
    SELECT c.id, c.name FROM campaigns_campaign c WHERE {OLDER} ORDER BY c.id DESC LIMIT %(through)s
) c WHERE lower(c.name) LIKE %(like)s ORDER BY c.id DESC LIMIT %(most)s
"""
# By the sponsor's own index, so that it does not matter how many campaigns others have.
NEWEST_OF_SPONSORS = f"""
SELECT c.id FROM unnest(%(sponsors)s::bigint[]) s(id) CROSS JOIN LATERAL (
    SELECT c.id, c.name FROM campaigns_campaign c WHERE c.sponsor_id = s.id AND {OLDER} ORDER BY c.id DESC
    LIMIT least(%(of_one)s, %(through)s / greatest(1, cardinality(%(sponsors)s::bigint[])))
) c WHERE lower(c.name) LIKE %(like)s ORDER BY c.id DESC LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class CampaignsNamed:
    """ids: the newest first; common: so many of theirs begin like this that older ones may be missing."""

    ids: list[int]
    common: bool


def newest(text: str, sponsors: list[int] | None, most: int, before: int | None = None) -> CampaignsNamed:
    """So many campaigns of these sponsors (None: of all) that are older than `before`, if that is given."""
    pattern = text.lower().replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_") + "%"
    params: dict[str, Any] = {
        "sponsors": sponsors, "before": before, "like": pattern, "most": most, "named": MOST_NAMED + 1,
        "through": LOOKED_THROUGH if sponsors is None else OF_SPONSORS, "of_one": OF_ONE,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(BY_NAME if sponsors is None else BY_NAME_OF_SPONSORS, params)
        named = [pk for (pk,) in cursor.fetchall()]
        mine = [pk for pk in named if before is None or pk < before]
        if len(named) <= MOST_NAMED:
            return CampaignsNamed(sorted(mine, reverse=True)[:most], False)
        cursor.execute(NEWEST_OF_ALL if sponsors is None else NEWEST_OF_SPONSORS, params)
        found = [pk for (pk,) in cursor.fetchall()]
    if len(found) == most:
        return CampaignsNamed(found, sponsors is not None)
    return CampaignsNamed(sorted({*found, *mine}, reverse=True)[:most], True)
