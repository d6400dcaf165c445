"""The test run's own PostgreSQL and Redis, there before Django is set up, gone when the run ends.

A run has a short home of its own, so runs do not meet: not each other, not the developer's data. The forks of
tests.forked inherit the addresses; each has a database of its own (pytest-django's suffix) and a Redis database.
"""

import atexit
import fcntl
import gc
import importlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from mailhub import embedded

PREFIX = "mailhub-test-"
# Parts of the names of files and folders, first those that take most of a processor (tests.spent) or wait longest.
LONG = (
    *("test_demo.py", "test_reviewed_findings.py", "test_29_", "test_01_", "test_acknowledgements.py", "test_03_many_"),
    *("browser/test_jobs.py", "browser/test_operations.py", "test_000_", "test_print_file.py", "test_masked_fields.py"),
    *("front/test_contract.py", "front/test_doors.py", "test_answers_about", "test_cut_off.py", "test_upgrade.py"),
    *("faults/test_failover.py", "test_without_scripts.py", "test_pauses.py", "owners/test_wizard.py", "test_04_"),
    *("test_run_policy.py", "test_16_", "contracts/test_contract.py", "tests/interleaving/", "tests/browser/"),
    *("test_probes.py", "test_postfix.py", "test_lives_of_a_job.py", "test_mailbox.py", "front/test_sponsors.py"),
    *("mailhub/test_services.py", "faults/test_routes.py", "test_amazon_ses.py", "test_adapters_of_others.py"),
    *("test_up.py", "test_50_", "tests/print/", "test_002_", "tests/faults/", "test_metrics.py", "tests/properties/"),
    *("test_slow_", "test_backoff.py", "tests/waiter/", "tests/seeds/", "tests/mailhub/", "tests/front/"),
    *("test_plans.py", "test_streams.py", "tests/described/", "tests/contracts/", "tests/vendors/"),
)
NIGHTLY = os.environ.get("MAILHUB_NIGHTLY") == "1"
# Of property tests: the same examples each time, at night other ones. A slow machine is no fault.
_calm = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
settings.register_profile("mailhub", _calm, derandomize=not NIGHTLY)
settings.load_profile("mailhub")
# hypothesis tries the constants of all modules that are imported so far, too: the examples would depend on the tests
# before them, and reading the constants takes seconds.
if not NIGHTLY:
    providers._get_local_constants = lambda: providers._local_constants
MEMORY, ENOUGH = Path("/dev/shm"), 8 << 30
BEING_BORN_SECONDS = 600  # a home younger than this may not be locked yet


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """A wrapper comes before pytest-django's hook of this name, which sets Django up."""
    if threading.current_thread() is threading.main_thread():
        _hear_signals()
    os.environ.setdefault("STORE_PATIENCE", "30")  # a loaded machine's pause is not a lost Redis
    if not early_config.known_args_namespace.help and not early_config.known_args_namespace.version:
        _start()
    return (yield)


def pytest_fork_started(number: int) -> None:
    """Give the fork its Redis database: in the environment for its processes, in the settings for itself."""
    from django.conf import settings as used  # when there is an environment to read

    from mailhub import settings as read

    before = dict(vars(importlib.reload(read)))  # Django adds to values that it has read
    os.environ["REDIS_URL"] = redis_database(os.environ["REDIS_URL"], 1 + number)
    for name, value in vars(importlib.reload(read)).items():
        if name.isupper() and value != before[name]:
            setattr(used, name, value)
    from mailhub.celery import app, celery_settings

    app.conf.update(celery_settings())  # which the application has read at its import
    app.backend_cls = used.CELERY_RESULT_BACKEND


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Nothing that is collected is garbage; it stays for good, so the collector need not look at it again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(10_000)  # it takes 1.5 instead of 3 % of a test's time


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: a run ends with its last file. Within that the order stays the random one."""
    items.sort(key=lambda item: min((n for n, word in enumerate(LONG) if word in item.nodeid), default=len(LONG)))


def redis_database(url: str, further: int) -> str:
    """The address of the database that is so many further on in the same Redis."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        here = parse_qs(parts.query).get("db", ["0"])[0]
        return f"unix://{parts.path}?db={int(here) + further}"  # geturl() would leave the slashes out
    here = parts.path.strip("/") or "0"
    return parts._replace(path=f"/{int(here) + further}").geturl()


def _hear_signals() -> None:
    """Both ways of being told to end lead to the clean-up, even where Ctrl-C was inherited as ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _start() -> None:
    _bury_the_dead()
    home = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folders()[0]))
    lock = os.open(home, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)  # held for as long as this process lives
    atexit.register(_end, home, os.getpid())
    os.environ["MAILHUB_HOME"] = str(home)
    os.environ["STATIC_ROOT"] = str(home / "not-collected")  # that takes seconds at each start of a web server
    os.environ["TRANSACTION_IDLE_SECONDS"] = "0"  # never: a test is one long transaction
    try:
        os.environ.update(embedded.ensure_servers(durable=False))
    except embedded.EmbeddedError as why:
        raise pytest.UsageError(str(why)) from why


def _end(home: Path, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave the servers running
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _remove(home)


def folders() -> list[Path]:
    """Where homes of runs are, those to come in the first one: in memory, where there is much of it.

    After some tests with transactions PostgreSQL makes and removes hundreds of files; in memory that takes a quarter of
    the time.
    """
    folders = [Path(tempfile.gettempdir())]
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK | os.X_OK):
        there = os.statvfs(MEMORY)
        folders.insert(0 if there.f_bavail * there.f_frsize > ENOUGH else 1, MEMORY)
    return folders


def _bury_the_dead() -> None:
    """Remove what runs that were killed left behind."""
    for home in [home for folder in folders() for home in folder.glob(f"{PREFIX}*")]:
        try:
            if home.stat().st_uid == os.geteuid() and time.time() - home.stat().st_mtime > BEING_BORN_SECONDS:
                _bury(home)
        except OSError:
            continue  # another run buries it, or its run lives


def _bury(home: Path) -> None:
    lock = os.open(home, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(home)
    finally:
        os.close(lock)


def _remove(home: Path) -> None:
    embedded.reset_servers(embedded.Home(home))
    shutil.rmtree(home, ignore_errors=True)
