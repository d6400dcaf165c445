"""A Redis of one test with a replica and three Sentinels, which make the replica master when the master is gone."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from redis import Redis, RedisError

from mailhub.embedded.binaries import redis_program
from tests.ports import free_port
from tests.tiers import demand_slow
from tests.waiting import DEADLINE, wait_until

MASTER = "mymaster"
DOWN_MS = 1000  # without an answer for so long the master is down for a Sentinel
PASSWORD = "of all servers"


class PrivateSentinels:
    """Starts at once. url: as REDIS_URL; `kill_master` ends the master for good."""

    def __init__(self) -> None:
        demand_slow("a Redis with its replica and Sentinels")
        self.folder = Path(tempfile.mkdtemp(prefix="mailhub-sentinels-"))
        self._program = redis_program()[0]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.nodes: list[int] = []
        master = self._server()
        self._server(replicaof=f"127.0.0.1 {master}")
        for _ in range(3):
            self.nodes.append(free_port())
            self._start_sentinel(self.nodes[-1], master)
        nodes = ",".join(f"127.0.0.1:{port}" for port in self.nodes)
        self.url = f"redis+sentinel://:{PASSWORD.replace(' ', '%20')}@{nodes}/{MASTER}/3"
        wait_until(self._all_know, "the Sentinels know the replica and each other", 60)

    def _start(self, port: int, *args: str) -> None:
        with (self.folder / f"log-{port}").open("ab") as log:
            self._processes[port] = subprocess.Popen([self._program, *args], stdout=log, stderr=log)
        wait_until(lambda: self._answers(port), f"{port} answers")

    def _server(self, **more: str) -> int:
        port = free_port()
        folder = self.folder / str(port)
        folder.mkdir()
        options = {"port": str(port), "bind": "127.0.0.1", "dir": str(folder), "save": "", "appendonly": "no"}
        options |= {"requirepass": PASSWORD, "masterauth": PASSWORD, "repl-diskless-sync-delay": "0", **more}
        self._start(port, *(word for name, value in options.items() for word in (f"--{name}", value)))
        return port

    def _start_sentinel(self, port: int, master: int) -> None:
        file = self.folder / f"sentinel-{port}.conf"
        file.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {self.folder}\nsentinel monitor {MASTER} 127.0.0.1 {master} 2\n"
            f'sentinel auth-pass {MASTER} "{PASSWORD}"\nsentinel down-after-milliseconds {MASTER} {DOWN_MS}\n'
            f"sentinel failover-timeout {MASTER} 5000\n"
        )
        self._start(port, str(file), "--sentinel")

    def _client(self, port: int) -> Redis:
        return Redis("127.0.0.1", port, password=None if port in self.nodes else PASSWORD, socket_timeout=2)

    def _answers(self, port: int) -> bool:
        assert self._processes[port].poll() is None, (self.folder / f"log-{port}").read_text()[-2000:]
        try:
            with self._client(port) as client:
                return bool(client.ping())
        except RedisError:
            return False

    def _all_know(self) -> bool:
        for port in self.nodes:
            with self._client(port) as client:
                seen = client.sentinel_master(MASTER)
            if seen["num-slaves"] < 1 or seen["num-other-sentinels"] < 2:
                return False
        return True

    def master(self) -> int:
        """Return the port of the master that the first Sentinel names."""
        with self._client(self.nodes[0]) as client:
            return int(client.sentinel_get_master_addr_by_name(MASTER)[1])

    def kill_master(self) -> None:
        """Kill it and wait until the replica is the master."""
        old = self.master()
        self._processes[old].kill()
        wait_until(lambda: self.master() != old, "the replica is the master", 60)

    def demote_master(self) -> None:
        """Let the Sentinels change master and replica; the old master lives on."""
        old = self.master()
        with self._client(self.nodes[0]) as client:
            client.execute_command("SENTINEL", "FAILOVER", MASTER)
        wait_until(lambda: self.master() != old, "the replica is the master", 60)

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait(DEADLINE)
        shutil.rmtree(self.folder, ignore_errors=True)
