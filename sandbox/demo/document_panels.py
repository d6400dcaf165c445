"""The demo's panels for the documents' story: casters and their jobs, the letters of the night, the e-mail."""

from collections.abc import Sequence

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sandbox.demo import setup
from sandbox.demo.screen import COLOURS, GROUP, bar, grid, panel, status, word
from sandbox.demo.snapshot import Facts

UPPER = 14  # lines of the two upper panels


def summary(facts: Facts, jobs: setup.Jobs) -> str:
    """Return the progress in one line."""
    letters = sum(facts.jobs[id].done for id in jobs.letters)
    bulk = (f"{id} {facts.jobs[id].answered:,}/{facts.jobs[id].size:,}" for id in setup.DOCUMENT)
    post = (facts.jobs[id] for id in (jobs.spring, jobs.members))
    mail = (f"{job.name} {job.answered:,}/{job.size:,}" for job in post)
    return ", ".join([f"letters {letters}/{len(jobs.letters)}", *bulk, *mail])


def panels(facts: Facts, jobs: setup.Jobs) -> Sequence[RenderableType]:
    bulk = setup.LIMITS[setup.BULK]
    upper = [
        panel(f"Seven mailcasters, {bulk.units:,} calls a second", _casters(facts), 50, UPPER),
        panel("Jobs of document 003", _document(facts), 48, UPPER),
    ]
    return [
        Columns(upper, padding=(0, 1)),
        panel(f"Letters: the night, then {_limit_of(setup.PRINT)}", _letters(facts, jobs), 99),
        panel("E-mail: bounces, lost answers, stop and resume", _post(facts, jobs), 99),
    ]


def _letters(facts: Facts, jobs: setup.Jobs) -> RenderableType:
    groups = [GROUP[facts.jobs[id].status] for id in jobs.letters if id in facts.jobs]
    legend = [(f"{groups.count(name):2} {name.lower()}   ", colour) for name, colour in COLOURS.items()]
    cells = [("■ " if n % 5 == 0 else "■", COLOURS[group]) for n, group in enumerate(groups, start=1)]
    return Group(Text.assemble(*cells), Text.assemble(*legend[:4]))


def _post(facts: Facts, jobs: setup.Jobs) -> RenderableType:
    drawn = grid(14, 10, 22, 12, 12, 12)
    for id in (jobs.spring, jobs.members):
        if job := facts.jobs.get(id):
            counts = (f"{job.accepted:,} accepted", f"{job.refused} bounced", f"{job.in_doubt} in doubt")
            drawn.add_row(job.name, word(job), bar(job, 22), *counts)
    return drawn


def _casters(facts: Facts) -> Group:
    drawn = grid(3, 14, 11, 4, 10)
    for name, kind, low, high in setup.CASTERS:
        job = facts.caster(setup.BULK, name)
        sizes = f"{low:,}–{high:,}"
        if job:
            drawn.add_row(name, kind, Text(sizes, "grey50"), str(job.id), bar(job, 10))
        else:
            drawn.add_row(name, kind, Text(sizes, "grey50"), "", Text("no job", "grey50"))
    rule = f"A child: {setup.PERCENTAGE} % of what remains of its parent,\nwithin the caster's minimum and maximum."
    return Group(drawn, Text(f"\n{rule}\nJobs below {setup.THRESHOLD:,} are small: they are not cut.", "grey50"))


def _document(facts: Facts) -> Table:
    drawn = grid(5, 12, 7, 15)
    for id in setup.DOCUMENT:
        if job := facts.jobs.get(id):
            children = facts.children(id)
            drawn.add_row(str(id), status(job), f"{job.size:,}", bar(job, 15))
            for child in children if id == 101 else []:
                drawn.add_row(f" {child.id}", status(child), f"{child.size:,}", bar(child, 15))
    if children := facts.children(103):
        sent = sum(child.done for child in children)
        drawn.add_row("", Text(f"{len(children)} children", "grey50"), "", Text(f"{sent} of them sent", "grey50"))
    return drawn


def _limit_of(slug: str) -> str:
    limit = setup.LIMITS[slug]
    return f"{limit.units} in any {limit.seconds:g} s (in document 000: 60 s)"
