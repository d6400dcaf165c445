"""Pages of templates: versions, two people at once, previews that reach nothing."""

import re

import pytest
from django.contrib.auth.models import Group, User

from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.models import Template, TemplateVersion
from tests import factories
from vendors.history import Actor

pytestmark = pytest.mark.django_db
HTML = TemplateContent("Hello {{ name }}", "<p>Dear {{ name }}</p><script>alert(1)</script>", html=True)
NEW = {
    "name": "Welcome",
    "channel": "email",
    "subject": "Hello {{ name }}",
    "body": "Dear {{ name }},\r\nhi",
    "based_on": 0,
}


@pytest.fixture
def sponsor(client):
    """Ann's, who is a campaign owner and logged in."""
    ann = User.objects.create_user("ann", password="a long password")
    ann.groups.add(Group.objects.get(name="campaign owner"))
    client.force_login(ann)
    made = factories.sponsor()
    made.users.add(ann)
    return made


def stored(sponsor, content=HTML, name="Welcome", by="bob"):
    return versions.add_version(sponsor.pk, name, "email", content, Actor(by)).version


def test_a_new_template_is_stored_once_however_often_the_button_is_pressed(client, sponsor):
    given = NEW | {"sponsor": sponsor.pk}
    for _ in range(2):
        answer = client.post("/templates/new/", given)
        assert answer.headers["Location"] == f"/templates/{Template.objects.get().pk}/"
    version = TemplateVersion.objects.get()
    assert (version.body, version.made_by) == ("Dear {{ name }},\nhi", "ann")
    page = client.get(answer.headers["Location"]).content.decode()
    assert "Dear [name]," in page
    assert "Welcome" in client.get("/templates/").content.decode()
    taken = client.post("/templates/new/", given | {"body": "Hi"})
    assert taken.status_code == 409 and "a template of this name already" in taken.content.decode()


def test_a_mistake_is_told_with_its_line_and_nothing_is_lost(client, sponsor):
    answer = client.post("/templates/new/", NEW | {"sponsor": sponsor.pk, "body": "Dear\n{% if %}"})
    page = answer.content.decode()
    assert answer.status_code == 422 and "the body, line 2" in page and "{% if %}" in page
    assert not Template.objects.exists()


def test_of_two_who_edit_one_sees_the_others_version_and_none_is_lost(client, sponsor):
    pk = stored(sponsor).template_id
    stored(sponsor, TemplateContent("Hello", "Theirs {{ name }}", html=True))
    mine = {"subject": "Hello", "body": "Mine {{ name }}", "html": "on", "based_on": 1}
    answer = client.post(f"/templates/{pk}/edit/", mine)
    page = answer.content.decode()
    assert answer.status_code == 409 and TemplateVersion.objects.count() == 2
    assert "Theirs {{ name }}" in page and "Mine {{ name }}" in page
    based_on = re.search(r'name="based_on" value="(\d+)"', page)[1]
    assert client.post(f"/templates/{pk}/edit/", mine | {"based_on": based_on}).status_code == 302
    assert [one.body for one in TemplateVersion.objects.all()][:2] == ["Mine {{ name }}", "Theirs {{ name }}"]


def test_a_preview_stores_nothing_and_its_frame_runs_nothing(client, sponsor):
    pk = stored(sponsor).template_id
    asked = {
        "subject": "Hi",
        "body": "<b>{{ name }}</b>",
        "html": "on",
        "based_on": 1,
        "preview": "1",
        "field.name": "A&B",
    }
    answer = client.post(f"/templates/{pk}/edit/", asked)
    page = answer.content.decode()
    frame = re.search(r"<iframe[^>]*>", page)[0]
    assert 'sandbox=""' in frame and "default-src &#x27;none&#x27;" in frame and "A&amp;amp;B" in frame
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "frame-src 'none'" in answer.headers["Content-Security-Policy"]
    assert TemplateVersion.objects.count() == 1


def test_samples_are_posted_and_lists_are_json(client, sponsor):
    pk = stored(sponsor, TemplateContent("Hi", "{% for one in items %}{{ one.name }};{% endfor %}")).template_id
    page = client.post(f"/templates/{pk}/", {"field.items": '[{"name": "pen"}, {"name": "ink"}]'}).content.decode()
    assert "pen;ink;" in page
    assert "there is no letter" in client.post(f"/templates/{pk}/", {"field.items": "[1]"}).content.decode()


def test_versions_differences_and_archive(client, sponsor):
    first = stored(sponsor)
    pk = first.template_id
    stored(sponsor, TemplateContent("Hello", "<p>Hi</p>", html=True))
    factories.campaign(1, by=sponsor, template_version=first, name="News of May")
    page = client.get(f"/templates/{pk}/").content.decode()
    assert "News of May" in page and "Version 1" in page
    assert client.get(f"/templates/{pk}/versions/1/").status_code == 200
    page = client.get(f"/templates/{pk}/differences/?old=1&new=2").content.decode()
    assert "&lt;p&gt;Hi&lt;/p&gt;" in page and 'class="removed"' in page
    assert client.get(f"/templates/{pk}/archive/").status_code == 405
    client.post(f"/templates/{pk}/archive/")
    assert "Welcome" not in client.get("/templates/").content.decode().split('class="said"')[1].split("</ul>")[1]
    assert "Welcome" in client.get("/templates/?archived").content.decode()
    client.post(f"/templates/{pk}/restore/")
    assert Template.objects.get().archived_at is None


@pytest.mark.parametrize("page", ["", "edit/", "differences/", "versions/1/", "archive/", "restore/"])
def test_a_template_of_another_sponsor_is_not_there(client, sponsor, page):
    theirs = stored(factories.sponsor()).template_id
    ask = client.post if page in ("archive/", "restore/") else client.get
    assert ask(f"/templates/{theirs}/{page}").status_code == 404
    assert Template.objects.get().archived_at is None


def test_nobody_makes_a_template_for_another_sponsor(client, sponsor):
    answer = client.post("/templates/new/", NEW | {"sponsor": factories.sponsor().pk})
    assert answer.status_code == 422 and not Template.objects.exists()


def test_who_may_only_look_sees_no_verb_and_has_none(client, sponsor):
    pk = stored(sponsor).template_id
    viewer = User.objects.create_user("eve")
    viewer.groups.add(Group.objects.get(name="viewer"))
    sponsor.users.add(viewer)
    client.force_login(viewer)
    page = client.get(f"/templates/{pk}/").content.decode()
    assert "Archive</button>" not in page and "/edit/" not in page
    assert client.get(f"/templates/{pk}/edit/").status_code == client.get("/templates/new/").status_code == 403
    assert client.post(f"/templates/{pk}/archive/").status_code == 403
