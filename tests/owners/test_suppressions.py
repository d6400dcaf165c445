"""Pages of suppressions and topics: of the user's sponsors alone."""

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import FileResponse
from django.urls import reverse
from django.utils import timezone

from campaigns.doors import downloads
from campaigns.models import Suppression, Topic
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from tests import factories

pytestmark = pytest.mark.django_db


def user(name, sponsor, *groups, may=()):
    made = User.objects.create_user(name, password="a long password")
    made.groups.set(Group.objects.filter(name__in=groups))
    made.user_permissions.set(Permission.objects.filter(codename__in=may))
    sponsor.users.add(made)
    return made


@pytest.fixture
def sponsor(client):
    """Of Ann, who is a campaign owner and logged in."""
    made = factories.sponsor()
    client.force_login(user("ann", made, "campaign owner"))
    return made


def suppressed(sponsor, address="bob@example.com", reason="stop"):
    lists.add_suppressions(sponsor and sponsor.pk, "email", [NewSuppression(address, reason, "letter of May")])
    return Suppression.objects.get(address=address)


def test_an_address_is_added_once_and_found_as_a_whole(client, sponsor):
    given = {"sponsor": sponsor.pk, "channel": "email", "address": "Bob@EXAMPLE.com", "reason": "by_hand"}
    for _ in range(2):
        assert client.post("/suppressions/add/", given).status_code == 302
    assert Suppression.objects.get().source == "ann" and LogEntry.objects.count() == 1
    assert "Bob@example.com" in client.post("/suppressions/", {"address": "Bob@example.com"}).content.decode()
    assert "not suppressed" in client.post("/suppressions/", {"address": "Bob@example"}).content.decode()
    assert client.post("/suppressions/add/", given | {"address": "nobody"}).status_code == 422
    assert client.post("/suppressions/add/", given | {"sponsor": factories.sponsor().pk}).status_code == 422


def test_nothing_of_another_sponsor_nor_of_all(client, sponsor):
    theirs, everybodys = suppressed(factories.sponsor(), "eve@example.com"), suppressed(None, "sam@example.com")
    page = client.get("/suppressions/").content.decode()
    assert "eve@example.com" not in page and "sam@example.com" not in page
    client.force_login(user("olga", sponsor, "operator"))
    for row in (theirs, everybodys):
        assert client.post(f"/suppressions/{row.pk}/lift/", {"reason": "asked"}).status_code == 404
    other = factories.sponsor()
    assert client.get(f"/suppressions/export/file.csv?sponsor={other.pk}&channel=email").status_code == 404
    assert Suppression.objects.filter(until=None).count() == 2


def test_who_may_lift_gives_a_reason(client, sponsor):
    row = suppressed(sponsor)
    assert client.post(f"/suppressions/{row.pk}/lift/", {"reason": "asked"}).status_code == 403
    client.force_login(user("olga", sponsor, "operator"))
    assert client.post(f"/suppressions/{row.pk}/lift/", {"reason": " "}).status_code == 422
    for _ in range(2):
        client.post(f"/suppressions/{row.pk}/lift/", {"reason": "she asked"})
    row.refresh_from_db()
    assert row.until is not None
    assert LogEntry.objects.filter(change_message="lifted. Reason: she asked", object_id=row.pk).exists()


def test_who_sees_no_recipients_sees_no_address_and_exports_none(client, sponsor):
    suppressed(sponsor)
    client.force_login(user("vic", sponsor, "viewer"))
    page = client.get("/suppressions/").content.decode()
    assert "b…@example.com" in page and "bob@" not in page and "suppressions/export" not in page
    answer = client.get(f"/suppressions/export/file.csv?sponsor={sponsor.pk}&channel=email")
    assert answer.status_code == 403


def test_what_is_exported_is_imported_again_and_no_cell_is_a_formula(client, sponsor):
    suppressed(sponsor, "=cmd@example.com")
    answer = client.get(f"/suppressions/export/file.csv?sponsor={sponsor.pk}&channel=email")
    text = answer.content
    assert text.splitlines()[1].startswith(b"'=cmd@example.com,stop,letter of May,")
    Suppression.objects.all().delete()
    given = {"sponsor": sponsor.pk, "channel": "email", "reason": "by_hand"}
    file = SimpleUploadedFile("list.csv", text, "text/csv")
    assert client.post("/suppressions/import/", given | {"file": file}).status_code == 302
    assert Suppression.objects.get().address == "=cmd@example.com"
    bad = SimpleUploadedFile("list.csv", b"address\nann@example.com\nnobody\n", "text/csv")
    answer = client.post("/suppressions/import/", given | {"file": bad})
    assert answer.status_code == 422 and "row 3" in answer.content.decode()
    assert Suppression.objects.count() == 1


