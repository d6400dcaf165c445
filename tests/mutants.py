"""python -m tests.mutants [NAME ...]: plants the classic defect of each promise and shows which test finds it.

Each defect is planted alone in a copy of the tree; the tests named beside it must then fail, and pass without it. Exit
status 1 if one survives. docs/faults.md has the list; tests/architecture/test_mutants.py keeps it true.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[1]
SECONDS = 600.0  # for the tests of one mutant


@dataclass(frozen=True)
class Mutant:
    """A defect: in `file`, each `before` becomes its `after`. test: the one that must find it."""

    name: str
    file: str
    changes: tuple[tuple[str, str], ...]
    test: str


MUTANTS = (
    Mutant(
        "a permit is stamped at the grant",
        "vendors/limits/window.lua",
        (("exact(late + hold), exact(early - reach)", "exact(late), exact(early - reach)"),),
        "tests/properties/test_throttle_strict.py::test_no_window_at_the_vendor_ever_holds_more_than_the_limit",
    ),
    Mutant(
        "CLAIM does not look at the fence",
        "campaigns/engine/claiming/claims.py",
        (("WHERE j.fence = a.fence AND j.status = 'SENDING'", "WHERE j.status = 'SENDING'"),),
        "tests/faults/test_04_zombies.py::test_a_zombie_claims_nothing_of_a_job_that_another_sender_holds",
    ),
    Mutant(
        "CLAIM does not look at the pause",
        "campaigns/engine/claiming/claims.py",
        (("j.status = 'SENDING' AND j.paused_at IS NULL ORDER BY", "j.status = 'SENDING' ORDER BY"),),
        "tests/campaigns/test_pausing.py::test_a_claim_of_a_paused_campaign_gets_nothing",
    ),
    Mutant(
        "CLAIM does not lock the credential",
        "campaigns/engine/claiming/claims.py",
        (("FOR SHARE OF v, c\n", "FOR SHARE OF v\n"),),
        "tests/campaigns/test_claims_that_wait.py::test_a_claim_that_waits_for_a_row_claims_nothing_that_was_forbidden_meanwhile",
    ),
    Mutant(
        "CLAIM does not look at the brake",
        "campaigns/engine/claiming/claims.py",
        (("AND NOT c.paused AND {brake.OPEN}", "AND NOT c.paused"),),
        "tests/campaigns/test_claims_in_turn.py::test_what_is_asked_for_while_a_writer_waits_comes_after_him_and_is_not_allowed",
    ),
    Mutant(
        "CLAIM does not take its turn",
        "campaigns/engine/claiming/claims.py",
        (
            (
                "{locks.SHARED} FROM (SELECT count(*) AS jobs FROM holder)",
                "true FROM (SELECT count(*) AS jobs FROM holder)",
            ),
        ),
        "tests/campaigns/test_claims_in_turn.py::test_what_is_asked_for_while_a_writer_waits_comes_after_him_and_is_not_allowed",
    ),
    Mutant(
        "a child is cut from what is behind the first N",
        "campaigns/engine/casting/mailcaster.py",
        (("min(size, job.left_to_cut)", "min(size, job.remaining)"),),
        "tests/campaigns/test_first_recipients.py::test_what_is_stopped_before_the_go_still_waits_after_its_first_n",
    ),
    Mutant(
        "MERGE does not look at the fence",
        "campaigns/engine/merging.py",
        (("coalesce(c.fence = j.fence, false) AS present", "c.id IS NOT NULL AS present"),),
        "tests/faults/test_04_zombies.py::test_what_a_zombie_says_of_its_own_call_says_nothing_of_a_later_one",
    ),
    Mutant(
        "an answer that never came counts as not sent",
        "vendors/outcomes.py",
        (("return InDoubt(error.reason, answered=error.status is not None)", "return NotSent(error.reason)"),),
        "tests/contracts/test_contract.py",
    ),
    Mutant(
        "finalising does not look whose rows they are",
        "campaigns/engine/finishing/finalizer.py",
        (('which="j.id = %(job)s AND c.job_id = j.id"', 'which="j.id = %(job)s"'),),
        "tests/faults/test_07_finalisers.py::test_08_finalising_touches_no_row_of_another_job_not_even_of_its_campaign",
    ),
    Mutant(
        "a retry takes what is in doubt along",
        "campaigns/operations/actions.py",
        (
            ("AND m.message_id IS NULL AND m.in_doubt_at IS NULL", "AND m.message_id IS NULL"),
            ("AND (m.error_code IS NOT NULL OR m.sent_at IS NULL)", ""),
        ),
        "tests/operations/test_stop_retry.py",
    ),
    Mutant(
        "a stop is answered from the parent",
        "campaigns/operations/actions.py",
        (
            (
                "job.status in (Status.STOPPED, Status.P_STOPPED) and not running:",
                "job.status in (Status.STOPPED, Status.P_STOPPED):",
            ),
        ),
        "tests/operations/test_stop_of_parents.py",
    ),
    Mutant(
        "a job is locked and its messages are read in one statement",
        "campaigns/engine/lifecycle.py",
        (
            (
                "lock = HOLD if jobs else HOLD_AROUND",
                'lock = HOLD if jobs else "SELECT 0 WHERE false"\n'
                '            statement = statement.replace("WITH ", f"WITH held AS ({HOLD_AROUND}), ", 1)\n'
                '            statement = statement.replace("= a.id", "= a.id AND (SELECT count(*) FROM held) > 0", 1)\n'
                '            params = {**params, "messages": list(messages)}',
            ),
        ),
        "tests/campaigns/test_locks.py",
    ),
    Mutant(
        "what a letter costs is ignored",
        "campaigns/engine/sending/stream.py",
        (("claims.ByCount() if self._counts else ByCost(job, connections.attachments)", "claims.ByCount()"),),
        "tests/faults/test_42_cost.py",
    ),
    Mutant(
        "a refusal is charged",
        "campaigns/engine/merging.py",
        (("    WHERE a.kind = 'a' GROUP BY 1, 2, 3, 4\n", "    WHERE a.kind IN ('a', 'r') GROUP BY 1, 2, 3, 4\n"),),
        "tests/reporting/test_costs.py",
    ),
    Mutant(
        "a report that comes before the answer is charged one unit",
        "campaigns/engine/ground_truth.py",
        (("        units = {CLAIMED_UNITS}\n", "        units = m.units\n"),),
        "tests/properties/test_lives_of_a_job.py",
    ),
    Mutant(
        "a doubt is settled wherever its vendor is called now",
        "campaigns/engine/doubts/queries.py",
        (
            ("coalesce(m.destination, 0) = (", "0 <= ("),
            ("AND coalesce(m.destination, 0) = %(destination)s AND EXISTS", "AND EXISTS"),
            ("AND c.id = m.campaign_id AND {whose.IS_ELSEWHERE}", "AND false"),
        ),
        "tests/faults/test_destinations.py",
    ),
    Mutant(
        "a sender keeps the adapter of before a change",
        "campaigns/engine/sending/stream.py",
        (("if seen.scope.destination != self._job.destination:", "if seen.scope.destination < 0:"),),
        "tests/faults/test_destinations.py::test_a_sender_that_has_the_adapter_of_before_makes_no_call_after_the_change",
    ),
    Mutant(
        "a 303 counts as not sent",
        "vendors/outcomes.py",
        (("UNPROCESSED_REDIRECTS = frozenset({307, 308})", "UNPROCESSED_REDIRECTS = frozenset({303, 307, 308})"),),
        "tests/contracts/test_outcomes.py",
    ),
    Mutant(
        "a report about our reputation counts against its recipient",
        "vendors/causes/consequences.py",
        (
            (
                "(_C.US, _P.REPORTED): Consequence(_M.BLOCKED, by_receiver=True)",
                "(_C.US, _P.REPORTED): Consequence(_M.SOFT, suppresses=_ADDRESSED)",
            ),
        ),
        "tests/receivers/test_reported_waits.py::test_after_a_week_of_tss04_nobody_is_suppressed_and_yahoo_waits",
    ),
    Mutant(
        "sessions commit as the server says",
        "campaigns/engine/failover/guard.py",
        (("IN ('off', 'local')", "IN ('none')"),),
        "tests/faults/test_durability.py",
    ),
    Mutant(
        "calls go on after a crash before anything is compared",
        "campaigns/engine/failover/crash.py",
        (("if lost := [one for one in unknown if one.is_used]:", "if lost := []:"),),
        "tests/faults/test_crash.py::test_a_call_that_has_ended_without_a_claim_proves_that_a_commit_was_lost",
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only those whose names hold one of these words")
    chosen_names = parser.parse_args().names
    chosen = [one for one in MUTANTS if not chosen_names or any(word in one.name for word in chosen_names)]
    survivors = [mutant.name for mutant in chosen if not _found(mutant)]
    print(
        f"{len(chosen) - len(survivors)} of {len(chosen)} were found" + "".join(f"\nSURVIVED: {n}" for n in survivors)
    )
    return 1 if survivors or not chosen else 0


def _found(mutant: Mutant) -> bool:
    """Green without the defect, red with it."""
    with tempfile.TemporaryDirectory(prefix="mailhub-mutant-") as folder:
        tree = Path(folder)
        _copy(tree)
        green = _passes(tree, mutant.test)
        plant(mutant, tree)
        red = not _passes(tree, mutant.test)
    verdict = "found by" if green and red else "FAILS ALREADY WITHOUT IT:" if not green else "NOT FOUND BY"
    print(f"{mutant.name}: {verdict} {mutant.test}", flush=True)
    return green and red


def _copy(tree: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, check=True, capture_output=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROJECT / name, tree / name)


def plant(mutant: Mutant, tree: Path) -> None:
    """Raises ValueError if the place is not there, or more than once."""
    path = tree / mutant.file
    text = path.read_text()
    for before, after in mutant.changes:
        if text.count(before) != 1:
            raise ValueError(f"{mutant.name}: {text.count(before)} times in {mutant.file}: {before}")
        text = text.replace(before, after)
    path.write_text(text)


def _passes(tree: Path, test: str) -> bool:
    """Exit codes other than "all passed" and "some failed" are mistakes of ours."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    ours = ("PYTEST_", "DJANGO_", "MAILHUB_HOME", "DATABASE_URL", "REDIS_URL")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(command, cwd=tree, env=clean, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{test}: pytest ended with {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
