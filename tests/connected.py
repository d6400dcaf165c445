"""This process's sessions go to another PostgreSQL during a block."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from mailhub import environment


@contextmanager
def connected_to(url: str) -> Iterator[None]:
    params = connection.settings_dict
    before = dict(params)
    connection.close()
    params.update(environment.database_settings("ANOTHER_URL", url))
    try:
        yield
    finally:
        connection.close()
        params.clear()
        params.update(before)
