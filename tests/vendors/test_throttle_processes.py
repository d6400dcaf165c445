"""P4 in earnest: five processes, one Redis, real time, and a vendor that stamps calls by its own clock."""

import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from django.conf import settings

from tests import forks
from tests.waiting import DEADLINE, wait_until
from tests.windows import worst_window
from vendors import redis_clients
from vendors.limits.throttle import Skewed, Throttle

pytestmark = pytest.mark.slow("processes")

UNITS, SECONDS, CALLS, SENDERS = 8, 0.4, 48, 5


class Recorder:
    """A vendor on loopback: takes its time, stamps a call, takes its time to answer; until CALLS came."""

    def __init__(self) -> None:
        self.stamps: list[float] = []
        self.enough = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._threads = [threading.Thread(target=self._serve) for _ in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def _serve(self) -> None:
        line, _ = self._server.accept()
        with line, suppress(ConnectionError):  # a sender that was killed hangs up
            while line.recv(1) and not self.enough.is_set():
                time.sleep(random.uniform(0, 0.04))  # on the way out
                self.stamps.append(time.monotonic())
                if len(self.stamps) >= CALLS:
                    self.enough.set()
                time.sleep(random.uniform(0, 0.04))  # and back
                line.sendall(b"!")

    def close(self) -> None:
        self.enough.set()
        for _ in self._threads:  # whoever still waits for a sender
            socket.create_connection(("127.0.0.1", self.port)).close()
        for thread in self._threads:
            thread.join(DEADLINE)
        self._server.close()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.close()


def _wall_minus_monotonic() -> float:
    """Of several readings the one that was interrupted least."""
    readings = []
    for _ in range(50):
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        readings.append((after - before, wall - before))
    return min(readings)[1]


def test_five_processes_together_stay_within_the_limit_at_the_vendors_clock(recorder: Recorder) -> None:
    vendor_id, clock = secrets.randbits(48), _wall_minus_monotonic()
    redis = redis_clients.make_client(settings.REDIS_URL)
    throttle = Throttle(redis)
    wait_until(lambda: not isinstance(throttle.rebuild(vendor_id, 1, SECONDS, []), Skewed), "not asked too slowly")
    args = ["-m", "tests.vendors.throttle_sender", settings.REDIS_URL, str(vendor_id)]
    limit = [str(UNITS), str(SECONDS), str(recorder.port)]
    senders = [forks.start([*args, str(n % 2), *limit], env=dict(os.environ)) for n in range(SENDERS)]
    try:
        wait_until(recorder.enough.is_set, f"{CALLS} calls come", log=lambda: f"{len(recorder.stamps)} came")
    finally:
        for sender in senders:
            sender.kill()
            sender.wait()
        for name in ("window", "c0", "c1"):
            redis.delete(f"mailhub:{{v{vendor_id}}}:{name}")
        redis.close()
    if abs(_wall_minus_monotonic() - clock) > SECONDS / 1000:
        pytest.skip("the machine's clock was set during the test")
    assert worst_window(recorder.stamps, SECONDS) <= UNITS
    assert len(recorder.stamps) >= CALLS
