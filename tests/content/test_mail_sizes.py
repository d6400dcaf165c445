"""A mail that is larger than the relay takes is told by the check of the rows, and never called."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from campaigns.lists.intake.checking import field_faults
from campaigns.models import Campaign
from campaigns.texts import templates
from campaigns.texts.sizes import HEAD, check_size, largest_mail
from tests import factories
from tests.front.program import Program, api_vendor, fresh, letter, pointers
from vendors.adapters import mime_parts
from vendors.adapters.base import Attachment, Letter, Origin
from vendors.adapters.smtp import Smtp
from vendors.outcomes import Outcome, Refused

__all__ = ["fresh"]
RELAY = {"host": "relay.example", "tls": "none"}


def content(body: str, most: int, html: bool = False, files: int = 0) -> templates.Content:
    made = templates.compile_templates("News", body, html)
    return check_size(made, html, (lambda fields: files) if files else None, [0, most, 10 * most])


def faults_of(row: dict[str, Any], made: templates.Content) -> list[str]:
    return list(field_faults("ann@example.org", row, made))


def test_a_long_field_is_a_bad_row_and_a_short_one_is_none() -> None:
    made = content("Dear {{ name }}", 50_000)
    assert faults_of({"name": "Ann"}, made) == []
    [fault] = faults_of({"name": "x" * 60_000}, made)
    assert "the mail would have" in fault and "the vendor takes 50,000" in fault


def test_a_text_is_counted_as_it_is_encoded() -> None:
    made = content("{{ name }}", 50_000)
    assert faults_of({"name": "ö" * 9_000}, made) != [], "two bytes, six signs of quoted-printable"
    assert faults_of({"name": "o" * 9_000}, made) == []


def test_files_count_as_base64() -> None:
    row = {"name": "Ann"}
    assert faults_of(row, content("Dear {{ name }}", 100_000, files=80_000)) != []
    assert faults_of(row, content("Dear {{ name }}", 100_000, files=60_000)) == []
    for size in (0, 1, 56, 57, 58, 10_000):
        file = Attachment("a.bin", "application/octet-stream", bytes(size))
        body = mime_parts.file_part(file).partition(b"\r\n\r\n")[2]
        assert abs(len(body) - mime_parts.encoded_size(size)) <= 2


def test_an_unknown_limit_is_none() -> None:
    made = templates.compile_templates("News", "Dear {{ name }}", False)
    assert check_size(made, False, None, [0, 0]) is made
    assert largest_mail("smtp", RELAY) == 0 and largest_mail("smtp", {**RELAY, "size_kb": 50}) == 50_000
    assert largest_mail("http", {"url": "https://vendor.example/"}) == 0 and largest_mail("gone", {}) == 0


def test_the_adapter_calls_no_mail_that_is_larger() -> None:
    adapter = Smtp({**RELAY, "size_kb": 50}, {})
    origin = Origin("velma@velma.example", "Velma")
    large = Letter(
        "00000000-1267-8c0e-8a3f-5b1c2d3e4f50-0", "ann@example.org", "News", "x\n" * 30_000, {}, False, origin=origin
    )

    async def send() -> list[Outcome]:
        await adapter.open()
        try:
            return await adapter.send([large])
        finally:
            await adapter.close()

    [outcome] = asyncio.run(send())
    assert isinstance(outcome, Refused) and outcome.sub_type.startswith("size: the mail has")
    assert HEAD < 50_000


@pytest.mark.django_db
def test_the_import_names_the_row(tmp_path: Path) -> None:
    vendor = factories.vendor(slug="relay", adapter="smtp", channel="email", settings={**RELAY, "size_kb": 50})
    factories.credential(vendor)
    table, body = tmp_path / "list.csv", tmp_path / "body.txt"
    table.write_text(f"email,name\nann@example.org,Ann\nbob@example.org,{'x' * 60_000}\n")
    body.write_text("Dear {{ name }}")
    given = (str(table), "--sponsor", "Velma", "--new-sponsor", "--vendor", "relay", "--body", str(body))
    with pytest.raises(CommandError, match="row 3: the mail would have"):
        call_command("send_campaign", *given, "--subject", "News")
    assert not Campaign.objects.exists()


@pytest.mark.django_db
def test_the_api_names_the_recipient(fresh: None) -> None:
    vendor = api_vendor(adapter="smtp", channel="email", settings={**RELAY, "size_kb": 50, "sender": "v@velma.example"})
    recipients = [
        {"to": f"{name}@example.org", "fields": {"name": name * times}} for name, times in [("a", 1), ("b", 60_000)]
    ]
    mail = letter(vendor, recipients=recipients, body="Dear {{ name }}")
    assert pointers(Program().send(mail)) == {"/recipients/1/fields": "fields"}
    assert not Campaign.objects.exists()
