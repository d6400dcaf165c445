"""Receiving domains that wait, for pages, commands and metrics: which they are, why, and how a person ends a wait."""

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from vendors import history
from vendors.models import Credential, ReceiverWait
from vendors.said import Said, gettext_noop

SLOWED = gettext_noop("%(receiver)s waits until %(at)s: it asked us to slow down")
REFUSES = gettext_noop("%(receiver)s waits until %(at)s: it refuses our mail, whoever the recipient is")
TRIED = gettext_noop("%(receiver)s is tried with one mail at a time: it asked us to slow down")
ENDED = gettext_noop("the wait of %(receiver)s ended")


def receiver_waits(credential_ids: Iterable[int]) -> list[ReceiverWait]:
    """Return the receivers that wait on these credentials or have accepted nothing since, the longest wait first."""
    rows = ReceiverWait.objects.filter(credential__in=list(credential_ids))
    return list(rows.select_related("credential__vendor").defer("credential__secret").order_by("-until", "receiver"))


def describe_wait(wait: ReceiverWait, now: datetime | None = None) -> Said:
    """Say in a sentence until when the receiver waits, or that its wait is over and it is tried."""
    if wait.until <= (now or timezone.now()):
        return Said(TRIED, receiver=wait.receiver)
    at = f"{timezone.localtime(wait.until):%H:%M}"
    return Said(REFUSES if wait.refused else SLOWED, receiver=wait.receiver, at=at)


def end_wait(login: Credential, receiver: str, by: history.Actor, reason: str = "") -> bool:
    """Call the receiver again as if it had not asked to wait. Returns False if it does not wait.

    Jobs that wait for it look again within a minute.
    """
    with transaction.atomic():
        found, _ = ReceiverWait.objects.filter(credential=login, receiver=receiver).delete()
        if found:
            history.record(by, Credential, [(login.pk, Said(ENDED, receiver=receiver))], reason)
    return bool(found)
