"""make test, test-slow, test-all. What broke is fatal at the first try; what only missed a deadline runs again, alone.

Which is which, says the exception: docs/decisions/0001-a-missed-deadline-is-tried-again-a-broken-promise-is-not.md.

Usage: python tests/run.py [arguments for pytest]
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

MOST_LATE = 5  # more of them, and it is not the machine
SOME_FAILED = 1  # pytest's exit code; every other one but 0 means that the tests were not run as they should
ALONE = ["-n", "0", "-p", "no:randomly"]


def main(arguments: list[str]) -> int:
    """Run the tests; the exit code is pytest's, but 0 if what failed had only missed a deadline, and passed alone."""
    code, late, broken = _pytest(arguments)
    if code != SOME_FAILED:
        return code
    if broken or not late or len(late) > MOST_LATE:
        _say(f"BROKEN: {len(broken)}, fatal at the first try", broken)
        if late:
            _say(f"MISSED A DEADLINE: {len(late)}; at most {MOST_LATE}, and nothing else, would be tried again", late)
        return code
    code, late_again, broken = _pytest([*ALONE, *late])
    if code == 0:
        _say(f"MISSED A DEADLINE, PASSED ALONE: {len(late)}, on a slow machine or by a defect: find out which", late)
    else:
        _say(f"FAILED ALONE: {len(broken)} broken, {len(late_again)} missed a deadline again", broken + late_again)
    return code


def _pytest(arguments: list[str]) -> tuple[int, list[str], list[str]]:
    """pytest's exit code, the tests that only missed a deadline, and those that broke."""
    with tempfile.TemporaryDirectory(prefix="mailhub-pytest-") as folder:
        record = Path(folder, "failed")
        record.touch()
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "tests.record", *arguments],
            env=os.environ | {"FAILED_TESTS_FILE": str(record)},
            stdin=subprocess.DEVNULL,
        )
        # pytest stops its services when it is told to end, so it is told, and waited for; a terminal's Ctrl-C
        # reaches it without us
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        signal.signal(signal.SIGINT, lambda *_: None)
        code = process.wait()
        kinds: dict[str, set[str]] = defaultdict(set)
        for line in record.read_text().splitlines():
            kind, _, test = line.partition(" ")
            kinds[test].add(kind)
    late = sorted(test for test, found in kinds.items() if found == {"late"})
    return code, late, sorted(set(kinds) - set(late))


def _say(heading: str, tests: list[str]) -> None:
    line = "!" * 80
    print(line, heading, *(f"  {test}" for test in tests), line, sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
