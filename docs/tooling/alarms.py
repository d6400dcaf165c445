"""Makes the table of docs/reference/alarms.md from vendors/alarms.py.

`python -m docs.tooling.alarms`. A test compares the page with what this makes. Rules: deploy/tooling/alerts.py.
"""

import logging
import re
from pathlib import Path

from vendors.alarms import ALARMS, Alarm

DOCS = Path(__file__).parents[1]
ALARMS_PAGE = DOCS / "reference" / "alarms.md"
HEAD = "| In the log | Level | Meaning | Do | Metric |\n|---|---|---|---|---|\n"
TABLE = re.compile(r"^\| In the log \|.*?\n\n", re.MULTILINE | re.DOTALL)
GAP = re.compile(r"%(?:\.\d)?[sdrf]")


def alarms_page() -> str:
    """Return the page as it is, with the table made anew."""
    table = HEAD + "".join(map(_row, ALARMS.values())) + "\n"
    return TABLE.sub(lambda _: table, ALARMS_PAGE.read_text(encoding="utf-8"))


def _row(alarm: Alarm) -> str:
    level, metric = logging.getLevelName(alarm.level).lower(), f"`{alarm.metric}`" if alarm.metric else ""
    return f"| `{GAP.sub('...', alarm.text)}` | {level} | {alarm.meaning} | {alarm.action} | {metric} |\n"


if __name__ == "__main__":
    ALARMS_PAGE.write_text(alarms_page(), encoding="utf-8")
