"""What all tests share."""

import gc
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.test import TransactionTestCase
from django.utils import timezone
from whitenoise.middleware import WhiteNoiseMiddleware

from tests.emptying import Emptying, forget_keys
from tests.migrated import Migrated
from tests.sandbox import sandbox
from vendors import receivers, redis_clients

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
        from django.contrib.auth.models import Group  # when Django knows its models

        from mailhub import installation

        missing = set(installation.ROLES) - set(Group.objects.values_list("name", flat=True))
        assert not missing, "migrate makes them; tests count on them"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PBKDF2PasswordHasher, "iterations", 1)  # nobody attacks them; any process can check them
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda _: emptying.put_back())
        yield emptying


@pytest.fixture(autouse=True, scope="module")
def garbage_is_of_its_file() -> Iterator[None]:
    """Collect what the tests of a file left in cycles, so that a file nobody closed fails there, and not anywhere.

    What outlives its file is the session's: the next files' collections need not look at it.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_known_keys() -> None:
    """Each test has a database of its own."""
    forget_keys()


@pytest.fixture(autouse=True)
def no_own_domains() -> None:
    """A process keeps the domains of receivers that it has read."""
    receivers.replace_own_domains({})


@pytest.fixture
def frozen_clock() -> Iterator[datetime]:
    """Python's clock stands still, so that no minute and no day ends within the test. PostgreSQL's goes on."""
    with time_machine.travel(timezone.now(), tick=False):
        yield timezone.now()


@pytest.fixture
def no_workers(settings: Any) -> None:
    """No worker is registered; one that a test has killed stays so for a minute."""
    with redis_clients.make_client(settings.REDIS_URL) as client:
        client.delete(redis_clients.KEY)


@pytest.fixture(autouse=True, scope="session")
def static_files_found_once() -> Iterator[None]:
    """Each client of Django's has middleware of its own, which would look for all static files on the disk."""
    find = WhiteNoiseMiddleware.add_files_from_finders
    found: dict[Any, dict[str, Any]] = {}

    def find_once(middleware: WhiteNoiseMiddleware) -> None:
        settled = middleware.static_prefix, settings.STATIC_ROOT, *settings.INSTALLED_APPS
        if settled not in found:
            find(middleware)
            found[settled] = dict(middleware.files)
        middleware.files.update(found[settled])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", find_once)
        yield
