"""Whoever changes where a secret goes has to enter it again: a vendor's settings are no way to read its secrets."""

import json
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.test import Client

from campaigns.engine import sending
from tests import factories
from tests.faults.sending import taken
from tests.installed import installed
from tests.sandbox import Sandbox
from tests.vendors.test_admin import form
from vendors import adapters, configuration, history
from vendors.adapters.base import Adapter
from vendors.adapters.http import Http
from vendors.adapters.options import Option, text
from vendors.models import Credential, Vendor
from vendors.testing.certificates import authority

pytestmark = pytest.mark.django_db
HERE = "http://127.0.0.1:1/letters"
HTTP = {"url": HERE}
SMTP = {"host": "relay.example", "sender": "us@example.org"}
Change = Callable[[Vendor, dict[str, Any]], None]


@pytest.fixture(params=["admin", "command"])
def change(request: pytest.FixtureRequest, admin_client: Client) -> Change:
    """The settings of a vendor become these, through each door."""

    def by_admin(row: Vendor, wanted: dict[str, Any]) -> None:
        known = form(slug=row.slug, name=row.name, adapter=row.adapter, settings=json.dumps(wanted))
        assert admin_client.post(f"/admin/vendors/vendor/{row.pk}/change/", known).status_code == 302

    def by_command(row: Vendor, wanted: dict[str, Any]) -> None:
        gone = {name: "" for name in row.settings if name not in wanted}
        call_command("vendor", "set", row.slug, *(f"{name}={value}" for name, value in (wanted | gone).items()))

    return by_admin if request.param == "admin" else by_command


def login_at(adapter: str, settings: dict[str, Any], **secret: str) -> Credential:
    return factories.credential(factories.vendor(adapter=adapter, settings=settings), secret=secret)


def now(row: Credential) -> Credential:
    return Credential.objects.select_related("vendor").get(pk=row.pk)


MOVED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("http", HTTP, {"url": "http://127.0.0.1:2/letters"}, "url"),
    ("http", HTTP, {"url": "http://127.0.0.1:1/steal"}, "url"),
    ("http", {"url": "https://vendor.example"}, {"url": "https://vendor.example", "ca_file": "CA"}, "ca_file"),
    ("smtp", SMTP, SMTP | {"host": "elsewhere.example"}, "host"),
    ("smtp", SMTP, SMTP | {"port": 2525}, "port"),
    ("smtp", SMTP, SMTP | {"tls": "none"}, "tls"),
    ("smtp", SMTP, SMTP | {"tls": "none", "plain_login": True}, "tls and plain_login"),
]


@pytest.mark.parametrize(("adapter", "before", "after", "what"), MOVED)
def test_a_secret_is_forgotten_where_it_would_go_elsewhere(
    change: Change, adapter: str, before: dict[str, Any], after: dict[str, Any], what: str
) -> None:
    login = login_at(adapter, before, user="us", password="s3cret")
    change(login.vendor, {name: str(authority()) if value == "CA" else value for name, value in after.items()})
    seen = now(login)
    assert seen.secret == {} and seen.paused
    assert seen.paused_reason == f"its secret is forgotten, for its vendor's {what} changed: enter it again"
    (entry,) = LogEntry.objects.filter(content_type__model="credential", object_id=str(login.pk))
    assert seen.paused_reason in entry.change_message


