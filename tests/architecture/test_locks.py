"""Job rows are locked in one module, campaigns/engine/lifecycle.py; every other lock in the code is named here."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.sources import ROOT, find_modules, parse_those_with

CODE = find_modules()
LOCKS = re.compile(r"\bFOR\s+(NO\s+KEY\s+UPDATE|KEY\s+SHARE|UPDATE|SHARE)\b|\bLOCK\s+TABLE\b", re.IGNORECASE)
HOLD = "campaigns/engine/lifecycle.py"
ALLOWED = {
    # of jobs: in one statement with what they decide, so these may read nothing else that another verb changes
    "campaigns/engine/claiming/claims.py:CLAIM": "FOR SHARE of all that it asks; what was learned since forbids it",
    "campaigns/engine/claiming/claims.py:UNLOCKED": "SKIP LOCKED, or one job at a time; nothing else is read",
    "campaigns/engine/casting/mailcaster.py:PICK": "SKIP LOCKED; the row that it returns is all that is read of it",
    "campaigns/engine/casting/mailcaster.py:postpone_jobs": "SKIP LOCKED: it waits for nobody",
    "campaigns/engine/claiming/leases.py:RENEW": "SKIP LOCKED: it waits for nobody; fence, status are the row's own",
    "mailhub/stored_moments.py:CLAMP": "SKIP LOCKED; the moment that is corrected is of the row itself",
    "campaigns/engine/pausing/complaints.py:LET_GO_ON": "SKIP LOCKED; status and time are the row's own",
    "campaigns/senders/entitlements.py:LOWER": "SKIP LOCKED; beside the class it reads only what never changes",
    # of other rows
    "mailhub/stored_moments.py:CALLS": "messages, SKIP LOCKED",
    "mailhub/watchdog.py:TAKE": "a task's note of its last run, SKIP LOCKED",
    "campaigns/engine/casting/mailcaster.py:LOCK": "a mailcaster",
    "campaigns/engine/casting/mailcaster.py:is_credential_free": "an exclusive credential",
    "campaigns/reporting/accounts.py:SUM_UP": "entries of the accounts, SKIP LOCKED",
    "campaigns/engine/day_counts.py:SUM_UP": "counts by day, SKIP LOCKED",
    "campaigns/engine/doubts/queries.py:CALL": "a vendor, then its credential",
    "campaigns/engine/doubts/queries.py:DUE": "messages, SKIP LOCKED",
    "campaigns/engine/doubts/resolve.py:DOUBTS": "messages, after their jobs",
    "campaigns/engine/refusal_runs/run_rows.py:RunStatements": "a run of refusals, after the jobs of its messages",
    "campaigns/engine/refusal_runs/putting_back.py:TAIL": "the tail of a run, after the jobs of its messages",
    "campaigns/lists/drafts/checking.py:_keep_facts": "a draft alone, before its blocks",
    "campaigns/lists/drafts/checking.py:claim_draft": "a draft alone, SKIP LOCKED",
    "campaigns/lists/drafts/keeping.py:_delete_held": "a draft; its campaign's jobs are not looked at",
    "campaigns/engine/failover/crash.py:compare_after_crash": "the store alone, SKIP LOCKED",
    "campaigns/engine/failover/queries.py:hold_all_jobs": "the store, after all jobs",
    "campaigns/senders/sender_changes.py:rename_topic": "a topic alone",
    "campaigns/audience/unread_answers.py": "an answer, before suppressions, which wait for no answer",
    "campaigns/engine/claiming/rebuild.py:rebuild_window": "a vendor",
    "campaigns/suppression/lists.py:TELL_VENDORS": "vendors, by id; it waits for claims, which wait for nothing of its",
    "campaigns/content/template_versions/versions.py:_hold_template": "a template, before its next version",
    "mailhub/management/commands/rotate_keys.py:Command": "one row at a time, of any table that has secrets",
    "campaigns/integrations/webhook": "webhooks, their calls and sponsors",
    "waiter/parking.py": "parked tasks",
    "campaigns/engine/vendor_ids.py:DUE": "waiting reports, SKIP LOCKED",
    "vendors/": "vendors and credentials: this package knows no jobs",
}


def locks(path: Path, tree: ast.Module) -> Iterator[str]:
    """file:name of each top-level statement of the file that locks rows, in SQL or by Django."""
    for statement in tree.body:
        nodes = ast.walk(statement)
        found = [node for node in nodes if _locks(node)]
        name = getattr(statement, "name", "") or getattr(getattr(statement, "targets", [None])[0], "id", "")
        if found and not (isinstance(statement, ast.Expr)):  # a docstring
            yield f"{path}:{name}"


def _locks(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "select_for_update"
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(LOCKS.search(node.value))


@cache
def everywhere() -> list[str]:
    found = []
    for path, tree in parse_those_with("(?i)update|share|lock", CODE):
        found += locks(Path(path), tree)
    return found


def test_nobody_locks_jobs_but_the_one_module() -> None:
    assert [lock for lock in everywhere() if not lock.startswith((HOLD, *ALLOWED))] == []


def test_what_is_allowed_is_there() -> None:
    found = everywhere()
    assert [name for name in (HOLD, *ALLOWED) if not any(lock.startswith(name) for lock in found)] == []


def test_how_long_locks_are_waited_for_has_one_place() -> None:
    said = re.compile(r'^LOCKED_\w+\b.*= .*"\d+m?s"|suppress\(LockNotAvailable\), tells_locked\(\)', re.MULTILINE)
    found = [str(path.relative_to(ROOT)) for path in CODE if said.search(path.read_text())]
    assert found == [HOLD]


@pytest.mark.parametrize(
    "code",
    [
        'HELD = "SELECT FROM campaigns_job WHERE id = 1 FOR NO KEY UPDATE"',
        'HELD = f"""WITH x AS (SELECT 1 {"FOR"}\n FOR UPDATE) SELECT 1"""',
        "def f():\n    Job.objects.select_for_update().get(pk=1)",
        "class A:\n    def f(self):\n        cursor.execute('SELECT 1 FOR SHARE')",
    ],
)
def test_a_stray_lock_would_be_seen(code: str) -> None:
    assert list(locks(Path("campaigns/stray.py"), ast.parse(code)))


def test_what_only_speaks_of_updates_is_no_lock() -> None:
    code = '"""One row for updates."""\ndef f():\n    return "for no update at all"'
    assert not list(locks(Path("campaigns/stray.py"), ast.parse(code)))
