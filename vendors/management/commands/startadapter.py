"""`manage.py startadapter`: starts a package with an adapter, like `startapp` for an app."""

import keyword
from argparse import ArgumentParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.core.management.templates import TemplateCommand

from vendors import adapters

TEMPLATE = Path(__file__).parents[1] / "adapter_template"


class Command(TemplateCommand):
    help = (
        "Makes a project for an adapter of your own: the class, a test by mailhub's contract, its entry point. "
        "Exit codes: 0 made, 1 the name or the folder cannot be used, 2 usage."
    )
    requires_system_checks = ()
    rewrite_template_suffixes = ((".py-tpl", ".py"), (".toml-tpl", ".toml"))

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="of the adapter and its module: small letters, digits and underscores")
        parser.add_argument("directory", nargs="?", help="made where it is missing; the name, if it is not given")

    def handle(self, name: str, directory: str | None = None, **options: Any) -> None:  # type: ignore[override]
        if keyword.iskeyword(name):
            raise CommandError(f"{name} is a word of Python")
        if name != name.lower():
            raise CommandError(f"{name} has capitals: the class gets them, the adapter has small letters")
        if name in adapters.list_names():
            raise CommandError(f"there is an adapter {name} already")
        target = Path(directory or name).expanduser().absolute()
        self._target, self.app_or_project, self.a_or_an = str(target), "adapter", "an"
        self.validate_name(name)
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"{target}: {error.strerror}") from None
        made = options | {"template": str(TEMPLATE), "extensions": ["py,toml,md"], "files": []}
        super().handle("adapter", name, str(target), **made, mailhub=str(settings.BASE_DIR))
        self.stdout.write(f"{target}: {name}.py, its test and a README are there. Test it: python -m pytest {target}")

    def validate_name(self, name: str, name_or_dir: str = "name") -> None:
        """Check the name as Django does, but ignore a module of this name if it is the folder being created."""
        spec = find_spec(name) if name.isidentifier() else None
        if spec is None or list(spec.submodule_search_locations or ()) != [self._target]:
            super().validate_name(name, name_or_dir)
