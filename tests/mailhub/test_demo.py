"""The demo as `make demo` runs it, in a home of its own, with everything that it starts."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailhub.embedded.daemon import Daemon

PROJECT = Path(__file__).parents[2]
DEADLINE = 480.0  # seconds; it takes under a minute on a machine that has nothing else to do
# Fewer recipients than the default; the rest of the story is the same.
DEMO = [sys.executable, "manage.py", "demo", "--once", "--recipients", "2000"]


@pytest.fixture
def home() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="mailhub-demo-"))
    yield made
    shutil.rmtree(made)


@pytest.mark.timeout(DEADLINE + 120)
def test_the_demo_tells_its_story_to_the_end_and_both_sides_books_agree(home: Path) -> None:
    demo = subprocess.Popen(
        DEMO,
        cwd=PROJECT,
        env=os.environ | {"MAILHUB_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = demo.communicate(timeout=DEADLINE)
    finally:
        demo.terminate()
        demo.wait()
    log = home / "demo" / "demo.log"
    assert demo.returncode == 0, f"{said}\n{log.read_text()[-5000:] if log.exists() else ''}"
    assert "The books agree" in said
    assert "Document 003's children 104 to 111: 2000 2000 2000 2000 200 200 2000 600" in said
    assert not any(Daemon(name, home / "demo").alive() for name in ("postgres", "redis"))
