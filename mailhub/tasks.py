"""What beat has mailhub itself do."""

from celery import shared_task
from django.core.management import call_command

from campaigns import fetched_reports, inbound, message_events
from campaigns.tasks import notify_webhooks


@shared_task(name="mailhub.tasks.clear_sessions")
def clear_sessions() -> None:
    """Deletes the sessions of users whose log-in has expired."""
    call_command("clearsessions")


@shared_task(name="mailhub.tasks.delete_events")
def delete_events() -> None:
    """Deletes bounces, complaints and what recipients wrote that are older than EVENT_DAYS."""
    message_events.delete_old()
    inbound.delete_old()


@shared_task(name="mailhub.tasks.fetch_reports")
def fetch_reports() -> None:
    """Fetches what vendors report in files, such as acknowledgements of print files."""
    if any(found.calls for found in fetched_reports.fetch_all()):
        notify_webhooks()
