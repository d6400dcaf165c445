"""The image's processes in containers to the first mail, as compose.yaml has them: user, read-only root, commands.

`MAILHUB_IMAGE=mailhub:0.3.0 make test TESTS=tests/deploy/test_containers.py` with a built image. MAILHUB_PODMAN: how
podman is called here, with its options.
"""

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.deploy.test_first_mail import read_services, read_steps, replaced
from tests.plugin import folders
from tests.ports import free_port
from tests.postgres_pair import Server
from tests.private_redis import PrivateRedis
from tests.waiting import wait_until

IMAGE, PODMAN = os.environ.get("MAILHUB_IMAGE", ""), shlex.split(os.environ.get("MAILHUB_PODMAN", "podman"))
pytestmark = [
    pytest.mark.slow("programs"),
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not IMAGE, reason="MAILHUB_IMAGE names no image"),
]
STARTED = ("web", "api", "worker-hub", "worker-vendors", "worker-webhooks", "beat", "sandbox")
FENCED = ["--network=host", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
Start = Callable[[str, list[str], dict[str, str]], str]


def podman(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PODMAN, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def given() -> Iterator[dict[str, str]]:
    """The settings of all containers: a PostgreSQL and a Redis that the image's user reaches by the network."""
    ports = [str(free_port()) for _ in range(2)]
    redis = PrivateRedis(port=ports[1], bind="127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="postgres-", dir=folders()[0]) as folder:
        server = Server(Path(folder, "a"), listen_addresses="127.0.0.1", port=ports[0])
        try:
            server.create()
            yield {
                "DATABASE_URL": f"postgres://mailhub@127.0.0.1:{ports[0]}/mailhub",
                "REDIS_URL": f"redis://127.0.0.1:{ports[1]}/0",
                "SECRET_KEY": settings.SECRET_KEY,
                "STORES_MAY_LOSE": "1",
                "PORT": str(free_port()),
                "API_PORT": str(free_port()),
            }
        finally:
            server.kill()
            redis.end()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a container of the image under this name; all are removed at the end."""
    prefix, started = f"mailhub-test-{os.getpid()}", list[str]()

    def start_one(name: str, command: list[str], given: dict[str, str]) -> str:
        variables = [word for one, value in given.items() for word in ("--env", f"{one}={value}")]
        container = f"{prefix}-{name}"
        started.append(container)
        ran = podman("run", "--detach", "--name", container, *FENCED, *variables, IMAGE, *command)
        assert ran.returncode == 0, ran.stderr
        return container

    try:
        yield start_one
    finally:
        for one in started:
            podman("rm", "--force", "--time", "30", one)


def test_the_image_leads_to_mails_as_a_user_without_rights_on_a_root_that_is_read_only(
    given: dict[str, str], start: Start
) -> None:
    services, vendor_port = read_services(), str(free_port())
    migrate = start("migrate", services["migrate"]["command"], given)
    ended = podman("wait", migrate)
    assert ended.stdout.strip() == "0", podman("logs", migrate)
    there = {}
    for name in STARTED:
        command = [vendor_port if one == "9000" else one for one in services[name].get("command", [])]
        role = services[name]["environment"].get("MAILHUB_ROLE")
        there[name] = start(name, command, given | ({"MAILHUB_ROLE": role} if role else {}))

    def inside(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return podman("exec", there[name], *arguments)

    for name in STARTED[:-1]:
        wait_until(lambda name=name: inside(name, "mailhub", "alive").returncode == 0, f"{name} lives", every=1.0,
                   log=lambda name=name: str(podman("logs", there[name])))  # fmt: skip
        assert inside(name, "id", "-u").stdout.strip() == "10001"
        assert "Read-only file system" in inside(name, "touch", "/opt/mailhub/a").stderr
    here = {":9000": f":{vendor_port}"}
    for step in read_steps():
        ran = inside("web", "mailhub", *(replaced(word, here) for word in step))
        assert ran.returncode == 0, (step, ran)
        assert "400 accepted" in ran.stdout or step[0] != "send_campaign", ran.stdout
    found = inside("web", "mailhub", "list_jobs", "--json")
    assert {json.loads(line)["status"] for line in found.stdout.splitlines()} <= {"FINISHED", "P_FINISHED"}, found
    for name in ("worker-vendors", "web", "beat"):
        podman("stop", "--time", "60", there[name])
        (state,) = read_states(there[name])
        assert state["ExitCode"] == 0, (name, state, podman("logs", there[name]).stderr[-2000:])


def read_states(*containers: str) -> list[dict[str, Any]]:
    return [one["State"] for one in json.loads(podman("inspect", *containers).stdout)]
