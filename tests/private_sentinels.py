"""A Redis of one test with a replica and three Sentinels, which make the replica master when the master is gone.

Either without TLS and users, or all five speak TLS alone, know no default user, and the Sentinels want another one.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from redis import Redis, RedisError

from mailhub.embedded.binaries import redis_program
from tests.ports import free_port
from tests.tiers import demand_slow
from tests.waiting import exit_of, wait_until
from vendors.testing.certificates import authority

MASTER = "mymaster"
DOWN_MS = 1000  # without an answer for so long the master is down for a Sentinel
PASSWORD = "of all servers"
USER, WATCHER, WATCHERS_PASSWORD = "mailhub", "watcher", "of/Sentinels"


class PrivateSentinels:
    """Starts at once. url: as REDIS_URL; `kill_master` ends the master for good.

    program: a Redis or Valkey that knows TLS, for servers that speak nothing else.
    """

    def __init__(self, program: str = "") -> None:
        demand_slow("a Redis with its replica and Sentinels")
        self.folder = Path(tempfile.mkdtemp(prefix="mailhub-sentinels-"))
        self._program, self._secure = program or redis_program()[0], bool(program)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.nodes: list[int] = []
        try:
            self._start_all()
        except BaseException:
            self.end()
            raise

    def _start_all(self) -> None:
        master = self._start_server()
        self._start_server(f"replicaof 127.0.0.1 {master}")
        for _ in range(3):
            self.nodes.append(free_port())
            self._start_sentinel(self.nodes[-1], master)
        wait_until(self._all_know, "the Sentinels know the replica and each other", 60)

    @property
    def url(self) -> str:
        scheme, user, query = "redis+sentinel", "", ""
        if self._secure:
            scheme, user = "rediss+sentinel", USER
            login = f"sentinel_user={WATCHER}&sentinel_password={quote(WATCHERS_PASSWORD, safe='')}"
            query = f"?{login}&ca_file={quote(str(authority()), safe='')}"
        nodes = ",".join(f"127.0.0.1:{port}" for port in self.nodes)
        return f"{scheme}://{user}:{quote(PASSWORD)}@{nodes}/{MASTER}/3{query}"

    def _start(self, port: int, lines: list[str], *args: str) -> None:
        listen = [f"port {port}"]
        if self._secure:
            files = [f"tls-{name}-file {authority()}" for name in ("cert", "key", "ca-cert")]
            listen = ["port 0", f"tls-port {port}", *files, "tls-auth-clients no", "tls-replication yes"]
        file = self.folder / f"{port}.conf"
        file.write_text("\n".join([*listen, "bind 127.0.0.1", *lines, ""]))
        with (self.folder / f"log-{port}").open("ab") as log:
            self._processes[port] = subprocess.Popen([self._program, str(file), *args], stdout=log, stderr=log)
        wait_until(lambda: self._answers(port), f"{port} answers")

    def _start_server(self, *lines: str) -> int:
        port = free_port()
        folder = self.folder / str(port)
        folder.mkdir()
        login = [f'requirepass "{PASSWORD}"']
        if self._secure:
            login = ["user default off", f'user {USER} on ">{PASSWORD}" ~* &* +@all', f"masteruser {USER}"]
        usual = [f"dir {folder}", 'save ""', "appendonly no", "repl-diskless-sync-delay 0"]
        self._start(port, [*usual, *login, f'masterauth "{PASSWORD}"', *lines])
        return port

    def _start_sentinel(self, port: int, master: int) -> None:
        login: list[str] = []
        if self._secure:
            login = [
                "user default off", f"user {WATCHER} on >{WATCHERS_PASSWORD} ~* &* +@all",
                f"sentinel sentinel-user {WATCHER}", f"sentinel sentinel-pass {WATCHERS_PASSWORD}",
                f"sentinel auth-user {MASTER} {USER}",
            ]  # fmt: skip
        watch = [f"dir {self.folder}", f"sentinel monitor {MASTER} 127.0.0.1 {master} 2"]
        limits = [f"down-after-milliseconds {MASTER} {DOWN_MS}", f"failover-timeout {MASTER} 5000"]
        lines = [*watch, f'sentinel auth-pass {MASTER} "{PASSWORD}"', *login, *(f"sentinel {one}" for one in limits)]
        self._start(port, lines, "--sentinel")

    def _client(self, port: int) -> Redis:
        login: dict[str, Any] = {} if port in self.nodes else {"password": PASSWORD}
        if self._secure:
            user = (WATCHER, WATCHERS_PASSWORD) if port in self.nodes else (USER, PASSWORD)
            login = {"username": user[0], "password": user[1], "ssl": True, "ssl_ca_certs": str(authority())}
        return Redis("127.0.0.1", port, socket_timeout=2, **login)

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
            exit_of(process)
        shutil.rmtree(self.folder, ignore_errors=True)
