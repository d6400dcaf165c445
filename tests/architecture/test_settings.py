"""Every variable of the environment that is read stands in the reference, and the reference names no other."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
READERS = [
    "mailhub/settings.py",
    "mailhub/flowerconfig.py",
    "mailhub/embedded/data_dir.py",
    "mailhub/management/commands/up.py",
    "Procfile",
]
READ = re.compile(r"""(?:environment\.\w+\(|os\.environ(?:\.get\(|\[))\s*"([A-Z_]+)"|\$\{([A-Z_]+):-""")
NOT_OURS = {"DJANGO_SETTINGS_MODULE", "PATH", "PYTHONUNBUFFERED", "XDG_RUNTIME_DIR"}


def read() -> set[str]:
    found = (READ.findall((ROOT / file).read_text()) for file in READERS)
    return {name for pairs in found for pair in pairs for name in pair if name} - NOT_OURS


def documented() -> set[str]:
    """In the first column of the table of settings."""
    page = (ROOT / "docs" / "reference" / "environment.md").read_text()
    firsts = re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
    return {name for first in firsts for name in re.findall(r"`([A-Z_]+)`", first)}


def test_the_reference_has_every_setting_and_no_other() -> None:
    assert read() == documented()


def test_the_guides_table_of_processes_is_the_procfile() -> None:
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    table = page.split("\n## Processes\n")[1].split("\n## ")[0]
    processes = re.findall(r"^([\w-]+):", (ROOT / "Procfile").read_text(), re.MULTILINE)
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == sorted(processes)
