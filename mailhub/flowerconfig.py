"""Flower's settings, read by `celery flower --conf=mailhub/flowerconfig.py`.

Flower listens on loopback unless FLOWER_HOST says otherwise, needs a password, and keeps its history in a file in
MAILHUB_HOME. Normally it asks the workers for their queues only at its start. Here it reads them from the rows, so its
Broker page includes those of new vendors.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from flower.utils.broker import RedisSocket
from flower.views import BaseHandler
from flower.views.monitor import Healthcheck, Metrics

if ":" not in os.environ.get("FLOWER_BASIC_AUTH", ""):
    sys.exit("Flower does not start open to everybody: set FLOWER_BASIC_AUTH to user:password (`up` makes one)")

os.umask(0o077)  # its history contains arguments of tasks
settings.MAILHUB_HOME.mkdir(mode=0o700, parents=True, exist_ok=True)

address = os.environ.get("FLOWER_HOST") or "127.0.0.1"
port = int(os.environ.get("FLOWER_PORT", "5555"))
basic_auth = os.environ["FLOWER_BASIC_AUTH"].split(",")
persistent = True
db = str(settings.MAILHUB_HOME / "flower")
state_save_interval = 30_000  # milliseconds; a kill -9 loses this much history
max_tasks = 10_000
tasks_columns = "name,args,state,received,runtime,worker"


def _require_login(get: Any) -> Any:
    async def get_after_login(handler: Any) -> None:
        handler.get_current_user()  # ends with 401 without a password
        await get(handler)

    return get_after_login


for page in (Metrics, Healthcheck):  # Flower would show them to everybody
    page.get = _require_login(page.get)

PATIENCE = 3.0  # seconds for PostgreSQL, during which all of Flower waits
_asked_at_start = BaseHandler.get_active_queue_names
_outside = ThreadPoolExecutor(1)  # outside the event loop, in which Django reads no rows


def _queue_names(handler: Any) -> list[str]:
    known = set(_asked_at_start(handler))
    with suppress(TimeoutError, DatabaseError, InterfaceError):
        known.update(_outside.submit(_read_names).result(PATIENCE))
    return sorted(known)


def _read_names() -> list[str]:
    from mailhub import worker_queues  # Django knows its models by now

    try:
        return worker_queues.queues_to_read()
    finally:
        connection.close()


BaseHandler.get_active_queue_names = _queue_names
_on_a_socket = RedisSocket.__init__


def _use_named_database(broker: Any, url: str, *args: Any, **options: Any) -> None:
    """Use the database that the URL names; on a socket Flower would always count in database 0."""
    _on_a_socket(broker, url, *args, **options)
    number = parse_qs(urlsplit(url).query).get("virtual_host", ["0"])[0]
    broker.redis.connection_pool.connection_kwargs["db"] = int(number)


RedisSocket.__init__ = _use_named_database
