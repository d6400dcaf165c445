"""Sender identities: the command, the admin's page, and what a letter gets of them."""

import io
import json
from pathlib import Path
from typing import Any

import dkim as judge
import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from campaigns.engine.claiming import claims, letters
from campaigns.models import Identity
from campaigns.senders import sender_changes
from tests import factories as make
from vendors import history
from vendors.adapters import dkim, mime
from vendors.adapters.base import Letter, Origin
from vendors.history import Actor

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin_user(db: None) -> User:
    return User.objects.create(username="admin", is_staff=True, is_superuser=True)


def command(*arguments: str) -> str:
    out = io.StringIO()
    call_command("identity", *arguments, stdout=out)
    return out.getvalue()


def facts(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command(*arguments, "--json"))
    return found


def test_the_first_identity_of_a_sponsor_is_its_default_until_another_one_is() -> None:
    make.sponsor("Velma")
    first = facts("add", "Velma", "main", "--from", "Velma <post@velma.example>", "--reply-to", "help@velma.example")
    assert first == {
        "sponsor": "Velma", "name": "main", "channel": "email", "from": "Velma <post@velma.example>",
        "reply_to": "help@velma.example", "return_path": "", "verp": False, "dkim": None, "default": True,
        "enabled": True, "refused": None,
    }  # fmt: skip
    again = command("add", "Velma", "main", "--from", "Velma <post@velma.example>")
    assert again == "Velma/main: already there\n"
    with pytest.raises(CommandError, match=r"differs: from_address is post@velma\.example, not a@b\.example"):
        command("add", "Velma", "main", "--from", "Velma <a@b.example>")
    assert facts("add", "Velma", "spring", "--from", "s@velma.example")["default"] is False
    assert facts("set", "Velma", "spring", "--default", "--return-path", "b@velma.example")["default"] is True
    assert [row.name for row in Identity.objects.filter(default=True)] == ["spring"]
    assert command("set", "Velma", "spring", "--default") == "Velma/spring: already so\n"
    assert facts("set", "Velma", "spring", "--return-path", "")["return_path"] == ""
    assert "Velma/spring: changed" in command("disable", "Velma", "spring")
    assert [json.loads(line)["enabled"] for line in command("list", "Velma", "--json").splitlines()] == [True, False]
    assert command("remove", "Velma", "spring") == "Velma/spring: removed\n"


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--from", "Velma"], "from_address: not an address"),
        (["--from", "a@b.example\r\nBcc: x@y.example"], "from_"),
        (["--from", "a@b.example", "--reply-to", "x"], "reply_to: not an address"),
        (["--from", "a@b.example", "--return-path", "N <x@b.example>"], "return_path: an address without a name"),
        (["--from", f"{'n' * 201} <a@b.example>"], "from_name: "),
    ],
)
def test_what_cannot_be_a_header_is_refused_in_a_sentence_and_nothing_is_stored(options: list[str], fault: str) -> None:
    make.sponsor("Velma")
    with pytest.raises(CommandError, match=fault):
        command("add", "Velma", "main", *options)
    with pytest.raises(CommandError, match="name: letters, digits"):
        command("add", "Velma", "two words", "--from", "a@b.example")
    assert not Identity.objects.exists()


