"""`manage.py check`, which with --deploy also fails on warnings, as these concern publicly reachable installations."""

from typing import Any

from django.core.management.commands import check


class Command(check.Command):
    def add_arguments(self, parser: Any) -> None:
        super().add_arguments(parser)
        parser.set_defaults(fail_level=None)

    def handle(self, *app_labels: Any, **options: Any) -> None:
        options["fail_level"] = options["fail_level"] or ("WARNING" if options["deploy"] else "ERROR")
        super().handle(*app_labels, **options)
