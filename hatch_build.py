"""What packages hold beside the sources, for hatchling: the requirements, and the commit they were built from."""

import json
import os
import re
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

BUILD_FILE = "mailhub/build.json"
EXTRA = re.compile(r"# \[(\w+)\]")
ALL_EXTRAS = "vendors"


class Requirements(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in what pyproject.toml calls dynamic: requirements.in, and the extras of requirements-extras.in."""
        root = Path(self.root)
        metadata["dependencies"] = _read_lines(root / "requirements.in")
        metadata["optional-dependencies"] = read_extras(root / "requirements-extras.in")


class BuildFacts(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Put the file of `mailhub version` into the package. A source package has it already."""
        if self.target_name not in ("wheel", "sdist") or version == "editable":
            return
        if (Path(self.root) / BUILD_FILE).exists():
            return
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "build.json"
        path.write_text(json.dumps(tell_build(Path(self.root)), indent=1) + "\n")
        build_data["force_include"][str(path)] = BUILD_FILE


def tell_build(root: Path) -> dict[str, str]:
    """Return the commit and the time of this build, UTC. The environment may say both, as where git is missing."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    at = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    commit = os.environ.get("MAILHUB_COMMIT") or _ask_git(root, "rev-parse", "HEAD")
    changed = "" if os.environ.get("MAILHUB_COMMIT") else _ask_git(root, "status", "--porcelain")
    return {"commit": f"{commit}{'+changes' if changed else ''}", "built": f"{at:%Y-%m-%dT%H:%M:%SZ}"}


def _ask_git(root: Path, *arguments: str) -> str:
    """Return git's answer, or empty without git, or if the sources lie in a repository of somebody else."""
    if not (root / ".git").exists():
        return ""
    try:
        ran = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return ran.stdout.strip()


def read_extras(path: Path) -> dict[str, list[str]]:
    """Return the requirements below each `# [EXTRA]`, and all of them together."""
    extras: dict[str, list[str]] = {ALL_EXTRAS: []}
    for line in path.read_text().splitlines():
        if found := EXTRA.match(line):
            extras[found[1]] = below = []
        elif line and line[0] not in "#-":
            below.append(line)
            extras[ALL_EXTRAS].append(line)
    return extras


def _read_lines(path: Path) -> list[str]:
    """Return the requirements of a file, without its comments and its references to other files."""
    return [line for line in path.read_text().splitlines() if line and line[0] not in "#-"]
