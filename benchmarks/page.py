"""Makes docs/benchmarks.md from the stored results of benchmarks (make bench).

`python -m benchmarks.page RESULTS PAGE`. If a table was measured several times, the last one counts.
"""

import json
import os
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.claims import CLAIMS, Claim

HEAD = """\
# Benchmarks

Made by `make bench-page` from what `make bench` measured; nothing in it is typed by hand. Each benchmark is a command
that takes its yardstick in the same run, in turns with what it measures, because a machine's speed drifts: a ratio is
the middle of the ratios within a round, and in brackets stand the lowest and the highest. Vendors, databases and
senders share the machine, so absolute figures are this machine's; the ratios are what to look at. To measure some
alone, name them with their numbers: `make bench BENCHMARKS="http_client,20000,5 smtp,10000,5"`.

`as_run`, `slow_vendors` and `latency` measure mailhub as it is shipped: `manage.py up`, vendors with the mailcasters
that they get by default, commands and the API. The others measure a part, with what that part needs; where they send,
beat and the workers of the hub and of the vendors run as the Procfile starts them.
"""
MISSED = """\
What is missed, and why. *As people run it:* the aiohttp loop keeps nothing and fills one core; twice its rate on two
cores that carry everything leaves for PostgreSQL, Redis, senders and the receiver together what the loop alone spends
on a call. listmonk keeps no row of what became of a mail, so a mail costs it a fraction. Here are the sums, and
[what was tried](explanation/capacity.md#what-the-goals-would-leave-for-a-message).
*Import:* checking a row in Python costs more than the bare COPY of it, and nothing is stored before all are checked.
"""
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
    sign = "at most " if claim.at_most else ""
    cells = [claim.what, claim.yardstick, f"{sign}{claim.must:g} {claim.unit}", f"{claim.aim:g} {claim.unit}"]
    cells += [f"{spread(values)} {claim.unit}", str(len(values)), "yes" if claim.holds(values) else "**no**"]
    return "| " + " | ".join([*cells, f"`{found['command'].removeprefix('python -m ')}`"]) + " |\n"


def table(kept: Kept) -> str:
    rows = "".join(f"| {name} | {spread(values)} | {len(values)} |\n" for name, values in kept["rows"].items())
    head = f"### {kept['title']}\n\n`{kept['command']}`, {kept['at'][:16].replace('T', ' ')} UTC, "
    return f"{head}load before {kept['load']:.1f}\n\n| What | {kept['unit']} | rounds |\n| --- | --- | --- |\n{rows}"


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores, system = os.cpu_count(), f"{platform.system()}, Python {platform.python_version()}"
    return f"{cores} cores, {memory:.0f} GiB of memory, {system}"


def page(tables: list[Kept]) -> str:
    days = sorted({kept["at"][:10] for kept in tables})
    loads = [kept["load"] for kept in tables]
    rows = "".join(claimed(claim, tables) for claim in CLAIMS)
    return (
        f"{HEAD}\nMeasured {' and '.join(days)} on {machine()}.\nLoad of the machine before each benchmark: "
        f"{min(loads):.1f} to {max(loads):.1f}, which includes what the benchmark before it had left.\n\n"
        "## What was asked\n\n"
        "| What | Yardstick in the same run | Must reach | Aim | Measured | Rounds | Reached | `python -m ...` |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
        f"{rows}\n{MISSED}\n## All figures\n\n{chr(10).join(map(table, tables))}"
    )


def main() -> None:
    results, target = map(Path, sys.argv[1:])
    target.write_text(page(latest(results)), encoding="utf-8")


if __name__ == "__main__":
    main()
