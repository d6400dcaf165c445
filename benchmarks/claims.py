"""The targets of the measurements: the table at the top of docs/benchmarks.md.

A claim finds its figures by the start of a table's title and of its rows' names, because both may contain sizes.
"""

import statistics
from dataclasses import dataclass

Rows = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Claim:
    """One target of the measurements.

    over: the yardstick's rows, of which the best of each round counts; empty: `row` is the figure itself. inverse: the
    yardstick's rate over ours, as a cost. at_most: lower is better. always: the worst round counts.
    """

    what: str
    yardstick: str
    must: float
    aim: float
    title: str
    row: str
    over: str = ""
    unit: str = "x"
    inverse: bool = False
    at_most: bool = False
    always: bool = False

    def values(self, rows: Rows) -> list[float]:
        """Return one value a round, or none if the rows are missing."""
        ours = next((values for name, values in rows.items() if name.startswith(self.row)), [])
        if not self.over:
            return ours
        others = [values for name, values in rows.items() if name.startswith(self.over)]
        best = [max(round) for round in zip(*others, strict=True)]
        ratios = [mine / other for mine, other in zip(ours, best, strict=False)]
        return [1 / ratio for ratio in ratios] if self.inverse else ratios

    def holds(self, values: list[float]) -> bool:
        measured = max(values) if self.always else statistics.median(values)
        return measured <= self.must if self.at_most else measured >= self.must


HTTP, FAR, STRICT, WINDOW = "Sending over HTTP", "100 connections, answers", "150 allowed", "Most calls"
REACHING, LATENCY = "Reaching the limit", "A receiver that answers after"
COST, FIRST, PARTS = "Cost of a message by", "Start to first message", "Claim, append and merge: the parts"
ONE = "mailhub, one process"
BARE, USUAL = "bare aiohttp loop", "a task a message"
AS_RUN, AS_RUN_SMTP = "As people run it, HTTP, ", "As people run it, SMTP, "
LETTER, BESIDE = "One letter at an idle hub", "Beside slow vendors: a single letter"
PAGES = "Pages and polls by server time"
CLAIMS = [
    Claim("as people run it, HTTP, to the last arrival", "bare aiohttp loop on uvloop", 2, 2, AS_RUN, "mailhub", BARE),
    Claim("the same", "River (Go), one job row a message, 200 workers", 1.5, 1.5, AS_RUN, "mailhub", "River"),
    Claim("the same", "one Celery task a message, connections kept", 25, 25, AS_RUN, "mailhub", USUAL),
    Claim("the same, two sender processes", "one", 0.95, 1, AS_RUN, "mailhub", "mailhub, one"),
    Claim("answers after 20 ms, few connections: two sender processes, a mailcaster each", "one", 1.8, 2, LATENCY,
          "two processes", "one process, one"),
    Claim("as people run it, SMTP, to the last arrival", "`smtp-source -d`", 0.35, 0.35, AS_RUN_SMTP, "mailhub",
          "smtp-source"),
    Claim("the same", "listmonk, which looks for campaigns every 5 s", 3, 3, AS_RUN_SMTP, "mailhub", "listmonk"),
    Claim("one letter at an idle hub, from the API's 202 to the vendor: half", "-", 60, 60, LETTER, "half", "", "ms",
          at_most=True),
    Claim("the same: 99 %", "-", 250, 250, LETTER, "99 %", "", "ms", at_most=True),
    Claim("the command that sends one letter, from start to return", "-", 1.2, 1.2, "The command that sends",
          "send_campaign", "", "s", at_most=True),
    Claim("`make demo` after set-up, its first line", "-", 2, 2, "The command that sends", "manage.py demo", "", "s",
          at_most=True),
    Claim("beside 20 slow, 10 late, 5 down and 5 paused vendors a letter to an idle one: half", "-", 1, 1, BESIDE,
          "half", "", "s", at_most=True),
    Claim("the same: 99 %", "-", 3, 3, BESIDE, "99 %", "", "s", at_most=True),
    Claim("the fast vendors together beside them", "the fast vendors alone", 0.9, 0.9, "Fast vendors", "beside",
          "alone"),
    Claim("PostgreSQL connections of a sender process then, at most", "-", 9, 9, "Beside slow vendors: connections",
          "of one", "", "connections", at_most=True, always=True),
    Claim("HTTP sending, one process, all on", "bare aiohttp loop on uvloop", 0.6, 2, HTTP, ONE, BARE),
    Claim("the same", "one Celery task a message, connections kept, its best pool", 12, 40, HTTP, ONE, USUAL),
    Claim("processor time of a call, our HTTP client alone", "aiohttp, the same calls", 0.5, 0.25,
          "Processor time of an HTTP", "mailhub's client", "aiohttp", at_most=True),
    Claim("letters by a description", "the adapter `http`", 0.9, 1, "Letters over", "described", "http"),
    Claim("answers after 200 ms, 2 % after 2 s", "connections / mean latency", 0.85, 0.95, FAR, "mailhub", "ideal"),
    Claim("SMTP over 20 kept connections", "`smtp-source -d`", 0.15, 0.5, "SMTP over", ONE, "smtp-source"),
    Claim("the same, 20 mails in a row", "`smtp-source -d`", 0.15, 0.5, "SMTP over", f"{ONE}, rounds", "smtp-source"),
    Claim(
        "limit 150/s, answers after 20 ms, 1 % after 5 s",
        "limit × W / (W + mean latency)", 0.97, 0.99, STRICT, "mailhub", "strict ideal",
    ),
    Claim("most calls in any second at that receiver", "the limit", 150, 150, WINDOW, "calls", "", "calls",
          at_most=True, always=True),
    *(
        Claim(f"60 jobs of one letter at 5 in 10 s, ideal 110 s: {casters}", "-", 115.5, 112, REACHING, casters,
              "", "s", at_most=True, always=True)
        for casters in ("1 caster", "4 casters", "16 casters")
    ),
    Claim("answers merged into the messages", "UPDATE .. FROM of the same rows", 0.5, 0.8, PARTS, "merge", "UPDATE"),
    Claim("import with its checks", "COPY of the same rows", 0.5, 0.8, "Import:", "mailhub", "the bare"),
    Claim("import of what is checked", "COPY of the same rows", 0.5, 0.8, "Import:", "mailhub, checked", "the bare"),
    Claim("import of a million recipients, memory", "-", 150, 150, "Memory of", "of the whole", "", "MB", at_most=True),
    Claim("cost of a message in a job of ten million", "in a job of 10,000", 1.1, 1, COST, "a large job",
          "a small job", inverse=True, at_most=True),
    Claim("200 campaigns of 500 at once", "one campaign of 100,000", 0.85, 1, "Many campaigns", "200 campaigns",
          "one campaign"),
    Claim("start to first message, ten million cut into children", "-", 2, 0.5, FIRST, "cut", "", "s", at_most=True),
    Claim("start to first message, ten million as one job", "-", 2, 0.5, FIRST, "as one leaf", "", "s", at_most=True),
    Claim("1,000 recipients in one call of the HTTP front", "COPY of the same rows", 10, 10, "A thousand", "one call",
          "bare COPY", inverse=True, at_most=True),
    Claim("single letters a second through the HTTP front", "a view that only checks the key", 0.5, 0.5,
          "The HTTP front", "POST", "a view"),
    Claim("polls of pages later than 30 ms at a million jobs and ten million messages", "-", 0, 0, PAGES,
          "polls later", "", "polls", at_most=True),
    Claim("pages later than 100 ms there", "-", 0, 0, PAGES, "pages later", "", "pages", at_most=True),
]  # fmt: skip
