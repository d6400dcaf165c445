"""ResourceCommand: the base of commands that list, add, change and remove rows of one kind.

A command is its verbs: methods `do_VERB`, in the order of the help, each declared by `@verb` with its arguments. The
base makes the parsers, gives each verb --json, calls the method with the arguments by name, and writes its results.
"""

from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import Any, ClassVar, NamedTuple, TypeVar

from django.core.management.base import BaseCommand

from vendors.management import output

AddArgument = Callable[[ArgumentParser], object]
Method = TypeVar("Method", bound=Callable[..., None])


class Verb(NamedTuple):
    about: str
    arguments: tuple[AddArgument, ...]
    with_json: bool


def declare_argument(*names: str, **settings: Any) -> AddArgument:
    """Declare an argument of a verb; takes what argparse's add_argument takes."""
    return methodcaller("add_argument", *names, **settings)


def declare_verb(about: str, *arguments: AddArgument, with_json: bool = True) -> Callable[[Method], Method]:
    """Declare a method do_VERB: its help, and functions that add arguments to its parser, in this order."""

    def declare_method(method: Method) -> Method:
        vars(method)["verb"] = Verb(about, arguments, with_json)
        return method

    return declare_method


class ResourceCommand(BaseCommand):
    """A command whose first argument is a verb. Subclasses define one_object, shown, row_facts and the verbs."""

    requires_system_checks = ()
    one_object: ClassVar[str] = "a line"  # of --json, for its help
    shown: ClassVar[Sequence[str]]  # columns of a list
    as_json = False

    @staticmethod
    def row_facts(row: Any) -> Mapping[str, Any]:
        """Return the facts of a row, without secrets."""
        raise NotImplementedError

    def add_arguments(self, parser: ArgumentParser) -> None:
        parsers = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        for name, method in vars(type(self)).items():
            if declared := getattr(method, "verb", None):
                one = parsers.add_parser(name.removeprefix("do_"), help=declared.about)
                for add in declared.arguments:
                    add(one)
                if declared.with_json:
                    one.add_argument("--json", action="store_true", help=f"one object {self.one_object}")

    def handle(self, *args: Any, **options: Any) -> None:
        self.as_json = options.get("json", False)
        getattr(self, f"do_{options['verb']}")(**options)

    def write_result(self, sentence: str, facts: Mapping[str, Any]) -> None:
        """Write a result as a sentence, or its facts as JSON."""
        output.write_result(self.stdout, sentence, facts, self.as_json)

    def write_row(self, row: Any, sentence: str) -> None:
        """Write what became of a row, or the row's facts, as they are stored, as JSON."""
        row.refresh_from_db()
        self.write_result(f"{row}: {sentence}", self.row_facts(row))

    def write_rows(self, rows: Iterable[Any]) -> None:
        """Write the facts of rows as a table, or as JSON."""
        self.write_facts(map(self.row_facts, rows), self.shown)

    def write_facts(self, facts: Iterable[Mapping[str, Any]], shown: Sequence[str]) -> None:
        output.write_rows(self.stdout, facts, self.as_json, shown)
