"""What the wheel requires, for hatchling: requirements.in, and as the extra `vendors` requirements-extras.in."""

from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Requirements(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in what pyproject.toml calls dynamic."""
        root = Path(self.root)
        metadata["dependencies"] = _read(root / "requirements.in")
        metadata["optional-dependencies"] = {"vendors": _read(root / "requirements-extras.in")}


def _read(path: Path) -> list[str]:
    """Return the requirements of a file, without its comments and its references to other files."""
    return [line for line in path.read_text().splitlines() if line and line[0] not in "#-"]
