"""Runs code in a process of its own, with limits of memory and time.

It is meant for C parsers that read a template, and for work that takes long. A C parser cannot be interrupted, blocks
all other threads, and may crash its process.
"""

import os
import socket
import subprocess
import sys

SECONDS = 10  # wall-clock seconds; the limit of processor time is half of it
MEMORY = 1_000_000_000  # bytes
STEPS = 200_000  # taken from the budget; starting a process costs that much
LIMITS = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
"""
ONCE = f"""
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS // 2}, {SECONDS // 2}))
"""
NEEDED = ("LANG", "LD_LIBRARY_PATH", "TZ")  # environment variables passed on; the others may hold secrets


class TookTooLong(Exception):
    """The code was killed after SECONDS."""


class ProcessLost(Exception):
    """A process that makes letters has ended, does not answer, or cannot be started. The text is for users."""


def run_apart(code: str, source: str) -> "subprocess.CompletedProcess[bytes]":
    """Run Python code with `source` on standard input, within LIMITS. Raises TookTooLong.

    Exit code 0: standard output is the answer. 1: standard error ends with a sentence for the user. Other codes: the
    process hit a limit.
    """
    given = source.encode("utf-8", "surrogatepass")
    try:
        return subprocess.run(_python_command(ONCE + code), input=given, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise TookTooLong from None


def start_apart(code: str, line: socket.socket) -> "subprocess.Popen[bytes]":
    """Start Python code that serves `line`, its standard input, within LIMITS. Raises OSError.

    The code limits its own time.
    """
    needed = {name: os.environ[name] for name in NEEDED if name in os.environ}
    return subprocess.Popen(_python_command(code), stdin=line.fileno(), stdout=subprocess.DEVNULL, env=needed)


def _python_command(code: str) -> list[str]:
    return [sys.executable, "-I", "-c", LIMITS + code]  # -I: import nothing from the working directory
