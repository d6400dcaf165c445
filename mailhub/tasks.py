"""mailhub's own periodic tasks."""

from datetime import timedelta

from celery import shared_task
from django.core.management import call_command
from django.utils import timezone

from campaigns.audience import inbound
from campaigns.audience.answers import inbox
from campaigns.engine import fetched_reports, message_events
from campaigns.lists.drafts import checking, sending
from campaigns.models import Draft, KeptAnswer
from campaigns.tasks import notify_webhooks

ANSWERS_KEPT = timedelta(days=30)  # for repeats of a request with the same Idempotency-Key


@shared_task(name="mailhub.tasks.clear_sessions")
def clear_sessions() -> None:
    """Delete the sessions of users whose log-in has expired."""
    call_command("clearsessions")


@shared_task(name="mailhub.tasks.delete_events")
def delete_events() -> None:
    """Delete bounces, complaints, inbound messages and answers older than EVENT_DAYS, and old kept answers."""
    message_events.delete_old_events()
    inbound.delete_old_texts()
    inbox.delete_old_answers()
    KeptAnswer.objects.filter(created_at__lt=timezone.now() - ANSWERS_KEPT).delete()


@shared_task(name="mailhub.tasks.tell_unread_answers")
def tell_unread_answers() -> None:
    """Log an alarm if recipients' answers have been unread for a day."""
    inbox.tell_unread()


@shared_task(name="mailhub.tasks.fetch_reports")
def fetch_reports() -> None:
    """Fetch reports that vendors keep in files, such as acknowledgements of print files."""
    if any(found.calls for found in fetched_reports.fetch_all()):
        notify_webhooks()


@shared_task(name="mailhub.tasks.check_draft")
def check_draft(draft_id: int) -> None:
    """Check the list of a draft, unless another process does or did."""
    checking.check_draft(draft_id)


@shared_task(name="mailhub.tasks.send_draft")
def send_draft(draft_id: int) -> None:
    """Make the campaign of a draft once its owner has decided, at most once."""
    sending.finish_sending(draft_id)


@shared_task(name="mailhub.tasks.sweep_drafts")
def sweep_drafts() -> None:
    """Find drafts whose check or campaign was left undone by a lost notification or a killed worker."""
    for draft_id, busy in checking.left_behind():
        task = check_draft if busy == Draft.CHECKING else send_draft
        task.apply_async((draft_id,), expires=60)
