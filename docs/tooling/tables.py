"""Makes the tables of pages that are mostly code (adapters' settings, keys, tasks, defects) and the index of decisions.

`python -m docs.tooling.tables`. A page marks each table's place by two comments, and a test compares the page with what
this makes. The texts stand in the code: `Option.about`, the docstrings of keys and tasks, the list of defects.
"""

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import django
from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SCHEMA = ROOT / "vendors" / "described" / "schema.py"
ADAPTER = ROOT / "vendors" / "adapters" / "base.py"
CONTRACT = ROOT / "vendors" / "testing" / "subject.py"
ENVIRONMENT = ROOT / "mailhub" / "settings.py"
METRICS = ROOT / "mailhub" / "monitoring" / "metrics.py"
DEFAULTING = {
    *("text_setting", "number_setting", "days_setting", "minutes_setting", "choose_word", "list_setting"),
    "time_zone_setting",
}
"""The readers of mailhub.environment that take a default after the variable's name."""
PLACE = re.compile(r"(<!-- table: (\w+)(?: (\w+))? -->\n).*?(<!-- end of table -->)", re.DOTALL)
INDEX = DOCS / "decisions" / "README.md"
LIST = re.compile(r"(<!-- list of the pages here -->\n).*\Z", re.DOTALL)
QUEUES = {"cast": "the vendor's", "send_job": "the vendor's", "deliver_webhooks": "`webhooks`"}
"""Of the tasks that are not on the default queue."""


def page(path: Path) -> str:
    """Return the page as it is, with its tables made anew."""
    text = path.read_text("utf-8")
    if path == INDEX:
        return LIST.sub(lambda place: place[1] + "".join(_decisions()), text)
    return PLACE.sub(lambda place: f"{place[1]}\n{table(place[2], place[3])}\n{place[4]}", text)


def pages() -> list[Path]:
    """Return the pages with a table that is made here, and the index of decisions."""
    return [INDEX, *(one for one in sorted(DOCS.rglob("*.md")) if PLACE.search(one.read_text("utf-8")))]


def _decisions() -> Iterator[str]:
    for one in sorted(INDEX.parent.glob("0*.md")):
        heading = one.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        yield f"- [{heading}]({one.name})\n"


def table(kind: str, name: str | None) -> str:
    """Return a table as Markdown."""
    head, rows = TABLES[kind]
    lines = [head, ["---"] * len(head), *(rows(name) if name else rows())]
    return "".join(map(_line, lines))


