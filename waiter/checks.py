"""System checks of the waiter, for `manage.py check`."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from celery import current_app
from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from waiter.publisher import WaiterAMQP, WaiterControl, WaiterTask, horizon


@register("waiter")
def waiter_times(app_configs: Any = None, **_: Any) -> Iterator[CheckMessage]:
    """The sweep must be shorter than the horizon, or tasks are late.

    The horizon must be at most half of the visibility timeout, or the broker delivers them twice.
    """
    sweep: timedelta = getattr(settings, "WAITER_SWEEP", timedelta(minutes=5))
    visible = timedelta(seconds=current_app.conf.broker_transport_options.get("visibility_timeout", 3600))
    if sweep <= timedelta(0):
        yield Error(f"WAITER_SWEEP is {sweep}", hint="Give it a positive time.", id="waiter.E001")
    if sweep >= horizon():
        message = f"WAITER_SWEEP ({sweep}) is not shorter than WAITER_HORIZON ({horizon()})"
        yield Error(message, hint="A task that is due between two sweeps would be late.", id="waiter.E002")
    if horizon() > visible / 2:
        message = f"WAITER_HORIZON ({horizon()}) is longer than half of the broker's visibility timeout ({visible})"
        hint = "The broker delivers again what a worker holds for longer than that."
        yield Error(message, hint=hint, id="waiter.E003")


@register("waiter")
def waiter_classes(app_configs: Any = None, **_: Any) -> Iterator[CheckMessage]:
    """The Celery application must use the waiter's classes.

    Otherwise tasks are not parked, may run twice, or cannot be revoked, without any error.
    """
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    missing = [
        f"{name}={wanted.__name__}"
        for name, found, wanted in (
            ("task_cls", app.Task, WaiterTask),
            ("amqp", type(app.amqp), WaiterAMQP),
            ("control", type(app.control), WaiterControl),
        )
        if not issubclass(found, wanted)
    ]
    if missing:
        hint = "waiter/README.md shows how to make it; the project's __init__.py has to import it."
        yield Error(f"{app!r} was made without {', '.join(missing)}", hint=hint, id="waiter.E004")
