"""The private Redis (or Valkey, which works the same): broker, results and the throttle's windows."""

import signal
import socket
from pathlib import Path
from urllib.parse import quote

from mailhub.embedded import redis_data
from mailhub.embedded.binaries import redis_program
from mailhub.embedded.data_dir import Home
from mailhub.embedded.process import demoted_prefix
from mailhub.embedded.redis_data import RedisVersion

ANSWER_SECONDS = 10
DATABASES = 64  # each test process uses one


class Redis:
    """The Redis of a home."""

    name = "redis"
    title = "Redis"
    variable = "REDIS_URL"
    fast_stop = signal.SIGTERM
    way_out = "; `manage.py services rebuild-redis` puts its data aside, begins with an empty Redis and keeps all mail"

    def __init__(self, home: Home) -> None:
        self.home = home
        self.data = home.path / "redis"

    def url(self) -> str:
        return f"unix://{quote(str(self.socket()))}?db=0"

    def answers(self) -> bool:
        """Return True if it answers, False while it loads its data."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(ANSWER_SECONDS)
                connection.connect(str(self.socket()))
                connection.sendall(b"PING\r\n")
                answer = connection.recv(64)
        except OSError:
            return False
        return answer != b"" and not answer.startswith(b"-LOADING")

    def socket(self) -> Path:
        return self.home.socket_dir() / "redis.sock"

    def prepare(self, durable: bool) -> None:
        """Create the data folder, record the program that opens it, and remove a socket that a crash left."""
        self.home.private_folder("redis")
        self.socket().unlink(missing_ok=True)
        redis_data.set_mark(self.data, self._find_program()[1])

    def command(self, durable: bool) -> list[str]:
        """Return the server's command line. durable=False, for tests: a restart loses everything."""
        server, _ = self._find_program()
        options = {
            "port": "0",
            "unixsocket": str(self.socket()),
            "unixsocketperm": "700",
            "databases": str(DATABASES),
            "save": "",
            "appendonly": "yes" if durable else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",  # an evicted window would let the throttle grant twice
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        return [*demoted_prefix(self.home.path, server), str(server), *arguments]

    def _find_program(self) -> tuple[Path, RedisVersion]:
        return redis_program(self.data if self.data.exists() else None)
