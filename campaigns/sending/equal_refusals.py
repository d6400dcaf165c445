"""A row of equal refusals at the start of a job: they speak of us, not of the recipients."""

import re
from typing import Any

from vendors.outcomes import Accepted, NotSent, Outcome, Refused

OURS = frozenset({"template", "too_dear", "unsendable"})  # refused before the call
OF_ONE = re.compile(r"5\.[12]\.")  # RFC 3463: the recipient's address or mailbox

SO_FAR = """
SELECT j.accepted > 0, m.error_code, coalesce(m.error_sub_type, '')
FROM campaigns_job j LEFT JOIN LATERAL (
    SELECT error_code, error_sub_type FROM campaigns_message
    WHERE j.accepted = 0 AND id >= j.first_message AND id < j.first_message + j.size
        AND error_code IS NOT NULL AND delivered_at > coalesce(j.refusals_from, '-infinity')
    ORDER BY delivered_at DESC, id DESC LIMIT %(most)s
) m ON true WHERE j.id = %(job)s
"""


class EqualRefusals:
    """Equal refusals in a row at the start of a job, over all its senders: they speak of us, not of the recipients.

    most: so many are too many, 0: no limit; over: counting has ended; waiting: good answers that may be such ones.
    """

    def __init__(self, most: int) -> None:
        self._most, self.over = most, not most
        self._last: Refused | None = None
        self._length = self.waiting = 0

    async def read(self, connection: Any, job_id: int) -> None:
        """Reads the last answers that the job's earlier senders got."""
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
        """Counts an outcome; whether it is one of a row of equal refusals."""
        if isinstance(outcome, Accepted):
            self.over = True
        if self.over or not isinstance(outcome, Refused) or outcome.code in OURS or OF_ONE.match(outcome.sub_type):
            return False
        if outcome != self._last:
            self._last, self._length = outcome, 0
        self._length += 1
        return True

    def said(self) -> NotSent:
        """The outcome that so many equal refusals amount to: a pause of the credential."""
        assert self._last is not None
        text = f"{self._last.code} {self._last.sub_type}".strip()
        reason = f"{self._length} messages in a row were refused with the same words: {text}: check the account"
        return NotSent(reason, scope="credential", pause=True)
