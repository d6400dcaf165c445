"""The waiter's Django application."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy


class WaiterConfig(AppConfig):
    name = "waiter"
    verbose_name = gettext_lazy("Waiter")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from waiter import checks, release  # noqa: F401  # Django's checks, Celery's task
