"""`manage.py rotate_keys`: encrypts all stored secrets again with the current SECRET_KEY."""

from argparse import ArgumentParser
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.db.models import Model

from campaigns.doors.front import keys
from vendors import destinations
from vendors.management.output import write_result
from vendors.models import EncryptedJSONField, Unreadable
from vendors.said import count_of


class Command(BaseCommand):
    help = (
        "Encrypts all stored secrets anew with SECRET_KEY. To change the key: put the old one into "
        "SECRET_KEY_FALLBACKS and the new one into SECRET_KEY, start all processes anew, run this, then take the old "
        "one out. Can be repeated. Exit codes: 0 done, 1 a secret that none of the keys opens, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="one object: secrets, keys")

    def handle(self, *args: Any, **options: Any) -> None:
        keys.keep_former_secrets()
        done = 0
        for model in apps.get_models():
            for field in model._meta.fields:
                if isinstance(field, EncryptedJSONField):
                    done += self._rotate_column(model, field.name)
        known = 1 + len(settings.SECRET_KEY_FALLBACKS)
        summary = (
            f"{count_of(done, 'secret is', 'secrets are')} encrypted with SECRET_KEY; "
            f"{count_of(known - 1, 'older key was', 'older keys were')} tried"
        )
        write_result(self.stdout, summary, {"secrets": done, "keys": known}, options["json"])

    def _rotate_column(self, model: type[Model], name: str) -> int:
        """Encrypt one row at a time, under its lock, so that a secret entered meanwhile is not overwritten."""
        done = 0
        for pk in model._default_manager.order_by("pk").values_list("pk", flat=True):
            with transaction.atomic():
                try:
                    row = model._default_manager.select_for_update().filter(pk=pk).first()
                except Unreadable:
                    raise CommandError(f"{model._meta.verbose_name} {pk}: no key opens its secret") from None
                if row is not None:
                    with destinations.keep_number(row):  # the same secret
                        row.save(update_fields=[name])
                    done += 1
        return done
