"""The demo's final report: rows and books in one table, the promises, and where to look next."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sandbox.demo import logins
from sandbox.demo.processes import Processes
from sandbox.demo.story import Point
from sandbox.demo.verify import Account

COLUMNS = ("vendor", "recipients", "accepted", "booked", "refused", "twice", "lost", "fullest window", "agree")


def table(accounts: Sequence[Account]) -> Table:
    drawn = Table(
        title="mailhub's rows and the vendors' own books", title_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )
    for column in COLUMNS:
        drawn.add_column(column, justify="left" if column == "vendor" else "right", no_wrap=True)
    for one in accounts:
        counts = (one.recipients, one.accepted, one.vendor_accepted, one.refused, one.duplicates)
        window = f"{one.worst:,} of {one.limit:,}"
        agree = Text("yes", "green") if one.agrees else Text("NO", "bold red")
        drawn.add_row(one.vendor, *(f"{n:,}" for n in counts), f"{one.missing + one.unknown:,}", window, agree)
    return drawn


def promises(accounts: Sequence[Account], breaches: str) -> tuple[Point, Point]:
    """Return the points that hold for any story. `breaches`: found by the audit."""
    books = (all(one.agrees for one in accounts), "The books agree", "THE BOOKS DISAGREE")
    return books, (not breaches, "manage.py audit: every promise is kept by the rows", f"AUDIT: {breaches}")


def verdict(points: Sequence[Point], remark: str) -> RenderableType:
    """Return the result of each point."""
    return Group(*(_point(*point) for point in points), *([Text(remark)] if remark else []))


def next_steps(processes: Processes, password: str, tries: Sequence[str]) -> RenderableType:
    """Return URLs and users, a first task, and commands to try in another terminal."""
    hub = processes.hub
    assert hub is not None
    program = "mailhub" if Path(sys.argv[0]).name == "mailhub" else ".venv/bin/python manage.py"
    here = f"MAILHUB_HOME={_short(processes.home)} {program}"
    return Group(
        Text.assemble("\nTry it in a browser: ", (hub.web, "bold")),
        Text.assemble("Each of these users has the password ", (password, "bold")),
        *(Text.assemble("  ", (f"{one.user:9}", "bold"), one.may) for one in logins.LOGINS),
        Text(f"As {logins.OWNER.user}, choose New campaign. Two lists to upload:"),
        Text.assemble("  ", (_short(logins.READERS), "bold"), "   thirteen rows, three of them bad"),
        Text.assemble(
            "  ", (_short(logins.MEMBERS), "bold"), f"   400 rows, for which {logins.APPROVER.user} is asked"
        ),
        Text.assemble(f"\nAs {logins.OPERATOR.user}:  ", (f"{hub.web}admin/", "bold"), "   operations"),
        Text.assemble("          ", (f"{hub.api}api/v1/docs", "bold"), "   the API"),
        Text.assemble("          ", (hub.flower, "bold"), "   Flower"),
        Text("\nTry in another terminal:"),
        *(Text(f"  {here} {command}", "cyan") for command in tries),
        Text("\nCtrl-C stops everything."),
    )


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _point(good: bool, text: str, otherwise: str) -> Text:
    return Text(f"✓ {text}", "green") if good else Text(f"✗ {otherwise}", "bold red")
