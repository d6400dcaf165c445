"""How a decision's answers are reported, and with which exit code."""

from collections.abc import Iterable

from django.core.management.base import CommandError, OutputWrapper

from campaigns.decisions import JobDecision, Verdict
from vendors.management.output import write_json

NOT_YET = 3
CODES = {Verdict.UNKNOWN: 1, Verdict.STALE: 1, Verdict.BUSY: NOT_YET}


def report(out: OutputWrapper, answers: Iterable[JobDecision], as_json: bool) -> None:
    """One line a job. Raises CommandError with the lowest exit code above 0 of all answers."""
    told = list(answers)
    bad = [answer for answer in told if answer.verdict in CODES]
    if as_json:
        write_json(out, ({"job": a.job_id, "verdict": a.verdict, "told": a.told, "messages": a.messages} for a in told))
    else:
        for answer in told:
            if answer not in bad:
                out.write(answer.told)
    if bad:
        raise CommandError("\n".join(a.told for a in bad), returncode=min(CODES[a.verdict] for a in bad))
