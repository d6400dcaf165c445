"""The waiter's Django application."""

from django.apps import AppConfig


class WaiterConfig(AppConfig):
    name = "waiter"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from waiter import checks, release  # noqa: F401  # Django's checks, Celery's task
