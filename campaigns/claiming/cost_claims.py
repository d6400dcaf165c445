"""Claims where letters cost different numbers of places: what is next is looked at first, then exactly that claimed."""

from typing import Any

from psycopg import AsyncConnection

from campaigns.claiming.claims import CLAIMING, ClaimedMessage, Lease, claim
from campaigns.failover import guard

CLAIM_THESE = CLAIMING.format(
    known=guard.KNOWN,
    picked="""SELECT p.id, p.units FROM unnest(%(ids)s::bigint[], %(units)s::int[]) AS p(id, units)
    JOIN campaigns_opsmessage o USING (id) WHERE true""",
    most="",
)
AHEAD = """
SELECT m.id, m.uuid || '-' || o.resend_no, m.recipient, m.params
FROM campaigns_opsmessage o JOIN campaigns_message m USING (id)
WHERE o.id >= %(after)s AND o.id < %(end)s AND o.job_id = %(job)s AND o.sent_at IS NULL AND o.error_code IS NULL
    AND (o.call_after IS NULL OR o.call_after <= clock_timestamp())
ORDER BY o.id LIMIT %(most)s
"""


async def ahead(
    connection: AsyncConnection[Any], lease: Lease, after: int, end: int, most: int
) -> list[ClaimedMessage]:
    """The next messages that wait; nothing is claimed."""
    words = {"job": lease.job_id, "after": after, "end": end, "most": most}
    return list(map(ClaimedMessage._make, await (await connection.execute(AHEAD, words)).fetchall()))


async def claim_these(
    connection: AsyncConnection[Any], words: dict[str, Any], ids: list[int], units: list[int]
) -> list[ClaimedMessage]:
    """Those of them that still wait, marked as called for so many units each; 0: it is refused without a call."""
    return await claim(connection, words | {"ids": ids, "units": units}, CLAIM_THESE)
