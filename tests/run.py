"""make test: the whole suite, and once more, alone, what failed.

A test that fails among others and passes alone is shown loudly and does not fail the run; why, says
docs/decisions/0001-a-flaky-test-is-shown-not-fatal.md.

Usage: python tests/run.py [arguments for pytest]
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

MOST_FLAKY = 5
SOME_FAILED = 1  # pytest's exit code; every other one but 0 means that the tests were not run as they should
ALONE = ["-n", "0", "-p", "no:randomly"]


def main(arguments: list[str]) -> int:
    """Run the tests; the exit code is pytest's, but 0 if all that failed passed alone."""
    code, failed = _pytest(arguments)
    if code != SOME_FAILED:
        return code
    if not failed or len(failed) > MOST_FLAKY:
        _say(f"FAILED: {len(failed)} tests; at most {MOST_FLAKY} would be run again", failed)
        return code
    code, failed_again = _pytest([*ALONE, *failed])
    if code == 0:
        _say("FLAKY (passed alone the second time): each of these is a defect to mend", failed)
    else:
        _say("FAILED twice", failed_again)
    return code


def _pytest(arguments: list[str]) -> tuple[int, list[str]]:
    """pytest's exit code and the tests that failed."""
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
        return process.wait(), sorted(set(record.read_text().splitlines()))


def _say(heading: str, tests: list[str]) -> None:
    line = "!" * 80
    print(line, heading, *(f"  {test}" for test in tests), line, sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
