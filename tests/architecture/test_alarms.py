"""The table of alarms in docs/reference/alarms.md and what the code logs are the same texts."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("mailhub", "campaigns", "vendors", "waiter")
NOT_SERVICES = ("management",)  # what they say is read by who started them
LEVELS = {"warning", "error", "critical", "exception", "log"}
GAP = re.compile(r"%[sdr]|\.\.\.")
WORD_PATTERN = re.compile(r"[a-z]{3,}")


def messages(tree: ast.AST) -> Iterator[str]:
    """Formats of what is logged as a warning or worse, and why a process refuses to start."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func
        owner = getattr(getattr(called, "value", None), "id", "") if isinstance(called, ast.Attribute) else ""
        logs = owner in ("log", "logger") and getattr(called, "attr", "") in LEVELS
        ends = isinstance(called, ast.Name) and called.id == "SystemExit"
        if not (logs or ends):
            continue
        parts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
        text = next((value for value in parts if isinstance(value, str)), "")
        if text:
            yield text


@functools.cache
def logged() -> dict[str, str]:
    """Format: the file that logs it."""
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    names = [str(path.relative_to(ROOT)) for path in files]
    services = [name for name in names if not any(part in name for part in NOT_SERVICES)]
    return {text: name for name in services for text in messages(ast.parse((ROOT / name).read_text()))}


def documented(page: str) -> list[str]:
    """The alarms of the first column."""
    table = page.split("\n| In the log |")[1].split("\n\n")[0]
    firsts = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    return [alarm for first in firsts for alarm in re.findall(r"`(.+?)`", first)]


def names(alarm: str, text: str) -> bool:
    """Do the alarm's words stand in the format, in their order, with gaps where either has one?"""
    pieces = [piece.strip() for piece in GAP.split(alarm) if piece.strip()]
    return re.search(".*".join(map(re.escape, pieces)), GAP.sub("...", text), re.DOTALL) is not None


def unknown(page: str, texts: Iterator[str] | dict[str, str]) -> list[str]:
    return [alarm for alarm in documented(page) if not any(names(alarm, text) for text in texts)]


PAGE = (ROOT / "docs" / "reference" / "alarms.md").read_text()


def test_every_alarm_of_the_guide_is_one_that_the_code_logs() -> None:
    assert unknown(PAGE, logged()) == []


def test_every_warning_of_the_code_is_in_the_guide() -> None:
    texts = [text for text in logged() if len(WORD_PATTERN.findall(GAP.sub("", text))) > 1]
    alarms = documented(PAGE)
    assert len(texts) > 50, "they are found"
    missing = {text: logged()[text] for text in texts if not any(names(alarm, text) for alarm in alarms)}
    assert missing == {}, "they are logged; say what they mean and what to do"


def test_an_alarm_that_nobody_logs_would_be_seen() -> None:
    page = "\n| In the log |\n| `the window of ... was made anew` | | |\n| `job ... cannot be sent` | | |\n\n"
    assert unknown(page, logged()) == ["the window of ... was made anew"]
