"""What beat has mailhub itself do."""

from celery import shared_task
from django.core.management import call_command

from campaigns import inbound, message_events


@shared_task(name="mailhub.tasks.clear_sessions")
def clear_sessions() -> None:
    """Deletes the sessions of users whose log-in has expired."""
    call_command("clearsessions")


@shared_task(name="mailhub.tasks.delete_events")
def delete_events() -> None:
    """Deletes bounces, complaints and what recipients wrote that are older than EVENT_DAYS."""
    message_events.delete_old()
    inbound.delete_old()
