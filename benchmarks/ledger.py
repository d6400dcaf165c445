"""The cost of the ledger: rows a second of claiming, appending, merging and importing, against bare statements.

`python -m benchmarks.ledger [rows] [rounds]`. A job's messages are claimed a hundred at a time, the number of a
stream's connections. The answers of a claim are appended together, and a thousand answers are merged at a time. Each
step is a commit that waits for the disk. The calls in between are left out.

The bare statements work on plain tables with the same columns, rows, primary key and fill factor, without checks,
states or slices, on rows that are ready: COPY of all answers, UPDATE .. FROM of all messages by them, COPY of the
recipients.
"""

import asyncio
import io
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks import recipients
from benchmarks.sending import CONNECTIONS, login
from benchmarks.stage import numbers, show, stage

if TYPE_CHECKING:
    from campaigns.engine.claiming.claims import Lease
    from campaigns.models import Job

PLAIN = """
DROP TABLE IF EXISTS plain_message, plain_answer, plain_copy;
CREATE TABLE plain_message (LIKE campaigns_message INCLUDING DEFAULTS, PRIMARY KEY (id)) WITH (fillfactor = 40);
INSERT INTO plain_message SELECT * FROM campaigns_message WHERE id >= {0} AND id < {1};
CREATE TABLE plain_answer (id bigint PRIMARY KEY, called_at timestamptz, at timestamptz, message_id text);
CREATE TABLE plain_copy (LIKE campaigns_message INCLUDING DEFAULTS, PRIMARY KEY (id));
VACUUM ANALYZE plain_message
"""
UPDATE = """
UPDATE plain_message m SET dequeued_at = a.called_at, sent_at = a.called_at, delivered_at = a.at,
    message_id = a.message_id
FROM plain_answer a WHERE m.id = a.id
"""
COPY = "COPY plain_copy (id, uuid, campaign_id, recipient, params) FROM STDIN"
COPY_ANSWERS = "COPY plain_answer FROM STDIN"
MERGED = 10  # claims: a thousand answers, the number that the sender's recorder merges
BARE, REAL = "the bare statements", "mailhub"
CHECKED = f"{REAL}, checked before"
PARTS = "claim", "append", "merge"
STATEMENTS = "COPY of the answers", "UPDATE .. FROM"


def execute(statements: str, params: Any = None) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        for statement in statements.split(";\n"):
            cursor.execute(statement, params)


class Round:
    """One round with its own rows, in the ground truth and in plain tables."""

    def __init__(self, rows: int) -> None:
        from django.utils import timezone

        self.rows = rows
        made = recipients.job(rows, login("http://nobody.invalid"))
        lease = {"status": "SENDING", "fence": 1, "heartbeat_at": timezone.now()}
        type(made).objects.filter(pk=made.pk).update(**lease)
        execute("VACUUM ANALYZE campaigns_message;\n" + PLAIN.format(made.first_message, made.end))
        self.job: Job = made

    def seconds(self) -> list[float]:
        """Return the seconds of all claims, all appends and all merges, as a sender makes them."""
        took = asyncio.run(self._seconds())
        self.job.refresh_from_db()
        assert self.job.accepted == self.rows, self.job.accepted
        assert not self.job.claims.exists()
        return took

    async def _seconds(self) -> list[float]:
        from campaigns.engine.claiming import claims, contexts
        from campaigns.engine.claiming.claims import Lease
        from campaigns.engine.connections import open_connection
        from campaigns.engine.lifecycle import merge_answers
        from campaigns.engine.sending import recording

        job, lease, rows = self.job, Lease(self.job.pk, 1), await open_connection()
        [seen] = await contexts.read_contexts(rows, [contexts.Read(lease, job.vendor_id, job.credential_id)])
        params = {
            "vendor": job.vendor_id, "credential": job.credential_id, "generation": seen.scope.generation,
            "limits_version": seen.limits_version, "adoptions": seen.adoptions, "hold": 30.0,
        }  # fmt: skip
        took, cursor, claimed = [0.0, 0.0, 0.0], job.first_message, 0
        while True:
            began = time.perf_counter()
            [claim] = await claims.claim_for_jobs(rows, params, [claims.ToClaim(lease, cursor, job.end, CONNECTIONS)])
            took[0] += time.perf_counter() - began
            if not claim.messages:
                break
            ready, cursor, claimed = [answered(lease, claim)], claim.messages[-1].id + 1, claimed + 1
            began = time.perf_counter()
            await recording.append_results(rows, ready)
            took[1] += time.perf_counter() - began
            if claimed % MERGED == 0 or cursor == job.end:
                began = time.perf_counter()
                await merge_answers(rows, [job.pk])
                took[2] += time.perf_counter() - began
        await rows.close()
        return took

    def bare(self) -> list[float]:
        """Return the seconds of COPY of the answers, and of the UPDATE by them."""
        at = "2026-03-01 12:00:00+00"
        ids = range(self.job.first_message, self.job.end)
        ready = "".join(f"{n}\t{at}\t{at}\tv{n}\n" for n in ids).encode()
        return [timed(lambda: copy(COPY_ANSWERS, ready)), timed(lambda: execute(UPDATE))]


