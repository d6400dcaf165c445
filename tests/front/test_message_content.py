"""POST /api/v1/messages with a text beside the HTML, headers and files."""

import base64
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from campaigns.models import Campaign, CampaignFile, Identity, StoredFile
from campaigns.tasks import delete_files
from tests.front.program import Program, api_vendor, fresh, letter, pointers

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
PDF = base64.b64encode(b"%PDF").decode()
HTML = '<p>Dear {{ name }}</p><img src="cid:logo">'


def relay(**fields: Any) -> Any:
    return api_vendor(
        adapter="smtp", settings={"host": "127.0.0.1", "sender": "us@example.org"}, channel="email", **fields
    )


def news(vendor: Any, **members: Any) -> dict[str, Any]:
    to = [{"to": f"{name}@example.org", "fields": {"name": name, "invoice": f"{name}.pdf"}} for name in ("ann", "bob")]
    return letter(vendor, **{"body": HTML, "html": True, "recipients": to, "attachments": [LOGO], **members})


LOGO = {"name": "logo.png", "content": PDF, "cid": "logo"}
OWN = {"files": [{"name": f"{name}.pdf", "content": PDF} for name in ("ann", "bob")], "file_fields": ["invoice"]}


def test_a_request_has_all_that_the_command_has_and_its_files_are_stored_once() -> None:
    terms = {"name": "terms.pdf", "content": PDF, "type": "application/x-terms"}
    body = news(relay(), attachments=[LOGO, terms], headers=[{"name": "X-Run", "value": "7"}], **OWN)
    program = Program()
    answer = program.send(body, key="first")
    assert answer.status_code == 202, answer.content
    campaign = Campaign.objects.get()
    assert campaign.text == "Dear {{ name }}\n"
    assert (campaign.headers, campaign.file_fields, campaign.has_files) == ([["X-Run", "7"]], ["invoice"], True)
    rows = CampaignFile.objects.order_by("id").values_list("name", "content_type", "cid", "to_all")
    assert set(rows) == {
        ("logo.png", "image/png", "logo", True),
        ("terms.pdf", "application/x-terms", "", True),
        ("ann.pdf", "application/pdf", "", False),
        ("bob.pdf", "application/pdf", "", False),
    }
    assert bytes(StoredFile.objects.get().content) == b"%PDF"
    assert program.send(body, key="first").headers["Idempotent-Replayed"] == "true"
    assert Campaign.objects.count() == 1


def test_a_headers_value_shows_fields_and_a_dry_run_shows_it() -> None:
    program, vendor = Program(), relay()
    headers = [{"name": "X-Run", "value": "{{ name }}-7"}, {"name": "X-A", "value": "{{ a|default('') }}"}]
    body = news(vendor, headers=headers, preview=2)
    shown = program.send(body, path="/api/v1/messages?dry_run=true").json()["preview"]
    of_run = [[one["value"] for one in letter["headers"] if one["name"] in ("X-Run", "X-A")] for letter in shown]
    assert of_run == [["ann-7"], ["bob-7"]]
    bad = [
        {"to": "ann@example.org", "fields": {"name": "a\nBcc: b"}},
        {"to": "bob@example.org", "fields": {"name": ""}},
    ]
    wrong = program.send(news(vendor, headers=headers, recipients=bad))
    assert pointers(wrong) == {"/recipients/0/fields": "fields", "/recipients/1/fields": "fields"}
    for value in ("{{ name", "{{ name.__class__ }}"):
        answer = program.send(news(vendor, headers=[{"name": "X-Run", "value": value}]))
        assert pointers(answer) == {"/headers/0": "header"} and "the header X-Run" in answer.content.decode()
    assert not Campaign.objects.exists()


def test_a_test_send_stores_no_file_of_the_recipients_that_get_none() -> None:
    own = {
        **OWN,
        "files": [{**one, "content": base64.b64encode(one["name"].encode()).decode()} for one in OWN["files"]],
    }
    answer = Program().send(news(relay(), test_to="me@example.org", **own))
    assert answer.status_code == 202, answer.content
    assert set(CampaignFile.objects.values_list("name", flat=True)) == {"logo.png", "ann.pdf"}
    assert StoredFile.objects.count() == 2


