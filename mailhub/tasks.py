"""What beat has mailhub itself do."""

from celery import shared_task
from django.core.management import call_command

from mailhub import parking, waiter


@shared_task(name="mailhub.tasks.release_parked")
def release_parked() -> int:
    """The waiter's sweep (document 004): how many messages went to the broker."""
    released = waiter.release()
    parking.forget(waiter.now())
    return released


@shared_task(name="mailhub.tasks.clear_sessions")
def clear_sessions() -> None:
    """Deletes the sessions of users whose log-in has expired."""
    call_command("clearsessions")
