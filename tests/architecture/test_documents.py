"""What the documentation names is there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILE = re.compile(r"`((?:mailhub|campaigns|vendors|sandbox|tests|benchmarks|docs)/[\w./-]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")
TEST = re.compile(r"`((?:seeds|campaigns|mailhub|vendors|contracts|properties|faults)/test_\w+\.py)(?:::(\w+))?`")


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
    yield from (link for link in LINK.findall(text) if not (page.parent / link).exists())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_test_and_link_that_a_page_names_exists(page: Path) -> None:
    assert not list(missing(page))


def test_a_name_that_is_not_there_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`campaigns/nothing.py` `seeds/test_001_postman.py::test_nothing` [a](nowhere.md)")
    assert len(list(missing(page))) == 3
