"""A login is checked by logging in and leaving: with real relays, at the command and in the admin, and without mail."""

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from aiosmtpd.smtp import AuthResult, LoginPassword
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.urls import reverse

from tests import factories
from tests.receivers.relays import serve_relay
from vendors import login_check
from vendors.history import Actor
from vendors.models import Credential

pytestmark = pytest.mark.django_db
PASSWORD = "open sesame"


class Relay:
    """Knows one login, and notes whatever comes after it."""

    def __init__(self) -> None:
        self.mails = 0

    async def handle_MAIL(self, *_: Any) -> str:
        self.mails += 1
        return "250 fine"


def knows(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: LoginPassword) -> AuthResult:
    if given.password == PASSWORD.encode():
        return AuthResult(success=True)
    echo = base64.b64encode(given.password).decode()
    return AuthResult(success=False, handled=False, message=f"535 5.7.8 no such login: {echo}")


@contextmanager
def serving(password: str = PASSWORD, **more: Any) -> Iterator[tuple[Relay, Credential]]:
    relay = Relay()
    with serve_relay(relay, authenticator=knows, auth_require_tls=False, data_size_limit=50_000) as port:
        known = {"host": "127.0.0.1", "port": port, "tls": "none", "plain_login": True} | more
        vendor = factories.vendor(slug="relay", adapter="smtp", channel="email", settings=known)
        secret = {"user": "us", "password": password} if password else {}
        yield relay, factories.credential(vendor, "default", secret=secret)


def run(*args: str) -> str:
    out = StringIO()
    call_command("credential", *args, stdout=out)
    return out.getvalue()


def last_change(login: Credential) -> str:
    found = LogEntry.objects.filter(object_id=str(login.pk)).order_by("-pk").first()
    return found.get_change_message() if found else ""


@contextmanager
def never_answering() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_login_that_works_tells_what_the_relay_offers_and_learns_its_size() -> None:
    with serving() as (relay, login):
        said = run("check", "relay", "default")
        assert "the login works; not encrypted; it offers AUTH" in said and "up to 50,000 bytes" in said
        login.refresh_from_db()
        assert login.relay_size == 50_000 and relay.mails == 0
        facts = json.loads(run("check", "relay", "default", "--json"))
        assert facts["works"] is True and facts["size"] == 50_000 and "AUTH" in facts["offers"]
        assert "its login was checked: the login works" in last_change(login)
        assert PASSWORD not in said


def test_a_wrong_login_is_told_without_its_password_and_nothing_is_paused() -> None:
    with serving("wrong") as (relay, login):
        with pytest.raises(CommandError, match=r"the login does not work: .*535") as refused:
            run("check", "relay", "default")
        assert base64.b64encode(b"wrong").decode() not in str(refused.value) and "***" in str(refused.value)
        login.refresh_from_db()
        assert not login.paused and login.relay_size == 50_000, "it is said before the login"
        assert relay.mails == 0


def test_a_relay_without_login_or_starttls_or_without_anybody_is_told() -> None:
    with serving("") as (_relay, login):
        assert "there is no login to check" in run("check", "relay", "default")
        login.vendor.settings = {**login.vendor.settings, "tls": "starttls"}
        found = login_check.check_login(login, Actor("bob"))
        assert found.works is False and "does not work" in found.sentence
        login.refresh_from_db()
        assert login.relay_size == 50_000, "the vendor was not set up so any more when the answer came"
    nobody = login_check.check_login(login, Actor("bob"))
    assert nobody.works is False and "no connection" in nobody.sentence


def test_what_cannot_be_checked_without_sending_is_said() -> None:
    login = factories.credential(
        factories.vendor(slug="sms", channel="sms", settings={"url": "http://127.0.0.1:1/"}), "default"
    )
    with pytest.raises(CommandError, match="cannot be checked without sending"):
        run("check", "sms", "default")
    assert login_check.check_login(login, Actor("bob")).works is None


def test_a_relay_that_never_answers_ends_within_its_time() -> None:
    with never_answering() as port:
        settings = {"host": "127.0.0.1", "port": port, "tls": "none", "connect_timeout": 0.2}
        login = factories.credential(factories.vendor(slug="mute", adapter="smtp", channel="email", settings=settings))
        found = login_check.check_login(login, Actor("bob"))
        assert found.works is False and "no reply within" in found.sentence


def test_the_page_asks_first_and_only_who_operates_the_vendor_may(client: Any) -> None:
    with serving() as (relay, login):
        page = reverse("admin:vendors_credential_check", args=[login.pk])
        client.force_login(User.objects.create_superuser("root"))
        assert page in client.get(reverse("admin:vendors_credential_change", args=[login.pk])).content.decode()
        assert "It sends nothing" in client.get(page).content.decode()
        login.refresh_from_db()
        assert login.relay_size is None
        assert "The login works; not encrypted" in client.post(page, follow=True).content.decode()
        login.refresh_from_db()
        assert login.relay_size == 50_000 and relay.mails == 0
        client.force_login(User.objects.create_user("ann", is_staff=True))
        assert client.post(page).status_code in (403, 404)
