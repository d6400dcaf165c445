"""A module earns its file. One below sixty lines stands here with the reason why it cannot be part of another."""

from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("mailhub", "campaigns", "vendors", "sandbox", "waiter")
SHORT = 60  # lines
CONVENTIONS = {
    "*/apps.py": "Django asks each app for it",
    "*/models.py": "Django looks for an app's tables there",
    "*/checks.py": "Django registers an app's checks when the app is ready",
    "*/tasks.py": "Celery looks for an app's tasks there",
    "*/management/commands/*.py": "Django makes a command of each file",
    "*/__main__.py": "python -m runs it",
    "*/urls.py": "Django's settings name the module of addresses",
    "*/wsgi.py": "servers are given the module of the application",
}
NAMED = {
    "mailhub/operations/outcomes.py": "the day's sums are read by the dashboard, `status` and the metrics",
    "mailhub/celery.py": "celery -A mailhub, and all that imports the package has it",
    "campaigns/suppression/digests.py": "lists, links, claims and imports need it, and none of them may import another",
    "campaigns/admin/printed.py": "a view of its own; the page of messages is about lists",
    "campaigns/content/addresses.py": "the command and the API check by it, and neither may import the other",
    "campaigns/phone_numbers.py": "lists and the tables read numbers by it, and the tables import nothing of the lists",
    "vendors/instants.py": "the API, pages, files, commands and vendors' reports read times by it",
    "vendors/shut.py": "claims, forecasts, routes, the API and the admin decide by it, and none may import another",
    "vendors/models/reports.py": "vendors.models.vendors was as long as a module may be",
    "vendors/management/receipts.py": "the command of vendors was as long as a module may be, and calls it",
    "vendors/testing/plugin.py": "pytest loads it by its name, which stands in other projects",
    "campaigns/formulas.py": "lists, reports and accounts write files by it, and none of them may import another",
    "mailhub/front/days.py": "an endpoint of its own; costs are about what vendors charge, reports about one session",
    "mailhub/front/downloads.py": "the API's reports and owners' pages answer by it; the event loop has its paths",
    "mailhub/front/print_previews.py": "checking is nearly as long as a module may be, and calls it",
    "mailhub/owners/access.py": "every page of campaign owners needs it, and none of them may import another",
    "mailhub/owners/once.py": "webhooks and API keys show their secrets by it, and neither may import the other",
    "mailhub/owners/sandboxed.py": "every page that shows the HTML of a letter needs it, and none may import another",
    "mailhub/owners/wizard/uploads.py": "the event loop of the web server asks it, and loads no page for that",
    "campaigns/drafts/copying.py": "the pages and the command copy by it; what it is about has been sent already",
    "mailhub/owners/finds.py": "a page of its own, and urls imports it",
    "mailhub/owners/polling.py": "several pages of campaign owners follow by it, and none of them may import another",
    "mailhub/operations/saved_looks.py": "every list has them; the other views are about the operations page",
    "sandbox/demo/logins.py": "the command makes them and the report names them; setup is about the lists of one story",
    "mailhub/formats/en/formats.py": "Django looks for the forms of a language there",
    "mailhub/formats/de/formats.py": "Django looks for the forms of a language there",
    "campaigns/forecast/kept_totals.py": "queues counts for whatever decides; sums that are kept for pages stay apart",
}


def modules() -> dict[str, int]:
    """The lines of each module; a package's __init__ says what the package is, at any length."""
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    code = [path for path in files if path.name != "__init__.py" and "migrations" not in path.parts]
    return {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in code}


def unearned(lines: dict[str, int]) -> list[str]:
    """Short modules without a reason."""
    return [file for file, count in lines.items() if count < SHORT and not has_reason(file, [*CONVENTIONS, *NAMED])]


def has_reason(file: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(file, pattern) for pattern in patterns)


def test_no_module_is_short_without_a_reason() -> None:
    found = modules()
    assert len(found) > 150, "the test reads nothing"
    assert unearned(found) == []


def test_what_is_named_is_there_and_short() -> None:
    found = modules()
    assert [file for file in NAMED if found.get(file, SHORT) >= SHORT] == []


@pytest.mark.parametrize("file", ["campaigns/words.py", "vendors/management/terms.py", "mailhub/front/allowance.py"])
def test_a_short_module_would_be_seen(file: str) -> None:
    assert unearned({file: SHORT - 1}) == [file] and unearned({file: SHORT}) == []
