"""Where and as whom calls are made has a number: every change raises it, by whatever door; none brings it back."""

from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from tests import factories
from vendors import configuration, destinations, history
from vendors.models import Credential, Vendor

pytestmark = pytest.mark.django_db
URL = "http://127.0.0.1:1/letters"
SOMEBODY = history.Actor("somebody")


def number(login: Credential) -> int:
    rows = Credential.objects.filter(pk=login.pk).values_list("destination", "vendor__destination")
    return sum(rows.get())


def login(adapter: str = "http", **settings: Any) -> Credential:
    settings = settings or {"url": URL}
    return factories.credential(factories.vendor(adapter=adapter, settings=settings), secret={"X-Account": "one"})


def by_sql(row: Credential) -> None:
    with connection.cursor() as cursor:
        cursor.execute('UPDATE vendors_vendor SET settings = \'{"url": "http://127.0.0.1:2"}\'')


def by_whole_row(row: Credential) -> None:
    vendor = Vendor.objects.get(pk=row.vendor_id)
    vendor.settings = {"url": "http://127.0.0.1:2/letters"}
    vendor.save()


def by_command(row: Credential) -> None:
    call_command("vendor", "set", row.vendor.slug, "url=http://127.0.0.1:2/letters")


def by_secret(row: Credential) -> None:
    Credential.objects.filter(pk=row.pk).update(secret={"X-Account": "two"})


def by_sandbox(row: Credential) -> None:
    Vendor.objects.filter(pk=row.vendor_id).update(sandbox=True)


CHANGES = [by_sql, by_whole_row, by_command, by_secret, by_sandbox]


@pytest.mark.parametrize("change", CHANGES, ids=[one.__name__ for one in CHANGES])
def test_whatever_changes_where_calls_are_made_raises_the_number(change: Any) -> None:
    row = login()
    before = number(row)
    change(row)
    assert number(row) > before


def test_back_again_is_another_number() -> None:
    row = login()
    seen = [number(row)]
    for port in (2, 1):
        call_command("vendor", "set", row.vendor.slug, f"url=http://127.0.0.1:{port}/letters")
        seen.append(number(row))
    assert seen == sorted(set(seen)) and len(seen) == 3


def test_an_old_copy_of_a_row_that_is_stored_does_not_bring_its_number_back() -> None:
    row = login()
    old, old_vendor = Credential.objects.get(pk=row.pk), Vendor.objects.get(pk=row.vendor_id)
    by_command(row)
    by_secret(row)
    raised = number(row)
    old_vendor.name = "a new name"
    old_vendor.settings = Vendor.objects.get(pk=row.vendor_id).settings
    old_vendor.save()
    old.save(update_fields=["destination", "paused"])
    assert number(row) == raised


@pytest.mark.parametrize("settings", [{"timeout": 20.0}, {"lookup": "strong"}, {"concurrency": 3, "dedupe": True}])
def test_tuning_leaves_it_as_it_is(settings: dict[str, Any]) -> None:
    row = login()
    before = number(row)
    call_command("vendor", "set", row.vendor.slug, *(f"{name}={value}" for name, value in settings.items()))
    call_command("vendor", "pause", row.vendor.slug)
    assert number(row) == before


def test_a_person_may_say_that_it_is_the_same_account() -> None:
    row = login()
    before = number(row)
    configuration.save_secret(row, {"X-Account": "rotated"}, SOMEBODY, same_account=True)
    assert number(row) == before
    row.vendor.settings = {"url": "http://127.0.0.1:2/letters"}
    configuration.save_vendor(row.vendor, ["settings"], SOMEBODY, same_account=True)
    assert number(row) == before
    assert Vendor.objects.get(pk=row.vendor_id).settings["url"] == "http://127.0.0.1:2/letters"
    configuration.save_secret(row, {"X-Account": "two"}, SOMEBODY)
    assert number(row) > before, "what was said of one change does not hold for the next"


def test_a_word_about_one_row_does_not_hold_for_another() -> None:
    row, other = login(), login()
    before = number(other)
    with destinations.keep_number(row):
        by_secret(other)
    assert number(other) > before


def test_a_new_key_of_the_installation_leaves_the_numbers() -> None:
    row = login()
    before = number(row)
    call_command("rotate_keys")
    assert number(row) == before
    assert Credential.objects.get(pk=row.pk).secret == {"X-Account": "one"}


SMTP = {"host": "relay.example", "sender": "us@example.org"}
PRINT = {"folder": "letters", "acknowledgements": "done"}
ANYMAIL = {"service": "postmark"}
TOML = """
[vendor]
name = "Pigeon"
channel = "email"
documents = "our own"
[settings.region]
about = "where"
default = "eu"
[request]
url = "https://pigeon.example/{settings.region}/letters"
body = "json"
[request.content]
to = "{recipient}"
key = "{reference}"
[answer]
id = "id"
"""
PIGEON = {"description": TOML}


@pytest.mark.parametrize(
    ("adapter", "before", "after", "found"),
    [
        ("http", {"url": URL}, {"url": URL + "/two"}, ["url"]),
        ("http", {"url": URL}, {"url": URL, "timeout": 3}, []),
        ("smtp", SMTP, SMTP | {"host": "other.example", "port": 25}, ["host", "port"]),
        ("smtp", SMTP, SMTP | {"concurrency": 3, "timeout": 30}, []),
        ("print_file", PRINT, PRINT | {"acknowledgements": "acks"}, ["acknowledgements"]),
        ("print_file", PRINT, PRINT | {"colour": "yes", "batch": 20}, []),
        ("anymail", ANYMAIL, {"service": "sendgrid"}, ["service"]),
        ("anymail", ANYMAIL, ANYMAIL | {"reference": "none"}, ["reference"]),
        ("anymail", ANYMAIL, ANYMAIL | {"url": "https://eu.postmark.example/"}, ["url"]),
        ("anymail", ANYMAIL, ANYMAIL | {"dedupe": "yes"}, []),
        ("described", PIGEON, PIGEON | {"server": "https://proxy.example"}, ["server"]),
        ("described", PIGEON, PIGEON | {"region": "us"}, ["region"]),
        ("described", PIGEON, {"description": TOML.replace("{reference}", "{reference}-x")}, ["description"]),
        ("described", PIGEON, {"description": TOML.replace('"our own"', '"theirs"') + "# a remark"}, []),
        ("described", PIGEON, PIGEON | {"timeout": 20, "batch": 1}, []),
        ("described", PIGEON, {"description": "no description"}, ["settings"]),
        ("nobody's", {"a": 1}, {"a": 2}, ["settings"]),
    ],
)
def test_each_adapter_says_which_of_its_settings_those_are(
    adapter: str, before: dict[str, Any], after: dict[str, Any], found: list[str]
) -> None:
    assert destinations.changed_settings((adapter, before), (adapter, after)) == found
    assert destinations.changed_settings((adapter, before), ("sandbox", before)) == ["adapter"]
