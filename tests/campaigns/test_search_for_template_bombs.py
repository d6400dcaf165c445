"""The search for templates that cost more than their steps, as far as each run of the tests goes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(7200 if os.environ.get("MAILHUB_NIGHTLY") else 300)
def test_the_search_for_bombs_finds_none():
    """It searches for longer where MAILHUB_NIGHTLY is set; it runs in a process that a bomb ends alone."""
    examples = "2000" if os.environ.get("MAILHUB_NIGHTLY") else "40"
    searched = subprocess.run(
        [sys.executable, "-m", "tests.properties.template_bombs", examples], cwd=ROOT, capture_output=True, text=True
    )
    assert searched.returncode == 0, (searched.stdout + searched.stderr)[-4000:]
