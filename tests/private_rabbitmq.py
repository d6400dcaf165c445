"""A RabbitMQ of one test file, where its program is installed; on loopback, removed at the end."""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from tests.ports import free_port
from tests.waiting import DEADLINE, wait_until

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
        self._process.wait(DEADLINE)

    def lose_all(self) -> None:
        """Comes back empty."""
        self.stop()
        shutil.rmtree(self.folder / "data")
        self.start()

    def end(self) -> None:
        self.stop()
        subprocess.run(["epmd", "-kill"], env=self._environment, capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
