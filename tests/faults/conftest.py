"""One vendor and one driver for all tests of a file: each test has its own rows."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests import sandbox as sandboxes
from tests.faults import rounds


@pytest.fixture(scope="module")
def vendor() -> Iterator[sandboxes.Sandbox]:
    with sandboxes.running() as running:
        yield running


@pytest.fixture(scope="module")
def driver(django_db_setup: Any) -> Iterator[rounds.Driver]:
    with rounds.driver() as made:
        yield made