def test_the_key_is_encrypted_printed_nowhere_and_signs_what_the_dns_record_verifies(tmp_path: Path) -> None:
    make.sponsor("Velma")
    command("add", "Velma", "main", "--from", "Velma <post@mail.velma.example>")
    for domain in ("other.example", "l.velma.example", "elma.example"):
        with pytest.raises(CommandError, match=r"dkim_domain: it must be mail\.velma\.example or a domain above it"):
            command("dkim", "Velma", "main", "--selector", "m1", "--domain", domain)
    made = facts("dkim", "Velma", "main", "--selector", "m1", "--domain", "velma.example")
    assert (made["dns_name"], made["dns_type"]) == ("m1._domainkey.velma.example", "TXT")
    assert command("dkim", "Velma", "main").splitlines()[1:] == ["m1._domainkey.velma.example TXT", made["dns_text"]]
    row = Identity.objects.get()
    key = row.secret["private_key"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM campaigns_identity")
        stored = str(cursor.fetchall())
    shown = json.dumps(made) + command("list", "--json") + stored + str(vars(row)["dkim_selector"])
    assert "PRIVATE" not in shown and key[100:140] not in shown
    hi = Letter("r-0", "you@example.org", "Hi", "Dear you")
    mail = b"".join(mime.compose_mail(mime.parse_origin(row.origin), "you@example.org", hi))
    assert judge.verify(mail.removesuffix(b".\r\n"), dnsfunc=lambda name, timeout=0: made["dns_text"].encode())
    mine = dkim.new_private_key()
    (tmp_path / "key.pem").write_text(mine)
    command(
        "dkim",
        "Velma",
        "main",
        "--selector",
        "m2",
        "--domain",
        "velma.example",
        "--key-file",
        str(tmp_path / "key.pem"),
    )
    assert Identity.objects.get().secret == {"private_key": mine}
    (tmp_path / "key.pem").write_text("s3cret")
    with pytest.raises(CommandError, match="not an RSA private key in PEM without a password") as caught:
        command("dkim", "Velma", "main", "--selector", "m3", "--key-file", str(tmp_path / "key.pem"))
    assert "s3cret" not in str(caught.value)
    assert facts("dkim", "Velma", "main", "--off")["dkim"] is None and Identity.objects.get().secret == {}


def test_a_change_by_the_command_is_stored_checked_and_recorded_as_one_by_a_page() -> None:
    make.sponsor("Velma")
    command("add", "Velma", "main", "--from", "post@velma.example")
    page_made, row = sender_changes.version_of_sender(Identity.objects.get()), Identity.objects.get()
    command("set", "Velma", "main", "--reply-to", "help@velma.example", "--verp")
    command("dkim", "Velma", "main", "--selector", "m1")
    command("disable", "Velma", "main")
    said = [one.change_message for one in history.latest_entries(Identity, [row.pk], 9)]
    assert [one.partition(" by ")[0] for one in said] == [
        "enabled yes → no",
        "dkim domain none → velma.example; dkim selector none → m1; secret replaced",
        "reply to none → help@velma.example; verp no → yes",
        "added",
    ]
    with pytest.raises(ValidationError, match="Somebody else has changed it"):
        sender_changes.change_identity(row.pk, {"reply_to": "old@velma.example"}, Actor("ida"), page_made)
    with pytest.raises(CommandError, match=r"^dkim_domain: it must be velma\.example or a domain above it"):
        command("dkim", "Velma", "main", "--selector", "m1", "--domain", "other.example")
    assert Identity.objects.get().dkim_domain == "velma.example"
    assert "changed" in command("dkim", "Velma", "main", "--off") and not Identity.objects.get().secret


def test_an_identity_with_campaigns_stays() -> None:
    job = make.campaign_with_job(1)
    job.campaign.identity = Identity.objects.create(sponsor=job.sponsor, name="main", from_address="a@b.example")
    job.campaign.save()
    with pytest.raises(CommandError, match="has campaigns and stays, for the record; disable it instead"):
        command("remove", job.sponsor.name, "main")


def test_a_letter_goes_out_as_its_campaigns_identity_as_it_is_when_the_job_is_taken() -> None:
    job = make.campaign_with_job(1, status="ENQUEUED")
    job.campaign.identity = Identity.objects.create(
        sponsor=job.sponsor, name="main", from_address="a@b.example", from_name="A", reply_to="r@b.example"
    )
    job.campaign.save()
    type(job.vendor).objects.update(settings={"url": "http://127.0.0.1:9/letters"})
    started = claims.start_job(job.pk, job.fence)
    assert started
    message = claims.ClaimedMessage(1, "r-0", "you@example.org", {})
    letter = letters.load_leased_job(started.lease).letter(message)
    assert isinstance(letter, Letter) and letter.origin == Origin("a@b.example", "A", "r@b.example")


URL = "/admin/campaigns/identity/"


def form(sponsor: Any, **more: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("from_name", "reply_to", "return_path", "dkim_domain", "dkim_selector", "secret"), "")
    given = {"name": "main", "channel": "email", "from_address": "a@b.example", "enabled": "on"}
    return {"sponsor": sponsor.pk, **given, **empty, **more}


def test_the_page_takes_a_key_keeps_it_and_shows_it_never(admin_client: Client) -> None:
    velma, key = make.sponsor("Velma"), dkim.new_private_key()
    signed = {"dkim_domain": "b.example", "dkim_selector": "m1"}
    page = admin_client.post(f"{URL}add/", form(velma, secret="s3cret", **signed))
    assert "not an RSA private key" in page.content.decode() and "s3cret" not in page.content.decode()
    assert admin_client.post(f"{URL}add/", form(velma, secret=key, default="on", **signed)).status_code == 302
    row = Identity.objects.get()
    assert row.secret == {"private_key": key} and row.default
    page = admin_client.get(f"{URL}{row.pk}/change/").content.decode()
    assert "PRIVATE KEY" not in page and key[100:140] not in page
    assert (
        admin_client.post(f"{URL}{row.pk}/change/", form(velma, default="on", from_name="A", **signed)).status_code
        == 302
    )
    row.refresh_from_db()
    assert (row.from_name, row.secret) == ("A", {"private_key": key})
    assert admin_client.post(f"{URL}add/", form(velma, name="other", default="on")).status_code == 302
    assert [one.name for one in Identity.objects.filter(default=True)] == ["other"]
    assert admin_client.post(f"{URL}{row.pk}/change/", form(velma)).status_code == 302
    row.refresh_from_db()
    assert row.secret == {} and not row.dkim_selector
    assert admin_client.get(URL).status_code == 200


def test_the_first_one_of_a_sponsor_and_channel_is_the_default_in_the_admin_too(admin_client: Client) -> None:
    velma = make.sponsor("Velma")
    for name in ("first", "second"):
        assert admin_client.post(f"{URL}add/", form(velma, name=name)).status_code == 302
    first, _second = Identity.objects.order_by("pk")
    assert [one.name for one in Identity.objects.filter(default=True)] == ["first"]
    assert admin_client.post(f"{URL}{first.pk}/change/", form(velma, name="first")).status_code == 302
    assert not Identity.objects.filter(default=True).exists(), "whoever clears it means it"


def test_the_page_of_entitlements_grants_and_withdraws(admin_client: Client) -> None:
    make.sponsor("Other")
    velma, vendor = make.sponsor("Velma"), make.vendor("v")
    velma.entitlements.all().delete()
    url = "/admin/campaigns/entitlement/"
    new = {"sponsor": velma.pk, "vendor": vendor.pk, "credential": "", "urgent": "single"}
    assert admin_client.post(f"{url}add/", new).status_code == 302
    row = velma.entitlements.get()
    foreign = make.credential(make.vendor("w"))
    page = admin_client.post(f"{url}add/", new | {"credential": foreign.pk})
    assert "a credential of another vendor" in page.content.decode()
    assert "Velma" in admin_client.get(url).content.decode()
    assert admin_client.post(f"{url}{row.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not velma.entitlements.filter(vendor=vendor).exists()
