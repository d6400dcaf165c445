"""What all tests share."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import TransactionTestCase

from tests.emptying import Emptying
from tests.sandbox import sandbox

__all__ = ["django_db_setup", "sandbox"]


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: Any, django_db_blocker: Any) -> Iterator[Emptying]:
    """pytest-django's database; after a test with transactions it is emptied in our way instead of Django's."""
    with django_db_blocker.unblock():
        emptying = Emptying()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda _: emptying.put_back())
        yield emptying


@pytest.fixture(autouse=True)
def no_known_keys() -> None:
    """A process trusts for a second the keys that it has read, and each test has a database of its own."""
    from campaigns import token_keys
    from campaigns.suppression import digests

    token_keys.known.forget()
    digests.known.forget()
