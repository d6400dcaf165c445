"""Runs what reads a template in C, or takes long to make, in a process of its own with limits of memory and time.

A reader in C cannot be stopped from within, holds up all other threads, or ends its process without a word.
"""

import os
import socket
import subprocess
import sys

SECONDS = 10  # of the clock; of a processor half of it
MEMORY = 1_000_000_000  # bytes
STEPS = 200_000  # of a budget: a process of its own takes about 50 ms
LIMITS = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
"""
ONCE = f"""
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS // 2}, {SECONDS // 2}))
"""
NEEDED = ("LANG", "LD_LIBRARY_PATH", "TZ")  # of the environment; it also has secrets


class TookTooLong(Exception):
    """It was ended after SECONDS."""


class ProcessLost(Exception):
    """A process that makes letters has ended, does not answer, or cannot be started. The text is for users."""


def run(code: str, source: str) -> "subprocess.CompletedProcess[bytes]":
    """Runs Python code with `source` on standard input, within LIMITS. Raises TookTooLong.

    Exit code 0: its standard output is the answer; 1: its standard error ends with a sentence; else it was ended.
    """
    given = source.encode("utf-8", "surrogatepass")
    try:
        return subprocess.run(_command(ONCE + code), input=given, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise TookTooLong from None


def start(code: str, line: socket.socket) -> "subprocess.Popen[bytes]":
    """Starts Python code that serves `line`, its standard input, within LIMITS; it limits its time itself.

    Raises OSError.
    """
    needed = {name: os.environ[name] for name in NEEDED if name in os.environ}
    return subprocess.Popen(_command(code), stdin=line.fileno(), stdout=subprocess.DEVNULL, env=needed)


def _command(code: str) -> list[str]:
    return [sys.executable, "-I", "-c", LIMITS + code]  # -I: nothing of the working directory is imported
