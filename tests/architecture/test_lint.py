"""What is checked before a commit is what `make lint` checks."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_hooks_of_pre_commit_are_the_commands_of_make_lint() -> None:
    target = re.search(r"^lint:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert target
    commands = [line.strip().replace("$(PY)", ".venv/bin/python") for line in target[1].splitlines()]
    hooks = re.findall(r"^ +entry: (.+)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE)
    assert len(hooks) > 4 and hooks == commands
