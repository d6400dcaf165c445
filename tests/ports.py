"""A port for a program that cannot be told to take any free one."""

import random
import socket

BELOW = 32_768  # from here on systems hand out ports by themselves: nobody gets one of ours between look and use


def free_port() -> int:
    """One on loopback that nobody listens on, and that no system hands out."""
    while True:
        port = random.randrange(10_240, BELOW)
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
