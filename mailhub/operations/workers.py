"""Which workers are there, and which queues nobody reads. Asks the workers themselves, so it takes about a second."""

from dataclasses import dataclass

from django.conf import settings
from kombu.exceptions import OperationalError

from campaigns.tasks import WEBHOOKS
from vendors.models import Vendor

SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Workers:
    """names of those that answered; unread: queues with no reader among them; lost: the broker cannot be reached."""

    names: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    lost: bool = False


def ask(seconds: float = SECONDS) -> Workers:
    from mailhub.celery import app

    try:
        replies = app.control.inspect(timeout=seconds).active_queues() or {}
    except OperationalError:
        return Workers(lost=True)
    read = {queue["name"] for queues in replies.values() for queue in queues}
    wanted = [settings.CELERY_TASK_DEFAULT_QUEUE, WEBHOOKS, *(vendor.queue for vendor in Vendor.objects.only("slug"))]
    return Workers(tuple(sorted(replies)), tuple(name for name in wanted if name not in read))
