"""The wheel is complete, requires what requirements.in names, and plays the demo in an empty virtual environment.

No package index is needed, because the packages that it requires come from the environment of the tests.
"""

import os
import re
import signal
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mailhub.embedded.process import Daemon

pytestmark = pytest.mark.slow("processes")

ROOT = Path(__file__).parents[2]
PACKAGES = ("campaigns", "mailhub", "sandbox", "vendors", "waiter")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUILD_SECONDS = 240.0
DEMO_SECONDS = 480.0


def done(*command: str | Path, cwd: Path = ROOT, **more: str) -> str:
    """What a command prints. It gets nothing of the environment of the tests but where programs are."""
    given = environment(cwd) | more
    ran = subprocess.run(command, cwd=cwd, env=given, capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return kept | {"MAILHUB_HOME": str(home), "PYTHONUNBUFFERED": "1", "TERM": "dumb"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    return build_wheel(ROOT, folder)


def build_wheel(source: Path, folder: Path) -> Path:
    """Builds a wheel as of the first second of 2030."""
    pip = (sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation")
    done(*pip, "--wheel-dir", folder, source, SOURCE_DATE_EPOCH="1893456000")
    (built,) = folder.glob("*.whl")
    return built


def read_members(wheel: Path) -> dict[str, bytes]:
    """The contents of each file, without the list of them, which is in the order of their packing."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `bin` of a virtual environment that has the wheel, and behind it the packages of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    done(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel)
    (packages,) = folder.glob("lib/python*/site-packages")
    of_the_tests = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "packages_of_the_tests.pth").write_text("\n".join(of_the_tests))
    return folder / "bin"


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_has_every_file_of_the_packages_and_none_of_the_tests(wheel: Path) -> None:
    sources = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    kinds = {Path(name).suffix for name in sources}
    assert kinds >= {".py", ".html", ".css", ".js", ".mo", ".lua", ".toml", ".csv", ".txt", ".py-tpl"}
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert sources ^ found == {"mailhub/Procfile", "mailhub/build.json"}


def test_the_wheel_of_the_source_package_has_the_files_of_that_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    make = "import hatchling.build as build, sys; print(build.build_sdist(sys.argv[1]))"
    done(sys.executable, "-c", make, tmp_path, SOURCE_DATE_EPOCH="1893456000")
    (source,) = tmp_path.glob("mailhub-*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert not list((folder / "docs").glob("pictures/*")) and (folder / "tests").exists()
    built = tmp_path / "built"
    built.mkdir()
    assert read_members(build_wheel(folder, built)) == read_members(wheel)


def test_the_wheel_requires_what_requirements_in_names_and_has_the_version_of_pyproject(metadata: Message) -> None:
    required = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    extras = (ROOT / "requirements-extras.in").read_text()
    sources = {"": (ROOT / "requirements.in").read_text(), "vendors": extras}
    sources |= {block.partition("]")[0]: block for block in extras.split("# [")[1:]}
    assert set(sources) == {"", "vendors", "ses", "print", "sftp"} == {"", *metadata.get_all("Provides-Extra", [])}
    for extra, text in sources.items():
        lines = re.findall(r"^\w[^\]\n]*(?:\[\w+\].*)?$", text.partition("\n")[2] if extra else text, re.MULTILINE)
        wanted = {(one.name.replace(".", "-"), one.specifier, frozenset(one.extras)) for one in map(Requirement, lines)}
        marker = f'extra == "{extra}"' if extra else "None"
        found = [one for one in required if str(one.marker).replace("'", '"') == marker]
        assert wanted and {(one.name, one.specifier, frozenset(one.extras)) for one in found} == wanted, extra
    assert metadata["Version"] == PROJECT["version"]


def test_the_command_and_manage_py_tell_the_same_version_and_commands(programs: Path, tmp_path: Path) -> None:
    manage = (sys.executable, ROOT / "manage.py")
    assert done(programs / "mailhub", "--version", cwd=tmp_path) == f"{PROJECT['version']}\n"
    assert done(*manage, "--version", cwd=tmp_path) == f"{PROJECT['version']}\n"
    build = r"\(commit ([0-9a-f]{40})(?:\+changes)?, "
    of_the_wheel = done(programs / "mailhub", "version", cwd=tmp_path).removeprefix(f"{PROJECT['version']} ")
    of_the_checkout = done(*manage, "version", cwd=tmp_path).removeprefix(f"{PROJECT['version']} ")
    installed = re.fullmatch(build + r"built 2030-01-01T00:00:00Z\)\n", of_the_wheel)
    here = re.fullmatch(build + r"a checkout\)\n", of_the_checkout)
    assert installed and here and installed[1] == here[1], "both say the commit"
    offered = done(programs / "mailhub", "help", "--commands", cwd=tmp_path)
    assert {"demo", "up", "send_campaign"} <= set(offered.split())
    assert offered == done(*manage, "help", "--commands", cwd=tmp_path)
    assert offered == done(programs / "python", "-m", "mailhub", "help", "--commands", cwd=tmp_path)
    assert "mailhub help <subcommand>" in done(programs / "mailhub", "--help", cwd=tmp_path)


@pytest.mark.timeout(2 * DEMO_SECONDS)
def test_the_demo_runs_from_the_wheel_in_an_empty_folder_and_its_books_agree(programs: Path, tmp_path: Path) -> None:
    folder, home = tmp_path / "empty", tmp_path / "home"
    folder.mkdir()
    where = "import campaigns, mailhub, sandbox, vendors, waiter; print(campaigns, mailhub, sandbox, vendors, waiter)"
    imported = done(programs / "python", "-c", where, cwd=folder)
    assert imported.count(str(programs.parent)) == len(PACKAGES)
    demo = subprocess.Popen(
        [programs / "mailhub", "demo", "--once", "--recipients", "2000"],
        cwd=folder,
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = demo.communicate(timeout=DEMO_SECONDS)
    finally:
        demo.send_signal(signal.SIGTERM)  # it ends its servers and processes; of an ended one nothing
        demo.wait()
    log = home / "demo" / "demo.log"
    assert demo.returncode == 0, f"{said}\n{log.read_text()[-5000:] if log.exists() else ''}"
    assert "The books agree" in said and "every promise is kept by the rows" in said and "Traceback" not in said
    assert list(folder.iterdir()) == []
    assert not [name for name in ("postgres", "redis") if Daemon(name, home / "demo").is_alive()]
