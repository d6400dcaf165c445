"""`manage.py receive_bounces`: accepts returned mails over SMTP or LMTP."""

import asyncio
import signal
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from campaigns import tasks
from campaigns.audience.bounces import receiver
from vendors import liveness

ENDING = {signal.SIGTERM, signal.SIGINT}
PORT = {"lmtp": 24, "smtp": 25}


class Command(BaseCommand):
    help = (
        "Take bounces, complaints and mails that unsubscribe, at the address in the setting BOUNCE_RECEIVER, such as "
        "lmtp://127.0.0.1:2424, until it is ended. Without that setting it does nothing and waits, so that the "
        "Procfile can name it. Exit codes: 0 ended by a signal, 1 it cannot listen there."
    )

    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.BOUNCE_RECEIVER:
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
            self.stdout.write("BOUNCE_RECEIVER is empty: no bounces are taken here")
            self.stdout.flush()
            liveness.keep_showing("bounces", settings.MAILHUB_HOME)
            signal.sigwait(ENDING)
            return
        parts = urlsplit(settings.BOUNCE_RECEIVER)
        host, port = parts.hostname or "127.0.0.1", parts.port or PORT[parts.scheme]
        try:
            asyncio.run(receiver.run_receiver(parts.scheme, host, port, tasks.notify_webhooks))
        except OSError as error:
            raise CommandError(f"nothing can listen at {host}:{port}: {error.strerror or error}") from None
