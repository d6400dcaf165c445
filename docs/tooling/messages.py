"""`make messages`: Django's makemessages, which also finds the sentences that are kept as data (`Said("...")`)."""

import os
import sys

import django


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mailhub.settings")
    django.setup()
    from django.core.management.commands import makemessages

    class Command(makemessages.Command):
        xgettext_options = [*makemessages.Command.xgettext_options, "--keyword=Said"]

    Command().run_from_argv(["manage.py", "makemessages", *sys.argv[1:]])


if __name__ == "__main__":
    main()
