"""Time until an idle hub calls one letter, and until the command that sends one returns.

`python -m benchmarks.latency [letters] [commands]`. `up` runs the shipped Procfile. Letters come over the API, one
every third of a second, so that each finds an idle hub; timed from the 202 to the arrival at the vendor. The command is
`send_campaign` with a list of one recipient, from start to return. Beside it, in turns, are the shares of the
interpreter and of Django's set-up: `python -c pass`, and `manage.py help`, which needs no database. The last figure
is the time to the demo's first line.
"""

import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import sink
from benchmarks.as_run import Lists
from benchmarks.installation import PROJECT, Installation, end_at_sigterm
from benchmarks.letters import ApiClient
from benchmarks.results import keep
from benchmarks.stage import console, in_turns, numbers, stage
from tests.waiting import wait_until

WARM = 10  # letters before the measured ones
BETWEEN = (0.2, 0.45)  # seconds between two letters, evenly spread so as not to be in step with any clock of ours
VENDOR = "letters"


def milliseconds(at: Installation, where: sink.Sink, letters: int) -> list[float]:
    """Return the time from each 202 to the letter's arrival."""
    client, accepted = ApiClient(at), dict[str, float]()
    for number in range(WARM + letters):
        recipient = f"single{number}@example.org"
        accepted[recipient] = client.send(VENDOR, recipient)
        time.sleep(random.uniform(*BETWEEN))
    wait_until(lambda: where.count(VENDOR) == WARM + letters, "all letters arrive")
    where.facts(VENDOR, WARM + letters)
    arrived = dict(where.each(VENDOR))
    return [1000 * (arrived[one] - moment) for one, moment in list(accepted.items())[WARM:]]


def seconds(run: Callable[[], object]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def first_line_of_demo(at: Installation) -> float:
    """Return seconds until `manage.py demo` prints a line in a fresh home, then end it."""
    with tempfile.TemporaryDirectory(prefix="mailhub-bench-") as folder:
        variables = at.environment | {"MAILHUB_HOME": folder}
        order, began = at.command("demo", "--once"), time.monotonic()
        with subprocess.Popen(order, cwd=PROJECT, env=variables, stdout=subprocess.PIPE) as demo:
            assert demo.stdout is not None
            if not demo.stdout.readline():
                raise SystemExit("the demo says nothing")
            took = time.monotonic() - began
            demo.send_signal(signal.SIGINT)
            demo.communicate()
    return took


def commands(at: Installation, lists: Lists) -> dict[str, Callable[[], float]]:
    one = lists.order(VENDOR, lists.of(1))
    interpreter = [sys.executable, "-c", "pass"]
    return {
        "send_campaign, one recipient": lambda: seconds(lambda: at.manage(*one)),
        "manage.py help": lambda: seconds(lambda: at.manage("help")),
        "manage.py demo, its first line": lambda: first_line_of_demo(at),
        "python -c pass": lambda: seconds(lambda: subprocess.run(interpreter, cwd=PROJECT, check=True)),
    }


def main() -> None:
    letters, rounds = numbers(200, 10)
    end_at_sigterm()
    with stage(), sink.running() as where, tempfile.TemporaryDirectory() as folder:
        at = Installation()
        with at.up():
            at.manage("vendor", "add", VENDOR, "--adapter", "http", "--set", f"url={where.url(VENDOR)}")
            waits = milliseconds(at, where, letters)
            times = in_turns(commands(at, Lists(Path(folder))), rounds)
    places = statistics.quantiles(waits, n=100, method="inclusive")
    within = {"half within": [places[49]], "99 % within": [places[98]], "longest": [max(waits)]}
    keep("One letter at an idle hub, from the 202 to the vendor", "ms", within)
    keep("The command that sends one letter, and what else starts Python", "s", times)
    for name, values in within.items():
        console.print(f"{letters} letters over the API, from the 202 to the vendor: {name} {values[0]:,.1f} ms")
    for name, values in times.items():
        console.print(f"{name:30} {statistics.median(values):6.2f} s ({min(values):.2f}..{max(values):.2f})")


if __name__ == "__main__":
    main()
