"""The option of commands that says what becomes of rows that a spreadsheet does not show."""

from typing import Any

from campaigns.lists.intake.csv_reader import HiddenRows, HiddenRowsUndecided

HIDDEN_ROWS = ("keep", "leave-out")


def hidden_rows(options: dict[str, Any]) -> HiddenRows:
    """Return what was chosen, as intake.Table has it; "": nothing."""
    chosen = options["hidden_rows"]
    return "keep" if chosen == "keep" else "leave_out" if chosen else ""


def hidden_rows_hint(error: Exception) -> str:
    """Return the option that decides what this error says to be open, or ""."""
    return f" (--hidden-rows {' or '.join(HIDDEN_ROWS)})" if isinstance(error, HiddenRowsUndecided) else ""
