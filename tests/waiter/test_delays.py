"""RabbitMQ's delay exchanges, as far as that can be told without one: tests/mailhub/test_rabbitmq.py has the rest."""

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from kombu import Connection, Exchange, Queue
from kombu.transport.native_delayed_delivery import calculate_routing_key

from waiter import delays, parking

QUORUM = {"x-queue-type": "quorum"}
VIDEO = Queue("video", Exchange("media", type="topic"), routing_key="media.video", queue_arguments=QUORUM)
PLAIN = Queue("plain", Exchange("plain", type="direct"), routing_key="plain", queue_arguments=QUORUM)
CLASSIC = Queue("classic", Exchange("classic", type="topic"), routing_key="classic")


@pytest.fixture
def shop() -> Iterator[Celery]:
    """An application whose queues have routing keys of their own."""
    with Celery("shop", broker="amqp://", set_as_current=False) as app:
        app.conf.task_queues = [VIDEO, PLAIN]
        yield app


def delayed(app: Celery, queue: str, broker: str = "amqp://") -> dict[str, Any]:
    """Where a message for that queue goes that is due in a minute; nothing is connected to."""
    producer, now = SimpleNamespace(connection=Connection(broker)), parking.now()
    return delays.delayed(app, producer, {"queue": queue}, queue, now + timedelta(minutes=1), now)


@pytest.mark.parametrize("seconds", [1, 3600, 2**28 - 1, 2**28, 2**32], ids=lambda seconds: f"{seconds}s")
@pytest.mark.parametrize(("queue", "key"), [("video", "media.video"), ("plain", "plain"), ("unknown", "unknown")])
def test_what_celery_sent_to_the_delay_exchanges_is_for_its_queue_again(
    shop: Celery, queue: str, key: str, seconds: int
) -> None:
    exchange = {"exchange": Exchange(delays.ENTRANCE, type="topic"), "routing_key": calculate_routing_key(seconds, key)}

    assert delays.taken_back(shop, {**exchange, "priority": 3}) == {"queue": queue, "priority": 3}


def test_what_celery_sent_elsewhere_is_left_alone(shop: Celery) -> None:
    options = {"exchange": Exchange("media", type="topic"), "routing_key": "media.video"}

    assert delays.taken_back(shop, options) == options


def test_a_queue_that_the_delay_exchanges_cannot_lead_to_holds_its_messages_itself(shop: Celery) -> None:
    assert delayed(shop, "plain") == {"queue": "plain"}


def test_without_quorum_queues_or_without_rabbitmq_a_worker_holds_what_is_due_soon(shop: Celery) -> None:
    assert delayed(shop, "video", "redis://") == {"queue": "video"}
    shop.conf.task_queues = [CLASSIC]
    del shop.amqp

    assert delayed(shop, "classic") == {"queue": "classic"}
