"""make test: the whole suite, and once more, alone, what failed.

A test that fails among others and passes alone is shown loudly and does not fail the run; why, says
docs/decisions/0001-a-flaky-test-is-shown-not-fatal.md.

Usage: python tests/run.py [arguments for pytest]
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MOST_FLAKY = 5
SOME_FAILED = 1  # pytest's exit code; every other one but 0 means that the tests were not run as they should
ALONE = ["--last-failed", "--last-failed-no-failures", "none", "-n", "0", "-p", "no:randomly"]


def main(arguments: list[str]) -> int:
    """Run the tests; the exit code is pytest's, but 0 if all that failed passed alone."""
    with tempfile.TemporaryDirectory(prefix="mailhub-pytest-") as cache:
        first = _pytest(arguments, cache)
        if first != SOME_FAILED:
            return first
        failed = _failed(cache)
        if not failed:
            _say("FAILED", "pytest failed without naming a test", [])
            return first
        if len(failed) > MOST_FLAKY:
            _say("FAILED", f"{len(failed)} tests, more than the {MOST_FLAKY} that are run again", failed)
            return first
        again = _pytest([*_paths(arguments), *ALONE], cache)
        if again == 0:
            _say("FLAKY (passed alone the second time)", "each of these is a defect to mend", failed)
        else:
            _say("FAILED", "failed again alone, one or all of", failed)
        return again


def _pytest(arguments: list[str], cache: str) -> int:
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL).returncode


def _failed(cache: str) -> list[str]:
    """The tests that failed, those under which a process died included."""
    record = Path(cache, "v", "cache", "lastfailed")
    return sorted(json.loads(record.read_text())) if record.exists() else []


def _paths(arguments: list[str]) -> list[str]:
    return [word for word in arguments if os.path.exists(word.partition("::")[0])]


def _say(heading: str, explanation: str, tests: list[str]) -> None:
    line = "!" * 80
    print(line, f"{heading}: {explanation}", *(f"  {test}" for test in tests), line, sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
