"""A copy of the disk, and an installation that comes back after days: nothing is called before a person has answered.

Real homes with servers of their own, real workers and beat, and a vendor with books.
"""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings

from mailhub import embedded
from tests import forks
from tests.programs import Program
from tests.sandbox import Sandbox
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow("processes"), pytest.mark.timeout(600)]
RECIPIENTS = 10
SHORT = {"LEASE_SECONDS": "4", "HEARTBEAT_SECONDS": "0.5", "SWEEP_SECONDS": "1", "PYTHONUNBUFFERED": "1"}
HELD = "nothing is called: this installation was copied, moved or away: a person has to run manage.py recover_store"


class OwnInstallation:
    """One in a home of its own; its processes end before its servers."""

    def __init__(self, home: Path) -> None:
        self.home = embedded.Home(home)
        self.programs: list[Program] = []

    def start_servers(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("DATABASE_URL", "REDIS_URL"):
                patch.delenv(name, raising=False)
            self.urls = embedded.ensure_servers(self.home, durable=False)
        broker = self.urls["REDIS_URL"].replace("unix://", "redis+socket://")
        stores = {
            "BROKER_URL": broker,
            "RESULT_BACKEND": broker,
            "MAILHUB_HOME": str(self.home.path),
            "SECRET_KEY": settings.SECRET_KEY,
        }
        self.settings = {**os.environ, **self.urls, **stores, **SHORT}

    def manage(self, *args: str, code: int = 0, **more: str) -> str:
        done = forks.run(["manage.py", *args], env={**self.settings, **more}, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return str(done.stdout + done.stderr)

    def start(self, **more: str) -> None:
        self.start_servers()
        began = self.ask("SELECT now()")
        queues = ["-Q", "vendors,hub", "-c", "2", "--without-mingle"]
        for args in (["worker", *queues], ["beat", "--pidfile="]):
            self.programs.append(Program(["-m", "celery", "-A", "mailhub", *args], **{**self.settings, **more}))
        alive = f"SELECT count(*) FROM mailhub_periodicrun WHERE task = 'mailhub.watchdog' AND ran_at > '{began}'"
        wait_until(lambda: self.all_live() and self.ask(alive), "they live")

    def all_live(self) -> bool:
        for program in self.programs:
            program.said("")
        return True

    def said(self, text: str) -> bool:
        return any(program.said(text) for program in self.programs)

    def ask(self, statement: str) -> Any:
        where = self.urls["DATABASE_URL"].partition("host=")[2].replace("%2F", "/")
        with psycopg.connect(host=where, user="mailhub", dbname="mailhub", autocommit=True) as line:
            cursor = line.execute(statement)
            return cursor.fetchone()[0] if cursor.description else None

    def end_processes(self) -> None:
        for program in self.programs:
            program.end(signal.SIGTERM)
            print(program.log.read_text()[-3000:])
            program.log.unlink()
        self.programs = []

    def stop(self) -> None:
        self.end_processes()
        embedded.stop_servers(self.home)

    def accept(self, folder: Path, seconds: int) -> None:
        """A campaign for so many seconds from now on, by the database's clock."""
        (folder / "body").write_text("Hello")
        (folder / "people.csv").write_text("email\n" + "".join(f"r{n}@x.example\n" for n in range(RECIPIENTS)))
        at = self.ask(f"SELECT now() + interval '{seconds} seconds'").isoformat()
        arguments = ["--sponsor", "s", "--vendor", "v", "--subject", "Hi", "--body", str(folder / "body"), "--at", at]
        self.manage("send_campaign", *arguments, str(folder / "people.csv"))

    def fall_due(self) -> None:
        """Its time comes now, without waiting."""
        self.ask("UPDATE campaigns_campaign SET send_at = now() - interval '1 second'")
        self.ask("UPDATE campaigns_job SET not_before = now() - interval '1 second' WHERE status = 'READY'")

    def logged(self) -> bool:
        self.all_live()
        return bool(self.ask("SELECT bool_and(status IN ('LOGGED', 'STOPPED')) FROM campaigns_job"))

    def sweeps(self, times: int = 3) -> None:
        """Waits until beat has had so many sweeps run: what is due would have been called by then."""
        runs = "SELECT total_run_count FROM django_celery_beat_periodictask WHERE task = 'campaigns.tasks.sweep'"
        enough = self.ask(runs) + times
        wait_until(lambda: self.all_live() and self.ask(runs) >= enough, f"{times} sweeps")


@contextmanager
def installed_in(home: Path) -> Iterator[OwnInstallation]:
    made = OwnInstallation(home)
    try:
        yield made
    finally:
        made.end_processes()
        embedded.reset_servers(made.home)


@pytest.fixture
def original(tmp_path: Path, sandbox: Sandbox) -> Iterator[OwnInstallation]:
    """With a vendor, and a campaign that is not due yet; stopped."""
    with installed_in(tmp_path / "home") as made:
        made.start_servers()
        made.manage("migrate", "--verbosity", "0")
        options = [f"url={sandbox.url}", "concurrency=4", "timeout=5"]
        made.manage("vendor", "add", "v", "--adapter", "http", "--set", *options)
        made.start()
        made.accept(tmp_path, 3600)
        made.stop()
        yield made


def copied(of: OwnInstallation, to: Path) -> Path:
    shutil.copytree(of.home.path, to, symlinks=True)
    shutil.rmtree(to / "run", ignore_errors=True)
    (to / "postgres").chmod(0o700)
    return to


def references(sandbox: Sandbox) -> list[str]:
    return [entry.reference for entry in sandbox.books().entries]


def test_a_copy_that_is_started_beside_the_original_calls_nobody_until_somebody_says_what_it_is(
    original: OwnInstallation, sandbox: Sandbox, tmp_path: Path
) -> None:
    with installed_in(copied(original, tmp_path / "copy")) as copy:
        original.start()
        assert not original.said(HELD), "it is the same one, started again"
        original.fall_due()
        wait_until(original.logged, "the original has sent")
        assert len(set(references(sandbox))) == RECIPIENTS == len(references(sandbox))
        original.stop()

        copy.start()
        assert copy.said(HELD) and copy.said("waiting: 1 job for 10 recipients")
        copy.fall_due()
        copy.sweeps()
        assert len(references(sandbox)) == RECIPIENTS, "nobody is called again"
        for arguments in (["status"], ["recover_store", "--dry-run"]):
            assert "these rows were written on another disk or machine" in copy.manage(*arguments)
        assert "nothing is called: this installation was copied" in copy.manage("status", "--check", code=1)
        assert "Say what this is: --go-on" in copy.manage("recover_store", "--yes", code=1)
        copy.manage("recover_store", "--copy", code=2)
        copy.manage("recover_store", "--copy", "--yes", "--reason", "a rehearsal")
        copy.sweeps()
        assert copy.logged() and len(references(sandbox)) == RECIPIENTS
        copy.accept(tmp_path, 3600)
        copy.fall_due()
        wait_until(lambda: len(references(sandbox)) == 2 * RECIPIENTS, "what is new in the copy is its own")


def test_a_home_that_was_moved_goes_on_with_all_after_an_answer(
    original: OwnInstallation, sandbox: Sandbox, tmp_path: Path
) -> None:
    with installed_in(copied(original, tmp_path / "moved")) as moved:
        moved.start()
        assert moved.said(HELD)
        moved.fall_due()
        moved.sweeps()
        assert references(sandbox) == []
        facts = json.loads(moved.manage("recover_store", "--go-on", "--yes", "--json", "--reason", "a new machine"))
        assert (facts["jobs"], facts["recipients"], facts["answer"]) == (1, RECIPIENTS, "go on")
        wait_until(moved.logged, "all is sent")
        assert len(set(references(sandbox))) == RECIPIENTS
        moved.stop()
        moved.start()
        assert not moved.said(HELD), "once is enough"


def test_a_home_that_was_renamed_is_asked_about_nothing(
    original: OwnInstallation, sandbox: Sandbox, tmp_path: Path
) -> None:
    original.home.path.rename(tmp_path / "renamed")
    with installed_in(tmp_path / "renamed") as renamed:
        renamed.start()
        renamed.fall_due()
        wait_until(renamed.logged, "it goes on")
        assert not renamed.said(HELD) and len(set(references(sandbox))) == RECIPIENTS


def test_after_days_away_what_fell_due_waits_for_an_answer_and_a_short_stop_asks_nothing(
    original: OwnInstallation, sandbox: Sandbox
) -> None:
    original.start_servers()
    original.fall_due()
    original.ask("UPDATE mailhub_periodicrun SET ran_at = ran_at - interval '3 days 2 hours'")
    original.ask("UPDATE django_celery_beat_periodictask SET last_run_at = last_run_at - interval '3 days 2 hours'")
    embedded.stop_servers(original.home)
    original.start()
    assert original.said(HELD) and original.said("nothing has run here for 3 d 2 h")
    original.sweeps()
    assert references(sandbox) == []
    original.manage("recover_store", "--go-on", "--yes")
    wait_until(original.logged, "all is sent")
    assert len(set(references(sandbox))) == RECIPIENTS


def test_after_days_away_with_nothing_due_nothing_is_asked(original: OwnInstallation) -> None:
    original.start_servers()
    original.ask("UPDATE mailhub_periodicrun SET ran_at = ran_at - interval '3 days'")
    original.ask("UPDATE django_celery_beat_periodictask SET last_run_at = last_run_at - interval '3 days'")
    embedded.stop_servers(original.home)
    original.start()
    assert not original.said(HELD)
