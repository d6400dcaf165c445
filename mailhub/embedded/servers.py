"""Starts, finds, stops and resets the servers of a home."""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from mailhub.embedded import redis_data
from mailhub.embedded.data_dir import EmbeddedError, Home
from mailhub.embedded.postgres import Postgres
from mailhub.embedded.process import Daemon
from mailhub.embedded.redis import Redis

START_SECONDS = 120.0
LOST_SOCKET_SECONDS = 5.0

Engine = Postgres | Redis


@dataclass(frozen=True)
class State:
    """The state of one server. `running`: it answers. `pid`: None if not ours. `given`: named by the environment."""

    title: str
    variable: str
    running: bool
    pid: int | None
    url: str
    given: bool


def ensure_servers(home: Home | None = None, *, durable: bool = True) -> dict[str, str]:
    """Return DATABASE_URL and REDIS_URL, from the environment or the home's servers, started if needed.

    Servers that the environment names are neither started nor checked. The home's servers outlive this process.
    durable=False, for tests: a power cut may lose data, and STORES_MAY_LOSE says so. Raises EmbeddedError if a server
    cannot be found or does not answer within START_SECONDS.
    """
    home = home or Home()
    urls = {} if durable else {"STORES_MAY_LOSE": "1"}
    for engine in _list_engines(home):
        given = os.environ.get(engine.variable)
        if not given and not engine.answers():
            with home.hold_lock():
                _bring_up(engine, durable)
        urls[engine.variable] = given or engine.url()
    return urls


def server_states(home: Home | None = None) -> list[State]:
    """Return the state of both servers without starting them."""
    home = home or Home()
    states = []
    for engine in _list_engines(home):
        if given := os.environ.get(engine.variable):
            states.append(State(engine.title, engine.variable, True, None, given, given=True))
        else:
            pid = Daemon(engine.name, home.path).process_id()
            running = pid is not None and engine.answers()
            states.append(State(engine.title, engine.variable, running, pid, engine.url(), given=False))
    return states


def stop_servers(home: Home | None = None) -> list[str]:
    """Stop the home's servers and wait for their end. Returns the titles of those that ran."""
    home = home or Home()
    if not home.path.exists():
        return []
    with home.hold_lock():
        return [e.title for e in _list_engines(home) if Daemon(e.name, home.path).stop_server(e.fast_stop)]


def reset_servers(home: Home | None = None) -> None:
    """Stop the home's servers and delete all their data."""
    home = home or Home()
    stop_servers(home)
    if not home.path.exists():
        return
    with home.hold_lock():
        for engine in _list_engines(home):
            for data in (engine.data, *redis_data.folders_put_aside(engine.data)):
                shutil.rmtree(data, ignore_errors=True)
        shutil.rmtree(home.socket_dir(), ignore_errors=True)


def rebuild_redis(home: Home | None = None) -> Path | None:
    """Put the data of the home's Redis aside and start with an empty one. Returns the old data's path, if any.

    PostgreSQL, which holds all mail, is left alone. Raises EmbeddedError if REDIS_URL names another Redis.
    """
    home = home or Home()
    if os.environ.get(Redis.variable):
        raise EmbeddedError(f"{Redis.title} is given by {Redis.variable}: it is not ours to empty")
    redis = Redis(home)
    with home.hold_lock():
        Daemon(redis.name, home.path).stop_server(redis.fast_stop)
        aside = redis_data.put_aside(redis.data)
        _bring_up(redis, durable=True)
    return aside


def _list_engines(home: Home) -> tuple[Engine, ...]:
    return (Postgres(home), Redis(home))


def _bring_up(engine: Engine, durable: bool) -> None:
    """Wait for a starting server; start one that is not running. The caller holds the home's lock."""
    home = engine.home
    daemon = Daemon(engine.name, home.path)
    began, started = time.monotonic(), False
    while not engine.answers():
        waited = time.monotonic() - began
        if not daemon.is_alive():
            if started:
                raise EmbeddedError(
                    f"{engine.title} ended at once{engine.way_out}. The end of {daemon.log}:\n{daemon.log_tail()}"
                )
            command = engine.command(durable)  # first: it may give the home to another user
            home.make_sockets()
            engine.prepare(durable)
            daemon.start_server(command, engine.data)
            started = True
        elif not started and waited > LOST_SOCKET_SECONDS and not engine.socket().exists():
            daemon.stop_server(engine.fast_stop)  # its socket was deleted, so it is unreachable
        elif waited > START_SECONDS:
            raise EmbeddedError(
                f"{engine.title} runs but does not answer. The end of {daemon.log}:\n{daemon.log_tail()}"
            )
        time.sleep(0.02)
