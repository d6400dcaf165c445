"""Another Django project uses the waiter: it has the files that waiter/README.md shows, and nothing of mailhub's.

A folder of its own with `waiter/` in it, a PostgreSQL database and a Redis of its own, and a real worker with beat.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from psycopg.rows import tuple_row

from tests.factories import unique
from tests.private_redis import PrivateRedis
from tests.waiting import DEADLINE, exit_of, wait_until
from vendors.redis_addresses import celery_url

pytestmark = [pytest.mark.slow("processes"), pytest.mark.timeout(600)]
WAITER = Path(__file__).parents[2] / "waiter"
SETTINGS = """
import os
import dj_database_url

SECRET_KEY = "shop"
TIME_ZONE = CELERY_TIMEZONE = "America/New_York"
DATABASES = {"default": dj_database_url.parse(os.environ["DATABASE_URL"])}
CELERY_BROKER_URL = os.environ["BROKER_URL"]
INSTALLED_APPS = ["django.contrib.contenttypes", "shop"]
"""
TASKS = """
import json
import sys
from pathlib import Path
from celery import shared_task

@shared_task
def note(word):
    foreign = sorted({"mailhub", "campaigns", "vendors", "sandbox"} & set(sys.modules))
    with Path("notes").open("a") as page:
        page.write(json.dumps([word, foreign]) + "\\n")
"""


class Shop:
    """The project in its folder, and what it starts."""

    def __init__(self, folder: Path, database: str, broker: PrivateRedis) -> None:
        self.folder, self.broker = folder, broker
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "WAITER_SWEEP_MINUTES")},
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "DATABASE_URL": database,
            "BROKER_URL": celery_url(broker.url),
            "PYTHONPATH": str(folder),
        }
        shop = folder / "shop"
        shop.mkdir()
        (folder / "waiter").symlink_to(WAITER)
        readme = re.findall(r"`(shop/\w+\.py)`\n\n```python\n(.*?)```", (WAITER / "README.md").read_text(), re.DOTALL)
        assert [name for name, _ in readme] == ["shop/celery.py", "shop/__init__.py", "shop/settings.py"]
        for name, text in [("shop/settings.py", SETTINGS), ("shop/tasks.py", TASKS), *readme]:
            with (folder / name).open("a") as file:
                file.write(text)
        with (shop / "settings.py").open("a") as file:  # beat looks every five minutes otherwise
            file.write('CELERY_BEAT_SCHEDULE["release parked tasks"]["schedule"] = 1\n')

    def start(self, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, *arguments], cwd=self.folder, env=self._environment, text=True, **options
        )

    def run(self, *arguments: str) -> str:
        """What it writes; the process has ended well."""
        with self.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            said, _ = process.communicate(timeout=2 * DEADLINE)
        assert process.returncode == 0, said
        return said

    def call(self, word: str, when: str) -> None:
        """A process that calls the task and ends."""
        call = f"note.apply_async([{word!r}], {when})"
        self.run("-c", f"import datetime, django; django.setup(); from shop.tasks import note; {call}")

    def sql(self, statement: str) -> list[Any]:
        with closing(psycopg.connect(self._environment["DATABASE_URL"], autocommit=True)) as session:
            found = session.execute(statement)
            return found.fetchall() if found.description else []

    def ran(self) -> list[Any]:
        """Each run: the word that the task was given, and mailhub's packages that its process had imported."""
        notes = self.folder / "notes"
        return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    name, address, _, options = unique("shop").replace("-", "_"), *settings.DATABASE_URL.partition("?")
    with closing(psycopg.connect(settings.DATABASE_URL, autocommit=True, row_factory=tuple_row)) as server:
        server.execute(f"CREATE DATABASE {name}")
        broker = PrivateRedis()
        try:
            yield Shop(tmp_path, f"{address.rpartition('/')[0]}/{name}?{options}", broker)
        finally:
            broker.end()
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def worker(shop: Shop) -> Iterator["subprocess.Popen[str]"]:
    shop.run("-m", "django", "migrate", "-v0")
    with (shop.folder / "log").open("w") as log:
        arguments = ("-m", "celery", "-A", "shop", "worker", "-B", "-P", "solo")
        process = shop.start(*arguments, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # beat is a process of its own
            exit_of(process)


def test_another_project_parks_a_task_loses_its_broker_and_runs_it_once(shop: Shop, worker: Any) -> None:
    def until(fact: Any, what: str) -> None:
        def alive() -> bool:
            assert worker.poll() is None, (shop.folder / "log").read_text()
            return bool(fact())

        wait_until(alive, what, log=(shop.folder / "log").read_text)

    shop.call("now", "countdown=-3600")
    shop.call("in a month", "countdown=30 * 86400")
    shop.call("in 2090", "eta=datetime.datetime(2090, 1, 1)")
    until(lambda: shop.ran() == [["now", []]], "what is due runs, in a process that knows nothing of mailhub")
    month, eta = shop.sql("SELECT task, due_at FROM waiter_parkedtask ORDER BY due_at")
    assert month[0] == "shop.tasks.note" and month[1] > datetime.now(UTC) + timedelta(days=29)
    assert eta[1] == datetime(2090, 1, 1, tzinfo=UTC)

    shop.broker.restart(keep=False)
    shop.sql(f"UPDATE waiter_parkedtask SET due_at = now() WHERE due_at = '{month[1]}'")

    until(lambda: ["in a month", []] in shop.ran(), "beat's sweep releases it to the empty broker")
    shop.call("last", "countdown=0")
    until(lambda: ["last", []] in shop.ran(), "the queue was read to its end")
    assert shop.ran() == [["now", []], ["in a month", []], ["last", []]]
    assert shop.sql("SELECT count(*) FROM waiter_parkedtask") == [(1,)]


def test_a_project_that_left_out_a_step_of_the_readme_is_told(shop: Shop) -> None:
    assert "no issues" in shop.run("-m", "django", "check")
    celery = shop.folder / "shop" / "celery.py"
    celery.write_text(celery.read_text().replace('    amqp="waiter.publisher:WaiterAMQP",\n', ""))

    with pytest.raises(AssertionError, match=r"waiter\.E004.* was made without amqp=WaiterAMQP"):
        shop.run("-m", "django", "check")
