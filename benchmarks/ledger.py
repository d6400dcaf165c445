"""What the ledger costs: rows a second of enqueueing, finalising and importing against the bare statement.

`python -m benchmarks.ledger [rows] [rounds]`. The bare statements work on plain tables with the same columns and rows
and a primary key, without checks, states or slices: INSERT .. SELECT, UPDATE .. FROM and COPY of rows that are ready.
"""

import asyncio
import io
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks import recipients
from benchmarks.sending import login
from benchmarks.stage import numbers, show, stage

if TYPE_CHECKING:
    from campaigns.models import Job

PLAIN = """
DROP TABLE IF EXISTS plain_message, plain_marked, plain_ops, plain_copy;
CREATE TABLE plain_message AS SELECT * FROM campaigns_message WHERE id >= {0} AND id < {1};
CREATE TABLE plain_marked AS SELECT * FROM plain_message;
ALTER TABLE plain_message ADD PRIMARY KEY (id);
ALTER TABLE plain_marked ADD PRIMARY KEY (id);
CREATE TABLE plain_ops (LIKE campaigns_opsmessage, PRIMARY KEY (id));
CREATE TABLE plain_copy (LIKE campaigns_message INCLUDING DEFAULTS, PRIMARY KEY (id));
VACUUM ANALYZE plain_message, plain_marked
"""
MARK = "UPDATE plain_marked SET dequeued_at = clock_timestamp()"
INSERT = "INSERT INTO plain_ops (id, job_id, resend_no, fence) SELECT id, 1, resend_no, 1 FROM plain_message"
ANSWER = """
UPDATE {} SET sent_at = clock_timestamp(), delivered_at = clock_timestamp(), message_id = 'v' || id
WHERE id >= %s AND id < %s
"""
UPDATE = """
UPDATE plain_message m SET sent_at = o.sent_at, delivered_at = o.delivered_at, in_doubt_at = o.in_doubt_at,
    message_id = o.message_id, error_code = o.error_code, error_sub_type = o.error_sub_type
FROM plain_ops o WHERE m.id = o.id
"""
COPY = "COPY plain_copy (id, uuid, campaign_id, recipient, params) FROM STDIN"
BARE, REAL = "the bare statement", "mailhub"
BOTH, CHECKED = "UPDATE of the mark, then INSERT", f"{REAL}, checked before"


def execute(statements: str, params: Any = None) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        for statement in statements.split(";\n"):
            cursor.execute(statement, params)


def timed(rows: int, work: Callable[[], Any]) -> float:
    """Rows a second; the work must say that it is done."""
    began = time.perf_counter()
    assert work()
    return rows / (time.perf_counter() - began)


class Round:
    """Rows of its own, in the ground truth and in plain tables."""

    def __init__(self, rows: int) -> None:
        from django.utils import timezone

        self.rows = rows
        made = recipients.job(rows, login("http://nobody.invalid"))
        lease = {"status": "SENDING", "fence": 1, "heartbeat_at": timezone.now()}
        type(made).objects.filter(pk=made.pk).update(**lease)
        execute("VACUUM ANALYZE campaigns_message;\n" + PLAIN.format(made.first_message, made.end))
        self.job: Job = made

    def enqueue(self) -> float:
        """In the slices of a sender, each its own commit."""
        return asyncio.run(self._enqueue())

    async def _enqueue(self) -> float:
        from campaigns.claiming import claims
        from campaigns.connections import connect
        from campaigns.sending.stream import SLICE

        rows, lease = await connect(), claims.Lease(self.job.pk, 1)
        began = time.perf_counter()
        for low in range(self.job.first_message, self.job.end, SLICE):
            assert await claims.enqueue(rows, lease, low, min(low + SLICE, self.job.end))
        rate = self.rows / (time.perf_counter() - began)
        await rows.close()
        return rate

    def insert(self) -> float:
        return timed(self.rows, lambda: execute(INSERT) is None)

    def mark(self) -> float:
        """Document 001 asks for two writes: dequeued_at in the ground truth, a row in ops."""
        return timed(self.rows, lambda: execute(MARK) is None)

    def answer(self) -> None:
        """As a sender would have left it; every row of ops is a new version of itself in both tables."""
        for table in ("campaigns_opsmessage", "plain_ops"):
            execute(ANSWER.format(table), [self.job.first_message, self.job.end])
        type(self.job).objects.filter(pk=self.job.pk).update(status="SENT", accepted=self.rows)

    def finalise(self) -> float:
        from campaigns.finishing import finalizer

        return timed(self.rows, lambda: finalizer.finalise(self.job.pk))

    def update(self) -> float:
        return timed(self.rows, lambda: execute(UPDATE) is None)


def lines(rows: int) -> bytes:
    line = b'%d\t%032x\t1\tperson%d@example.org\t{"name": "Ann"}\n'
    return b"".join(line % (n, n, n) for n in range(1, rows + 1))


def copy(ready: bytes) -> bool:
    from django.db import connection

    with connection.cursor() as cursor, cursor.copy(COPY) as copy:
        copy.write(ready)
    return True


def keep(ready: bytes, rows: int) -> tuple[float, float]:
    """Importing those recipients as a campaign: with their check, and the storing alone."""
    from campaigns import intake
    from campaigns.content import templates
    from campaigns.models import Sponsor

    credential = login("http://nobody.invalid")
    content = templates.compile(recipients.SUBJECT, recipients.BODY, html=False)
    began = time.perf_counter()
    checked = intake.check_table(intake.Table(io.BytesIO(ready)), credential.vendor.channel, content)
    stored = time.perf_counter()
    job = intake.accept(
        sponsor=Sponsor.objects.get_or_create(name="Velma")[0],
        credential=credential,
        name="benchmark",
        subject=recipients.SUBJECT,
        body=recipients.BODY,
        html=False,
        recipients=checked,
    )
    ended = time.perf_counter()
    assert job.size == rows
    return rows / (ended - began), rows / (ended - stored)


def main() -> None:
    rows, rounds = numbers(100_000, 3)
    file = b"email,name\n" + b"".join(b"person%d@example.org,Ann\n" % n for n in range(1, rows + 1))
    ready = lines(rows)
    enqueue: dict[str, list[float]] = {REAL: [], BOTH: [], BARE: []}
    finalise: dict[str, list[float]] = {REAL: [], BARE: []}
    importing: dict[str, list[float]] = {REAL: [], CHECKED: [], BARE: []}
    with stage():
        for _ in range(rounds):
            now = Round(rows)
            enqueue[REAL].append(now.enqueue())
            enqueue[BARE].append(now.insert())
            enqueue[BOTH].append(1 / (1 / now.mark() + 1 / enqueue[BARE][-1]))
            now.answer()
            finalise[REAL].append(now.finalise())
            finalise[BARE].append(now.update())
            for name, measured in zip(importing, keep(file, rows), strict=False):
                importing[name].append(measured)
            importing[BARE].append(timed(rows, lambda: copy(ready)))
    show("Enqueue: the bare statement is INSERT .. SELECT", enqueue, BARE, "rows/s")
    del enqueue[BARE]
    show("Enqueue: both writes of document 001", enqueue, BOTH, "rows/s")
    show("Finalise: the bare statement is UPDATE .. FROM", finalise, BARE, "rows/s")
    show("Import: the bare statement is COPY", importing, BARE, "rows/s")


if __name__ == "__main__":
    main()
