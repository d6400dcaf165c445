"""Addresses of columns are checked at every door, and previews show them where the envelope's window is."""

from __future__ import annotations

import base64
import io
import json
import shlex
from pathlib import Path
from typing import Any

import asyncssh
import pypdf
import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client

from campaigns.lists.intake.checking import field_faults
from campaigns.models import Campaign, Job, Message
from campaigns.models.states import Status
from campaigns.texts import templates
from campaigns.texts.addresses import address_rules, check_addresses
from tests import factories
from tests.faults.sending import taken
from tests.front.program import Program, fresh, letter
from tests.print.test_print_file import DOT
from vendors.adapters.addresses import AddressRules
from vendors.adapters.options import InvalidSettings
from vendors.printing import pages
from vendors.printing.adapter import PrintFile

__all__ = ["fresh"]
pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(bool(pages.missing_libraries("asyncssh")), reason=pages.missing_libraries("asyncssh")),
]
DRY = "/api/v1/messages?dry_run=true"
ROOT = Path(__file__).parents[2]
ADDRESS = {
    "address": "name; street; postcode city", "address_required": "name street city", "address_width": "20",
    "address_alphabet": "latin1", "country": "country", "countries": "de AT",
}  # fmt: skip


def rules(**more: str) -> AddressRules:
    made = PrintFile.address_rules({"folder": "x", "accepted": "uploaded", **ADDRESS, **more})
    assert made is not None
    return made


def ann(**more: Any) -> dict[str, Any]:
    return {"name": "Ann", "street": "Main Street 1", "postcode": "12345", "city": "Town", "country": "at", **more}


def test_an_address_is_the_lines_that_say_something() -> None:
    assert rules().address_lines("k-1", ann()) == ["Ann", "Main Street 1", "12345 Town"]
    assert rules().address_lines("k-1", ann(street=None, postcode="  ")) == ["Ann", "Town"]
    assert rules().needed_columns == {"name", "street", "postcode", "city", "country"}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (ann(), None),
        (ann(name=" "), "'name' is empty"),
        (ann(street="Main Street " + "x" * 20), "has 32 characters, more than 20"),
        (ann(city="Łódź"), "'Ł', which the vendor cannot print"),
        (ann(name="Ann\u202eevil"), "cannot print"),
        (ann(country="FR"), "the vendor delivers to AT, DE"),
        (ann(country=""), "'country' is ''"),
    ],
)
def test_what_the_vendor_demands_is_asked_of_each_address(fields: dict[str, Any], says: str | None) -> None:
    found = list(rules().find_faults("k-1", fields))
    assert found == [] if says is None else len(found) == 1 and says in found[0], found


def test_no_more_lines_than_the_window_shows() -> None:
    many = rules(address="name; street; postcode; city; country; name; street", window="us10")
    assert any("lines, and the vendor prints 5" in fault for fault in many.find_faults("k-1", ann()))


def test_rules_that_lack_their_half_are_refused() -> None:
    for wrong in ({"country": ""}, {"address": ""}, {"address": "name;;"}, {"address": "a-b"}, {"countries": ""}):
        with pytest.raises(InvalidSettings):
            PrintFile.validate({"folder": "x", "accepted": "uploaded", **ADDRESS, **wrong})


def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "list.csv").write_text(
        "key,name,street,postcode,city,country\n"
        "k-1,Ann,Main Street 1,12345,Town,DE\nk-2,Bob,,12345,Town,DE\nk-3,Cid,Side Street 2,1,Town,FR\n"
    )
    (tmp_path / "letter.html").write_text("<p>Dear {{ name }}</p>")
    return str(tmp_path / "list.csv"), str(tmp_path / "letter.html")


def command(tmp_path: Path, *more: str) -> None:
    vendor = factories.vendor(
        slug="shop", adapter="print_file", channel="print",
        settings={"folder": "x", "accepted": "uploaded", "window": "din5008b", **ADDRESS},
    )  # fmt: skip
    factories.credential(vendor)
    table, body = files(tmp_path)
    call_command(
        "send_campaign",
        table,
        "--sponsor",
        "Velma",
        "--new-sponsor",
        "--vendor",
        "shop",
        "--html",
        "--body",
        body,
        *more,
    )


