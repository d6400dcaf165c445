"""Each test has a database of its own, and its process knows no keys of another one."""

from collections.abc import Iterator

import pytest

from campaigns import token_keys
from campaigns.suppression import digests


@pytest.fixture(autouse=True)
def no_known_keys() -> Iterator[None]:
    token_keys._known.read_at = digests._known.read_at = float("-inf")
    yield
    token_keys._known.read_at = digests._known.read_at = float("-inf")
