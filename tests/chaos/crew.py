"""The processes: workers with threads or with a few processes, and beat.

The storm kills and freezes them; they start again. A worker with threads, as the Procfile has it for senders, is one
process with many streams.
"""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

from tests.programs import Program

PROCESSES, THREADS = 3, 30
LEASE_SECONDS = 4.0
FREEZE = (1.25 * LEASE_SECONDS, 2 * LEASE_SECONDS)  # seconds: others have taken the job when it wakes up
TIMES = {"LEASE_SECONDS": str(LEASE_SECONDS), "HEARTBEAT_SECONDS": "0.5", "SWEEP_SECONDS": "1"}


class Crew:
    """database: the address of PostgreSQL for the workers; beat has the one of the environment."""

    def __init__(self, many: int, database: str) -> None:
        self.done: Counter[str] = Counter()  # what was done to processes, by name
        self._born = 0
        self._frozen: dict[int, float] = {}  # process: when it wakes up
        self._database = database
        self._workers = [self._worker() for _ in range(many)]
        self._beat = self._start_beat()

    def _worker(self) -> Program:
        self._born += 1
        pool = ["-P", "threads", "-c", str(THREADS)] if self._born % 2 else ["-c", str(PROCESSES)]
        options = ["-Q", "vendors,hub", *pool, "-n", f"chaos-{self._born}@localhost", "--without-mingle"]
        own = {"DATABASE_URL": self._database, "CELERY_LOG_LEVEL": "ERROR", **TIMES}
        return Program(["-m", "celery", "-A", "mailhub", "worker", *options], **own)

    def _start_beat(self) -> Program:
        return Program(["-m", "celery", "-q", "-A", "mailhub", "beat", "--pidfile="], **TIMES)

    def kill_a_process(self, by: random.Random) -> None:
        """kill -9 of one of the processes that send, if there is any."""
        if pids := self._pool():
            os.kill(by.choice(pids), signal.SIGKILL)
            self.done["processes killed"] += 1

    def freeze_a_process(self, by: random.Random) -> None:
        """Freezes a process for longer than a lease; then it goes on."""
        if pids := [pid for pid in self._pool() if pid not in self._frozen]:
            pid = by.choice(pids)
            os.kill(pid, signal.SIGSTOP)
            self._frozen[pid] = time.monotonic() + by.uniform(*FREEZE)
            self.done["processes frozen"] += 1

    def kill_a_worker(self, by: random.Random) -> None:
        """kill -9 of a worker with its whole group."""
        worker = by.choice(self._workers)
        self.done["processes killed"] += len(pool(worker.process.pid))
        self.done["workers killed"] += 1
        self._bury(worker)
        self.watch()

    def kill_beat(self, by: random.Random) -> None:
        self.done["beats killed"] += 1
        self._bury(self._beat)
        self._beat = self._start_beat()

    def watch(self) -> None:
        """Starts ended processes again, like a supervisor, and wakes those that were frozen long enough."""
        for number, worker in enumerate(self._workers):
            if worker.process.poll() is not None:
                self._bury(worker)
                self._workers[number] = self._worker()
        if self._beat.process.poll() is not None:
            self._bury(self._beat)
            self._beat = self._start_beat()
        for pid, until in list(self._frozen.items()):
            if time.monotonic() >= until:
                self._wake(pid)

    def thaw(self) -> None:
        for pid in list(self._frozen):
            self._wake(pid)

    def _wake(self, pid: int) -> None:
        del self._frozen[pid]
        with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
            os.kill(pid, signal.SIGCONT)

    def _pool(self) -> list[int]:
        alive = [worker.process.pid for worker in self._workers if worker.process.poll() is None]
        return [one for pid in alive for one in pool(pid) or [pid]]

    def end(self) -> None:
        for program in (*self._workers, self._beat):
            self._bury(program)

    @staticmethod
    def _bury(program: Program) -> None:
        program.end()
        program.log.unlink(missing_ok=True)

    def last_log(self) -> str:
        """The last lines of the processes' logs."""
        return "\n".join(program.log.read_text()[-1500:] for program in (*self._workers, self._beat))


def pool(pid: int) -> list[int]:
    """The children of a process; none if it has just ended."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