def test_a_letter_of_plain_text_stores_nothing_beside_it() -> None:
    assert Program().send(letter(relay())).status_code == 202
    campaign = Campaign.objects.get()
    assert (campaign.text, campaign.headers, campaign.file_fields, campaign.has_files) == ("", None, None, False)


@pytest.mark.parametrize(
    ("members", "pointer", "said"),
    [
        ({"headers": [{"name": "From", "value": "me"}]}, "/headers/0", "mailhub's own"),
        ({"headers": [{"name": "X", "value": "a\r\nBcc: b"}]}, "/headers/0", "one line"),
        ({"attachments": []}, "/attachments", "no such image"),
        ({"attachments": [LOGO, {"name": "a/../b", "content": PDF}]}, "/attachments", "within the folder"),
        ({"attachments": [LOGO, LOGO]}, "/attachments", "two files are called 'logo.png'"),
        ({"attachments": [{**LOGO, "content": "%%"}]}, "/attachments/0/content", "not base64"),
        ({"attachments": [{**LOGO, "type": "image"}]}, "/attachments", "is not the type of a file"),
        ({"file_fields": ["invoice"]}, "/files", "go together"),
        ({**OWN, "files": OWN["files"][:1]}, "/recipients/1/fields", "there is no file 'bob.pdf' in files"),
        ({"text": "{{ name"}, "/text", "the text, line 1"),
        ({"text": "Hi", "html": False, "attachments": [], "body": "Hi"}, "/text", "goes beside an HTML body"),
    ],
)
def test_what_no_letter_can_have_is_named_with_its_place(members: dict[str, Any], pointer: str, said: str) -> None:
    answer = Program().send(news(relay(), **members))
    assert pointer in pointers(answer) and said in str(answer.json()["errors"])
    assert not Campaign.objects.exists() and not StoredFile.objects.exists()


def test_a_vendor_that_cannot_carry_it_is_named_and_of_a_channel_one_that_can_is_taken() -> None:
    bare = api_vendor(slug="a-bare", channel="email")
    answer = Program().send(news(bare))
    assert "a-bare does not carry files" in answer.json()["detail"] and list(pointers(answer)) == ["/vendor"]
    able, program = relay(slug="b-able"), Program()
    Identity.objects.create(sponsor=program.sponsor, name="main", from_address="us@example.org", default=True)
    answer = program.send({**news(None), "channel": "email"})
    assert (answer.status_code, answer.json()["vendor"]) == (202, able.slug)


def test_images_are_refused_at_once_where_a_service_shows_none() -> None:
    bare = api_vendor(slug="a-bare", channel="email", adapter="anymail", settings={"service": "postal"})
    answer = Program().send(news(bare))
    assert "a-bare does not carry images within the HTML" in answer.json()["detail"]
    assert list(pointers(answer)) == ["/vendor"] and not Campaign.objects.exists()


def test_html_over_several_vendors_has_a_text_only_if_all_carry_it() -> None:
    for slug in ("a-able", "b-able"):
        relay(slug=slug)
    html = {"body": "<p>Hello</p>", "html": True, "channel": "email"}
    assert Program().send(letter(**html)).status_code == 202
    assert Campaign.objects.get().text == "Hello\n"
    api_vendor(slug="c-bare", channel="email")
    assert Program().send(letter(**html)).status_code == 202
    assert Campaign.objects.latest("id").text == ""


def test_files_without_a_campaign_are_deleted_a_day_later() -> None:
    long_ago = timezone.now() - timedelta(days=2)
    Program().send(news(relay()))
    StoredFile.objects.update(asked_at=long_ago)
    for number, asked in enumerate((long_ago, timezone.now())):
        StoredFile.objects.create(sha256=bytes([number] * 32), size=1, content=b"x", asked_at=asked)
    delete_files()
    assert sorted(bytes(one.content) for one in StoredFile.objects.all()) == [b"%PDF", b"x"]
