"""vendors/alarms.py has every alarm: the services log no other, log each one, and the pages are made from it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from docs.tooling import alarms as pages
from mailhub.monitoring import metrics
from tests.sources import find_modules, parse_those_with
from vendors.alarms import ALARMS, RULES

NOT_SERVICES = ("management", "alarms.py")  # output of commands is read by who started them
LEVELS = {"warning", "error", "critical", "exception", "log"}
LOGGING = rf"\blog(ger)?\s*\.\s*({'|'.join(LEVELS)})\b|SystemExit"
SENTENCE = re.compile(r"[a-z]{3,}.*\b[a-z]{3,}", re.DOTALL)


def services(pattern: str, *packages: str) -> dict[str, ast.Module]:
    """The modules of these packages that have the pattern, by file, without those that only commands use."""
    paths = [path for path in find_modules(*packages) if not set(NOT_SERVICES) & set(path.parts)]
    return dict(parse_those_with(pattern, paths))


def texts(tree: ast.AST) -> Iterator[str]:
    """Sentences that are logged as a warning or worse, or end a process, without the registry."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        logs = (
            isinstance(called, ast.Attribute)
            and called.attr in LEVELS
            and ast.unparse(called.value) in ("log", "logger")
        )
        if logs or ast.unparse(called) == "SystemExit":
            parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            yield from (part for part in parts if isinstance(part, str) and SENTENCE.search(re.sub("%s", "", part)))


def test_services_log_no_warning_that_is_not_in_the_registry() -> None:
    modules = services(LOGGING, "mailhub", "campaigns", "vendors")
    assert {name: found for name, tree in modules.items() if (found := list(texts(tree)))} == {}


def test_every_alarm_is_logged() -> None:
    used = {
        node.attr
        for tree in services(r"\balarms\s*\.", "mailhub", "campaigns", "vendors").values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "alarms"
    }
    # the waiter imports nothing of ours
    waiters = [text for tree in services(LOGGING, "waiter").values() for text in texts(tree)]
    assert len(waiters) == 2
    unused = {code for code, alarm in ALARMS.items() if code not in used and alarm.text not in waiters}
    assert unused == set()
    assert set(waiters) <= {alarm.text for alarm in ALARMS.values()}


def test_an_alarm_beside_the_registry_would_be_seen() -> None:
    assert list(texts(ast.parse('log.error("the disk of %s is full", name)'))) == ["the disk of %s is full"]
    assert list(texts(ast.parse('raise SystemExit("it does not start")'))) == ["it does not start"]


def test_the_page_is_made_from_the_registry() -> None:
    assert pages.ALARMS_PAGE.read_text() == pages.alarms_page(), "run: python -m docs.tooling.alarms"


def test_the_metrics_of_alarms_and_rules_are_exported() -> None:
    named = {alarm.metric for alarm in ALARMS.values() if alarm.metric}
    named |= {name for rule in RULES for name in re.findall(r"mailhub_\w+", rule.expression)}
    source = Path(metrics.__file__).read_text()
    assert {name for name in named if name not in source} == set()
