"""Senders that a test kills: `python -m tests.faults.killing`.

A line of JSON in, [[job, fence], ...]; a line out with the id of a fork that sends these jobs as streams of one
process. The next line, whatever it is, waits for the end of that fork. Django is set up once.
"""

import gc
import json
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import django


def send(jobs: list[tuple[int, int]]) -> None:
    from campaigns.engine.sending import Sender

    with closing(Sender(many=True)) as sender, ThreadPoolExecutor(len(jobs)) as threads:
        list(threads.map(lambda one: sender.send_claimed_job(*one), jobs))


def fork(jobs: list[tuple[int, int]]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        send(jobs)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    django.setup()
    from django.db import connections

    from campaigns import tasks  # noqa: F401
    from campaigns.engine.journal import layout
    from mailhub import installation, worker_queues  # noqa: F401
    from vendors.adapters import http, smtp  # noqa: F401

    layout.FOLDER = os.environ["JOURNALS_OF_TEST"]
    "localhost".encode("idna")
    connections.close_all()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        child = fork([tuple(one) for one in json.loads(line)])
        print(child, flush=True)
        if not sys.stdin.readline():
            break
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)


if __name__ == "__main__":
    main()
