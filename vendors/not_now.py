"""Errors by which a store says "not now": it is reachable but refuses for a while, so it counts as unavailable.

A Redis that fails over, or lacks disk or memory, answers each command with an error. So does a PostgreSQL that starts,
stops, is read-only or full. Redis says so in the first word of its answer, PostgreSQL by SQLSTATE. Code that survives a
lost connection also survives these. This is the only such list, apart from the waiter's, which other projects use too.
"""

import re

import psycopg
from django.db import DatabaseError
from django.db import Error as DjangoError
from django.db import InterfaceError as DjangoInterfaceError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeout

PREFIXES = (
    "READONLY",  # a replica, such as an old primary after a failover
    "MISCONF",  # it cannot save: its disk is full
    "LOADING",
    "MASTERDOWN",  # a replica that has lost its primary
    "NOREPLICAS",
    "OOM",
    "BUSY",  # a script does not end
    "TRYAGAIN",
    "CLUSTERDOWN",
    "UNBLOCKED",  # it became a replica while a client waited for a list
)
# Before Redis 7, an error inside a script follows its position; one in a pipeline follows its command.
PREFIX = re.compile(rf"(?:^|: |: -|\s-)({'|'.join(PREFIXES)})\b")
SQLSTATES = re.compile(
    "08..."  # the connection
    "|53..."  # out of memory, disk or connections
    "|57P0[1-5]"  # it is stopping, has crashed, is starting
    "|25006"  # read-only: a standby
    "|25P0[34]"  # it ended the session
    "|58(?:000|030)"  # system error: input and output
)
PUBLIC = re.compile(
    rf"^(?:{'|'.join(PREFIXES)})\b.*"
    "|^[0-9A-Z]{5} .*"
    "|the database system is .*|sorry, too many clients.*|remaining connection slots.*|too many connections.*"
)
LONGEST = 200  # characters


class StoreRefuses(RedisConnectionError):
    """Redis answered "not now". A ConnectionError, so code that survives a lost connection survives it."""


def is_not_now(error: BaseException | None) -> bool:
    """Return True if a Redis or PostgreSQL is unavailable or refuses for a while. Causes are checked too."""
    return bool(find_refusal_text(error))


def find_refusal_text(error: BaseException | None) -> str:
    """Return the store's words in one line: "READONLY You can't write ..."; empty if it says something else."""
    while error is not None:
        if isinstance(error, RedisError) and (said := _redis_text(error)):
            return said
        if isinstance(error, psycopg.Error | DjangoError) and (said := _postgres_text(error)):
            return said
        error = error.__cause__
    return ""


def _redis_text(error: RedisError) -> str:
    text = _as_one_line(error)
    prefix = getattr(error, "status_code", None) or ""
    if prefix not in PREFIXES:
        found = PREFIX.search(text)
        prefix = found[1] if found else ""
    if prefix:
        return text if prefix in text else f"{prefix} {text}"
    return text or "no answer" if isinstance(error, RedisConnectionError | RedisTimeout) else ""


def _postgres_text(error: psycopg.Error | DjangoError) -> str:
    if isinstance(error, DjangoError) and isinstance(error.__cause__, psycopg.Error):
        return ""  # its cause comes next
    code = getattr(error, "sqlstate", None)
    if code:
        return f"{code} {_as_one_line(error)}" if SQLSTATES.fullmatch(code) else ""
    # Without a code the server was not reached, or refused the connection.
    lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | DjangoInterfaceError)
    return _as_one_line(error) if lost and not isinstance(error, DatabaseError) else ""


def shown_to_anybody(answer: str) -> str:
    """Return the end of a sentence without addresses and names, for public probes."""
    own = PUBLIC.search(answer)
    return f"answers: {own[0]}" if own else "cannot be reached"


def _as_one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:LONGEST]
