"""Keys of tokens: made once, several at a time, and the same after a change of SECRET_KEY."""

import threading
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from campaigns.doors import token_keys
from campaigns.models import TokenKey

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    forget()


def forget() -> None:
    token_keys.known.forget_value()


def test_the_first_need_makes_a_key_and_each_purpose_has_one_of_its_own() -> None:
    [ours] = token_keys.keys_for_purpose("unsubscribe")
    [theirs] = token_keys.keys_for_purpose("return-path")
    assert len(ours) == len(theirs) == 32 and ours != theirs
    assert TokenKey.objects.count() == 1
    forget()
    assert token_keys.keys_for_purpose("unsubscribe") == (ours,)


def test_a_new_key_comes_first_and_the_older_ones_still_verify() -> None:
    [old] = token_keys.keys_for_purpose("unsubscribe")
    token_keys.add_key()
    forget()
    new, known = token_keys.keys_for_purpose("unsubscribe")
    assert known == old != new


def test_a_new_secret_key_changes_no_key(settings: Any) -> None:
    before = token_keys.keys_for_purpose("unsubscribe")
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another one", [settings.SECRET_KEY]
    call_command("rotate_keys")
    settings.SECRET_KEY_FALLBACKS = []
    forget()
    assert token_keys.keys_for_purpose("unsubscribe") == before


def test_processes_that_need_the_first_key_at_once_get_the_same() -> None:
    gate = threading.Barrier(4)
    found: set[tuple[bytes, ...]] = set()

    def read() -> None:
        gate.wait()
        found.add(token_keys._make_first_key())  # as by four processes: each with a memory of its own
        connection.close()

    threads = [threading.Thread(target=read) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 1 and TokenKey.objects.count() == 1
