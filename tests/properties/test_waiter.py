"""Whatever sweeps do to each other and wherever they die, a parked task runs once, or never if it was cancelled."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from waiter import parking
from waiter.models import ParkedTask

DUE = datetime(2030, 1, 1, tzinfo=UTC)


class WaiterModel:
    """One parked task, a broker, sweeps that may stop at any point, and the publications that ran."""

    def __init__(self) -> None:
        parking.park(task="t", task_id="t", queue="q", message="{}", due_at=DUE, parked_at=DUE)
        self.row = ParkedTask.objects.latest("id").pk
        self.at = DUE
        self.broker: list[UUID] = []
        self.ran: list[UUID] = []
        self.stopped: list[list[ParkedTask]] = []
        self.cancelled = False

    def claim(self) -> None:
        """A sweep claims and stops for now, maybe for good."""
        self.stopped.append(parking.claim(DUE, self.at, limit=10, ids=[self.row]))

    def publish(self) -> None:
        """A stopped sweep goes on and publishes; it may have stopped for longer than its lease."""
        for rows in self.stopped:
            self.broker += [row.claim for row in rows if row.claim]

    def finish(self) -> None:
        """Sweeps that have published say so."""
        for rows in self.stopped:
            if all(row.claim in self.broker for row in rows):
                parking.published(rows, self.at)

    def die(self) -> None:
        """A sweep is killed after publishing; its lease runs out."""
        self.claim()
        self.publish()
        self.stopped.clear()
        self.wait()

    def give_back(self) -> None:
        """A sweep that cannot reach the broker."""
        if self.stopped and not any(row.claim in self.broker for row in self.stopped[-1]):
            parking.give_back(self.stopped.pop())

    def deliver_newest(self) -> None:
        self._deliver(self.broker[-1:])

    def deliver_oldest(self) -> None:
        self._deliver(self.broker[:1])

    def wait(self) -> None:
        self.at += parking.LEASE + timedelta(seconds=1)

    def cancel(self) -> None:
        self.cancelled |= bool(parking.cancel([self.row], self.at))

    def end(self) -> None:
        """Sweeps go on until nothing waits; the broker delivers all it has, twice."""
        for verb in (self.publish, self.finish, self.wait, self.claim, self.publish, self.finish):
            verb()
        assert not ParkedTask.waiting.filter(pk=self.row).exists()
        self._deliver(self.broker)
        self._deliver(self.broker)

    def _deliver(self, marks: list[UUID]) -> None:
        self.ran += [mark for mark in marks if parking.receive(self.row, mark, self.at)]


VERBS: list[Callable[[WaiterModel], None]] = [
    WaiterModel.die,
    WaiterModel.claim,
    WaiterModel.publish,
    WaiterModel.finish,
    WaiterModel.give_back,
    WaiterModel.deliver_newest,
    WaiterModel.deliver_oldest,
    WaiterModel.wait,
    WaiterModel.cancel,
]


@pytest.mark.django_db
@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(VERBS), max_size=12))
def test_a_parked_task_runs_once_or_never_if_it_was_cancelled(story: list[Callable[[WaiterModel], None]]) -> None:
    model = WaiterModel()
    for verb in story:
        verb(model)

    model.end()

    assert len(set(model.ran)) == (0 if model.cancelled else 1)
