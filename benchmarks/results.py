"""Stores results for benchmarks/page.py: one line of JSON a table, appended to the file named by BENCH_RESULTS.

Without BENCH_RESULTS nothing is stored.
"""

import json
import os
import sys
from datetime import UTC, datetime

LOAD = os.getloadavg()[0]  # before this benchmark has done anything


def keep(title: str, unit: str, rows: dict[str, list[float]]) -> None:
    """Append a table; each row has one figure a round."""
    file = os.environ.get("BENCH_RESULTS")
    if not file:
        return
    line = {"title": title, "unit": unit, "rows": rows, "command": command(), "load": LOAD}
    with open(file, "a", encoding="utf-8") as kept:
        kept.write(json.dumps({**line, "at": datetime.now(UTC).isoformat()}) + "\n")


def command() -> str:
    """Return the command that repeats this measurement."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return " ".join(["python -m", spec.name if spec else sys.argv[0], *sys.argv[1:]])
