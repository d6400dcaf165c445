"""docs/benchmarks.md is made from what was measured: a claim is held against its yardstick of the same round."""

import json
from pathlib import Path
from typing import Any

from benchmarks.claims import AS_RUN, CLAIMS, WINDOW
from benchmarks.page import figure, latest, page


def kept(file: Path, title: str, rows: dict[str, list[float]], **more: Any) -> None:
    line = {"title": title, "unit": "messages/s", "rows": rows, "command": "python -m benchmarks.one 1", "load": 0.5}
    with file.open("a") as lines:
        lines.write(json.dumps({**line, "at": "2026-03-01T12:00:00+00:00", **more}) + "\n")


def row(text: str, what: str) -> list[str]:
    [found] = [line for line in text.splitlines() if line.startswith(f"| {what} |")]
    return [cell.strip() for cell in found.split("|")[1:-1]]


def test_a_ratio_is_the_middle_of_the_rounds_and_says_whether_it_reaches(tmp_path: Path) -> None:
    file = tmp_path / "results"
    one, title = "mailhub, one sender process", f"{AS_RUN}1,000 messages"
    kept(file, title, {"mailhub": [9.0], one: [1.0]})  # measured again below
    kept(file, title, {"mailhub": [80, 360, 900], one: [100, 400, 900]})
    text = page(latest(file))
    cells = row(text, "the same, two sender processes")
    assert cells[2:7] == ["0.95 x", "1 x", "**0.90** (0.80..1.00) x", "3", "**no**"]


def test_for_the_strict_window_the_worst_round_counts(tmp_path: Path) -> None:
    file = tmp_path / "results"
    kept(file, WINDOW, {"calls": [149, 150, 151]})
    assert "**no**" in row(page(latest(file)), "most calls in any second at that receiver")


def test_what_was_not_measured_is_not_claimed(tmp_path: Path) -> None:
    file = tmp_path / "results"
    kept(file, "Something else", {"a": [1.0]})
    text = page(latest(file))
    assert not any(f"| {claim.what} |" in text for claim in CLAIMS) and "### `benchmarks.one 1`" in text
    assert row(text, "Something else, messages/s") == ["Something else, messages/s", "a", "1.00", "1"]


def test_of_a_long_measurement_the_largest_figures_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "results"
    kept(file, "Pages", {f"page {number}": [float(number)] for number in range(1, 31)})
    text = page(latest(file))
    assert [cells.split("|")[3].strip() for cells in text.splitlines() if "| page " in cells] == [
        figure(float(number)) for number in range(30, 22, -1)
    ]
    assert "| 22 more | at most 22.0 |" in text


def test_what_was_not_measured_again_stays_where_it_stands(tmp_path: Path) -> None:
    former, file = tmp_path / "former", tmp_path / "results"
    one, title = "mailhub, one sender process", f"{AS_RUN}1,000 messages"
    kept(former, title, {"mailhub": [1.0], one: [2.0]}, command="python -m benchmarks.as_run")
    kept(former, "Others", {"a": [1.0]})
    kept(former, "Third", {"b": [3.0]}, command="python -m benchmarks.third", at="2026-02-01T12:00:00+00:00", load=3.5)
    kept(file, "Others", {"a": [2.0]}, at="2026-04-01T12:00:00+00:00")
    kept(file, "New", {"c": [4.0]}, command="python -m benchmarks.new")
    text = page(latest(file), page(latest(former)))
    assert row(text, "the same, two sender processes")[4] == "0.50 x"
    assert row(text, "Others, messages/s")[2] == "2.00" and row(text, "Third, messages/s")[2] == "3.00"
    headings = [line for line in text.splitlines() if line.startswith("### ")]
    assert headings == [f"### `benchmarks.{name}`" for name in ("as_run", "one 1", "third", "new")]
    assert "Measured from 2026-02-01 to 2026-04-01" in text and "was 0.5 to 3.5" in text
    assert page(latest(file), text) == text


def test_what_another_command_has_measured_since_stands_there_alone(tmp_path: Path) -> None:
    former, file = tmp_path / "former", tmp_path / "results"
    for title in ("First", "Second", "Third"):
        kept(former, title, {"a": [1.0], "b": [2.0]})
    kept(former, "Alone", {"a": [1.0]}, command="python -m benchmarks.two")
    kept(file, "Second", {"a": [5.0], "b": [6.0]}, command="python -m benchmarks.one 2")
    kept(file, "Alone", {"a": [7.0]}, command="python -m benchmarks.one 2")
    text = page(latest(file), page(latest(former)))
    assert row(text, "Second, messages/s")[2] == "5.00" and row(text, "Alone, messages/s")[2] == "7.00"
    assert [line.split("|")[3].strip() for line in text.splitlines() if line.startswith("|  | b |")] == [
        "2.00", "2.00", "6.00",
    ]  # fmt: skip
    headings = [line for line in text.splitlines() if line.startswith("### ")]
    assert headings == ["### `benchmarks.one 1`", "### `benchmarks.one 2`"]
    assert page(latest(file), text) == text


def test_the_page_in_docs_loses_nothing_when_something_new_is_measured(tmp_path: Path) -> None:
    text, file = Path("docs/benchmarks.md").read_text(), tmp_path / "results"
    kept(file, "Nothing", {"a": [1.0]}, command="python -m benchmarks.nothing")
    again = page(latest(file), text)
    assert text.partition("## All figures")[2].rstrip() in again
    assert {line for line in text.splitlines() if line.startswith("|")} <= {*again.splitlines()}
