"""Facts that Linux gives about a process: time, memory, and its connections to a server's unix socket.

PostgreSQL does not know the process behind a connection over a unix socket; the kernel does (sock_diag(7)).
"""

import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

SOCK_DIAG_BY_FAMILY, DUMP, DONE, ERROR = 20, 0x301, 3, 2
SHOW_NAME_AND_PEER, NAME, PEER = 5, 0, 2  # of unix_diag
HEAD, FACTS = 16, 16  # bytes
TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """A process. seconds: processor time of its own and of its children that have ended."""

    pid: int
    parent: int
    seconds: float


def processes() -> list[Process]:
    """Return all processes."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = file.read_text().partition(" (")
        except OSError:
            continue  # ended meanwhile
        fields = rest.rpartition(") ")[2].split()
        found.append(Process(int(pid), int(fields[1]), sum(map(int, fields[11:15])) / TICKS))
    return found


def descendants(of: Iterable[int], every: Iterable[Process]) -> set[int]:
    """Return these processes and all their descendants."""
    found, parents = set(of), {one.pid: one.parent for one in every}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def spent_by(pids: Collection[int], every: Iterable[Process]) -> float:
    return sum(one.seconds for one in every if one.pid in pids)


def process_seconds(pid: int) -> float:
    return spent_by([pid], processes())


def proportional_mb(processes: Iterable[int]) -> list[float]:
    """Return the proportional set size of each: pages shared by several are divided among them."""
    found = []
    for pid in processes:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # ended meanwhile
        found += [int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")]
    return found


def connections(processes: Iterable[int], server: str) -> list[int]:
    """Return each process's number of connections to the server that listens at this path."""
    peers = {peer for name, peer in _unix_sockets() if name == server and peer}
    return [len(_sockets_of(pid) & peers) for pid in processes]


def _sockets_of(pid: int) -> set[int]:
    """Return the inodes of a process's sockets."""
    found = set()
    try:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            kind, _, rest = os.readlink(file).partition(":[")
            if kind == "socket":
                found.add(int(rest[:-1]))
    except OSError:
        pass  # ended meanwhile
    return found


def _unix_sockets() -> Iterator[tuple[str, int]]:
    """Yield the name of each socket and the inode of its other end."""
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, SHOW_NAME_AND_PEER, 0, 0)
    head = struct.pack("=IHHII", HEAD + len(request), SOCK_DIAG_BY_FAMILY, DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as kernel:
        kernel.sendall(head + request)
        while True:
            data = kernel.recv(1 << 20)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                if kind == DONE:
                    return
                if kind == ERROR:
                    raise OSError("the kernel does not tell of unix sockets")
                facts = dict(_attributes(data[HEAD + FACTS : length]))
                peer = struct.unpack("=I", facts[PEER])[0] if PEER in facts else 0
                yield facts.get(NAME, b"").decode(errors="replace").rstrip("\0"), peer
                data = data[_aligned(length) :]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind, data[4:length]
        data = data[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3
