"""Finds campaigns by the beginning of their name, in any case, newest first.

No index orders by age the many campaigns that begin alike: of a million, a hundred thousand may begin "Campaign 4". For
such a common prefix only the newest campaigns are searched, and the first by name. Users who miss one type more.
"""

from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.utils.translation import gettext_noop

MOST_NAMED = 5_000  # campaigns with a prefix; with more it counts as common
COMMON = gettext_noop("So many campaigns begin like this that older ones may be missing here: type more of the name.")
LOOKED_THROUGH = 20_000  # newest campaigns to search for a common prefix
OF_SPONSORS = 5_000  # the same for chosen sponsors in total, whose campaigns are scattered
OF_ONE = 2_000  # the most for one sponsor; above it the planner would sort all the sponsor's campaigns

OLDER = "(%(before)s::bigint IS NULL OR c.id < %(before)s::bigint)"
BY_NAME = """
SELECT c.id FROM campaigns_campaign c WHERE lower(c.name) LIKE %(like)s
ORDER BY lower(c.name) USING ~<~ LIMIT %(named)s
"""
# Uses the index of each sponsor's names, so that other sponsors' campaigns do not matter.
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
# Uses the sponsor's own index, so that other sponsors' campaigns do not matter.
NEWEST_OF_SPONSORS = f"""
SELECT c.id FROM unnest(%(sponsors)s::bigint[]) s(id) CROSS JOIN LATERAL (
    SELECT c.id, c.name FROM campaigns_campaign c WHERE c.sponsor_id = s.id AND {OLDER} ORDER BY c.id DESC
    LIMIT least(%(of_one)s, %(through)s / greatest(1, cardinality(%(sponsors)s::bigint[])))
) c WHERE lower(c.name) LIKE %(like)s ORDER BY c.id DESC LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class CampaignsNamed:
    """ids: newest first. common: the prefix is common, and older campaigns may be missing."""

    ids: list[int]
    common: bool


def newest_campaigns(text: str, sponsors: list[int] | None, most: int, before: int | None = None) -> CampaignsNamed:
    """Return up to `most` campaigns of these sponsors (None: of all), older than `before` if given."""
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
