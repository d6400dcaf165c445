"""`make messages`: makemessages that also finds sentences kept as data (`Said`), words of badges, models' texts."""

import os
import sys
from pathlib import Path

import django

FILE = Path("mailhub/of_models.py")  # exists while the catalogue is made


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mailhub.settings")
    django.setup()
    from django.contrib import admin
    from django.core.management.commands import makemessages

    class Command(makemessages.Command):
        xgettext_options = [*makemessages.Command.xgettext_options, "--keyword=Said", "--keyword=badge"]

    from mailhub import model_texts

    admin.autodiscover()
    FILE.write_text("".join(f"gettext_noop({text!r})\n" for text in sorted(model_texts.shown_texts())))
    try:
        Command().run_from_argv(["manage.py", "makemessages", *sys.argv[1:]])
    finally:
        FILE.unlink()


if __name__ == "__main__":
    main()
