"""The preview that follows an editor: the letter of texts that nobody has stored, for whoever may write them."""

import html
import re

import pytest
from django.contrib.auth.models import User

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
