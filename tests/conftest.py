"""What all tests share."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.test import TransactionTestCase

from tests.emptying import Emptying, forget_keys
from tests.migrated import Migrated
from tests.sandbox import sandbox

__all__ = ["django_db_setup", "sandbox"]


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: Any) -> Migrated:
    return Migrated()


@pytest.fixture(scope="session")
def django_db_setup(
    django_db_modify_db_settings: Migrated, django_db_setup: Any, django_db_blocker: Any
) -> Iterator[Emptying]:
    """pytest-django's database; after a test with transactions it is emptied in our way instead of Django's."""
    with django_db_blocker.unblock():
        django_db_modify_db_settings.ready()
        emptying = Emptying()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PBKDF2PasswordHasher, "iterations", 1)  # nobody attacks them; any process can check them
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda _: emptying.put_back())
        yield emptying


@pytest.fixture(autouse=True)
def no_known_keys() -> None:
    """Each test has a database of its own."""
    forget_keys()
