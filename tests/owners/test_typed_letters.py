"""The preview that follows an editor: the letter of texts that nobody has stored, for whoever may write them."""

import base64
import html
import re

import pytest
from django.contrib.auth.models import User

from campaigns.lists.drafts import keeping
from campaigns.lists.intake.files import NewFile
from campaigns.models import Campaign, Draft, Template
from tests import factories
from tests.owners.test_wizard import ann, login, make, put

__all__ = ["ann", "login"]
pytestmark = pytest.mark.django_db
DRAFT, TEMPLATE = "/drafts/typed/", "/templates/typed/"


def part(answer) -> str:
    found = re.search(r'data-part="(\w*)"', answer.content.decode())
    assert answer.status_code == 200 and found
    return found[1]


def test_a_campaigns_letter_is_that_of_the_first_recipient_and_nothing_is_stored(client, login):
    draft = make(client, login)
    put(client, draft, "email,first_name\nbea@example.com,Bea & Co\ncy@example.com,Cy\n")
    draft.refresh_from_db()
    typed = {"channel": "email", "subject": "Hi {{ first_name }}", "html": "<p>Dear {{ first_name }}, {{ day }}</p>"}
    before = Draft.objects.values().get()
    answer = client.post(DRAFT, {**typed, "draft": draft.pk})
    page = answer.content.decode()
    assert part(answer) == "" and "bea@example.com" in page and "Hi Bea &amp; Co" in page
    assert "Dear Bea &amp; Co, [day]" in html.unescape(page), (
        "escaped in the letter, and again in the frame's attribute"
    )
    assert 'data-fields="day first_name "' in page and 'sandbox="allow-same-origin"' in page
    assert "default-src &#x27;none&#x27;" in page
    assert "[first_name]" in client.post(DRAFT, typed).content.decode(), "without a list: samples"
    assert Draft.objects.values().get() == before and not Campaign.objects.exists()


def test_faults_name_their_part_and_what_is_not_typed_yet_is_no_fault(client, login):
    typed = {"channel": "email", "html": "<p>{{ a }}</p>"}
    assert part(client.post(DRAFT, typed)) == ""
    assert "as it is written" in client.post(DRAFT, {"channel": "email", "subject": "Hi"}).content.decode()
    assert part(client.post(DRAFT, {**typed, "subject": "{{ a"})) == "subject"
    assert part(client.post(DRAFT, {**typed, "subject": "Hi", "html": "<p>{% if %}</p>"})) == "body"
    assert part(client.post(DRAFT, {**typed, "subject": "Hi", "text": "{{ a | nothing }}"})) == "text"
    sms = client.post(DRAFT, {"channel": "sms", "html": "<p>no</p>", "text": "Hi {{ a }}", "subject": "{{"})
    assert part(sms) == "" and "Segments" in sms.content.decode() and "<pre" in sms.content.decode()
    assert part(client.post(DRAFT, {"channel": "email", "html": "x" * 1_000_001, "subject": "a"})) == "body"


PIXEL = b"\x89PNG\r\n\x1a\n" + b"\0" * 60


def attached(draft: Draft, **files: bytes) -> None:
    stored = [NewFile(f"{name}.png", len(content), lambda of=content: of) for name, content in files.items()]
    keeping.attach_files(draft, stored, [])


def test_pictures_of_the_campaign_are_shown_as_the_letter_names_them(client, login):
    draft = make(client, login)
    attached(draft, logo=PIXEL, large=b"\x89PNG" + b"\1" * 600_000, logo2=PIXEL + b"2")
    body = "<p>cid:logo.png</p><img src='cid:logo.png'><img src=\"cid:large.png\"><img src=cid:away.png>"
    typed = {"channel": "email", "subject": "Hi", "html": body, "draft": draft.pk}
    answer = client.post(DRAFT, typed)
    page = html.unescape(answer.content.decode())
    data = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    assert part(answer) == "" and f"<p>cid:logo.png</p><img src='{data}'>" in page
    assert 'src="cid:large.png"' in page and "src=cid:away.png" in page, "too large; and not a file of the campaign"
    assert "Large pictures" in page and len(page) < 500_000
    assert "img-src data:" in page, "the rules of the frame are the same"
    small = html.unescape(client.post(DRAFT, {**typed, "html": "<img src='cid:logo2.png'>"}).content.decode())
    assert base64.b64encode(PIXEL + b"2").decode() in small and "Large pictures" not in small
    nobodys = client.post(DRAFT, {name: value for name, value in typed.items() if name != "draft"})
    assert "data:image" not in nobodys.content.decode(), "a form without a draft has no files"


def test_a_templates_letter_has_the_samples_that_were_typed(client, login):
    typed = {"channel": "email", "subject": "Hi", "body": "<p>{{ a }}</p>", "html": "on", "field.a": "<b>1</b>"}
    page = client.post(TEMPLATE, typed).content.decode()
    assert "<p>&lt;b&gt;1" in html.unescape(page) and 'name="field.a"' in page
    assert "<pre" in client.post(TEMPLATE, {**typed, "html": ""}).content.decode()
    assert not Template.objects.exists()


def test_only_who_may_write_is_answered_and_only_from_drafts_of_his_sponsors(client, login):
    draft = make(client, login)
    bob = User.objects.create_user("bob", password="a long password")
    factories.sponsor("Other").users.add(bob)
    typed = {"channel": "email", "subject": "Hi", "html": "<p>Hi</p>", "draft": draft.pk}
    assert client.get(DRAFT).status_code == client.get(TEMPLATE).status_code == 405
    client.force_login(bob)
    assert client.post(DRAFT, typed).status_code == client.post(TEMPLATE, typed).status_code == 403
    bob.groups.set(User.objects.get(username="ann").groups.all())
    assert client.post(DRAFT, typed).status_code == 404
    client.logout()
    assert client.post(DRAFT, typed).status_code == client.post(TEMPLATE, typed).status_code == 302
