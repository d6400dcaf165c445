"""What the documentation names is there: files, tests, links and their anchors, commands and their options."""

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from docs.tooling import commands

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OURS = {name for name, app in get_commands().items() if str(app).partition(".")[0] in commands.APPS}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "waiter" / "README.md"]
PAGES += [ROOT / "SECURITY.md", ROOT / "deploy" / "README.md", *sorted(DOCS.rglob("*.md"))]
INDEXES = [ROOT / "README.md", *sorted(DOCS.rglob("README.md"))]
FILE = re.compile(r"`((?:mailhub|campaigns|vendors|sandbox|tests|benchmarks|docs)/[\w./-]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")
TEST = re.compile(
    r"`((?:seeds|campaigns|mailhub|vendors|contracts|properties|faults|approvals|audience|content|lists|operations"
    r"|reporting|senders|suppression|texts)/test_\w+\.py)(?:::(\w+))?`"
)
COMMAND = re.compile(r"(?:^    (?:.*?)|`)manage\.py ((?:[^`\n]|\\\n)+)", re.MULTILINE)
SHORT = re.compile(r"^(?:    |\$ )(?:mailhub )?([a-z_]+ (?! )(?:[^\n\\]|\\\n)+)", re.MULTILINE)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def missing(page: Path) -> Iterator[str]:
    text = page.read_text()
    tests = TEST.findall(text)
    for file, test in tests:
        source = ROOT / "tests" / file
        if not source.exists() or f"def {test}" not in source.read_text():
            yield f"{file}::{test}"
    named = set(FILE.findall(text)) - {file for file, _ in tests}
    yield from (file for file in named if not (ROOT / file).exists())
    for link, anchor in LINK.findall(text):
        target = page.parent / link if link else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield f"{link}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Of its headings, as code hosts make them: small letters, no punctuation, hyphens for blanks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_test_and_link_that_a_page_names_exists(page: Path) -> None:
    assert not list(missing(page))


def test_a_name_that_is_not_there_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A b\n`campaigns/nothing.py` `seeds/test_001_postman.py::test_nothing` [a](nowhere.md) [b](#b-a)")
    assert len(list(missing(page))) == 4
    page.write_text("# A `b`, c\n[b](#a-b-c)")
    assert not list(missing(page))


def test_the_picture_of_the_house_names_every_module_and_folder() -> None:
    tree = max(re.findall(r"```\w*\n(.*?)```", (DOCS / "architecture.md").read_text(), re.DOTALL), key=len)
    named = set(re.findall(r"\w+", tree)) | {"apps", "migrations", "__init__", "__pycache__"}
    for package in ("campaigns", "mailhub", "vendors", "waiter"):
        parts = {
            path.stem for path in (ROOT / package).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
        }
        assert sorted(parts - named) == [], package


def test_every_page_stands_in_an_index() -> None:
    listed = {(page.parent / link).resolve() for page in INDEXES for link, _ in LINK.findall(page.read_text()) if link}
    assert [name(page) for page in PAGES if page not in listed and page != ROOT / "README.md"] == []


@cache
def parser(command: str) -> argparse.ArgumentParser | None:
    app = get_commands().get(command)
    return load_command_class(app, command).create_parser("manage.py", command) if app else None


def wrong(line: str) -> str:
    """What a quoted command line says that the command does not know: its name, a verb or an option."""
    try:
        parts = shlex.split(line.replace("\\\n", " "), comments=True)
    except ValueError:  # a quotation of half a line
        parts = line.split()
    command, *rest = parts
    if command.isupper():  # any command
        return ""
    here = parser(command)
    if here is None:
        return command
    for word in rest:
        if word in ("|", ">", "&&"):
            return ""
        verbs = [one for one in here._actions if isinstance(one, argparse._SubParsersAction)]
        if verbs and not word.startswith("-"):
            if word not in verbs[0].choices:
                return "" if word.isupper() or word == "..." else f"{command} {word}"
            here = verbs[0].choices[word]
        elif word.startswith("--") and word.split("=")[0] not in here._option_string_actions:
            return f"{command} {word}"
    return ""


def quoted(page: Path) -> Iterator[str]:
    """Yield the quoted command lines, also those in blocks that leave `manage.py` out."""
    text = page.read_text()
    yield from (line.strip() for line in COMMAND.findall(text) if line.strip()[:1].isalpha())
    yield from (line.strip() for line in SHORT.findall(text) if line.split()[0] in OURS)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_that_a_page_quotes_has_these_verbs_and_options(page: Path) -> None:
    assert [said for line in quoted(page) if (said := wrong(line))] == []


@pytest.mark.parametrize(
    "line", ["send_campaing", "vendor ad x", "send_campaign x.csv --dry-run", "vendor add x --limits 5/60"]
)
def test_a_command_that_is_not_like_that_would_be_seen(line: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"    .venv/bin/python manage.py {line}\n")
    assert [bool(wrong(one)) for one in quoted(page)] == [True]
    page.write_text(f"Say `manage.py {line}`.")
    assert [bool(wrong(one)) for one in quoted(page)] == [True]


def test_a_wrong_option_is_seen_without_manage_py(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("    sponsor set Velma --colour red\n\n```\n$ mailhub receiver stop relay\n```\n")
    assert [bool(wrong(one)) for one in quoted(page)] == [True, True]
