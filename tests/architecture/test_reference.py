"""docs/reference/ says what the code has: commands, settings of adapters, keys of descriptions, tasks, beat's rows."""

import re
from pathlib import Path

import pytest

from docs.tooling import commands, tables
from mailhub.celery import app
from vendors import adapters
from vendors.described import schema

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
ROW = re.compile(r"^\| `(\w+)`(?: \*)? \|(?: (`[^`]+`|required))? \|", re.MULTILINE)
KEY_ROW = re.compile(r"^\| `(\w+)` \| ?(`[^`]+`|required)? ?\|", re.MULTILINE)
DESCRIBED = {
    "vendor": schema.About,
    "settings.NAME": schema.Setting,
    "request": schema.RequestKeys,
    "request.recipients": schema.SharedFormKeys,
    "request.auth": schema.Auth,
    "answer": schema.AnswerKeys,
    "answer.rules": schema.Rule,
    "dedupe": schema.Dedupe,
    "lookup": schema.LookUpKeys,
    "sms": schema.Sms,
    "cost": schema.Cost,
    "reports": schema.ReportKeys,
    "reports.signature": schema.Signature,
}
BEAT = re.compile(r'BeatEntry\("([^"]+)", "([^"]+)"')
TASK = re.compile(r"^\| `([\w.]+\.tasks\.\w+)` \|", re.MULTILINE)


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    assert commands.PAGE.read_text() == commands.page(), "run: python -m docs.tooling.commands"


@pytest.mark.parametrize("page", tables.pages(), ids=lambda page: str(page.relative_to(tables.DOCS)))
def test_the_tables_of_a_page_are_what_the_code_says(page: Path) -> None:
    assert page.read_text() == tables.page(page), "run: python -m docs.tooling.tables"


def section(page: str, heading: str) -> str:
    return page.split(f"\n## {heading}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("adapter", ["described", "http", "smtp"])
def test_an_adapters_settings_their_defaults_and_marks_are_those_of_the_code(adapter: str) -> None:
    text = section((REFERENCE / "adapters.md").read_text(), adapter)
    options = adapters.load(adapter).options
    assert dict(ROW.findall(text)) == {name: shown(option) for name, option in options.items()}
    assert set(re.findall(r"^\| `(\w+)` \*", text, re.MULTILINE)) == {
        name for name, option in options.items() if option.destination
    }


def test_the_page_of_descriptions_has_every_key_and_its_default() -> None:
    page = (REFERENCE / "descriptions.md").read_text()
    for heading, model in DESCRIBED.items():
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        expected = {name: "required" if field.is_required() else default(field) for name, field in fields.items()}
        rows = KEY_ROW.findall(section(page, heading).split("\n| `is` | What")[0])
        assert {name: value.strip("`") for name, value in rows} == expected, heading


def default(field) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None or value in ([], {}):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def shown(option) -> str:
    if option.required:
        return "required"
    if option.default in ("", (), None):
        return ""
    value = f"{option.default:g}" if isinstance(option.default, float) else str(option.default).lower()
    return f"`{value}`"


def test_the_list_of_tasks_has_every_task_and_no_other() -> None:
    app.loader.import_default_modules()
    ours = {name for name in app.tasks if not name.startswith("celery.")}
    listed = section((REFERENCE / "tasks.md").read_text(), "Tasks")
    assert {name for name in ours if name.startswith(("mailhub.", "campaigns."))} == set(TASK.findall(listed))


def test_the_list_of_beats_rows_has_every_row_that_the_code_makes() -> None:
    made = BEAT.findall((REFERENCE.parents[1] / "mailhub" / "installation.py").read_text())
    rows = re.findall(
        r"^\| `([^`]+)` \| `([^`]+)` \|", section((REFERENCE / "tasks.md").read_text(), "Beat"), re.MULTILINE
    )
    assert len(made) > 3
    assert [row for row in rows if not row[0].startswith("nightly")] == made
