"""What the waiter's checks find before a task is lost or run twice."""

from datetime import timedelta
from typing import Any

import pytest
from celery import Celery
from celery._state import _set_current_app
from django.core.checks import run_checks
from django.test import override_settings

from mailhub.celery import app
from waiter.publisher import WaiterAMQP, WaiterControl, WaiterTask


def found(**changed: Any) -> list[str]:
    with override_settings(**changed):
        return [f"{message.id} {message.msg}" for message in run_checks(tags=["waiter"])]


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"WAITER_SWEEP": timedelta(0)}, "waiter.E001 WAITER_SWEEP is 0:00:00"),
        ({"WAITER_SWEEP": timedelta(minutes=15)}, "waiter.E002 WAITER_SWEEP (0:15:00) is not shorter than"),
        ({"WAITER_HORIZON": timedelta(minutes=31)}, "waiter.E003 WAITER_HORIZON (0:31:00) is longer than half"),
    ],
)
def test_times_that_would_lose_or_double_tasks_are_an_error(changed: dict[str, Any], error: str) -> None:
    (only,) = found(**changed)

    assert only.startswith(error)


def test_a_horizon_of_half_the_visibility_timeout_is_allowed() -> None:
    assert found(WAITER_HORIZON=timedelta(minutes=30), WAITER_SWEEP=timedelta(minutes=29)) == []


def test_a_broker_that_delivers_again_too_soon_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(app.conf.broker_transport_options, "visibility_timeout", 1799)

    (only,) = found()

    assert only.startswith("waiter.E003 WAITER_HORIZON (0:15:00) is longer than half")


@pytest.mark.parametrize(
    ("classes", "missing"),
    [
        ({}, "task_cls=WaiterTask, amqp=WaiterAMQP, control=WaiterControl"),
        ({"task_cls": WaiterTask, "amqp": WaiterAMQP}, "control=WaiterControl"),
        ({"task_cls": WaiterTask, "amqp": WaiterAMQP, "control": WaiterControl}, ""),
    ],
)
def test_an_application_without_the_waiters_classes_is_an_error(classes: dict[str, Any], missing: str) -> None:
    other = Celery("other", set_as_current=False, **classes)
    _set_current_app(other)
    try:
        errors = found()
    finally:
        _set_current_app(app)
        other.close()

    assert errors == ([f"waiter.E004 {other!r} was made without {missing}"] if missing else [])
