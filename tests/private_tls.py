"""A Redis and a PostgreSQL of one test that speak nothing but TLS, to users with passwords.

The Redis that Python's packages bring lacks TLS: REDIS_WITH_TLS names a program that has it, unless one is installed.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

from redis import Redis, RedisError

from tests.ports import free_port
from tests.postgres_pair import Server
from tests.tiers import demand_slow
from tests.waiting import DEADLINE, exit_of, wait_until
from vendors.testing.certificates import authority

USER, PASSWORD = "mailhub", "p@ss/word"


def redis_with_tls() -> str:
    """Return the program of a Redis or Valkey that speaks TLS, or ""."""
    names = [os.environ.get("REDIS_WITH_TLS", ""), "valkey-server", "redis-server"]
    return next((found for name in names if (found := shutil.which(name)) and _has_tls(found)), "")


def _has_tls(program: str) -> bool:
    """Start it with a certificate that does not exist: only a program with TLS ends for that reason."""
    with tempfile.TemporaryDirectory() as folder:
        missing = ["--tls-cert-file", f"{folder}/none", "--tls-key-file", f"{folder}/none", "--tls-auth-clients", "no"]
        asked = [program, "--port", "0", "--tls-port", str(free_port()), *missing, "--save", ""]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=DEADLINE, cwd=folder)
    return "Failed to load certificate" in done.stdout + done.stderr


class TlsRedis:
    """Starts at once. url: for those who trust its authority. Only USER may do anything."""

    def __init__(self, program: str) -> None:
        demand_slow("a Redis of its own")
        self.port, self.folder = free_port(), Path(tempfile.mkdtemp(prefix="mailhub-tls-redis-"))
        self.url = f"rediss://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/0?ssl_ca_certs={authority()}"
        options = {
            "port": "0", "tls-port": str(self.port), "bind": "127.0.0.1", "dir": str(self.folder), "save": '""',
            "tls-cert-file": str(authority()), "tls-key-file": str(authority()), "tls-auth-clients": "no",
        }  # fmt: skip
        users = ["user default off", f"user {USER} on >{PASSWORD} ~* &* +@all"]
        settings = self.folder / "redis.conf"
        settings.write_text("\n".join([*(f"{name} {value}" for name, value in options.items()), *users, ""]))
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([program, str(settings)], stdout=log, stderr=log)
        try:
            wait_until(self._answers, "Redis answers over TLS")
        except BaseException:
            self.end()
            raise

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            with Redis.from_url(self.url) as client:
                return client.ping() is True
        except RedisError:
            return False

    def end(self) -> None:
        self._process.kill()
        exit_of(self._process)
        shutil.rmtree(self.folder, ignore_errors=True)


class TlsPostgres:
    """Starts at once. url: for those who trust its authority and look at its name. `has_tls`: its program knows TLS."""

    def __init__(self) -> None:
        self.port, self._folder = free_port(), Path(tempfile.mkdtemp(prefix="mailhub-tls-postgres-"))
        self.server = Server(self._folder / "pg", port=str(self.port))
        login = f"{USER}:{quote(PASSWORD, safe='')}"
        self.url = (
            f"postgres://{login}@127.0.0.1:{self.port}/mailhub?sslmode=verify-full&sslrootcert="
            f"{quote(str(authority()), safe='')}"
        )
        try:
            self._folder.chmod(0o755)
            self.server.create()
            self.has_tls = self.server.ask("SELECT setting <> '' FROM pg_settings WHERE name = 'ssl_library'") == [
                (True,)
            ]
            if self.has_tls:
                self._demand_tls()
        except BaseException:
            self.end()
            raise

    def _demand_tls(self) -> None:
        self.server.ask(f"ALTER ROLE {USER} PASSWORD '{PASSWORD}'")
        self.server.stop()
        owner, certificate = self.server.data.stat(), self.server.data / "server.pem"
        certificate.write_bytes(authority().read_bytes())
        os.chown(certificate, owner.st_uid, owner.st_gid)
        certificate.chmod(0o600)
        rules = f"local all all trust\nhostssl all {USER} 127.0.0.1/32 scram-sha-256\n"
        (self.server.data / "pg_hba.conf").write_text(rules)
        more = {
            "listen_addresses": "127.0.0.1",
            "ssl": "on",
            "ssl_cert_file": "server.pem",
            "ssl_key_file": "server.pem",
        }
        self.server.settings |= more
        self.server.start()

    def end(self) -> None:
        if hasattr(self.server, "process"):
            self.server.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
