"""Names the pinned packages with known weaknesses (make audit-packages).

Exits with 1 if there is one. A database that cannot be reached is told, and is no failure: the nightly run goes on.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
AUDIT = ["--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off"]


def ask_database() -> dict[str, Any] | None:
    """Return pip-audit's findings, or None without an answer."""
    program = str(Path(sys.executable).parent / "pip-audit")
    command = [program, *AUDIT, "-r", str(ROOT / "requirements-extras.txt")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(ran.stdout)
    except ValueError:
        return None
    return found


def describe_findings(found: dict[str, Any] | None) -> tuple[int, list[str]]:
    """Return the exit code and the sentences."""
    packages = found["dependencies"] if found else []
    asked = [one for one in packages if "skip_reason" not in one]
    if not asked:
        return 0, ["The database of weaknesses cannot be reached: nothing was audited"]
    weak = [
        f"{one['name']} {one['version']}: {weakness['id']}, mended in {', '.join(weakness['fix_versions']) or 'none'}"
        for one in asked
        for weakness in one["vulns"]
    ]
    left_out = len(packages) - len(asked)
    summary = f"{len(asked)} packages audited, {len(weak)} weaknesses" + (f", {left_out} unknown" if left_out else "")
    return (1 if weak else 0), [*weak, summary]


def main() -> int:
    code, sentences = describe_findings(ask_database())
    sys.stdout.write("".join(f"{sentence}\n" for sentence in sentences))
    return code


if __name__ == "__main__":
    sys.exit(main())
