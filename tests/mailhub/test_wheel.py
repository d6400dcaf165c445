"""The wheel is complete, requires what requirements.in names, and plays the demo in an empty virtual environment.

No package index is needed, because the packages that it requires come from the environment of the tests.
"""

import os
import re
import signal
import subprocess
import sys
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

pytestmark = pytest.mark.slow("processes")

ROOT = Path(__file__).parents[2]
PACKAGES = ("campaigns", "mailhub", "sandbox", "vendors", "waiter")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUILD_SECONDS = 240.0
DEMO_SECONDS = 480.0


def done(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a command prints. It gets nothing of the environment of the tests but where programs are."""
    ran = subprocess.run(command, cwd=cwd, env=environment(cwd), capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return kept | {"MAILHUB_HOME": str(home), "PYTHONUNBUFFERED": "1", "TERM": "dumb"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation")
    done(*pip, "--wheel-dir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


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
    assert sources ^ found == {"mailhub/Procfile"}


def test_the_wheel_requires_what_requirements_in_names_and_has_the_version_of_pyproject(metadata: Message) -> None:
    required = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    for file, extra in (("requirements.in", ""), ("requirements-extras.in", "vendors")):
        lines = re.findall(r"^\w.*$", (ROOT / file).read_text(), re.MULTILINE)
        wanted = {(one.name.replace(".", "-"), one.specifier, frozenset(one.extras)) for one in map(Requirement, lines)}
        found = [one for one in required if ("extra" in str(one.marker)) == bool(extra)]
        assert len(wanted) > 4 and {(one.name, one.specifier, frozenset(one.extras)) for one in found} == wanted
        assert {str(one.marker) for one in found} == {f'extra == "{extra}"' if extra else "None"}
    assert metadata["Version"] == PROJECT["version"]


def test_the_command_and_manage_py_tell_the_same_version_and_commands(programs: Path, tmp_path: Path) -> None:
    manage = (sys.executable, ROOT / "manage.py")
    for asked in ("version", "--version"):
        assert done(programs / "mailhub", asked, cwd=tmp_path) == f"{PROJECT['version']}\n"
        assert done(*manage, asked, cwd=tmp_path) == f"{PROJECT['version']}\n"
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
    assert not [name for name in ("postgres", "redis") if Daemon(name, home / "demo").alive()]
