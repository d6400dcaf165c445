"""Equal refusals at the start of a job: they speak of us, not of so many recipients one after the other.

Counted from the job's first answer until the vendor accepts one of its messages, over all of its senders. What a person
has resumed after is not counted again.
"""

import re
from typing import Any

from vendors.outcomes import Accepted, NotSent, Outcome, Refused

OURS = frozenset({"template", "too_dear", "unsendable"})  # refused before the call
OF_ONE = re.compile(r"5\.[12]\.")  # RFC 3463: the recipient's address or mailbox

SO_FAR = """
SELECT j.accepted > 0, o.error_code, coalesce(o.error_sub_type, '')
FROM campaigns_job j LEFT JOIN LATERAL (
    SELECT error_code, error_sub_type FROM campaigns_opsmessage
    WHERE j.accepted = 0 AND id >= j.first_message AND id < j.first_message + j.size AND job_id = j.id
        AND error_code IS NOT NULL AND delivered_at > coalesce(j.refusals_from, '-infinity')
    ORDER BY delivered_at DESC, id DESC LIMIT %(most)s
) o ON true WHERE j.id = %(job)s
"""


class EqualRefusals:
    """Of one job. most: so many in a row are too many; 0: any number is borne. over: nothing is counted any more.

    waiting: good answers of which it is not decided yet whether they speak for the vendor's health after all.
    """

    def __init__(self, most: int) -> None:
        self._most, self.over = most, not most
        self._last: Refused | None = None
        self._length = self.waiting = 0

    async def read(self, connection: Any, job_id: int) -> None:
        """What the job's earlier senders heard."""
        if self.over:
            return
        cursor = await connection.execute(SO_FAR, {"job": job_id, "most": self._most})
        for accepted, code, sub_type in reversed(await cursor.fetchall()):
            self.over = self.over or accepted
            if code is not None:
                self.note(Refused(code, sub_type))

    @property
    def too_many(self) -> bool:
        return not self.over and self._length >= self._most

    def note(self, outcome: Outcome) -> bool:
        """Does this answer belong to a row of equal refusals?"""
        if isinstance(outcome, Accepted):
            self.over = True
        if self.over or not isinstance(outcome, Refused) or outcome.code in OURS or OF_ONE.match(outcome.sub_type):
            return False
        if outcome != self._last:
            self._last, self._length = outcome, 0
        self._length += 1
        return True

    def said(self) -> NotSent:
        """What that many of them mean."""
        assert self._last is not None
        words = f"{self._last.code} {self._last.sub_type}".strip()
        reason = f"{self._length} messages in a row were refused with the same words: {words}: check the account"
        return NotSent(reason, scope="credential", pause=True)
