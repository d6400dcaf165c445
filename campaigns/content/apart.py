"""Runs what reads a template in C in a process of its own, which may take so much memory and time.

Such a reader cannot be stopped from within, holds up all other threads, or ends its process without a word.
"""

import subprocess
import sys

SECONDS = 10  # of the clock; of a processor half of it
MEMORY = 1_000_000_000  # bytes
STEPS = 200_000  # of a budget: a process of its own takes about 50 ms
LIMITS = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS // 2}, {SECONDS // 2}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
"""


class TookTooLong(Exception):
    """It was ended after SECONDS."""


def run(code: str, source: str) -> "subprocess.CompletedProcess[bytes]":
    """Runs Python code with `source` on standard input, within LIMITS. Raises TookTooLong.

    Exit code 0: its standard output is the answer; 1: its standard error ends with a sentence; else it was ended.
    """
    command = [sys.executable, "-I", "-c", LIMITS + code]  # -I: nothing of the working directory is imported
    given = source.encode("utf-8", "surrogatepass")
    try:
        return subprocess.run(command, input=given, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise TookTooLong from None
