"""A RabbitMQ of one test file, where its program is installed, or a cluster; on loopback, removed at the end."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

from tests.ports import free_port
from tests.waiting import DEADLINE, exit_of, wait_until
from vendors.testing.certificates import authority

FOLDERS = "/usr/lib/rabbitmq/bin:/usr/local/lib/rabbitmq/bin:/opt/homebrew/sbin"  # sbin's is for root and one user only
PROGRAM = shutil.which("rabbitmq-server", path=f"{FOLDERS}:{os.environ.get('PATH', '')}")


class PrivateRabbitMQ:
    """Starts at once. `consumer_timeout`: milliseconds after which a message that is not acknowledged comes back.

    RabbitMQ looks for such messages once a minute; this one does so every 200 ms.
    """

    def __init__(self, consumer_timeout: int = 1_800_000) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mailhub-rabbitmq-"))
        self.port = free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}//"
        settings = [f"listeners.tcp.default = 127.0.0.1:{self.port}", f"consumer_timeout = {consumer_timeout}"]
        (self.folder / "rabbitmq.conf").write_text("\n".join([*settings, "log.console = false", ""]))
        (self.folder / "advanced.config").write_text("[{rabbit, [{channel_tick_interval, 200}]}].\n")
        self._environment = {
            **os.environ,
            "HOME": str(self.folder),  # Erlang's cookie
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"mailhub-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
        }
        self.start()

    def start(self) -> None:
        assert PROGRAM
        self._process = subprocess.Popen(
            [PROGRAM],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until(self._answers, "RabbitMQ answers", DEADLINE)

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self.folder / "log").exists() and [
            log.read_text()[-2000:] for log in (self.folder / "log").glob("*.log")
        ]
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True
        except OSError:
            return False

    def control(self, *args: str) -> str:
        """What rabbitmqctl answers."""
        assert PROGRAM
        program = Path(PROGRAM).with_name("rabbitmqctl")
        command = [str(program), "--quiet", "-n", self._environment["RABBITMQ_NODENAME"], *args]
        return subprocess.run(command, env=self._environment, check=True, capture_output=True, text=True).stdout

    def stop(self) -> None:
        """As an administrator does: its data stay."""
        self._process.terminate()
        exit_of(self._process)

    def lose_all(self) -> None:
        """Comes back empty."""
        self.stop()
        shutil.rmtree(self.folder / "data")
        self.start()

    def end(self) -> None:
        self.stop()
        subprocess.run(["epmd", "-kill"], env=self._environment, capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


class PrivateRabbitCluster:
    """Starts three nodes at once, which speak TLS alone to a user with a password."""

    USER, PASSWORD = "mailhub", "p@ss/word"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mailhub-rabbits-"))
        self._epmd = str(free_port())
        self.ports = [free_port() for _ in range(3)]
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for port in self.ports:  # one after the other: each joins those that are there
                self._start(port)
            self.control("await_online_nodes", str(len(self.ports)))
        except BaseException:
            self.end()
            raise

    @property
    def url(self) -> str:
        login = f"{self.USER}:{quote(self.PASSWORD, safe='')}"
        query = f"ssl_ca_certs={quote(str(authority()), safe='')}"
        return ";".join(f"amqps://{login}@127.0.0.1:{port}//?{query}" for port in self.ports)

    def _environment(self, port: int) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self.folder),  # Erlang's cookie
            "ERL_EPMD_PORT": self._epmd,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"mailhub-{port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(self.folder / f"{port}.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / f"{port}-data"),
            "RABBITMQ_LOG_BASE": str(self.folder / f"{port}-log"),
        }

    def _start(self, port: int) -> None:
        assert PROGRAM
        lines = ["listeners.tcp = none", f"listeners.ssl.default = 127.0.0.1:{port}", "log.console = false"]
        lines += [f"ssl_options.{name}file = {authority()}" for name in ("cacert", "cert", "key")]
        lines += ["ssl_options.verify = verify_none", "ssl_options.fail_if_no_peer_cert = false"]
        lines += [f"default_user = {self.USER}", f"default_pass = {self.PASSWORD}"]
        lines += ["cluster_formation.peer_discovery_backend = classic_config"]
        lines += [
            f"cluster_formation.classic_config.nodes.{number} = mailhub-{one}@localhost"
            for number, one in enumerate(
                self.ports[: self.ports.index(port) + 1], 1
            )  # nodes to come would be waited for
        ]
        (self.folder / f"{port}.conf").write_text("\n".join([*lines, ""]))
        with (self.folder / f"{port}-output").open("ab") as output:
            process = subprocess.Popen(
                [PROGRAM],
                env=self._environment(port),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._processes.append(process)

        def answers() -> bool:
            assert process.poll() is None, (self.folder / f"{port}-output").read_text()[-3000:]
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return True
            return False

        wait_until(answers, f"the node at {port} answers", 2 * DEADLINE)

    def control(self, *args: str, node: int = 0) -> str:
        """Return what rabbitmqctl answers of this node."""
        assert PROGRAM
        environment = self._environment(self.ports[node])
        command = [
            str(Path(PROGRAM).with_name("rabbitmqctl")),
            "--quiet",
            "-n",
            environment["RABBITMQ_NODENAME"],
            *args,
        ]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    def kill_node(self, node: int) -> None:
        """Kill it with its helpers, as a power cut does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._processes[node].pid, signal.SIGKILL)
        self._processes[node].wait(DEADLINE)

    def end(self) -> None:
        for node in range(len(self._processes)):
            self.kill_node(node)
        if PROGRAM:
            environment = self._environment(self.ports[0])
            subprocess.run(["epmd", "-kill"], env=environment, capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
