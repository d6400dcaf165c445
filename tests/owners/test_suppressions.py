"""Pages of suppressions, sender identities and topics: of the user's sponsors alone."""

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from campaigns.models import Identity, Suppression, Topic
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from mailhub import installation, rsgi
from mailhub.front import downloads
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
    installation.create_groups()
    made = factories.sponsor()
    client.force_login(user("ann", made, "campaign owner"))
    return made


def suppressed(sponsor, address="bob@example.com", reason="stop"):
    lists.add(sponsor and sponsor.pk, "email", [NewSuppression(address, reason, "letter of May")])
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
    """The web server sends what has a `file_to_stream` without holding it or a thread."""
    monkeypatch.setattr(downloads, "IN_MEMORY", 100)
    addresses = [f"r{n}@example.com" for n in range(20)]
    lists.add(sponsor.pk, "email", [NewSuppression(one, "by_hand") for one in addresses])
    answer = client.get(f"/suppressions/export/file.csv?sponsor={sponsor.pk}&channel=email")
    assert answer.file_to_stream and 'filename="suppressions-email.csv"' in answer.headers["Content-Disposition"]
    text = b"".join(answer.streaming_content)
    assert int(answer.headers["Content-Length"]) == len(text) and text.count(b"\n") == 21
    made = [reverse("suppression-file"), reverse("draft_bad_rows", args=[1]), reverse("draft_letter_pdf", args=[1, 1])]
    made += [reverse("campaign-download", args=[1, "xlsx"]), "/api/v1/sessions/1/report"]
    assert all(rsgi.FILE.search(one) for one in made) and not rsgi.FILE.search(reverse("campaign-report", args=[1]))


def test_identities_without_secrets(client, sponsor):
    mine = Identity(sponsor=sponsor, name="news", channel="email", from_address="news@one.invalid")
    mine.dkim_domain, mine.dkim_selector, mine.secret = "one.invalid", "s1", {"private_key": "very secret"}
    mine.save()
    theirs = Identity.objects.create(
        sponsor=factories.sponsor(), name="other", channel="email", from_address="other@two.invalid"
    )
    page = client.get("/senders/").content.decode()
    assert "news@one.invalid" in page and "two.invalid" not in page
    page = client.get(f"/senders/{mine.pk}/").content.decode()
    assert "s1._domainkey.one.invalid" in page and "very secret" not in page
    assert client.get(f"/senders/{theirs.pk}/").status_code == client.post(f"/senders/{theirs.pk}/").status_code == 404


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
