"""What models say of themselves, in the language of the page: names, choices, help texts, permissions.

Each stands in its model alone, in English; `make messages` reads them from here for the catalogue.
"""

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.utils.translation import gettext_lazy, gettext_noop

OURS = ("campaigns", "vendors", "mailhub", "waiter")
OF_OTHERS = "django_celery_beat"
NEVER_TRANSLATED = ("id", "uuid")
# Models without a page in the admin. Histories and owners' pages name their fields.
NAMED = {"ApiKey", "ReportKey", "TemplateVersion", "VendorCondition", "Webhook", "WebhookCall"}
# Columns named after a method or a key.
COLUMNS = (
    gettext_noop("created"),
    gettext_noop("created by"),
    gettext_noop("due in"),
    gettext_noop("key"),
    gettext_noop("nobody"),
    gettext_noop("reports"),
    gettext_noop("updated at"),
    gettext_noop("user"),
    gettext_noop("version"),
)
# Texts of Django and of Celery's tables that lack a German translation there.
OTHERS = (
    gettext_noop("is staff"),
    gettext_noop("one off"),
    gettext_noop("Job id"),
    gettext_noop("Campaign id"),
    gettext_noop("Message id"),
    gettext_noop("Vendor id"),
    gettext_noop("Credential id"),
    gettext_noop("Shown"),
    gettext_noop("Raw passwords are not stored, so there is no way to see the user’s password."),
    gettext_noop("Reset password"),
    gettext_noop("Set password"),
    gettext_noop("Disable password-based authentication"),
    gettext_noop("Enable password-based authentication"),
    gettext_noop("Password-based authentication"),
    gettext_noop(
        "Whether the user will be able to authenticate using a password or not. If disabled, they may still be able "
        "to authenticate using other backends, such as Single Sign-On or LDAP."
    ),
    gettext_noop("After you’ve created a user, you’ll be able to edit more user options."),
    gettext_noop("Periodic Tasks Using This Schedule"),
    gettext_noop("Task Name"),
    gettext_noop("Human readable"),
    gettext_noop("human readable"),
    gettext_noop("Crontab translation"),
    gettext_noop('Cron Months (1-12) Of The Year to Run. Use "*" for "all". (Example: "1,12")'),
    gettext_noop('Cron Days Of The Week to Run. Use "*" for "all", Sunday is 0 or 7, Monday is 1. (Example: "0,5")'),
)


def put_into_language() -> None:
    """Make Django's pages and forms show names and help texts in the language of the page."""
    for label in (*OURS, OF_OTHERS):
        for model in apps.get_app_config(label).get_models():
            meta = model._meta
            meta.verbose_name, meta.verbose_name_plural = (
                _lazy_text(meta.verbose_name),
                _lazy_text(meta.verbose_name_plural),
            )
            for field in (*meta.local_fields, *meta.local_many_to_many):
                field.verbose_name, field.help_text = _lazy_text(field.verbose_name), _lazy_text(field.help_text)


def _lazy_text(text: Any) -> Any:
    return gettext_lazy(str(text)) if text else text  # the plural that Django makes is another lazy text


def shown_texts() -> set[str]:
    """Return our models' words on pages, in English if that is the active language. The admin must be loaded."""
    return {str(text) for text in _all_texts() if text and str(text).lower() not in NEVER_TRANSLATED}


def _all_texts() -> Iterator[Any]:
    shown = {*admin.site._registry, *(one.model for site in admin.site._registry.values() for one in site.inlines)}
    for model in (model for label in OURS for model in apps.get_app_config(label).get_models()):
        meta = model._meta
        yield from (meta.verbose_name, meta.verbose_name_plural, *(name for _, name in meta.permissions))
        for field in meta.local_fields:
            if field.name != "language":  # languages keep their own names
                yield from (name for _, name in getattr(field, "base_field", field).flatchoices)
        for field in (*meta.local_fields, *meta.local_many_to_many):
            if model in shown:
                yield from (field.verbose_name, field.help_text)
            elif model.__name__ in NAMED:
                yield field.verbose_name
