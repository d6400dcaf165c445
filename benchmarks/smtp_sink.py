"""Postfix's smtp-sink as an external relay that takes every mail and counts; and smtp-source, which sends to it.

smtp-sink knows no recipients. But each message accepted by mailhub's rows arrived at least once. If the number of mails
equals that of accepted rows, each arrived exactly once.
"""

import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.ports import free_port
from tests.waiting import wait_until

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
SINK, SOURCE = shutil.which("smtp-sink", path=PATH), shutil.which("smtp-source", path=PATH)
ORIGIN = "us@example.org"
MAILS = re.compile(rb"mesg=(\d+)")
CONNECTIONS = 20  # of smtp-source, which is fastest with about this number


class SmtpSink:
    """The arrivals since `begin`. Times are on the monotonic clock, taken as each count is printed."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        self.process = process
        self.port = port
        self._count = self._from = 0
        self.times: list[tuple[int, float]] = []  # (mails so far, time)
        threading.Thread(target=self._read, daemon=True).start()

    def begin(self) -> None:
        self._from, self.times = self._count, []

    @property
    def count(self) -> int:
        return self._count - self._from

    def first(self) -> float:
        return self.times[0][1]

    def last(self) -> float:
        return self.times[-1][1]

    def _read(self) -> None:
        assert self.process.stdout is not None
        while said := os.read(self.process.stdout.fileno(), 65536):
            found = MAILS.findall(said)
            if found and int(found[-1]) > self._count:  # ended sessions print a count, too
                self._count = int(found[-1])
                self.times.append((self.count, time.monotonic()))


@contextmanager
def running() -> Iterator[SmtpSink | None]:
    """Run smtp-sink. Yields None if Postfix is not installed."""
    if not SINK or not SOURCE:
        print("no rows of SMTP: Postfix's smtp-sink and smtp-source are not installed")
        yield None
        return
    port = free_port()
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    command = [SINK, "-c", *user, f"127.0.0.1:{port}", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: answers(port), "smtp-sink listens")
            yield SmtpSink(process, port)
        finally:
            process.terminate()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def source(relay: SmtpSink, mails: int, size: int) -> float:
    """Return mails a second of smtp-source -d, which waits for each answer before its next mail."""
    assert SOURCE is not None
    relay.begin()
    began = time.monotonic()
    options = ["-d", "-s", str(CONNECTIONS), "-m", str(mails), "-l", str(size), "-f", ORIGIN, "-t", "you@example.org"]
    subprocess.run([SOURCE, *options, f"127.0.0.1:{relay.port}"], check=True)
    took = time.monotonic() - began
    wait_until(lambda: relay.count >= mails, "smtp-sink has counted")
    return mails / took