def _line(cells: Iterable[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell != "---" else cell for cell in cells).replace("  ", " ") + "|\n"


def _options(adapter: str) -> Iterator[list[str]]:
    from vendors import adapters

    for name, option in adapters.load(adapter).options.items():
        marked = f"`{name}` *" if option.destination else f"`{name}`"
        yield [marked, "required" if option.required else _value(option.default), option.about]


def _keys(model: str) -> Iterator[list[str]]:
    from vendors.described import schema

    about = _docstrings(_class_body(SCHEMA, model))
    fields: dict[str, Any] = getattr(schema, model).model_fields
    for name, field in fields.items():
        if name in about:
            default = field.get_default(call_default_factory=True)
            shown = "required" if field.is_required() else "" if isinstance(default, BaseModel) else _value(default)
            yield [f"`{field.alias or name}`", shown, about[name]]


def _variables() -> Iterator[list[str]]:
    for value, below in pairwise(ast.parse(ENVIRONMENT.read_text("utf-8")).body):
        if isinstance(value, ast.Assign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            name, default = next(filter(None, map(_read, ast.walk(value))))
            about, _, said = _line_of(str(below.value.value)).partition("Default: ")
            yield [f"`{name}`", said or default, about.strip().removesuffix(".")]


def _read(node: ast.AST) -> tuple[str, str] | None:
    """Return the variable that this call reads, and its default as a person would enter it."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return None
    first, *more = node.args
    if not isinstance(first, ast.Constant) or not str(first.value).isupper():
        return None
    known = more and node.func.attr in DEFAULTING and isinstance(more[0], ast.Constant)
    return str(first.value), _value(ast.literal_eval(more[0])) if known else ""


def _metrics() -> Iterator[list[str]]:
    """Yield the metrics' names, labels and help, in the order of the code."""
    from mailhub.monitoring import metrics

    for function in ast.walk(ast.parse(METRICS.read_text("utf-8"))):
        if isinstance(function, ast.FunctionDef):
            about = ""
            for one in sorted((n for n in ast.walk(function) if isinstance(n, ast.Assign | ast.Call)), key=_place):
                if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "about":
                    about = _constant(one.value, metrics)
                elif isinstance(one, ast.Call) and one.args and str(_constant(one.args[0])).startswith("mailhub_"):
                    kind, name = ast.unparse(one.func).rpartition(".")[2], _constant(one.args[0])
                    help_ = about if ast.unparse(one.args[1]) == "about" else _constant(one.args[1], metrics)
                    total = "_total" if kind == "CounterMetricFamily" else ""
                    yield [f"`{name}{total}`", ", ".join(f"`{label}`" for label in _labels(kind, one)), _line_of(help_)]


def _place(node: ast.Assign | ast.Call) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _labels(kind: str, call: ast.Call) -> list[str]:
    if kind == "vendor_gauge":
        return ["vendor"]
    if kind in ("_label_gauge", "_make_histogram"):
        return [_constant(call.args[2])]
    return [label for one in call.keywords if one.arg == "labels" for label in ast.literal_eval(one.value)]


def _constant(node: ast.expr, module: Any = None) -> str:
    """Return the text of a constant, or of an f-string of a module's constants."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return str(eval(ast.unparse(node), vars(module))) if isinstance(node, ast.JoinedStr) and module else ""  # noqa: S307


def _parts() -> Iterator[list[str]]:
    body = _class_body(ADAPTER, "Adapter")
    for name, about in _docstrings(body).items():
        yield [f"`{name}`", about]
    for method in body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and (about := ast.get_docstring(method)):
            required = any(isinstance(one, ast.Name) and one.id == "abstractmethod" for one in method.decorator_list)
            named = ", ".join(one.arg for one in method.args.args[1:])
            yield [f"`{method.name}({named})`", ("Required. " if required else "") + _line_of(about)]


def _members() -> Iterator[list[str]]:
    for name, about in _docstrings(_class_body(CONTRACT, "Subject")).items():
        yield [f"`{name}`", about]


def _class_body(file: Path, name: str) -> list[ast.stmt]:
    [found] = [
        one for one in ast.parse(file.read_text("utf-8")).body if isinstance(one, ast.ClassDef) and one.name == name
    ]
    return found.body


def _docstrings(body: list[ast.stmt]) -> dict[str, str]:
    """Return the docstrings below a class's attributes, by their names."""
    found = {}
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = _line_of(ast.literal_eval(below.value))
    return found


def _line_of(docstring: str) -> str:
    """Return a docstring's first paragraph as a table's cell."""
    return re.sub(r"\s+", " ", docstring.split("\n\n")[0]).strip().removesuffix(".").replace("|", r"\|")


def _value(default: Any) -> str:
    """Return a default as a person would enter it."""
    if default is None or default in ("", (), [], {}):
        return ""
    if isinstance(default, float):
        return f"`{default:g}`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _tasks() -> Iterator[list[str]]:
    from mailhub.celery import app

    app.loader.import_default_modules()
    for name in sorted(one for one in app.tasks if not one.startswith(("celery.", "tests."))):
        yield [f"`{name}`", QUEUES.get(name.rpartition(".")[2], "`hub`"), _line_of(app.tasks[name].__doc__ or "")]


def _defects() -> Iterator[list[str]]:
    from tests.mutants import MUTANTS

    for mutant in MUTANTS:
        yield [mutant.name, f"`{mutant.test.removeprefix('tests/')}`"]


def _consequences() -> Iterator[list[str]]:
    from vendors.causes.consequences import described_rows

    return described_rows()


TABLES: dict[str, tuple[list[str], Callable[..., Iterator[list[str]]]]] = {
    "settings": (["Setting", "Default", "Meaning"], _options),
    "keys": (["Key", "Default", "Meaning"], _keys),
    "metrics": (["Metric", "Labels", "Meaning"], _metrics),
    "tasks": (["Task", "Queue", "Does"], _tasks),
    "variables": (["Variable", "Default", "Meaning"], _variables),
    "parts": (["Part", "Meaning"], _parts),
    "members": (["Member", "Meaning"], _members),
    "defects": (["Defect", "Found by"], _defects),
    "consequences": (["Proved", "Cause", "Message", "Credential", "Suppression"], _consequences),
}


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mailhub.settings")
    django.setup()
    for one in pages():
        one.write_text(page(one), encoding="utf-8")
