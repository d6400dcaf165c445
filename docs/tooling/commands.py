"""Makes docs/reference/commands.md from the commands' own parsers (make docs-reference).

`python -m docs.tooling.commands`. A test compares the page with what this makes.
"""

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path

import django
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand

PAGE = Path(__file__).parents[1] / "reference" / "commands.md"
APPS = ("mailhub", "campaigns", "vendors", "sandbox")
# The options that Django gives to every command.
OF_ALL = {
    *("help", "version", "verbosity", "settings", "pythonpath", "traceback", "no_color", "force_color", "skip_checks"),
}
HEAD = """\
# Commands

Made by `make docs-reference` from what `--help` says; a test keeps it fresh. Each is `manage.py COMMAND`.
[What all commands share](exit-codes.md): look-ups, `--wait`, exit codes.
"""


def page() -> str:
    owners = get_commands()
    ours = sorted(name for name, owner in owners.items() if str(owner).partition(".")[0] in APPS)
    return "\n".join([HEAD, *(line for name in ours for line in _command(owners[name], name))])


def _command(app: str | BaseCommand, name: str) -> Iterator[str]:
    command = load_command_class(app, name)
    yield from _parser(command.create_parser("manage.py", name), name, command.help, level=2)


def _parser(parser: argparse.ArgumentParser, name: str, about: str, level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}\n"
    yield _prose(about) + "\n"
    own = [one for one in parser._actions if one.dest not in OF_ALL]
    verbs = [one for one in own if isinstance(one, argparse._SubParsersAction)]
    rows = [_row(parser, one) for one in own if one not in verbs]
    if rows:
        yield "\n".join(["| Argument | Meaning |", "|---|---|", *rows, ""])
    for verb in verbs:
        helps = {choice.dest: choice.help or "" for choice in verb._choices_actions}
        for word, child in verb.choices.items():
            yield from _parser(child, f"{name} {word}", helps[word], level + 1)


def _row(parser: argparse.ArgumentParser, one: argparse.Action) -> str:
    formatter = parser._get_formatter()
    values = formatter._format_args(one, one.metavar or one.dest.upper()) if one.nargs != 0 else ""
    if one.choices and one.metavar is None:
        values = "|".join(map(str, one.choices))
    shown = f"{', '.join(one.option_strings)} {values}".strip() if one.option_strings else values.strip()
    needed = ["needed"] if one.option_strings and one.required else []
    about = formatter._expand_help(one) if one.help else ""
    return f"| `{_cell(shown)}` | {_cell('; '.join([*needed, *filter(None, [about])]))} |"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", r"\|")


def _prose(text: str) -> str:
    """Return a help text as Markdown; one of several lines becomes code blocks."""
    if "\n" not in text:
        return text
    blocks = [block.splitlines() for block in text.strip().split("\n\n")]
    return "\n\n".join("\n".join(f"    {line}" for line in block) for block in blocks)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mailhub.settings")
    django.setup()
    PAGE.write_text(page(), encoding="utf-8")