@pytest.mark.parametrize(
    ("adapter", "before", "after"),
    [
        ("http", HTTP, HTTP | {"timeout": 20, "concurrency": 3, "lookup": "weak"}),
        ("http", HTTP, {"url": HERE + "/"}),
        ("smtp", SMTP, SMTP | {"port": 587, "tls": "starttls", "timeout": 30}),
    ],
)
def test_what_leaves_the_way_as_it_was_leaves_the_secret(
    change: Change, adapter: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    login = login_at(adapter, before, Authorization="s3cret")
    change(login.vendor, after)
    seen = now(login)
    assert (seen.secret, seen.paused) == ({"Authorization": "s3cret"}, False)
    assert not LogEntry.objects.filter(content_type__model="credential").exists()


def test_a_credential_without_a_secret_goes_on(change: Change) -> None:
    login = login_at("http", HTTP)
    change(login.vendor, {"url": "http://127.0.0.1:2/letters"})
    assert not now(login).paused


def test_another_adapter_forgets_it_too(admin_client: Client) -> None:
    login = login_at("http", HTTP, Authorization="s3cret")
    known = form(slug=login.vendor.slug, adapter="sandbox", settings=json.dumps(HTTP))
    page = admin_client.post(f"/admin/vendors/vendor/{login.vendor.pk}/change/", known, follow=True)
    assert now(login).secret == {} and now(login).paused
    assert "its secret is forgotten" in page.content.decode()


def test_the_reason_of_an_earlier_pause_is_kept_beside() -> None:
    login = login_at("http", HTTP, Authorization="s3cret")
    Credential.objects.update(paused=True, paused_reason="stocktaking")
    call_command("vendor", "set", login.vendor.slug, "url=http://127.0.0.1:2/letters")
    assert now(login).paused_reason.endswith("enter it again (was paused: stocktaking)")


def test_the_command_says_what_is_to_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    login = login_at("http", HTTP, Authorization="s3cret")
    call_command("vendor", "set", login.vendor.slug, "url=http://127.0.0.1:2/letters")
    changes = capsys.readouterr().out
    assert f"{login} is paused: its secret is forgotten" in changes and "s3cret" not in changes


class Unmarked(Http):
    """Others wrote it, before options could be marked."""

    options: ClassVar = {"url": Option(text, required=True), "relay": Option(text, "")}


@pytest.fixture
def unmarked() -> Iterator[None]:
    """An installed package's adapter."""
    with installed("unmarked", f"{__name__}:Unmarked"):
        yield


def test_every_setting_of_an_adapter_that_marks_none_counts(unmarked: None) -> None:
    login = login_at("unmarked", {"url": "x"}, Authorization="s3cret")
    vendor = login.vendor
    vendor.settings = {"url": "x", "relay": "y"}
    configuration.save_vendor(vendor, ["settings"], history.Actor("somebody"))
    assert now(login).secret == {}


def test_settings_that_nobody_can_read_any_more_forget_it() -> None:
    login = login_at("http", {"colour": "red"}, Authorization="s3cret")
    call_command("vendor", "set", login.vendor.slug, "colour=", f"url={HERE}")
    assert now(login).secret == {}


@pytest.mark.parametrize(
    ("url", "goes"),
    [
        ("https://vendor.example", True),
        ("http://127.0.0.1:1", True),
        ("http://[::1]:1", True),
        ("http://localhost:1", True),
        ("http://vendor.example", False),
        ("http://127.0.0.1.vendor.example", False),
        ("http://10.0.0.1", False),
    ],
)
def test_without_tls_a_secret_goes_to_this_machine_alone(url: str, goes: bool) -> None:
    login = login_at("http", {"url": url})
    args = ("credential", "set", login.vendor.slug, login.name, "--set", "Authorization=s3cret")
    if goes:
        call_command(*args)
    else:
        with pytest.raises(CommandError, match="a secret goes over https") as caught:
            call_command(*args)
        assert "s3cret" not in str(caught.value)
    assert bool(now(login).secret) is goes
    assert isinstance(adapters.load("http")({"url": url}, {}), Adapter)  # without a secret anything goes


def test_a_password_goes_without_tls_only_where_a_setting_says_so() -> None:
    plain = SMTP | {"tls": "none"}
    secret = {"user": "us", "password": "s3cret"}
    with pytest.raises(ValueError, match="set tls, or plain_login"):
        adapters.load("smtp")(plain, secret)
    adapters.load("smtp")(plain | {"plain_login": "yes"}, secret)
    adapters.load("smtp")(plain, {})


@pytest.mark.django_db(transaction=True)
def test_nobody_reads_a_secret_by_a_letter_to_an_address_of_their_own(sandbox: Sandbox) -> None:
    login = login_at("http", HTTP, Authorization="s3cret")
    job = taken(3, login)
    call_command("vendor", "set", login.vendor.slug, f"url={sandbox.url}")
    left = sending.send_claimed_job(job.pk, job.fence)
    assert left.left and sandbox.books().entries == []
    call_command("credential", "set", login.vendor.slug, login.name, "--set", "Authorization=entered-again")
    call_command("credential", "resume", login.vendor.slug, login.name)
    job = taken(3, now(login))
    sending.send_claimed_job(job.pk, job.fence)
    assert {entry.credential for entry in sandbox.books().entries} == {"entered-again"}
