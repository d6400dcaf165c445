"""A Redis of one test, for tests that lose its data or end its life."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from redis import ConnectionError as RedisConnectionError
from redis import Redis

from mailhub.embedded.binaries import redis_program
from tests.tiers import demand_slow
from tests.waiting import exit_of, wait_until


class PrivateRedis:
    """Starts at once, on a unix socket; keeps what it is told over a restart (append only file).

    more: options of Redis, which may be changed before a restart.
    """

    def __init__(self, **more: str) -> None:
        demand_slow("a Redis of its own")
        self.more = more
        self.folder = Path(tempfile.mkdtemp(prefix="mailhub-redis-"))
        self.url = f"unix://{self.folder}/redis.sock"
        self._program = redis_program()[0]
        self.start()

    def start(self, wait: bool = True) -> None:
        """wait: until it answers."""
        options = {"port": "0", "unixsocket": str(self.folder / "redis.sock"), "dir": str(self.folder)}
        options |= {"save": "", "appendonly": "yes", "appendfsync": "always", "logfile": str(self.folder / "log")}
        options |= self.more
        args = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen([self._program, *args])
        if wait:
            with self.client() as client:
                wait_until(lambda: self._answers(client), "Redis answers", every=0.01)

    def _answers(self, client: Redis) -> bool:
        assert self._process.poll() is None, (self.folder / "log").read_text()
        try:
            return client.ping() is True
        except RedisConnectionError:  # not yet there, or still loading
            return False

    def client(self) -> Redis:
        return Redis.from_url(self.url)

    def restart(self, keep: bool) -> None:
        """Killed and started again, with what it knew or with nothing."""
        self.kill()
        if not keep:
            shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)
            (self.folder / "appendonly.aof").unlink(missing_ok=True)  # before Redis 7
        self.start()

    def kill(self) -> None:
        self._process.kill()
        exit_of(self._process)

    def end(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
