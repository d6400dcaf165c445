"""From deploy/README.md to the first mail: the services of compose.yaml as processes, then the page's own commands.

Containers are not started. All else is as in the files: the process of each service, its settings, command and probe.
"""

import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ports import free_port
from tests.programs import environment, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
VARIABLE = re.compile(r"\$\{(\w+)(?::[-?]([^}]*))?\}")
PACKAGES = "/opt/mailhub/lib/python3.11/site-packages"
STARTED = ("web", "worker-hub", "worker-vendors", "worker-webhooks", "beat", "bounces", "sandbox")


def read_services() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    return services


def read_steps() -> list[list[str]]:
    """The commands that the page gives for a container of mailhub, each by its words after `mailhub`."""
    page = (ROOT / "deploy" / "README.md").read_text()
    part = page.split("\n### To the first mail\n")[1].split("\n#")[0]
    lines = re.sub(r"\\\n *", "", part)
    inside = re.findall(r"^    docker compose exec (?:-T )?web mailhub (.*)$", lines, re.MULTILINE)
    return [shlex.split(one) for one in inside]


def settings_of(service: dict[str, Any], ports: dict[str, str], home: Path) -> dict[str, str]:
    """What the file sets, with the test's servers, and ports for processes that share one network."""
    given = service["environment"].items()
    found = {name: VARIABLE.sub(lambda one: one[2] or "", str(value)) for name, value in given}
    there = environment()
    found |= {name: there[name] for name in ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "SECRET_KEY")}
    if "BOUNCE_RECEIVER" in found:
        found["BOUNCE_RECEIVER"] = f"lmtp://127.0.0.1:{free_port()}"
    return found | ports | {"MAILHUB_HOME": str(home)}


def test_the_pages_commands_lead_from_the_compose_file_to_mails_in_the_vendors_books(tmp_path: Path) -> None:
    services, vendor_port = read_services(), str(free_port())
    ports = {"PORT": str(free_port()), "API_PORT": str(free_port())}
    here = {":9000": f":{vendor_port}", PACKAGES: str(ROOT)}
    steps = [[replaced(word, here) for word in step] for step in read_steps()]
    assert [one[0] for one in steps] == ["vendor", "send_campaign", "status"]
    with ExitStack() as stack:
        for name in STARTED:
            command = [vendor_port if one == "9000" else one for one in services[name].get("command", ["run"])]
            given = settings_of(services[name], ports, tmp_path / name)
            stack.enter_context(running("manage.py", *command, **given))
        for name in STARTED[:-1]:
            probed = settings_of(services[name], ports, tmp_path / name)
            wait_until(lambda probed=probed: manage(["alive"], probed)[0] == 0, f"{name} lives", every=1.0)
        for step in steps:
            code, said = manage(step, settings_of(services["web"], ports, tmp_path / "web"))
            assert code == 0, (step, said)
            assert "400 accepted" in said or step[0] != "send_campaign", said


def manage(arguments: list[str], settings: dict[str, str]) -> tuple[int, str]:
    command = [sys.executable, "manage.py", *arguments]
    given = environment() | settings
    ran = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def replaced(word: str, others: dict[str, str]) -> str:
    for old, new in others.items():
        word = word.replace(old, new)
    return word
