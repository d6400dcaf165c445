"""Makes docs/benchmarks.md from the stored results of benchmarks (make bench).

`python -m benchmarks.page RESULTS PAGE`. The last measurement of a table counts. The page keeps two things that the
results lack: sections of other commands, and the goals that these measured.
"""

import json
import os
import platform
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.claims import CLAIMS, Claim

HEAD = """\
# Benchmarks

`make bench-page` makes this page from the results of `make bench`. Each benchmark measures its yardstick in the same
run, in turns, because a machine's speed drifts. A ratio is the median of the ratios within a round; brackets hold the
lowest and the highest. Vendors, databases and senders share one machine, so compare ratios rather than absolute
figures. To measure some alone: `make bench BENCHMARKS="http_client,20000,5 smtp,10000,5"`.

`as_run`, `slow_vendors` and `latency` measure mailhub as shipped: `manage.py up`, default mailcasters, commands and
API. The other benchmarks measure one part together with the processes it needs.
"""
MISSED = """\
[Known limits](explanation/capacity.md#known-limits) explains the goals that are missed.
"""
SECTION = re.compile(r"^### (`[^`\n]+`)\n.*?(?=^### |\Z)", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^\| (?!Measurement \||---)(\S[^|\n]*?) \| [^\n]*\n(?:\|  \| [^\n]*(?:\n|\Z))*", re.MULTILINE)
MEASURED = re.compile(r"^(\d{4}-\d\d-\d\d) \d\d:\d\d UTC, load ([\d.]+) before it began\.$", re.MULTILINE)
ROWS_MAX = 8
"""Rows of one measurement on the page; of a longer one the largest figures are shown."""
Kept = dict[str, Any]


def latest(file: Path) -> list[Kept]:
    """Return the tables by title, in the order of their first measurement."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return list({line["title"]: line for line in lines}.values())


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(values: list[float]) -> str:
    middle, low, high = (figure(value) for value in (statistics.median(values), min(values), max(values)))
    return middle if len(values) == 1 else f"**{middle}** ({low}..{high})"


def claimed(claim: Claim, tables: list[Kept]) -> str:
    """Return a row of the first table, or "" if nothing was measured for it."""
    found = next((table for table in tables if table["title"].startswith(claim.title)), None)
    values = claim.values(found["rows"]) if found else []
    if not found or not values:
        return ""
    cells = [f"{spread(values)} {claim.unit}", str(len(values)), "yes" if claim.holds(values) else "**no**"]
    return f"{aimed_at(claim)} {' | '.join([*cells, module(found), day(found)])} |\n"


def module(kept: Kept) -> str:
    """The command that measured a table, without the interpreter."""
    return f"`{kept['command'].removeprefix('python -m ')}`"


def day(kept: Kept) -> str:
    return str(kept["at"][:10])


def section(tables: list[Kept]) -> str:
    """All measurements of one command, in one table. The name of a measurement stands in its first row only."""
    rows = "".join(
        f"| {'' if number else named(kept)} | {row} |\n"
        for kept in tables
        for number, row in enumerate(shown(kept["rows"]))
    )
    first = tables[0]
    return (
        f"### {module(first)}\n\n{day(first)} {first['at'][11:16]} UTC, load {first['load']:.1f} before it began.\n\n"
        f"| Measurement | What | Figure | Rounds |\n| --- | --- | --- | --- |\n{rows}"
    )


def named(kept: Kept) -> str:
    return f"{kept['title']}, {kept['unit']}" if kept["unit"] else str(kept["title"])


def shown(rows: dict[str, list[float]]) -> list[str]:
    """The cells of each row; of a long measurement the largest figures, and how many more there are."""
    names = [*rows]
    if len(rows) > ROWS_MAX:
        names.sort(key=lambda name: statistics.median(rows[name]), reverse=True)
    cells = [f"{name} | {spread(rows[name])} | {len(rows[name])}" for name in names[:ROWS_MAX]]
    if len(rows) > ROWS_MAX:
        most = figure(statistics.median(rows[names[ROWS_MAX]]))
        cells.append(f"{len(rows) - ROWS_MAX} more | at most {most} |")
    return cells


def by_command(tables: list[Kept]) -> list[list[Kept]]:
    groups: dict[str, list[Kept]] = {}
    for kept in tables:
        groups.setdefault(kept["command"], []).append(kept)
    return list(groups.values())


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores, system = os.cpu_count(), f"{platform.system()}, Python {platform.python_version()}"
    return f"{cores} cores, {memory:.0f} GiB of memory, {system}"


def goals(tables: list[Kept], former: str) -> str:
    """The rows of goals. A goal without a new measurement keeps its row of the former page."""
    lines = former.splitlines(keepends=True)
    kept = {claim: next((line for line in lines if line.startswith(aimed_at(claim))), "") for claim in CLAIMS}
    return "".join(claimed(claim, tables) or row for claim, row in kept.items())


def aimed_at(claim: Claim) -> str:
    """The first cells of the claim's row."""
    sign = "at most " if claim.at_most else ""
    cells = [claim.what, claim.yardstick, f"{sign}{claim.must:g} {claim.unit}", f"{claim.aim:g} {claim.unit}"]
    return f"| {' | '.join(cells)} |"


def sections(tables: list[Kept], former: str) -> list[str]:
    """All sections: those of the former page in their places, with the figures measured since, then new ones.

    A table of the former page that another command has measured since is left out.
    """
    titles, made = {named(kept) for kept in tables}, {module(group[0]): section(group) for group in by_command(tables)}
    found = dict[str, str]()
    for part in SECTION.finditer(former.partition("## All figures")[2]):
        left = TABLE.sub(lambda rows: "" if rows[1] in titles else rows[0], part[0])
        if part[1] in made or TABLE.search(left):
            found[part[1]] = left.rstrip() + "\n"
    return list((found | made).values())


def page(tables: list[Kept], former: str = "") -> str:
    """The page with these tables. former: the page before; it supplies the parts without a new measurement."""
    parts = sections(tables, former)
    measured = [found for part in parts for found in MEASURED.findall(part)]
    days = sorted(day for day, _load in measured)
    loads = [float(load) for _day, load in measured]
    load = f"{min(loads):.1f} to {max(loads):.1f}"
    rows = goals(tables, former)
    return (
        f"{HEAD}\nMeasured from {days[0]} to {days[-1]} on {machine()}.\n"
        f"The load before a benchmark was {load}; a benchmark leaves some to the next one.\n\n"
        "## Goals\n\n"
        "| What | Yardstick in the same run | Must reach | Aim | Measured | Rounds | Reached | `python -m ...` | On |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        f"{rows}\n{MISSED}\n## All figures\n\n{chr(10).join(parts)}"
    )


def main() -> None:
    results, target = map(Path, sys.argv[1:])
    former = target.read_text(encoding="utf-8") if target.exists() else ""
    target.write_text(page(latest(results), former), encoding="utf-8")


if __name__ == "__main__":
    main()
