"""Does all of mailhub's work in forks of one process: `python -m tests.faults.driver`.

A line of JSON in, a line out. Each round is a process of its own that may be killed or frozen where a failpoint is
armed; Django is set up once. Rounds that nothing can happen to are of one process, which keeps what a worker keeps from
task to task: connections whose statements are planned. The broker is in the memory of each fork and nobody reads it:
every notification is lost, and all work is found by the rows.
"""

import gc
import json
import os
import signal
import sys
import traceback
from typing import Any

import django


def run(stopping: bool) -> None:
    """One round: sweep, dispatch, casters, every claimed job, doubts, and the sweep again for jobs that ended."""
    from campaigns import tasks
    from campaigns.engine.dispatch import dispatcher
    from campaigns.models import Job
    from vendors.models import Vendor

    tasks._stopping.value = int(stopping)
    tasks.sweep()
    dispatcher.dispatch_rendered()
    for vendor in Vendor.objects.all():
        tasks.cast(vendor.pk)
    notified: set[tuple[int, int]] = set()
    while claims := set(Job.objects.filter(status="ENQUEUED").values_list("pk", "fence")) - notified:
        notified |= claims
        for job_id, fence in sorted(claims):
            tasks.send_job(job_id, fence)
    tasks.settle_doubts()
    tasks.sweep()


def fork(request: dict[str, Any]) -> int:
    from campaigns.engine import failpoints

    child = os.fork()
    if child:
        return child
    code = 1
    try:
        failpoints.arm_failpoints(request.get("points", ""))
        run(bool(request.get("stopping")))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class Kept:
    """A fork that runs one round after the other."""

    def __init__(self) -> None:
        asks, self._ask = os.pipe()
        self._answer, answers = os.pipe()
        if not os.fork():
            os.close(self._ask)  # so that it ends with the process that made it
            self._go_on(asks, answers)
        os.close(asks)
        os.close(answers)

    @staticmethod
    def _go_on(asks: int, answers: int) -> None:
        code = 0
        while not code and os.read(asks, 1):
            try:
                run(False)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                code = 1
            os.write(answers, b"%d" % code)
        os._exit(code)

    def round(self) -> str:
        os.write(self._ask, b"1")
        return f"exit {os.read(self._answer, 1).decode()}"


def wait(child: int) -> dict[str, Any]:
    """Waits until the round has ended or is frozen; returns how."""
    _, status = os.waitpid(child, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return {"end": "frozen", "pid": child}
    return {"end": "killed" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}", "pid": child}


def main() -> None:
    django.setup()
    from celery._state import _set_task_join_will_block
    from django.db import connections

    from campaigns import tasks
    from mailhub import installation, worker_queues  # noqa: F401
    from vendors.adapters import http  # noqa: F401

    _set_task_join_will_block(True)  # as in the processes of a pool: nobody listens for results
    tasks.finish_parent.delay(0)  # Celery imports its parts when they are first used: not in each fork anew
    "localhost".encode("idna")
    connections.close_all()
    gc.collect()
    gc.freeze()  # else each fork copies what its collector looks at
    kept: Kept | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("kept"):
            kept = kept or Kept()
            end = kept.round()
            kept = kept if end == "exit 0" else None  # another one tries it anew
            print(json.dumps({"end": end}), flush=True)
            continue
        pid = request.get("wake")
        if pid:
            os.kill(pid, signal.SIGCONT)
        print(json.dumps(wait(pid or fork(request))), flush=True)


if __name__ == "__main__":
    main()
