"""What beat has mailhub itself do."""

from celery import shared_task
from django.core.management import call_command


@shared_task(name="mailhub.tasks.clear_sessions")
def clear_sessions() -> None:
    """Deletes the sessions of users whose log-in has expired."""
    call_command("clearsessions")