def test_a_large_file_lies_on_the_disk_and_few_are_made_at_a_time(client, sponsor, monkeypatch):
    """The web server sends a FileResponse from the disk, and holds no thread for it."""
    from mailhub import rsgi  # it reads the database

    monkeypatch.setattr(downloads, "IN_MEMORY", 100)
    addresses = [f"r{n}@example.com" for n in range(20)]
    lists.add_suppressions(sponsor.pk, "email", [NewSuppression(one, "by_hand") for one in addresses])
    answer = client.get(f"/suppressions/export/file.csv?sponsor={sponsor.pk}&channel=email")
    text = b"".join(answer.streaming_content)
    answer.close()
    assert isinstance(answer, FileResponse) and "suppressions-email.csv" in answer.headers["Content-Disposition"]
    assert int(answer.headers["Content-Length"]) == len(text) and text.count(b"\n") == 21
    made = [reverse("suppression-file"), reverse("draft_bad_rows", args=[1]), reverse("draft_letter_pdf", args=[1, 1])]
    made += [reverse("campaign-download", args=[1, "xlsx"]), "/api/v1/sessions/1/report"]
    assert all(rsgi.FILE.search(one) for one in made) and not rsgi.FILE.search(reverse("campaign-report", args=[1]))
    read = [
        reverse("suppression-import"),
        reverse("admin:campaigns_suppression_import"),
        reverse("draft_list", args=[1]),
    ]
    assert all(rsgi.LISTS.search(one) for one in read)


def test_a_topic_is_added_once_by_whoever_may(client, sponsor):
    given = {"sponsor": sponsor.pk, "name": "offers", "title": "Weekly offers"}
    client.post("/senders/topics/", given)
    assert not Topic.objects.exists()
    client.force_login(user("tom", sponsor, "viewer", may=["add_topic"]))
    for _ in range(2):
        assert client.post("/senders/topics/", given).status_code == 302
    assert client.post("/senders/topics/", given | {"title": "Others"}).status_code == 422
    assert client.post("/senders/topics/", given | {"name": "no name"}).status_code == 422
    assert client.post("/senders/topics/", given | {"sponsor": factories.sponsor().pk}).status_code == 404
    assert Topic.objects.get().title == "Weekly offers" and LogEntry.objects.count() == 1
    assert "Weekly offers" in client.get("/senders/topics/").content.decode()


def test_a_topic_is_renamed_and_one_that_nothing_names_removed(client, sponsor):
    row = Topic.objects.create(sponsor=sponsor, name="offers", title="Offers")
    kept = Topic.objects.create(sponsor=sponsor, name="news", title="News")
    lists.add_suppressions(sponsor.pk, "email", [NewSuppression("a@example.com", "unsubscribed", topic_id=kept.pk)])
    rename, remove = f"/senders/topics/{row.pk}/rename/", f"/senders/topics/{row.pk}/remove/"
    archive = f"/senders/topics/{kept.pk}/archive/"
    assert client.post(rename, {"title": "x"}).status_code == client.post(remove).status_code == 403
    assert client.post(archive, {"archived": "yes"}).status_code == 403
    client.force_login(user("tom", sponsor, "viewer", may=["change_topic", "delete_topic"]))
    for _ in range(2):
        client.post(rename, {"title": "Weekly offers"})
    row.refresh_from_db()
    assert row.title == "Weekly offers" and LogEntry.objects.get().change_message == "title Offers → Weekly offers"
    for _ in range(2):
        assert client.post(remove).status_code == 302
    assert "Archive it instead" in client.post(f"/senders/topics/{kept.pk}/remove/", follow=True).content.decode()
    assert list(Topic.objects.all()) == [kept]
    for given, said in (("yes", "recipients can still unsubscribe"), ("no", "Campaigns can name “News” again")):
        assert said in client.post(archive, {"archived": given}, follow=True).content.decode()
        assert said not in client.post(archive, {"archived": given}, follow=True).content.decode(), "once"
        kept.refresh_from_db()
        assert (kept.archived_at is not None) == (given == "yes")
    client.force_login(user("sue", sponsor, "viewer", may=["add_topic"]))
    added = {"sponsor": sponsor.pk, "name": "news", "title": "News"}
    assert client.post("/senders/topics/", added).status_code == 302, "it is there"
    Topic.objects.filter(pk=kept.pk).update(archived_at=timezone.now())
    assert "it is archived: restore it" in client.post("/senders/topics/", added).content.decode()
    client.force_login(User.objects.get(username="tom"))
    theirs = Topic.objects.create(sponsor=factories.sponsor(), name="news", title="News")
    assert client.post(f"/senders/topics/{theirs.pk}/rename/", {"title": "x"}).status_code == 404
    assert client.post(f"/senders/topics/{theirs.pk}/archive/", {"archived": "yes"}).status_code == 404
    client.post(f"/senders/topics/{theirs.pk}/remove/")
    assert Topic.objects.filter(pk=theirs.pk).exists()
