"""The demo's final report: rows and books in one table, the promises, and where to look next."""

import os
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sandbox.demo import setup
from sandbox.demo.processes import Processes
from sandbox.demo.scenario import CHILDREN
from sandbox.demo.verify import Account

TRY = (
    f"list_jobs --vendor {setup.BULK}",
    f"vendor limit {setup.POST} 10/1",
    f"send_campaign sandbox/demo/spring-news.csv --vendor {setup.POST} --sponsor {setup.SPONSOR} "
    "--subject Again --body sandbox/demo/news.txt --at now --wait",
    "audit",
)
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


def verdict(accounts: Sequence[Account], children: dict[int, int], breaches: str, last: int) -> RenderableType:
    """Whether everything came out as promised, point by point. last: recipients of job 103."""
    sizes = " ".join(map(str, children.values()))
    smaller = f"job 103 has {last:,} recipients, not {setup.DOCUMENT[103]:,}; " if last < setup.DOCUMENT[103] else ""
    window = f"the printer's window is {setup.LIMITS[setup.PRINT].seconds:g} s, not 60 s"
    return Group(
        _point(all(one.agrees for one in accounts), "The books agree", "THE BOOKS DISAGREE"),
        _point(
            children == CHILDREN,
            f"Document 003's children 104 to 111: {sizes}",
            f"NOT DOCUMENT 003'S CHILDREN: {sizes}",
        ),
        _point(not breaches, "manage.py audit: every promise is kept by the rows", f"AUDIT: {breaches}"),
        Text(f"  Unlike the documents: {smaller}{window}"),
    )


def next_steps(processes: Processes, password: str) -> RenderableType:
    """Addresses, login, and commands to try in another terminal."""
    hub = processes.hub
    assert hub is not None
    here = f"MAILHUB_HOME={_short(processes.home)} .venv/bin/python manage.py"
    return Group(
        Text.assemble("\nAdmin   ", (f"{hub.web}admin/", "bold"), f"   user demo, password {password}"),
        Text.assemble("API     ", (f"{hub.api}api/v1/docs", "bold")),
        Text.assemble("Flower  ", (hub.flower, "bold"), "   the same"),
        Text("\nTry in another terminal:"),
        *(Text(f"  {here} {command}", "cyan") for command in TRY),
        Text("\nCtrl-C stops everything."),
    )


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _point(good: bool, text: str, otherwise: str) -> Text:
    return Text(f"✓ {text}", "green") if good else Text(f"✗ {otherwise}", "bold red")