def answered(lease: "Lease", claimed: Any) -> Any:
    """Return results that accept all messages of the claim."""
    from campaigns.engine.claiming.claims import PermittedCall
    from campaigns.engine.sending.recording import CallResult, JobResults
    from vendors.outcomes import Accepted

    calls = [PermittedCall(one, claimed.claim, ("permit",), 0.0) for one in claimed.messages]
    return JobResults(lease, [CallResult(call, Accepted(f"v{call.message.id}")) for call in calls])


def timed(work: Callable[[], None]) -> float:
    """Return the seconds of the work."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def lines(rows: int) -> bytes:
    line = b'%d\t%032x\t1\tperson%d@example.org\t{"name": "Ann"}\n'
    return b"".join(line % (n, n, n) for n in range(1, rows + 1))


def copy(statement: str, ready: bytes) -> None:
    from django.db import connection

    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(ready)


def keep(ready: bytes, rows: int) -> tuple[float, float]:
    """Import these recipients as a campaign. Returns the seconds with their check, and of storing alone."""
    from campaigns.lists import intake
    from campaigns.texts import templates
    from tests import factories

    credential = login("http://nobody.invalid")
    content = templates.compile_templates(recipients.SUBJECT, recipients.BODY, html=False)
    began = time.perf_counter()
    checked = intake.check_table(intake.Table(io.BytesIO(ready)), credential.vendor.channel, content)
    stored = time.perf_counter()
    job = intake.store_campaign(
        sponsor=factories.sponsor("Velma"),
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
    whole: dict[str, list[float]] = {REAL: [], BARE: []}
    parts: dict[str, list[float]] = {name: [] for name in (*PARTS, *STATEMENTS)}
    importing: dict[str, list[float]] = {REAL: [], CHECKED: [], BARE: []}
    with stage():
        for _ in range(rounds):
            now = Round(rows)
            ours, bare = now.seconds(), now.bare()
            whole[REAL].append(rows / sum(ours))
            whole[BARE].append(rows / sum(bare))
            for name, seconds in zip(parts, (*ours, *bare), strict=True):
                parts[name].append(rows / seconds)
            for name, measured in zip(importing, keep(file, rows), strict=False):
                importing[name].append(measured)
            importing[BARE].append(rows / timed(lambda: copy(COPY, ready)))
    show("Claim, append and merge: bare are COPY of the answers, UPDATE .. FROM", whole, BARE, "rows/s")
    show("Claim, append and merge: the parts", parts, STATEMENTS[1], "rows/s")
    show("Import: the bare statement is COPY", importing, BARE, "rows/s")


if __name__ == "__main__":
    main()
