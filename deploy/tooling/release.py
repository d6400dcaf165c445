"""Builds a release into dist/ and tries it (make release).

dist/ gets the wheel, the source package, a CycloneDX SBOM, the list of licences, the section of the changelog and
SHA256SUMS. A second run of the same commit makes the same files: the time of the build is the time of the commit.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
SUMS = "SHA256SUMS"
TOOLS = Path(sys.executable).parent
SECTION = re.compile(r"^## (\S+)(?: - (\d{4}-\d\d-\d\d))?\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


class NotReleasable(Exception):
    """What is wrong, in a sentence that says what to do."""


def read_version(root: Path = ROOT) -> str:
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def take_section(changelog: str, version: str) -> str:
    """Return the changelog's section of a version, without its heading. Raises NotReleasable."""
    sections = {found[1]: (found[2], found[3].strip()) for found in SECTION.finditer(changelog)}
    if version not in sections:
        raise NotReleasable(f"CHANGELOG.md has no section {version}: add `## {version} - YYYY-MM-DD`")
    date, text = sections[version]
    if not date:
        raise NotReleasable(f"CHANGELOG.md gives {version} no date: write `## {version} - YYYY-MM-DD`")
    if not text:
        raise NotReleasable(f"CHANGELOG.md says nothing about {version}")
    if sections.get("Unreleased", ("", ""))[1]:
        raise NotReleasable(f"CHANGELOG.md has changes under Unreleased: move them to {version}, or raise the version")
    return text + "\n"


def check_tree(root: Path = ROOT) -> None:
    """Raise NotReleasable if the sources are no commit: nobody could build the release again."""
    if not (root / ".git").exists():
        raise NotReleasable("a release is made from a checkout: here is no git repository")
    if changed := _run("git", "status", "--porcelain", cwd=root).splitlines():
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        named = ", ".join(line[3:] for line in changed[:3])
        raise NotReleasable(f"not everything is committed ({named}{more}): commit or remove it")


def check_tag(version: str, root: Path = ROOT) -> None:
    """Raise NotReleasable if this version is the tag of another commit."""
    tagged = _run("git", "tag", "--list", f"v{version}", "--format=%(objectname) %(*objectname)", cwd=root).split()
    here = _run("git", "rev-parse", "HEAD", cwd=root).strip()
    if tagged and here not in tagged:
        raise NotReleasable(f"v{version} is the tag of another commit: raise the version in pyproject.toml")


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS of all other files, in the form of sha256sum."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / SUMS).write_text("".join(lines))


def build(into: Path) -> tuple[Path, Path]:
    """Build wheel and source package, the wheel from the source package. Returns their paths."""
    committed = _run("git", "log", "-1", "--format=%ct").strip()
    _run(str(TOOLS / "python"), "-m", "build", "--no-isolation", "--outdir", str(into), SOURCE_DATE_EPOCH=committed)
    (wheel,), (source,) = into.glob("*.whl"), into.glob("*.tar.gz")
    _run(str(TOOLS / "twine"), "check", "--strict", str(wheel), str(source))
    return wheel, source


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel with the pinned packages into an empty environment. Returns its folder of programs."""
    _run(sys.executable, "-m", "venv", str(folder))
    programs = folder / "bin"
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(*pip, "--require-hashes", "-r", str(ROOT / "requirements-extras.txt"))
    _run(*pip, "--no-deps", str(wheel))
    _run(str(programs / "python"), "-m", "pip", "check")
    return programs


def try_wheel(programs: Path, version: str, home: Path, quick: bool) -> None:
    """Ask the installed command its version, and let it check itself or run the demo, whose books must agree."""
    mailhub, settings = str(programs / "mailhub"), {"MAILHUB_HOME": str(home)}
    told = _run(mailhub, "version", cwd=home.parent, **settings)
    commit = _run("git", "rev-parse", "HEAD").strip()
    if not told.startswith(f"{version} (commit {commit}, built "):
        raise NotReleasable(f"the wheel says that it is {told.strip()}, and should be {version} of {commit}")
    try:
        arguments = ["check"] if quick else ["demo", "--once", "--recipients", "2000"]
        _run(mailhub, *arguments, cwd=home.parent, **settings)
    finally:
        _run(mailhub, "services", "stop", cwd=home.parent, **settings)


def describe(programs: Path, into: Path, version: str) -> None:
    """Write the SBOM of the environment that was tried, and the licences of its packages."""
    sbom = into / f"mailhub-{version}.cdx.json"
    options = ["--output-reproducible", "--of", "JSON", "--pyproject", str(ROOT / "pyproject.toml"), "-o", str(sbom)]
    _run(str(TOOLS / "cyclonedx-py"), "environment", *options, str(programs / "python"))
    licences = _run(str(programs / "python"), "-m", "deploy.tooling.licences", cwd=ROOT)
    (into / f"mailhub-{version}-licences.csv").write_text(licences)


def publish(made: Path, dist: Path = DIST) -> bool:
    """Replace dist/ by what was made. Returns False if it is the same already."""
    if dist.exists() and _contents(dist) == _contents(made):
        return False
    shutil.rmtree(dist, ignore_errors=True)
    shutil.copytree(made, dist)
    return True


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _run(*command: str, cwd: Path = ROOT, **settings: str) -> str:
    """Run a program and return its output. Raises NotReleasable with its last words."""
    ran = subprocess.run(command, cwd=cwd, env=os.environ | settings, capture_output=True, text=True, check=False)
    if ran.returncode:
        words = "\n".join((ran.stdout + ran.stderr).strip().splitlines()[-20:])
        raise NotReleasable(f"{' '.join(command)} failed with {ran.returncode}:\n{words}")
    return ran.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="let the wheel check itself instead of running the demo")
    quick = parser.parse_args(arguments).quick
    version = read_version()
    try:
        check_tree()
        check_tag(version)
        section = take_section((ROOT / "CHANGELOG.md").read_text(), version)
        with tempfile.TemporaryDirectory(prefix="mailhub-release-") as folder:
            made = Path(folder, "dist")
            made.mkdir()
            _say(f"Building mailhub {version}")
            wheel, _ = build(made)
            _say("Installing it into an empty environment")
            programs = install(wheel, Path(folder, "environment"))
            _say("Trying it: " + ("its checks" if quick else "the demo"))
            try_wheel(programs, version, Path(folder, "home"), quick)
            describe(programs, made, version)
            (made / f"mailhub-{version}-changes.md").write_text(section)
            write_sums(made)
            changed = publish(made)
    except NotReleasable as why:
        sys.stderr.write(f"No release: {why}\n")
        return 1
    _say(f"dist/ has mailhub {version}" + ("" if changed else ", as before") + f". Then: git tag -s v{version}")
    return 0


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
