"""The command line: `mailhub` in an installed wheel, and manage.py. It starts the embedded servers that it needs.

They start if DATABASE_URL or REDIS_URL is not set. Django is imported late, because loading it takes seconds on a slow
machine.
"""

import gc
import json
import os
import subprocess
import sys
import time
import tomllib
from contextlib import ExitStack, suppress
from importlib import metadata
from pathlib import Path

# These must work without servers: to inspect the servers, to ask for help, before anything is installed.
WITHOUT_SERVICES = {
    "services",
    "sandbox_vendor",
    "alive",
    "units",
    "help",
    "version",
    "compilemessages",
    "makemessages",
    "startapp",
}
MAKING_TABLES = {"migrate", "makemigrations", "up", "demo", "check", "test"}
AT_ONCE = {  # printed before anything is loaded, which takes seconds on a slow machine
    "up": "mailhub starts: first PostgreSQL and Redis, then the tables, then its processes",
    "demo": "The demo starts: first PostgreSQL and Redis, then the tables, then its processes",
}
INTERRUPTED = 130  # exit code, as a shell has it for a program that Ctrl-C ended
CLOSED = 141  # exit code, as a shell has it for a program that SIGPIPE ended
NO_SUCH_TABLE_OR_COLUMN = ("42P01", "42703", "42883")  # PostgreSQL's codes; the last one is a function's


ROOT = Path(__file__).resolve().parents[1]


def program_version() -> str:
    """Return the version that pyproject.toml gives; in an installed wheel its metadata have it."""
    project = ROOT / "pyproject.toml"
    if project.exists():
        return str(tomllib.loads(project.read_text())["project"]["version"])
    return metadata.version("mailhub")


def describe_build() -> str:
    """Return commit and time of the build (hatch_build.py), or of a checkout its commit; empty if nobody knows."""
    with suppress(OSError, ValueError, KeyError):
        facts = json.loads((ROOT / "mailhub" / "build.json").read_text())
        return f"commit {facts['commit'] or 'unknown'}, built {facts['built']}"
    if not (ROOT / ".git").exists():
        return ""
    with suppress(OSError, subprocess.CalledProcessError):
        asked = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"]
        commit = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        return f"commit {commit}, a checkout"
    return ""


def needs_services(arguments: list[str]) -> bool:
    """Return True if the command line names a command that needs the database or Redis."""
    if not arguments or arguments[0] in WITHOUT_SERVICES:
        return False
    return not {"--help", "-h", "--version"}.intersection(arguments)


def make_tables() -> None:
    """Create the tables of an empty embedded database, so that a newcomer's first command works."""
    import django
    from django.core.management import call_command
    from django.db import connection

    django.setup()
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('django_migrations') IS NULL")
        if cursor.fetchone()[0]:
            sys.stderr.write("A new database: making its tables ...\n")
            call_command("migrate", verbosity=0, interactive=False)
    connection.close()


def execute_command(new: bool) -> None:
    """Run Django's command. Ends with one line on a wrong setting, or a database that is away or outdated.

    new: the database is our own and may be empty.
    """
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
    from django.db import InternalError, OperationalError, ProgrammingError

    try:
        if new:
            make_tables()
        execute_from_command_line(sys.argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, as in `list_jobs --json | head`, has seen enough
        if "--traceback" in sys.argv:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        sys.exit(CLOSED)
    except ImproperlyConfigured as why:
        if "--traceback" in sys.argv:
            raise
        sys.exit(f"The settings are not right: {why}")
    except (OperationalError, InternalError) as why:  # InternalError: the database is read-only for now
        if "--traceback" in sys.argv:
            raise
        sys.exit(f"The database failed: {' '.join(str(why).split())}")
    except ProgrammingError as why:
        missing = getattr(why.__cause__, "sqlstate", "") in NO_SUCH_TABLE_OR_COLUMN
        if not missing or "--traceback" in sys.argv:
            raise
        sys.exit("The database's tables are not those of this version: run manage.py migrate (`up` does it by itself)")


def say_line(sentence: str) -> None:
    with suppress(OSError):  # the terminal may be gone
        sys.stdout.write(f"{sentence}\n")
        sys.stdout.flush()


def main() -> None:
    """Run the command of sys.argv. Ends with one sentence if a server cannot be started."""
    try:
        _run_command()
    except KeyboardInterrupt:  # somebody has seen enough, maybe before the command began
        sys.exit(INTERRUPTED)


def _run_command() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mailhub.settings")
    if home := os.environ.get("MAILHUB_HOME"):  # `up` and the demo start their processes in another folder
        os.environ["MAILHUB_HOME"] = str(Path(home).absolute())
    if sys.argv[1:] == ["--version"]:
        say_line(program_version())
        return
    if sys.argv[1:] == ["version"]:
        build = describe_build()
        say_line(f"{program_version()} ({build})" if build else program_version())
        return
    if sys.argv[1:2] == ["alive"] and len(sys.argv) < 4 and not sys.argv[-1].startswith("-"):
        _tell_life(sys.argv[2] if len(sys.argv) > 2 else os.environ.get("MAILHUB_ROLE", ""))
        return
    gc.set_threshold(50_000)  # loaded modules are not garbage; searching them slows each command's start
    with ExitStack() as stack:
        execute_command(new=needs_services(sys.argv[1:]) and _start_servers(sys.argv[1], stack))


def _tell_life(role: str) -> None:
    """Run the command `alive`, asked every few seconds, without loading Django's part of it."""
    from mailhub import environment, process_life

    if not role:
        sys.exit("CommandError: which process? Name it, or set MAILHUB_ROLE")
    if death := process_life.find_death(role, environment.home_folder("MAILHUB_HOME")):
        sys.exit(f"CommandError: {death}")
    say_line(f"{role} lives")


def _start_servers(command: str, stack: ExitStack) -> bool:
    """Start the servers that the environment does not name. Returns True if their database may be empty.

    stack: ends the demo's servers.
    """
    began, tells = time.monotonic(), command in AT_ONCE
    if tells:
        say_line(AT_ONCE[command])
    from mailhub import embedded

    new = "DATABASE_URL" not in os.environ and command not in MAKING_TABLES
    try:
        if command == "demo":
            from sandbox.demo import home

            stack.enter_context(home.own())
        own = not (os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL"))
        os.environ.update(embedded.ensure_servers())
        if tells and own:
            say_line(f"PostgreSQL and Redis answer ({time.monotonic() - began:.0f} s)")
    except embedded.EmbeddedError as why:
        sys.exit(str(why))
    except OSError as why:
        folder = embedded.Home().path
        sys.exit(f"{folder} cannot be used ({why.strerror or why}): set MAILHUB_HOME to a folder of yours")
    return new
