"""The Celery application. Its messages are notifications only: the rows decide (docs/architecture.md)."""

import os
import warnings
from typing import Any

from celery import Celery
from celery.signals import (
    beat_init,
    celeryd_init,
    setup_logging,
    task_failure,
    task_postrun,
    task_prerun,
    worker_init,
)
from django.conf import settings

from mailhub import broker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mailhub.settings")
# Django's checks would load every page and template into each worker. Ours run below.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")


def celery_settings() -> dict[str, Any]:
    """Return Celery's settings alone, without their prefix.

    A worker shows what it was given to Flower and `celery inspect conf`. Django's settings hold secrets under names
    that Celery does not mask, and addresses that it cannot read.
    """
    names = [name for name in dir(settings) if name.startswith("CELERY_")]
    return {name.removeprefix("CELERY_").lower(): getattr(settings, name) for name in names}


broker.use_transports()
app = Celery(
    "mailhub",
    task_cls="waiter.publisher:WaiterTask",
    amqp="mailhub.amqp:PromptAMQP",
    control="waiter.publisher:WaiterControl",
)
app.config_from_object(celery_settings())
app.backend_cls = settings.CELERY_RESULT_BACKEND  # before $RESULT_BACKEND, which the command takes as it is given
# Otherwise Celery closes Django's connection around each task; a new one is expensive, as its caches start empty.
# campaigns.tasks closes lost ones.
app.conf.update(CELERY_DB_REUSE_MAX=10**9)
app.autodiscover_tasks()
app.steps["consumer"].add("mailhub.worker_queues:Adoption")
app.steps["worker"].add("mailhub.watchdog:Watchdog")

# Celery warns about root because of pickle, which nothing here accepts (settings).
warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")


@setup_logging.connect
def _log_as_django_does(**_: Any) -> None:
    """Do nothing; because a receiver exists, Celery leaves logging to settings.LOGGING."""


@celeryd_init.connect
@beat_init.connect
def _check_before_start(**_: Any) -> None:
    from django.db import connection  # Django is set up by now

    from mailhub import checks, presence
    from vendors import adapters

    checks.refuse_to_start()
    presence.look_for_mark()
    adapters.list_others()  # before it forks
    connection.close()  # a later fork must not inherit it


@beat_init.connect
def _announce_beat(**_: Any) -> None:
    from mailhub import running_versions  # Django is set up by now

    running_versions.keep_announcing("beat")


@worker_init.connect
def _check_pool(sender: Any, **_: Any) -> None:
    from mailhub import checks

    checks.refuse_pool(sender.pool_cls)


@task_prerun.connect
def _note_task(task_id: str, task: Any, **_: Any) -> None:
    """Let this task's lines of the log carry its id and name."""
    from vendors.log_ids import IDS

    IDS.set({"task": task_id, "task_name": task.name})


@task_postrun.connect
def _forget_task(**_: Any) -> None:
    from vendors.log_ids import IDS

    IDS.set({})


@task_failure.connect
def _note_outage(exception: BaseException, **_: Any) -> None:
    """Note the trouble for `status`, which says since when PostgreSQL refuses."""
    from django.db import Error

    from vendors import outages
    from vendors.not_now import find_refusal_text

    if isinstance(exception, Error) and (said := find_refusal_text(exception)):
        outages.note_outage("database", said)
