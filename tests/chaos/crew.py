"""The workers: two of them with a few processes each, killed by the storm and started again at once."""

import os
import random
import signal
from pathlib import Path

from tests.programs import Program

PROCESSES = 3


class Crew:
    def __init__(self, many: int) -> None:
        self.killed_processes = self.killed_workers = 0
        self._born = 0
        self._workers = [self._start() for _ in range(many)]

    def _start(self) -> Program:
        self._born += 1
        options = ["-Q", "vendors,hub", "-c", str(PROCESSES), "-n", f"chaos-{self._born}@localhost", "--without-mingle"]
        times = {"LEASE_SECONDS": "4", "HEARTBEAT_SECONDS": "0.5", "SWEEP_SECONDS": "1"}
        return Program(["-m", "celery", "-A", "mailhub", "worker", *options], CELERY_LOG_LEVEL="ERROR", **times)

    def kill_a_process(self, by: random.Random) -> None:
        """kill -9 of one of the pool's processes, if there is any."""
        pids = [pid for worker in self._workers for pid in pool(worker.process.pid)]
        if pids:
            os.kill(by.choice(pids), signal.SIGKILL)
            self.killed_processes += 1

    def kill_a_worker(self, by: random.Random) -> None:
        """kill -9 of a worker with its whole group."""
        worker = by.choice(self._workers)
        self.killed_processes += len(pool(worker.process.pid))
        self.killed_workers += 1
        self._bury(worker)
        self.watch()

    def watch(self) -> None:
        """What a supervisor does: a worker that has ended is started again."""
        for number, worker in enumerate(self._workers):
            if worker.process.poll() is not None:
                self._bury(worker)
                self._workers[number] = self._start()

    def end(self) -> None:
        for worker in self._workers:
            self._bury(worker)

    @staticmethod
    def _bury(worker: Program) -> None:
        worker.end()
        worker.log.unlink(missing_ok=True)

    def words(self) -> str:
        """The last that the workers said."""
        return "\n".join(worker.log.read_text()[-1500:] for worker in self._workers)


def pool(pid: int) -> list[int]:
    """The children of a process; none if it has just ended."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
