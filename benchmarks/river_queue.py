"""River, a queue in PostgreSQL for Go, as a yardstick: one job row a message (benchmarks/river/main.go).

It has its own PostgreSQL, set up as mailhub's is. Without Go there is no such row.
"""

import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.installation import servers_of_its_own
from benchmarks.processes_seen import descendants, processes, spent_by
from benchmarks.sink import Sink
from mailhub import embedded
from mailhub.embedded.postgres import Postgres
from mailhub.embedded.process import Daemon

SOURCES = Path(__file__).parent / "river"
WORKERS = 200


def build(folder: Path) -> Path | None:
    """Build the program. Returns None after printing the reason if that fails."""
    if shutil.which("go") is None:
        print("no row of River: Go is not installed")
        return None
    program = folder / "river"
    made = subprocess.run(["go", "build", "-o", program, "."], cwd=SOURCES, capture_output=True, text=True)
    if made.returncode:
        print(f"no row of River: it cannot be built: {made.stderr[-500:]}")
        return None
    return program


def run(program: Path, sink: Sink, messages: int, costs: dict[str, list[float]]) -> float:
    """Return messages a second from the start of its workers to the last arrival; all jobs are stored before.

    Adds its processor time by part, in microseconds a message, to `costs`.
    """
    with servers_of_its_own() as home:
        command = [str(program), Postgres(home).url(), sink.url("river"), str(messages), str(WORKERS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as river:
            try:
                expect(river, "ready")
                before, began = spent(home, river.pid), time.monotonic()
                assert river.stdin is not None
                river.stdin.write("\n")
                river.stdin.flush()
                expect(river, "done")
                after = spent(home, river.pid)
            finally:
                river.kill()
    facts = sink.facts("river", messages)
    sink.forget("river")
    for part, value in after.items():
        costs.setdefault(part, []).append(1e6 * (value - before[part]) / messages)
    return messages / (facts["last"] - began)


def expect(river: "subprocess.Popen[str]", word: str) -> None:
    assert river.stdout is not None
    if river.stdout.readline().strip() != word:
        raise SystemExit(f"River ended with {river.wait()} and did not say {word!r}")


def spent(home: embedded.Home, river: int) -> dict[str, float]:
    every = processes()
    server = Daemon("postgres", home.path).process_id()
    assert server is not None
    parts = {"River": river, "River's PostgreSQL": server}
    return {part: spent_by(descendants([pid], every), every) for part, pid in parts.items()}
