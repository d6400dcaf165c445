"""Tasks of somebody else's, for tests that run a real worker (celery worker -I tests.celery_tasks)."""

import base64
import json
import logging
from typing import Any

import redis
from celery import shared_task
from django.conf import settings
from django.db import transaction

NOTES = "tests:notes:"


def notes(page: str) -> list[Any]:
    """What tasks wrote on this page, in the order in which they ran."""
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        return [json.loads(line) for line in client.lrange(NOTES + page, 0, -1)]


@shared_task
def note(page: str, *values: Any) -> Any:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.rpush(NOTES + page, json.dumps(values[0] if len(values) == 1 else values))
    return values[-1]


@shared_task
def collect(results: list[Any], page: str) -> None:
    note(page, results)


@shared_task(bind=True)
def again_soon(self: Any, page: str) -> None:
    """Fails at first and comes back at once."""
    note(page, self.request.retries)
    if not self.request.retries:
        raise self.retry(countdown=0)


@shared_task(bind=True)
def again_in_an_hour(self: Any, page: str) -> None:
    with transaction.atomic():
        note(page, self.request.retries)
        if not self.request.retries:
            raise self.retry(countdown=3600)


def in_broker(queue: str) -> list[dict[str, Any]]:
    """The messages that wait in a queue of the broker, oldest first."""
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        return [json.loads(raw) for raw in reversed(client.lrange(queue, 0, -1))]


def arguments(message: dict[str, Any]) -> list[Any]:
    """The positional arguments of a message in the broker."""
    return json.loads(base64.b64decode(message["body"]))[0]


@shared_task
def fail_with(text: str) -> None:
    """Logs the text, and fails with it."""
    logging.getLogger("tests").warning("vendor post: job 12: %s", text)
    raise ValueError(text)
