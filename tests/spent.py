"""A pytest plugin: what each test took, in seconds of the clock and of processors, with all its processes and servers.

`python -m pytest -p tests.spent ...` with SPENT_FILE in the environment, without `-n`: each test is a line,
`wall processor test`. What a test leaves running counts for those after it. `python -m tests.spent FILE` adds them up
by files of tests, and says which took most.
"""

import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

TICK = os.sysconf("SC_CLK_TCK")
OFTEN = 0.5  # seconds between two looks at processes that may end
_looking = threading.Lock()
_known: dict[int, tuple[int, int]] = {}
_lost = 0


def pytest_sessionstart() -> None:
    """From here on what short-lived processes take is seen."""

    def watch() -> None:
        while True:
            time.sleep(OFTEN)
            _processors()

    threading.Thread(target=watch, daemon=True).start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Around each test, with its fixtures."""
    wall, processors = time.monotonic(), _processors()
    try:
        return (yield)
    finally:
        with Path(os.environ["SPENT_FILE"]).open("a") as file:
            file.write(f"{time.monotonic() - wall:.2f} {_processors() - processors:.2f} {item.nodeid}\n")


def _processors() -> float:
    """Seconds that this run's processes have taken, with those that have ended."""
    global _lost, _known
    with _looking:
        found = _look()
        # Whoever lives has what its children took, once they are waited for. Those without parent nobody waits for.
        gone = (_known[pid] for pid in _known.keys() - found.keys())
        _lost += sum(took for parent, took in gone if parent not in found)
        _known = found
        return (_lost + sum(took for _, took in found.values())) / TICK


def _look() -> dict[int, tuple[int, int]]:
    """Of each process of this run its parent and the ticks that it and its children took."""
    home = os.environ["MAILHUB_HOME"].encode()  # the servers know it by their arguments alone
    seen, ours = {}, {os.getpid(), *_known}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            texts = (folder / "environ").read_bytes() + b"\0" + (folder / "cmdline").read_bytes()
        except OSError:
            continue  # it has just ended
        seen[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15]))
        if home in texts:
            ours.add(int(folder.name))
    return {pid: found for pid, found in seen.items() if _descends(pid, seen, ours)}


def _descends(pid: int, seen: dict[int, tuple[int, int]], ours: set[int]) -> bool:
    while pid and pid not in ours:
        pid = seen.get(pid, (0, 0))[0]
    return pid in ours


def main(path: str) -> None:
    """A line for each file of tests, those that took most of a processor first."""
    files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
    for line in Path(path).read_text().splitlines():
        wall, processors, test = line.split(" ", 2)
        for n, number in enumerate((float(wall), float(processors), 1)):
            files[test.partition("::")[0]][n] += number
    files["all"] = [sum(column) for column in zip(*files.values(), strict=True)]
    print("processor s   wall s  tests")
    for name, (wall, processors, tests) in sorted(files.items(), key=lambda file: -file[1][1]):
        print(f"{processors:11.1f} {wall:8.1f} {tests:6d}  {name}")


if __name__ == "__main__":
    main(sys.argv[1])