def test_bad_addresses_are_bad_rows_of_the_import(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as error:
        command(tmp_path)
    assert "row 3: 'street' is empty, and the address needs it" in str(error.value)
    assert "row 4: 'country' is 'FR'; the vendor delivers to AT, DE" in str(error.value)
    assert not Campaign.objects.exists()


@pytest.mark.slow("processes")
def test_a_preview_is_the_letter_with_the_address_in_the_window(tmp_path: Path) -> None:
    left, look = tmp_path / "left-out.csv", tmp_path / "look.pdf"
    command(tmp_path, "--skip-bad-rows", str(left), "--preview-pdf", str(look))
    assert "k-2" in left.read_text() and not Campaign.objects.exists()
    [page] = pypdf.PdfReader(look).pages
    places: dict[str, tuple[float, float]] = {}

    def seen(text: str, matrix: Any, text_matrix: Any, *_: Any) -> None:
        if text.strip():
            x = text_matrix[4] * matrix[0] + matrix[4]
            y = text_matrix[5] * matrix[3] + matrix[5]
            places[text.strip()] = x / 72 * 25.4, 297 - y / 72 * 25.4

    page.extract_text(visitor_text=seen)
    assert {"Ann", "Main Street 1", "12345 Town", "Dear Ann"} <= set(places), places
    for line in ("Ann", "Main Street 1", "12345 Town"):
        x, y = places[line]
        assert 20 <= x <= 105 and 45 + 17.7 <= y <= 90, "within DIN 5008's field for the address"
    assert places["Dear Ann"][1] > 98


LOB = {"description": "lob", "return_address": "adr_210a8d4b0b76d77b", "use_type": "marketing"}


def lob() -> None:
    vendor = factories.vendor(slug="lob", adapter="described", channel="print", settings=LOB)
    factories.credential(vendor, secret={"api_key": "k"})


def test_what_a_described_vendor_demands_is_asked_of_each_row(tmp_path: Path) -> None:
    lob()
    table, body = tmp_path / "list.csv", tmp_path / "letter.html"
    body.write_text("<p>Dear {{ name }}</p>")
    table.write_text(
        "key,name,company,address_line1,address_city\n"
        f"k-1,Ann,,Main Street 1,Town\nk-2,,,Main Street 2,Town\nk-3,{'x' * 41},,Main Street 3,\n"
    )
    options = [
        "--sponsor",
        "Velma",
        "--new-sponsor",
        "--vendor",
        "lob",
        "--html",
        "--body",
        str(body),
        "--subject",
        "x",
    ]
    with pytest.raises(CommandError) as error:
        call_command("send_campaign", str(table), *options)
    for sentence in (
        "row 3: 'name' and 'company' are empty, and the address needs one of them",
        "row 4: 'address_city' is empty, and the address needs it",
        "'name' has 41 characters, and the vendor prints 40",
    ):
        assert sentence in str(error.value)
    assert not Campaign.objects.exists()
    table.write_text("key,name\nk-1,Ann\n")
    with pytest.raises(CommandError, match="needs 'address_city', 'address_line1'"):
        call_command("send_campaign", str(table), *options)


def test_the_rules_are_those_of_the_description() -> None:
    found = check_addresses(
        templates.compile_templates("x", "Dear {{ name }}", False), [address_rules("described", LOB)]
    )
    good = {"name": "Ann", "address_line1": "Main Street 1", "address_city": "Town"}
    assert list(field_faults("k-1", good, found)) == []
    assert list(field_faults("k-1", good | {"address_city": ""}, found)) == [
        "'address_city' is empty, and the address needs it"
    ]


def test_each_vendor_of_a_route_must_be_able_to_deliver() -> None:
    both = [address_rules("described", LOB), rules()]
    found = check_addresses(templates.compile_templates("x", "Dear {{ name }}", False), both)
    row = ann(address_line1="Main Street 1", address_city="Town")
    assert list(field_faults("k-1", row, found)) == []
    assert list(field_faults("k-1", row | {"country": "FR", "address_line1": ""}, found)) == [
        "'address_line1' is empty, and the address needs it", "'country' is 'FR'; the vendor delivers to AT, DE",
    ]  # fmt: skip


def test_the_recipients_own_lines_must_fit_the_window() -> None:
    own = PrintFile.address_rules({"folder": "x", "accepted": "uploaded", "window": "us10"})
    assert own is not None and list(own.find_faults("Ann\nMain Street 1\n12345 Town", {})) == []
    assert any("has 7 lines" in one for one in own.find_faults("\n".join("abcdefg"), {}))
    assert PrintFile.address_rules({"folder": "x", "accepted": "uploaded"}) is None


def test_the_example_of_the_page_works_word_by_word(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/how-to/print.md").read_text().partition("## Amazing Mail")[2].partition("\n## ")[0]
    block = "".join(line[4:] + "\n" for line in page.splitlines() if line.startswith("    "))
    key = asyncssh.generate_private_key("ssh-ed25519")
    block = block.replace("ssh-ed25519 AAAA...", key.export_public_key().decode().strip())
    (tmp_path / "login.json").write_text(json.dumps({"private_key": key.export_private_key().decode()}))
    (tmp_path / "list.csv").write_text(
        "key,name,street,city,state,zip\nk-1,Ann,1 Main St,Springfield,IL,62701\nk-2,Bob,2 Main St,Salem,IL,62701\n"
    )
    (tmp_path / "letter.html").write_text("<p>Dear {{ name }}</p>")
    factories.sponsor("Velma")
    lines = [line for line in block.replace("\\\n", " ").splitlines() if line.startswith("manage.py")]
    assert len(lines) == 3
    for line in lines:
        call_command(*shlex.split(line)[1:])
    job = Job.objects.get()
    assert (job.status, job.size, job.vendor.settings["window"]) == (Status.RENDERED, 2, "us10")


def test_requests_are_checked_as_lists_are() -> None:
    vendor, program = factories.vendor(adapter="described", channel="print", settings=LOB), Program()
    factories.credential(vendor, secret={"api_key": "k"})
    factories.entitle([program.sponsor], [vendor])
    good = {"name": "Ann", "address_line1": "Main Street 1", "address_city": "Town"}
    recipients = [{"to": "k-1", "fields": good}, {"to": "k-2", "fields": good | {"address_city": " ", "name": ""}}]
    body = letter(vendor, recipients=recipients, body="<p>Dear</p>", html=True) | {"subject": ""}
    answer = program.send(body, None, DRY)
    assert answer.status_code == 422, answer.content
    assert {(one["pointer"].split("/")[2], one["detail"]) for one in answer.json()["errors"]} == {
        ("1", "'address_city' is empty, and the address needs it"),
        ("1", "'name' and 'company' are empty, and the address needs one of them"),
    }
    assert program.send(body | {"recipients": recipients[:1]}, None, DRY).status_code == 200


@pytest.mark.slow("processes")
def test_a_dry_run_gives_its_letters_as_printed(settings: Any) -> None:
    shop = {"folder": "x", "accepted": "uploaded", "window": "us10", "paper": "Letter", "duplex": "yes"}
    vendor, program = factories.vendor(adapter="print_file", channel="print", settings=shop), Program()
    factories.credential(vendor)
    factories.entitle([program.sponsor], [vendor])
    dot = {"name": "dot.png", "cid": "dot", "type": "image/png", "content": base64.b64encode(DOT).decode()}
    body = "<p>Dear {{ recipient }}</p><img src='cid:dot'><p style='break-before: page'>more"
    asked = letter(vendor, ["Ann\n1 Main St", "Bob\n2 Main St"], body=body, html=True, attachments=[dot])
    asked |= {"subject": "", "preview": 2, "preview_pdf": True}
    answer = program.send(asked, None, DRY)
    assert answer.status_code == 200, answer.content
    found = answer.json()["printed"]
    assert (found["pages"], found["sheets"]) == ([2, 2], 2)
    texts = [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(base64.b64decode(found["pdf"]))).pages]
    assert len(texts) == 4 and "1 Main St" in texts[0] and "2 Main St" in texts[2]
    outside = program.send(asked | {"body": "<img src='file:///etc/passwd'>", "attachments": []}, None, DRY)
    assert outside.status_code == 422 and "not within the letter" in outside.content.decode()
    assert program.send(asked | {"preview": 0}, None, DRY).status_code == 422
    assert program.send(asked).status_code == 422, "only a dry run shows letters"
    settings.RENDER_STEPS = 1000
    assert 429 in [program.send(asked, None, DRY).status_code for _ in range(2)]


@pytest.mark.slow("processes")
def test_the_page_of_a_message_shows_it_as_printed(settings: Any) -> None:
    shop = {"folder": "x", "accepted": "uploaded", "window": "din5008b"}
    login = factories.credential(factories.vendor(adapter="print_file", channel="print", settings=shop))
    job = taken(["Ann\nMain Street 1\n12345 Town"], login)
    Campaign.objects.filter(pk=job.campaign_id).update(body="<p>Dear reader</p>", html=True)
    [message] = Message.objects.all()
    url = f"/admin/campaigns/message/{message.pk}/printed/"
    boss, stranger = Client(), Client()
    boss.force_login(User.objects.create_superuser("boss"))
    user = User.objects.create_user("eve", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=["view_message", "see_recipients"]))
    stranger.force_login(user)
    assert url in boss.get(f"/admin/campaigns/message/{message.pk}/change/").content.decode()
    answer = boss.get(url)
    assert answer.headers["Content-Type"] == "application/pdf"
    assert "Main Street 1" in pypdf.PdfReader(io.BytesIO(answer.content)).pages[0].extract_text()
    assert stranger.get(url).status_code == 404, "it is of another sponsor"
    job.campaign.sponsor.users.add(user)
    assert stranger.get(url).status_code == 200
    user.user_permissions.remove(Permission.objects.get(codename="see_recipients"))
    assert stranger.get(url).status_code == 403
    Campaign.objects.filter(pk=job.campaign_id).update(body="<img src='file:///etc/passwd'>")
    answer = boss.get(url)
    assert answer.status_code == 422 and "not within the letter" in answer.content.decode()
