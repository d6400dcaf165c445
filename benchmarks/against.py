"""Two versions side by side: `python -m benchmarks.against OTHER_CHECKOUT [rounds] [messages]`.

Both run at once, each with its own PostgreSQL, Redis, sandbox vendor and sender, and send one campaign a turn. Turns
alternate within a second, so a machine whose speed drifts slows both. Prints the median of the ratios within a round,
for messages a second and for the processor time of the sender.
"""

import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
WARM_UPS = 2


def serve(messages: int) -> None:
    """Send a campaign for each line of the standard input; print the seconds and the processor's seconds it took."""
    sys.path.insert(0, os.getcwd())
    warnings.simplefilter("ignore")
    from benchmarks.stage import stage

    with stage():
        from benchmarks import recipients, sending
        from campaigns.models import Job
        from tests import sandbox
        from tests.faults.sending import take_again

        try:
            from campaigns.engine.sending import send_claimed_job
        except ImportError:  # a version before its functions were renamed
            from campaigns.engine.sending import send as send_claimed_job  # type: ignore[attr-defined,no-redef]
        with sandbox.running() as vendor:
            credential = sending.login(vendor.url)
            print("ready", flush=True)
            for _ in sys.stdin:
                job = recipients.job(messages, credential)
                Job.objects.filter(pk=job.pk).update(status="DISPATCHED")
                take_again(job)
                began, used = time.monotonic(), time.process_time()
                send_claimed_job(job.pk, job.fence)
                print(time.monotonic() - began, time.process_time() - used, flush=True)


class Version:
    """A checkout whose sender waits for its turn."""

    def __init__(self, checkout: Path, messages: int) -> None:
        command = [sys.executable, "-W", "ignore", __file__, "--serve", str(messages)]
        self._process = subprocess.Popen(
            command, cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.turns: list[tuple[float, float]] = []
        if self._read() != "ready":
            raise SystemExit(f"{checkout} cannot send; its error stands above")

    def send(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("next\n")
        seconds, used = map(float, self._read().split())
        self.turns.append((seconds, used))

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(60)

    def _read(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()


def main() -> None:
    other, *more = sys.argv[1:]
    rounds, messages = [*map(int, more), *(60, 8_000)[len(more) :]]
    versions = {"this version": Version(HERE, messages), other: Version(Path(other), messages)}
    try:
        for number in range(rounds + WARM_UPS):
            ordered = list(versions.values())
            for version in ordered if number % 2 else ordered[::-1]:
                version.send()
    finally:
        for version in versions.values():
            version.close()
    for name, version in versions.items():
        seconds, used = (statistics.median(column) for column in zip(*version.turns[WARM_UPS:], strict=True))
        print(f"{name}: {messages / seconds:,.0f} messages/s, {used / messages * 1e6:.1f} us of the sender a message")
    pairs = list(zip(*(version.turns[WARM_UPS:] for version in versions.values()), strict=True))
    rate, cost = (statistics.median(pair) for pair in zip(*((b[0] / a[0], a[1] / b[1]) for a, b in pairs), strict=True))
    print(f"this version / {other}: {rate:.3f} of the rate, {cost:.3f} of the processor time, {rounds} rounds")


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(int(sys.argv[2]))
    else:
        main()
