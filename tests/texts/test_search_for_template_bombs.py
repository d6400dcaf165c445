"""The search for templates that cost more than their steps, as far as each run of the tests goes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow("many")

ROOT = Path(__file__).resolve().parents[2]
NIGHTLY = os.environ.get("MAILHUB_NIGHTLY") == "1"
# Each in a process of its own: what Hypothesis remembers of 2,000 such examples exceeds the memory of a search.
SEARCHES = [(200, seeded) for seeded in range(10)] if NIGHTLY else [(40, 0)]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("examples", "seeded"), SEARCHES)
def test_the_search_for_bombs_finds_none(examples: int, seeded: int) -> None:
    """It searches for longer where MAILHUB_NIGHTLY is set; it runs in a process that a bomb ends alone."""
    command = [sys.executable, "-m", "tests.properties.template_bombs", str(examples), str(seeded)]
    searched = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert searched.returncode == 0, (searched.stdout + searched.stderr)[-4000:]
