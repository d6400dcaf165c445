"""A notification is no promise: nobody waits for a broker that accepts a connection and says nothing."""

import os
import socket
import subprocess
import sys

import pytest

from tests.waiting import DEADLINE

PROCESS = """
import asyncio, django
django.setup()
from campaigns.engine.dispatch import dispatcher

async def main():
    for vendor in (1, 1, 2):
        dispatcher.wake_vendor(vendor, "velma")
    print(len(dispatcher._waking), flush=True)

asyncio.run(main())
"""


@pytest.mark.slow("processes")
def test_a_process_ends_though_its_broker_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        ended = subprocess.run(
            [sys.executable, "-c", PROCESS],
            env={**os.environ, "BROKER_URL": broker, "DJANGO_SETTINGS_MODULE": "mailhub.settings"},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
    assert (ended.returncode, ended.stdout) == (0, "2\n"), ended.stderr
