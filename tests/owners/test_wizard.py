"""Somebody who has never seen a shell makes a campaign: drafts, lists, what two windows do, and the one campaign."""

import gc
import html
import io
import re
from datetime import date, time, timedelta
from zoneinfo import ZoneInfo

import lxml.html
import openpyxl
import pypdf
import pytest
import time_machine
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone

from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.lists.drafts import blocks, checking, copying, keeping, sending
from campaigns.models import Campaign, Draft, DraftBlock, Entitlement, Identity, Message, Sponsor, StoredFile, Topic
from campaigns.reporting import xlsx_writer
from campaigns.senders import sender_changes
from campaigns.suppression import lists
from tests import factories
from tests.lists.test_intake_spreadsheets import ods, ods_row, xls
from vendors.history import Actor
from vendors.models import Credential, Vendor
from vendors.printing import pages

pytestmark = pytest.mark.django_db
LIST = (
    "email,first_name\nann@example.com,Ann\nbob@example.com,Bob\nno address,Cy\nBOB@example.com,Bo\ndee@example.com,\n"
)
HELLO = {"name": "May", "subject": "Hello {{ first_name }}", "text": "Good day {{ first_name }}", "html": ""}
SOON = {"when": "now", "time_zone": "UTC", "send_at": "", "hours_from": "", "hours_to": "", "first": ""}


@pytest.fixture
def noon():
    """Python's clock stands still, far from midnight in all zones of the tests: a night belongs to its day."""
    with time_machine.travel(timezone.now().replace(hour=12), tick=False):
        yield


@pytest.fixture
def ann(client):
    ann = User.objects.create_user("ann", email="ann@own.example", password="a long password")
    ann.groups.add(Group.objects.get(name="campaign owner"))
    client.force_login(ann)
    return ann


@pytest.fixture
def login(ann):
    """Of a vendor that Ann's only sponsor may use."""
    sponsor = factories.sponsor()
    sponsor.users.add(ann)
    return factories.credential(
        factories.vendor(settings={"url": "http://127.0.0.1:9/"}, casters=None, time_zone="Europe/Berlin")
    )


def make(client, login, **more):
    """A draft with a message, by the page."""
    page = client.get("/campaigns/new/").content.decode()
    hidden = dict(re.findall(r'name="(key|sponsor)" value="([^"]+)"', page))
    answer = client.post("/campaigns/new/", {**hidden, **HELLO, "by": f"credential:{login.pk}", **more})
    assert answer.status_code == 302, answer.content.decode()
    return Draft.objects.latest("pk")


def put(client, draft, text=LIST, name="may.csv", seen=None):
    file = SimpleUploadedFile(name, text if isinstance(text, bytes) else text.encode())
    draft.refresh_from_db()
    return client.post(reverse("draft_list", args=[draft.pk]), {"seen": seen or draft.seen, "list": file}, follow=True)


def press(client, draft, step, **fields):
    draft.refresh_from_db()
    return client.post(reverse(f"draft_{step}", args=[draft.pk]), {"seen": draft.seen, **fields})


def ready(client, login, text="email,first_name\nann@example.com,Ann\nbob@example.com,Bob\n"):
    draft = make(client, login)
    put(client, draft, text)
    draft.refresh_from_db()
    return draft


def test_from_a_message_and_a_list_with_bad_rows_to_a_campaign(client, login):
    draft = make(client, login)
    page = put(client, draft).content.decode()
    assert (
        "no address" in page and "the same recipient as in row 3" in page and "&#x27;first_name&#x27; is empty" in page
    )
    assert "Leave these 3 rows out, and go on" in page
    page = client.get(reverse("draft_check", args=[draft.pk])).content.decode()
    assert "Nothing can be sent yet." in page and "You will send" not in page
    assert "3 rows of the list are bad" in page and "rows are left out" not in page, "they are not left out yet"
    draft.refresh_from_db()
    assert {name: draft.found[name] for name in ("rows", "good", "bad", "duplicates")} == {
        "rows": 5, "good": 2, "bad": 2, "duplicates": 1
    }  # fmt: skip
    assert (
        "3 rows of the list are bad"
        in press(client, draft, "send", **SOON).wsgi_request._messages._queued_messages[0].message
    )
    assert press(client, draft, "leave_out", total=3).headers["Location"] == reverse("draft_check", args=[draft.pk])
    page = client.get(reverse("draft_check", args=[draft.pk])).content.decode()
    assert "Send 2 e-mails" in page and "3 rows are left out" in page and "No price is known" in page
    press(client, draft, "send", **SOON)
    draft.refresh_from_db()
    made = draft.campaign
    assert (made.name, made.size, made.subject, made.body) == ("May", 2, HELLO["subject"], HELLO["text"])
    assert dict(Message.objects.filter(campaign=made).values_list("recipient", "params")) == {
        "ann@example.com": {"first_name": "Ann"}, "bob@example.com": {"first_name": "Bob"}
    }  # fmt: skip


def test_a_campaign_is_made_once_whoever_sends_it_how_often(client, login):
    draft = ready(client, login)
    seen = draft.seen
    for _ in range(2):
        press(client, draft, "send", **SOON | {"seen": seen})
    assert sending.finish_sending(draft.pk) is None
    assert Campaign.objects.count() == 1
    asked_again = client.get(reverse("draft_sent", args=[draft.pk]), headers={"HX-Request": "true"})
    assert asked_again.status_code == 204 and asked_again.headers["HX-Refresh"] == "true"
    assert client.get(reverse("draft_message", args=[draft.pk])).headers["Location"] == reverse(
        "draft_sent", args=[draft.pk]
    )


def test_what_is_stored_after_its_time_goes_at_once_and_the_campaign_says_so(client, login):
    draft = ready(client, login)
    sending.start_sending(
        draft, draft.seen, {"when": "at", "send_at": timezone.now() + timedelta(hours=1)}, draft.created_by
    )
    past = timezone.now() - timedelta(minutes=3)
    Draft.objects.update(send_at=past)  # as if the worker had been away
    job = sending.finish_sending(draft.pk)
    assert job and job.campaign.send_at == past and job.status == "DISPATCHED"
    page = client.get(reverse("campaign", args=[job.campaign_id])).content.decode()
    assert "stored after its time, so it goes at once" in page


def test_an_error_that_nobody_foresaw_is_told_and_the_owner_may_try_again(client, login):
    draft = ready(client, login)
    rows = DraftBlock.objects.filter(kind=DraftBlock.ROWS)
    good = bytes(rows.get().content)
    rows.update(content=b"nothing that was ever packed")
    press(client, draft, "send", **SOON)
    draft.refresh_from_db()
    assert (draft.busy, draft.campaign) == ("", None) and checking.left_behind() == []
    rows.update(content=good)
    page = client.get(reverse("draft_check", args=[draft.pk])).content.decode()
    assert "It was not sent:" in page and "something went wrong that should not have (error)" in page
    home = lxml.html.fromstring(client.get("/").content).xpath("//section[contains(@class, 'needs')]")[0].text_content()
    assert "May was not sent: something went wrong" in " ".join(home.split())
    press(client, draft, "send", **SOON)
    assert "was not sent" not in client.get("/").content.decode()
    press(client, draft, "send", **SOON)
    assert Campaign.objects.count() == 1 and Message.objects.count() == 2


def test_a_check_that_breaks_off_is_told_and_can_be_asked_again(client, login, monkeypatch):
    draft = make(client, login)
    with monkeypatch.context() as broken:
        broken.setattr(checking, "count_suppressed", {}.__getitem__)
        page = put(client, draft).content.decode()
    assert "something went wrong that should not have (TypeError)" in page and checking.left_behind() == []
    assert "Check the list again" in page
    press(client, draft, "check_again")
    draft.refresh_from_db()
    assert draft.found["good"] == 2


def test_what_is_agreed_while_a_check_goes_on_is_not_lost_nor_taken_for_more(client, login, monkeypatch):
    draft = make(client, login)
    put(client, draft)
    by, real = {"by": f"credential:{login.pk}"}, checking._list_facts

    def checked(text, total):
        """Checks the list for another text; meanwhile the owner agrees to leave so many rows out."""

        def meanwhile(*args):
            facts = real(*args)
            keeping.save(keeping.load_draft(draft.pk), "list", keeping.load_draft(draft.pk).seen, {"leave_out": True})
            return facts

        with monkeypatch.context() as slow:
            slow.setattr(checking, "_list_facts", meanwhile)
            press(client, draft, "message", **HELLO | by | {"text": text})
        draft.refresh_from_db()
        assert (draft.busy, draft.found["total"]) == ("", total)
        return draft.leave_out

    assert checked("Other words", 3), "as many as before: what was agreed holds"
    assert not checked("{{ city }} is a column that is not there", 1)


def test_a_list_that_changed_while_it_was_checked_is_checked_again(client, login, monkeypatch):
    draft, real = make(client, login), checking._list_facts

    def meanwhile(*args):
        facts = real(*args)
        columns = {"recipient": "first_name", "names": {}}
        keeping.save(keeping.load_draft(draft.pk), "list", keeping.load_draft(draft.pk).seen, {"columns": columns})
        return facts

    with monkeypatch.context() as slow:
        slow.setattr(checking, "_list_facts", meanwhile)
        put(client, draft)
    assert checking.left_behind() == [(draft.pk, "checking")], "nobody says for which list these facts are"
    assert checking.check_draft(draft.pk)
    draft.refresh_from_db()
    assert draft.found["recipient"] == "first_name"


def test_so_many_rows_are_left_out_as_the_page_has_shown(client, login):
    draft = make(client, login)
    put(client, draft)
    press(client, draft, "leave_out", total=2)
    draft.refresh_from_db()
    assert not draft.leave_out


def test_a_second_worker_that_took_over_makes_the_campaign_and_the_first_one_does_not(client, login):
    draft = ready(client, login)
    sending.start_sending(draft, draft.seen, {"when": "now"}, None)
    fence = checking.claim_draft(draft.pk, Draft.SENDING)
    assert fence and checking.claim_draft(draft.pk, Draft.SENDING) is None
    Draft.objects.update(lease_at=timezone.now() - checking.LEASE - timedelta(seconds=1))
    assert checking.left_behind() == [(draft.pk, "sending")]
    assert sending.finish_sending(draft.pk) is not None
    first = checking.Sign(draft.pk, Draft.SENDING, fence)
    assert not first.held.update(busy="")
    assert Campaign.objects.count() == 1 and checking.left_behind() == []


def test_a_save_of_an_older_page_changes_nothing_and_shows_both(client, login):
    draft = make(client, login)
    by = {"by": f"credential:{login.pk}"}
    old = draft.seen
    press(client, draft, "message", **HELLO | by | {"text": "From the first window"})
    mine = HELLO | by | {"text": "From the <second> window", "seen": old}
    answer = press(client, draft, "message", **mine)
    page = answer.content.decode()
    assert answer.status_code == 409 and "From the first window" in page and "From the &lt;second&gt; window" in page
    draft.refresh_from_db()
    assert draft.text == "From the first window"
    kept = dict(re.findall(r'<textarea name="(\w+)" hidden>\n(.*?)</textarea>', page, re.DOTALL))
    assert kept["text"] == "From the &lt;second&gt; window" and kept["subject"] == HELLO["subject"]
    assert press(client, draft, "message", **HELLO | by | {"text": "From the second"}).status_code == 302
    same = press(client, draft, "message", **HELLO | by | {"text": "From the second", "seen": old})
    assert same.status_code == 302, "the same once more is no conflict"


def test_windows_on_different_steps_do_not_argue(client, login):
    draft = make(client, login)
    old = draft.seen
    put(client, draft)
    changed = press(client, draft, "message", **HELLO | {"by": f"credential:{login.pk}", "text": "New", "seen": old})
    assert changed.status_code == 302


def test_nothing_is_sent_that_the_page_has_not_shown(client, login):
    draft = ready(client, login)
    shown = draft.seen
    press(client, draft, "message", **HELLO | {"by": f"credential:{login.pk}", "text": "Something else"})
    press(client, draft, "send", **SOON | {"seen": shown})
    assert not Campaign.objects.exists()


def test_a_new_page_that_is_sent_twice_makes_one_draft(client, login):
    page = client.get("/campaigns/new/").content.decode()
    hidden = dict(re.findall(r'name="(key|sponsor)" value="([^"]+)"', page))
    for _ in range(2):
        client.post("/campaigns/new/", {**hidden, **HELLO, "by": f"credential:{login.pk}"})
    assert Draft.objects.count() == 1


def test_a_draft_of_another_sponsor_does_not_exist(client, login):
    draft = ready(client, login)
    steps = ["message", "recipients", "check", "progress", "bad_rows", "sent"]
    addresses = [reverse(f"draft_{one}", args=[draft.pk]) for one in steps]
    addresses += [reverse(f"draft_{one}", args=[draft.pk, 1]) for one in ("preview", "letter", "letter_pdf")]
    bob = User.objects.create_user("bob")
    bob.groups.add(Group.objects.get(name="campaign owner"))
    client.force_login(bob)
    assert {client.get(one).status_code for one in addresses} == {404}
    posts = ["message", "list", "columns", "leave_out", "check_again", "test", "send", "delete"]
    assert {client.post(reverse(f"draft_{one}", args=[draft.pk])).status_code for one in posts} == {404}
    assert client.get(f"/campaigns/new/?sponsor={draft.sponsor_id}").status_code == 404
    assert draft.name not in client.get("/drafts/").content.decode()
    bob.groups.clear()
    assert client.get("/drafts/").status_code == 403


def test_a_vendor_that_the_sponsor_may_not_use_is_not_offered(client, login):
    foreign = factories.credential()
    Entitlement.objects.filter(vendor=foreign.vendor).delete()
    page = client.get("/campaigns/new/").content.decode()
    assert f"credential:{login.pk}" in page and f"credential:{foreign.pk}" not in page


def test_a_template_that_cannot_be_sent_is_kept_and_says_why(client, login):
    draft = make(client, login, text="Hello {{ first_name")
    page = client.get(reverse("draft_message", args=[draft.pk])).content.decode()
    assert (
        draft.text == "Hello {{ first_name"
        and "It is kept, and cannot be sent yet:" in page
        and "the body, line 1" in page
    )


def test_columns_are_found_by_what_is_in_them_and_can_be_chosen(client, login):
    draft = make(client, login)
    page = put(client, draft, "First Name,E-Mail,Other\nAnn,ann@example.com,bob@example.com\n").content.decode()
    draft.refresh_from_db()
    assert draft.found["recipient"] == "E-Mail" and draft.found["good"] == 1, draft.found
    assert '<option value="first_name">' in page
    press(client, draft, "columns", recipient="Other", header=["First Name", "E-Mail"], field=["first_name", "was"])
    draft.refresh_from_db()
    [(recipient, fields)] = blocks.CheckedRows(draft.pk, draft.found["version"], 1)
    assert (recipient, fields) == ("bob@example.com", {"first_name": "Ann", "was": "ann@example.com"})


def test_a_file_that_is_no_list_says_so(client, login):
    draft = make(client, login)
    assert "the file is a PDF" in put(client, draft, b"%PDF-1.7", "may.pdf").content.decode()
    assert "the template needs &#x27;first_name&#x27;" in put(client, draft, "email\na@example.com\n").content.decode()


def test_a_form_that_has_made_a_draft_of_another_sponsor_makes_none_and_says_so(client, login):
    draft = make(client, login)
    hers = login.vendor.entitlements.get().sponsor
    Draft.objects.filter(pk=draft.pk).update(sponsor=factories.sponsor("Another"))
    form = {"key": draft.key, "sponsor": hers.pk, **HELLO, "by": f"credential:{login.pk}"}
    answer = client.post("/campaigns/new/", form)
    assert "has made a draft of another sponsor" in answer.content.decode() and Draft.objects.count() == 1


def test_a_link_within_a_letter_leads_its_frame_nowhere(client, login):
    draft = ready(client, login)
    for one in (reverse("draft_preview", args=[draft.pk, 1]), reverse("draft_check", args=[draft.pk])):
        assert client.get(one).headers["Content-Security-Policy"] == "frame-src 'self'"


def test_bad_rows_are_had_as_a_file_in_which_nothing_is_a_formula(client, login):
    draft = make(client, login)
    put(client, draft, "email,first_name\na@example.com,Ann\n=1+cmd,=2\n")
    answer = client.get(reverse("draft_bad_rows", args=[draft.pk]))
    text = answer.content.decode("utf-8-sig")
    assert "'=1+cmd,'=2,3," in text and 'filename="may-bad-rows.csv"' in answer.headers["Content-Disposition"]
    put(client, draft, text.replace("'=1+cmd", "b@example.com"))
    draft.refresh_from_db()
    [(recipient, fields)] = blocks.CheckedRows(draft.pk, draft.found["version"], 1)
    assert recipient == "b@example.com" and fields["first_name"] == "=2"


def test_the_suppressed_are_counted_before_anything_is_sent(client, login):
    sponsor = login.vendor.entitlements.get().sponsor
    lists.add_suppressions(sponsor.pk, "email", [lists.NewSuppression("bob@example.com", "complaint")])
    draft = ready(client, login)
    assert draft.found["suppressed"] == 1
    assert "Send 1 e-mail<" in client.get(reverse("draft_check", args=[draft.pk])).content.decode()


def test_a_changed_message_has_the_list_checked_anew(client, login):
    draft = ready(client, login)
    press(client, draft, "message", **HELLO | {"by": f"credential:{login.pk}", "text": "{{ city }}"})
    draft.refresh_from_db()
    assert draft.found["good"] == 0 and "city" in draft.found["problems"][0][1]


def test_a_large_list_is_checked_by_whoever_holds_the_fence(client, login, monkeypatch):
    monkeypatch.setattr(checking, "SMALL", 10)
    draft = make(client, login)
    page = put(client, draft).content.decode()
    assert "is being checked" in page and 'http-equiv="refresh"' in page
    draft.refresh_from_db()
    assert draft.busy == "checking" and checking.left_behind() == [(draft.pk, "checking")]
    fence = checking.claim_draft(draft.pk, Draft.CHECKING)
    assert not checking.check_draft(draft.pk), "somebody is at it"
    Draft.objects.update(lease_at=timezone.now() - checking.LEASE * 2)
    assert checking.check_draft(draft.pk)
    assert not checking.Sign(draft.pk, Draft.CHECKING, fence).held.exists()
    draft.refresh_from_db()
    assert draft.found["good"] == 2 and draft.busy == ""
    assert client.get(reverse("draft_progress", args=[draft.pk])).headers["HX-Refresh"] == "true"


def test_a_list_that_is_replaced_while_it_is_checked_is_not_mixed_up(client, login):
    draft = ready(client, login)
    with pytest.raises(blocks.GoneAway):
        blocks.spool_list(draft.pk, draft.list_version + 1, draft.list_bytes, lambda: None)

    def is_lost() -> None:
        raise checking.FenceLost

    with pytest.raises(checking.FenceLost):
        blocks.spool_list(draft.pk, draft.list_version, draft.list_bytes, is_lost)
    gc.collect()  # a file left open would warn here
    old = draft.seen
    put(client, draft, "email,first_name\nzoe@example.com,Zoe\n", "june.csv")
    page = put(client, draft, "email,first_name\nyan@example.com,Yan\n", "july.csv", seen=old).content.decode()
    assert "june.csv" in page and "july.csv" in page and "choose the file again" in page
    draft.refresh_from_db()
    assert draft.list_name == "june.csv" and draft.found["good"] == 1
    assert set(DraftBlock.objects.filter(draft=draft).values_list("kind", "version")) == {
        ("list", draft.list_version), ("rows", draft.found["version"])
    }  # fmt: skip


def test_a_preview_runs_nothing_and_asks_nobody(client, login):
    draft = make(client, login, html="<p>Hi {{ first_name }}</p><script>x</script>", text="")
    put(client, draft, "email,first_name\nann@example.com,<b>\n")
    answer = client.get(reverse("draft_letter", args=[draft.pk, 1]))
    assert "Hi &lt;b&gt;" in answer.content.decode()
    assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert answer.headers["X-Frame-Options"] == "SAMEORIGIN"
    assert 'sandbox src="' in client.get(reverse("draft_preview", args=[draft.pk, 1])).content.decode()
    assert client.get(reverse("draft_letter", args=[draft.pk, 2])).status_code == 404


def test_a_letter_is_seen_on_a_phones_width_and_dark(client, login):
    draft = ready(client, login)
    page, letter = (reverse(f"draft_{one}", args=[draft.pk, 2]) for one in ("preview", "letter"))
    for look in ("", "phone", "dark"):
        frame = lxml.html.fromstring(client.get(page, {"look": look}).content).find(".//iframe")
        assert frame.get("src") == f"{letter}?look={look}" and frame.get("class").strip() == f"letter {look}".strip()
        shown = client.get(letter, {"look": look}).content.decode()
        assert "Good day Bob" in shown and ("content='dark'" in shown) == (look == "dark")


def test_a_test_goes_to_oneself_once(client, login):
    draft = ready(client, login)
    for _ in range(2):
        client.post(reverse("draft_test", args=[draft.pk]), {"number": "2", "tests": "0", "address": "ann@own.example"})
    [message] = Message.objects.all()
    assert (message.recipient, message.params) == ("ann@own.example", {"first_name": "Bob"})
    assert message.campaign.name == "Test: May"
    draft.refresh_from_db()
    assert draft.campaign is None and draft.tests == 1


def test_each_test_is_in_the_history(client, login):
    draft = ready(client, login)
    for tests in range(2):
        fields = {"number": "1", "tests": tests, "address": "ann@own.example"}
        client.post(reverse("draft_test", args=[draft.pk]), fields)
    assert Message.objects.count() == 2
    entries = LogEntry.objects.filter(change_message=f"a test of draft {draft.pk}")
    assert {int(one.object_id) for one in entries} == set(Campaign.objects.values_list("pk", flat=True))


def test_the_estimate_is_what_the_check_has_learned_and_reads_no_row(client, login):
    login.vendor.channel, login.vendor.settings = "sms", login.vendor.settings | {"unit": "segment"}
    login.vendor.save()
    draft = make(client, login)
    put(client, draft, f"phone,first_name\n+4915112000001,Ann\n+4915112000002,{'A' * 200}\n")
    draft.refresh_from_db()
    DraftBlock.objects.filter(kind=DraftBlock.ROWS).delete()
    page = client.get(reverse("draft_check", args=[draft.pk])).content.decode()
    assert "3 SMS segments; no price is known" in page and "1 to 2" in page


def test_times_have_the_zone_that_is_named(client, login):
    draft = ready(client, login)
    day = f"{timezone.now() + timedelta(days=2):%Y-%m-%d}"
    at = {
        "when": "at",
        "send_at": f"{day}T10:30",
        "time_zone": "Asia/Tokyo",
        "hours_from": "09:00",
        "hours_to": "18:00",
    }
    press(client, draft, "send", **SOON | at | {"first": "1", "stay": "1"})
    assert f'value="{day}T10:30"' in client.get(reverse("draft_check", args=[draft.pk])).content.decode()
    press(client, draft, "send", **SOON | at | {"first": "1"})
    draft.refresh_from_db()
    made = draft.campaign
    assert made.send_at.isoformat() == f"{day}T01:30:00+00:00" and made.time_zone == "Asia/Tokyo"
    assert made.jobs.get().wait_after == 1


@pytest.mark.parametrize(("typed", "zone"), [
    ("2026-12-01T10:00:00+16:00", "UTC"), ("2026-12-01T10:00Z", "UTC"), ("0001-01-01T00:00", "Asia/Tokyo"),
    ("9999-12-31T23:59", "America/New_York"), ("9999-12-31T23:59", "UTC"),
])  # fmt: skip
@pytest.mark.parametrize("kept", [{}, {"stay": "1"}])
@pytest.mark.slow("many")
def test_a_time_that_no_browser_writes_is_told_beside_its_field(client, login, typed, zone, kept):
    """The zone is another field: an offset is none of the form. And not every zone has the first and the last day."""
    draft = ready(client, login)
    page = press(client, draft, "send", **SOON | {"when": "at", "send_at": typed, "time_zone": zone} | kept)
    assert "Enter a valid date/time." in page.content.decode() and f'value="{typed}"' in page.content.decode()
    draft.refresh_from_db()
    assert (draft.send_at, draft.campaign, draft.when) == (None, None, "now")


def test_a_time_in_eight_thousand_years_is_kept_and_shown(client, login):
    draft, at = ready(client, login), {"when": "at", "send_at": "9999-12-29T10:00", "time_zone": "Pacific/Auckland"}
    page = client.get(press(client, draft, "send", **SOON | at | {"stay": "1"}).headers["Location"])
    assert 'value="9999-12-29T10:00"' in page.content.decode()


def turn_of_the_clock(month, day, hour):
    """A time of the last Sunday of that month of next year, as London's clock shows it."""
    last = date(timezone.now().year + 1, month, day)
    return f"{last - timedelta(days=last.isoweekday() % 7)}T{hour}"


@pytest.mark.parametrize("kept", [{}, {"stay": "1"}])
def test_a_time_that_the_clock_skips_is_refused_and_one_that_it_shows_twice_is_asked_about(client, login, kept):
    draft = ready(client, login)
    london = SOON | {"when": "at", "time_zone": "Europe/London"} | kept
    skipped = press(client, draft, "send", **london | {"send_at": turn_of_the_clock(3, 31, "01:30")})
    assert "The clocks there skip this time" in skipped.content.decode()
    twice = london | {"send_at": turn_of_the_clock(10, 31, "01:30")}
    asked = press(client, draft, "send", **twice).content.decode()
    assert "The clocks there show this time twice" in asked and "Which of the two?" in asked
    draft.refresh_from_db()
    assert (draft.send_at, draft.campaign) == (None, None)
    press(client, draft, "send", **twice | {"which": "1"})
    draft.refresh_from_db()
    made = draft if kept else draft.campaign
    assert made.send_at.isoformat().endswith("T01:30:00+00:00"), "the second one is not British Summer Time"
    if kept:
        shown = client.get(reverse("draft_check", args=[draft.pk])).content.decode()
        assert '<option value="1" selected>' in shown
        press(client, draft, "send", **twice | {"which": "0"})
        draft.refresh_from_db()
        assert draft.send_at.isoformat().endswith("T00:30:00+00:00")


def test_an_hour_that_the_clock_leaves_out_here_is_a_time_elsewhere(client, login):
    spring = date(timezone.now().year + 1, 3, 31)
    spring -= timedelta(days=spring.isoweekday() % 7)  # the last Sunday of March
    draft, at = ready(client, login), {"when": "at", "send_at": f"{spring}T02:30", "time_zone": "Asia/Tokyo"}
    with timezone.override("Europe/Berlin"):
        press(client, draft, "send", **SOON | at)
    draft.refresh_from_db()
    assert draft.campaign.send_at.isoformat() == f"{spring - timedelta(days=1)}T17:30:00+00:00"


def test_hours_go_by_the_clock_of_each_recipient_if_the_list_says_where_each_one_is(client, login):
    """The page says what the list lacks, and keeps what was chosen; the campaign's page says which hours they are."""
    draft = ready(client, login)
    hours = {"hours_from": "09:00", "hours_to": "18:00", "hours_of_each": "on"}
    page = press(client, draft, "send", **SOON | {"hours_of_each": "on"})
    assert "Say which hours." in page.content.decode()
    page = client.get(press(client, draft, "send", **SOON | hours).headers["Location"]).content.decode()
    assert "need a column time_zone" in page and "09:00" in page and not Campaign.objects.exists()
    assert re.search(r'name="hours_of_each"[^>]* checked', page)
    put(client, draft, "email,first_name,time_zone\nann@example.com,Ann,Asia/Tokyo\nbob@example.com,Bob,\n")
    press(client, draft, "send", **SOON | hours | {"time_zone": "Europe/Berlin"})
    draft.refresh_from_db()
    made = draft.campaign
    kept = (f"{made.each_from:%H:%M}", f"{made.each_to:%H:%M}", made.time_zone, made.hours_from)
    assert kept == ("09:00", "18:00", "Europe/Berlin", None)
    page = client.get(reverse("campaign", args=[made.pk])).content.decode()
    assert "09:00–18:00 by the clock of each recipient" in page


def test_a_row_whose_zone_nobody_knows_is_bad_where_hours_go_by_it(client, login):
    draft = ready(client, login, "email,first_name,time_zone\nann@a.example,Ann,UTC\nbob@a.example,Bob,Mars/Base\n")
    of_each = SOON | {"hours_from": "09:00", "hours_to": "18:00", "hours_of_each": "on"}
    assert draft.found["total"] == 0, "nobody has asked for the column yet"
    page = press(client, draft, "send", **of_each)
    assert page.wsgi_request._messages._queued_messages[0].message.startswith("1 row of the list is bad")
    page = client.get(reverse("draft_recipients", args=[draft.pk])).content.decode()
    assert "time_zone: &#x27;Mars/Base&#x27; is no time zone of the IANA list" in page
    page = client.get(reverse("draft_recipients", args=[draft.pk]), headers={"Accept-Language": "de"}).content.decode()
    assert "time_zone: &#x27;Mars/Base&#x27; ist keine Zeitzone der IANA-Liste" in page
    press(client, draft, "leave_out", total=1)
    press(client, draft, "send", **SOON)
    assert not Campaign.objects.exists(), "without those hours, there is one recipient more than the page has shown"
    press(client, draft, "send", **of_each)
    press(client, draft, "leave_out", total=1)
    press(client, draft, "send", **of_each)
    assert Message.objects.get().recipient == "ann@a.example"


def test_hours_that_ask_for_zones_are_taken_at_once_if_all_are_known(client, login):
    draft = ready(client, login, "email,first_name,time_zone\nann@a.example,Ann,UTC\nbob@a.example,Bob,\n")
    press(client, draft, "send", **SOON | {"hours_from": "09:00", "hours_to": "18:00", "hours_of_each": "on"})
    assert Campaign.objects.get().size == 2


def test_a_time_that_is_past_is_refused_with_what_was_typed(client, login):
    draft = ready(client, login)
    page = press(client, draft, "send", **SOON | {"when": "at", "send_at": "2020-01-01T10:00"})
    assert page.status_code == 302 and not Campaign.objects.exists()
    assert "2020-01-01T10:00" in client.get(page.headers["Location"]).content.decode()


def test_files_are_kept_and_sent_with_each_message(client, login, settings):
    login.vendor.adapter, login.vendor.settings = "smtp", {"host": "localhost", "sender": "a@example.com"}
    login.vendor.save()
    file = SimpleUploadedFile("map.pdf", b"%PDF", "application/pdf")
    draft = make(client, login, files=file)
    assert "Take map.pdf" in client.get(reverse("draft_message", args=[draft.pk])).content.decode()
    StoredFile.objects.update(asked_at=timezone.now() - timedelta(days=3))
    from campaigns.lists.intake import files

    assert files.delete_unused() == 0
    press(client, draft, "message", **HELLO | {"by": f"credential:{login.pk}", "remove": draft.files.get().pk})
    assert files.delete_unused() == 1


def test_files_are_a_part_of_the_message_that_a_stale_window_does_not_change(client, login):
    login.vendor.adapter, login.vendor.settings = "smtp", {"host": "localhost", "sender": "a@example.com"}
    login.vendor.save()
    draft = ready(client, login)
    shown, message = draft.seen, HELLO | {"by": f"credential:{login.pk}"}
    file = SimpleUploadedFile("map.pdf", b"%PDF", "application/pdf")
    press(client, draft, "message", **message, files=file)
    assert draft.files.count() == 1
    other = {"seen": shown, **message, "subject": "Other", "remove": draft.files.get().pk}
    assert client.post(reverse("draft_message", args=[draft.pk]), other).status_code == 409
    assert draft.files.count() == 1, "what the page did not show is kept"
    press(client, draft, "send", **SOON | {"seen": shown})
    assert not Campaign.objects.exists(), "a page from before the file does not send it"


def test_what_nobody_touches_is_deleted_and_of_what_was_sent_the_list_at_once(client, login):
    old, fresh = make(client, login), ready(client, login)
    Draft.objects.filter(pk=old.pk).update(updated_at=timezone.now() - keeping.UNUSED - timedelta(days=1))
    press(client, fresh, "send", **SOON)
    keeping.delete_old_drafts()
    assert list(Draft.objects.values_list("pk", flat=True)) == [fresh.pk]
    assert not DraftBlock.objects.exists()


def test_a_sponsor_cannot_fill_the_database(client, login, settings, monkeypatch):
    settings.LIST_BYTES = 100
    draft = make(client, login)
    assert "100 are the most" in put(client, draft).content.decode()
    monkeypatch.setattr(keeping, "MOST_DRAFTS", 1)
    page = client.get("/campaigns/new/").content.decode()
    hidden = dict(re.findall(r'name="(key|sponsor)" value="([^"]+)"', page))
    answer = client.post("/campaigns/new/", {**hidden, **HELLO, "by": f"credential:{login.pk}"})
    assert "drafts: delete some" in answer.content.decode()


def version_of(login, text="Good day {{ first_name }}", **more):
    sponsor = login.vendor.entitlements.get().sponsor
    said = TemplateContent("Hello {{ first_name }}", text, headers=[("X-Series", "May")], **more)
    return versions.add_version(sponsor.pk, "welcome", "email", said, Actor("ann")).version


def smtp(login):
    """Its vendor carries headers, files and texts beside HTML."""
    login.vendor.adapter, login.vendor.settings = "smtp", {"host": "localhost", "sender": "a@example.com"}
    login.vendor.save()
    sponsor = login.vendor.entitlements.get().sponsor
    Identity.objects.create(sponsor=sponsor, name="main", from_address="may@acme.example", default=True)


def from_template(client, login, version, **more):
    """A draft that begins with a template, by the page as a browser without scripts posts it."""
    link = f"/campaigns/new/?sponsor={version.template.sponsor_id}&template={version.pk}"
    assert link.replace("&", "&amp;") in client.get(reverse("template", args=[version.template_id])).content.decode()
    page = client.get(link).content.decode()
    assert f"From the template welcome, version {version.number}." in page and "Good day {{ first_name }}" in page
    assert f'value="credential:{login.pk}" selected' in page
    hidden = dict(re.findall(r'type="hidden" name="(key|sponsor|template)" value="([^"]+)"', page))
    client.post("/campaigns/new/", {**hidden, **HELLO, "by": f"credential:{login.pk}", **more})
    return Draft.objects.latest("pk")


def test_a_campaign_begins_with_a_template_and_names_its_version(client, login):
    smtp(login)
    first = version_of(login)
    draft = from_template(client, login, first)
    version_of(login, "Something else since")
    put(client, draft)
    press(client, draft, "leave_out", total=3)
    assert "welcome, version 1" in client.get(reverse("draft_check", args=[draft.pk])).content.decode()
    press(client, draft, "send", **SOON)
    draft.refresh_from_db()
    made = draft.campaign
    assert (made.template_version, made.body, made.headers) == (first, HELLO["text"], [["X-Series", "May"]])
    assert "welcome, version 1" in client.get(reverse("campaign", args=[made.pk])).content.decode()


def test_the_select_names_versions_and_an_older_one_that_was_chosen(client, login):
    smtp(login)
    first = version_of(login)
    newest = version_of(login, "Something else since")
    link = f"/campaigns/new/?sponsor={first.template.sponsor_id}"

    def offered(address):
        return re.findall(r'<option value="(\d+)"( selected)?>(welcome[^<]*)<', client.get(address).content.decode())

    older, second = "welcome, version 1 (E-mail)", (str(newest.pk), "", "welcome, version 2 (E-mail)")
    assert offered(link) == [second]
    assert offered(f"{link}&template={first.pk}") == [(str(first.pk), " selected", older), second]


@pytest.mark.parametrize("how", ["changed", "archived"])
def test_a_template_is_not_named_for_what_it_does_not_say(client, login, how):
    smtp(login)
    version = version_of(login)
    draft = from_template(client, login, version, **({"text": "My own {{ first_name }}"} if how == "changed" else {}))
    if how == "archived":
        versions.archive_template(version.template, Actor("ann"))
    page = client.get(reverse("draft_message", args=[draft.pk])).content.decode()
    assert "so the campaign will not name it" in page
    put(client, draft, "email,first_name\nann@example.com,Ann\n")
    press(client, draft, "send", **SOON)
    draft.refresh_from_db()
    assert draft.campaign and draft.campaign.template_version is None


def test_the_message_of_a_draft_can_be_taken_from_a_template_of_ones_own(client, login):
    draft = make(client, login, text="Mine")
    version, address = version_of(login), reverse("draft_message", args=[draft.pk])
    page = client.get(f"{address}?template={version.pk}").content.decode()
    assert "Good day {{ first_name }}" in page and "Mine" not in page.split("<form")[-1]
    stranger = versions.add_version(
        factories.sponsor().pk, "theirs", "email", TemplateContent("x", "Secret"), Actor("bob")
    )
    page = client.get(f"{address}?template={stranger.version.pk}").content.decode()
    assert "Mine" in page and "Secret" not in page and "theirs" not in page
    press(client, draft, "message", **HELLO, by=f"credential:{login.pk}", template=stranger.version.pk)
    draft.refresh_from_db()
    assert draft.template_version is None


def test_a_copy_as_new_has_the_message_and_neither_list_nor_time_and_is_made_once(client, login):
    smtp(login)
    file = SimpleUploadedFile("map.pdf", b"%PDF", "application/pdf")
    draft = make(client, login, files=file, html="<p>Hi {{ first_name }}</p>", text="")
    put(client, draft, "email,first_name\nann@example.com,Ann\n")
    press(client, draft, "send", **SOON | {"first": "1"})
    draft.refresh_from_db()
    page = client.get(reverse("campaign", args=[draft.campaign_id])).content.decode()
    [key] = re.findall(r'name="key" value="([^"]+)"', page)
    address = reverse("campaign-copy", args=[draft.campaign_id])
    first, again = (client.post(address, {"key": key}).headers["Location"] for _ in range(2))
    copy = Draft.objects.exclude(pk=draft.pk).get()
    assert first == again == reverse("draft_message", args=[copy.pk])
    assert (copy.name, copy.subject, copy.html, copy.text) == ("Copy of May", draft.subject, draft.html, "")
    assert (copy.credential, copy.list_version, copy.when, copy.first) == (login, 0, "now", None)
    assert [one.name for one in copy.files.all()] == ["map.pdf"]
    call_command("copy_campaign", str(draft.campaign_id), "--key", "a", "--by", "ann")
    call_command("copy_campaign", str(draft.campaign_id), "--key", "a")
    assert Draft.objects.count() == 3
    bob = User.objects.create_user("bob")
    bob.groups.add(Group.objects.get(name="campaign owner"))
    client.force_login(bob)
    assert client.post(address, {"key": "b"}).status_code == 404 and client.get(address).status_code == 405
    bob.groups.clear()
    assert client.post(address, {"key": "b"}).status_code == 403


def test_a_draft_or_a_copy_with_an_archived_topic_is_not_sent_until_another_one_is_chosen(client, login):
    sponsor = login.vendor.entitlements.get().sponsor
    news, offers = (Topic.objects.create(sponsor=sponsor, name=one, title=one) for one in ("news", "offers"))
    draft = make(client, login, topic=news.pk)
    put(client, draft, "email,first_name\nann@example.com,Ann\n")
    sender_changes.archive_topic(news.pk, True, Actor("tom"))
    again = make(client, login)
    page = client.get(reverse("draft_message", args=[draft.pk])).content.decode()
    assert "news (archived)" in page
    assert "news" not in client.get(reverse("draft_message", args=[again.pk])).content.decode()
    assert "is archived: choose another one" in press(client, draft, "test", number=1, tests=0, address="a@b.example",
        follow=True).wsgi_request._messages._queued_messages[0].message  # fmt: skip
    press(client, draft, "send", **SOON)
    draft.refresh_from_db()
    assert draft.campaign is None and not Campaign.objects.exists()
    given = {**HELLO, "by": f"credential:{login.pk}", "topic": news.pk}
    refused = press(client, draft, "message", **given)
    assert "This topic is archived" in refused.content.decode()
    press(client, draft, "message", **given | {"topic": offers.pk})
    press(client, draft, "send", **SOON)
    draft.refresh_from_db()
    assert draft.campaign.topic == offers
    sender_changes.archive_topic(offers.pk, True, Actor("tom"))
    copy = copying.copy_campaign(draft.campaign, "a", None, "Again")
    assert "offers (archived)" in client.get(reverse("draft_message", args=[copy.pk])).content.decode()
    sender_changes.archive_topic(news.pk, False, Actor("tom"))


def test_an_xlsx_of_phone_numbers_becomes_sms_whose_parts_are_counted(client, login):
    login.vendor.channel, login.vendor.settings = "sms", login.vendor.settings | {"unit": "segment"}
    login.vendor.save()
    draft = make(client, login, subject="", text="{{ first_name }}")
    rows = [("+4915112000001", "Ann"), ("no number", "Bob"), ("+4915112000002", "C" * 200)]
    sheet = xlsx_writer.xlsx_chunks(["First Name", "Mobile"], (row[::-1] for row in rows), "May")
    put(client, draft, b"".join(sheet), "may.xlsx")
    assert checking.check_draft(draft.pk), "a spreadsheet is checked by a worker, for it may unpack to much"
    draft.refresh_from_db()
    assert (draft.found["good"], draft.found["total"], draft.found["recipient"]) == (2, 1, "Mobile")
    press(client, draft, "leave_out", total=1)
    page = client.get(reverse("draft_check", args=[draft.pk])).content.decode()
    assert "3 SMS segments; no price is known" in page and "1 to 2" in page and "Whoever answers STOP" in page
    assert "200 characters, 2 SMS joined" in client.get(reverse("draft_preview", args=[draft.pk, 2])).content.decode()
    press(client, draft, "send", **SOON)
    assert set(Message.objects.values_list("recipient", flat=True)) == {"+4915112000001", "+4915112000002"}


def test_hidden_rows_of_a_spreadsheet_are_asked_about_and_decided_once(client, login):
    draft = make(client, login)
    sheet = openpyxl.Workbook()
    for row in ["email", "first_name", "paid"], *([f"r{n}@example.com", f"R{n}", n + 0.5] for n in range(2, 8)):
        sheet.active.append(row)
    for row in (3, 5):
        sheet.active.row_dimensions[row].hidden = True
        sheet.active.cell(row, 3).number_format = '#,##0.00 "EUR"'
    out = io.BytesIO()
    sheet.save(out)
    put(client, draft, out.getvalue(), "may.xlsx")
    checking.check_draft(draft.pk)
    page = client.get(reverse("draft_recipients", args=[draft.pk])).content.decode()
    assert "2 rows of the spreadsheet are hidden" in page and "rows 3, 5" in page
    assert "Do they get the message, too?" in page and "Will get it" not in page
    draft.refresh_from_db()
    assert draft.found["good"] == 0
    assert press(client, draft, "send", **SOON).headers["Location"] != reverse("draft_sent", args=[draft.pk])
    assert not Campaign.objects.exists()
    for choice, good, said in (("keep", 6, "They get the message, too."), ("leave_out", 4, "They are left out.")):
        press(client, draft, "hidden_rows", choice=choice)
        checking.check_draft(draft.pk)
        draft.refresh_from_db()
        page = client.get(reverse("draft_recipients", args=[draft.pk])).content.decode()
        assert draft.found["good"] == good and said in page
    columns = re.findall(r'name="header" value="([^"]+)"', page)
    press(client, draft, "columns", recipient="email", header=columns, field=columns)  # it stays decided
    checking.check_draft(draft.pk)
    draft.refresh_from_db()
    assert draft.found["good"] == 4
    page = client.get(reverse("draft_recipients", args=[draft.pk])).content.decode()
    assert "Amounts of money (paid): not as the spreadsheet shows them, but like 3.5" in page
    assert "{{ paid|money(&quot;EUR&quot;) }}" in page
    press(client, draft, "send", **SOON)
    assert set(Message.objects.values_list("recipient", flat=True)) == {f"r{n}@example.com" for n in (2, 4, 6, 7)}
    put(client, draft := make(client, login), out.getvalue(), "may.xlsx")  # another list is asked about anew
    checking.check_draft(draft.pk)
    draft.refresh_from_db()
    assert draft.found["good"] == 0


@pytest.mark.parametrize("kind", ["ods", "xls"])
def test_a_list_may_be_a_spreadsheet_of_another_program(client, login, kind):
    rows = [["email", "first_name"], ["ann@example.com", "01067"], ["bob@example.com", "Bob"]]
    data = xls(rows) if kind == "xls" else ods("".join(ods_row(*row) for row in rows))
    draft = make(client, login)
    put(client, draft, data, f"may.{kind}")
    draft.refresh_from_db()
    assert draft.busy == Draft.CHECKING  # by a worker: it may unpack to many times its size
    checking.check_draft(draft.pk)
    press(client, draft, "send", **SOON)
    assert dict(Message.objects.values_list("recipient", "params")) == {
        "ann@example.com": {"first_name": "01067"}, "bob@example.com": {"first_name": "Bob"}
    }  # fmt: skip


@pytest.mark.skipif(bool(pages.missing_libraries("asyncssh")), reason=pages.missing_libraries("asyncssh"))
@pytest.mark.slow("processes")
def test_a_letter_to_print_is_seen_as_pdf(client, login):
    login.vendor.adapter, login.vendor.channel = "print_file", "print"
    login.vendor.settings = {"folder": "x", "accepted": "uploaded", "window": "din5008b"}
    login.vendor.save()
    draft = make(client, login, html="<p>Dear {{ first_name }}</p>", text="")
    put(client, draft, 'address,first_name\n"Ann\nMain Street 1\n12345 Town",Ann\n')
    address = reverse("draft_letter_pdf", args=[draft.pk, 1])
    page = client.get(reverse("draft_check", args=[draft.pk])).content.decode()
    assert address in page and "The installed ones have every sign of the text and of the list." in page
    answer = client.get(address)
    assert answer.headers["Content-Type"] == "application/pdf"
    text = pypdf.PdfReader(io.BytesIO(answer.content)).pages[0].extract_text()
    assert "Dear Ann" in text and "Main Street 1" in text


def test_each_step_is_a_plain_form_that_a_browser_without_scripts_can_post(client, login):
    """Follows the forms of the pages with the fields that they have, and nothing else."""
    page = client.get("/campaigns/new/").content.decode()
    page = post(client, page, "/campaigns/new/", **HELLO, by=f"credential:{login.pk}")
    draft = Draft.objects.get()
    page = post(client, page, reverse("draft_list", args=[draft.pk]), list=SimpleUploadedFile("a.csv", LIST.encode()))
    page = post(client, page, reverse("draft_leave_out", args=[draft.pk]))
    page = post(client, page, reverse("draft_send", args=[draft.pk]), when="now")
    assert "is stored, for 2 recipients" in page
    page = post(client, page, reverse("campaign-copy", args=[Campaign.objects.get().pk]))
    assert "This is a copy." in page


def post(client, page, action, **typed):
    """Posts the form of this address as it stands, with what was typed; follows to the next page."""
    [form] = [one for one in lxml.html.fromstring(page).forms if one.get("action") == action]
    files = {name: one for name, one in typed.items() if not isinstance(one, str)}
    form.fields.update({name: one for name, one in typed.items() if name not in files})
    return client.post(action, {**dict(form.form_values()), **files}, follow=True).content.decode()


def test_a_list_that_lacks_a_column_leaves_no_row_out(client, login):
    draft = make(client, login)
    page = put(client, draft, "email,name\nann@example.com,Ann\nbob@example.com,Bob\n").content.decode()
    assert "the template needs &#x27;first_name&#x27;" in page
    assert "At most 100 MB." in page
    page = client.get(reverse("draft_check", args=[draft.pk])).content.decode()
    assert "No row of the list can be sent." in page
    assert "left out" not in page


def test_what_waits_for_approval_is_not_said_to_be_on_its_way(client, login):
    draft = ready(client, login)
    Sponsor.objects.update(approval_above=0)
    press(client, draft, "send", **SOON)
    page = client.get(reverse("draft_sent", args=[draft.pk]), follow=True, headers={"Accept-Language": "de"}).text
    assert "Sie wartet: wartet auf Freigabe, beantragt von ann" in page
    assert "asked for by" not in page and "unterwegs" not in page


@pytest.mark.usefixtures("noon")
@pytest.mark.parametrize(
    ("ahead", "english", "german"), [(0, "Tonight", "Heute Nacht"), (1, "Tomorrow night", "Morgen Nacht")]
)
def test_the_night_is_named_by_its_day(client, login, ahead, english, german):
    draft, vendor = ready(client, login), login.vendor
    day = timezone.now().astimezone(ZoneInfo(vendor.time_zone)).date() + timedelta(days=ahead)
    vendor.weekdays, vendor.dispatch_at, vendor.catch_up = [day.isoweekday()], time(23, 59, 59), timedelta(minutes=1)
    vendor.save()
    address = reverse("draft_check", args=[draft.pk])
    for label, language in ((english, "en"), (german, "de")):
        page = client.get(address, headers={"Accept-Language": language}).content.decode()
        assert f'<label for="when-nightly">{label} <span' in page


@pytest.mark.usefixtures("noon")
def test_a_night_of_another_day_is_named_by_its_weekday(client, login):
    draft, vendor = ready(client, login), login.vendor
    day = timezone.now().astimezone(ZoneInfo(vendor.time_zone)).date() + timedelta(days=3)
    vendor.weekdays, vendor.dispatch_at = [day.isoweekday()], time(12)
    vendor.save()
    page = client.get(reverse("draft_check", args=[draft.pk])).content.decode()
    assert f'<label for="when-nightly">The night of {day:%A} <span' in page


def test_the_zone_stands_beside_the_times_of_the_calls(client, login):
    factories.at_work(login.vendor).limits.create(units=1, seconds=3600)
    draft = ready(client, login)
    address = reverse("draft_check", args=[draft.pk])
    page = client.get(address).content.decode()
    assert "would go out" in page and page.count("These times are in the zone UTC.") == 1
    assert (
        "Diese Zeiten gelten in der Zone UTC."
        in client.get(address, headers={"Accept-Language": "de"}).content.decode()
    )
    type(login.vendor).objects.filter(pk=login.vendor_id).update(paused=True, paused_reason="invoice")
    assert "These times are" not in client.get(address).content.decode(), "there are none"


@pytest.mark.parametrize(
    ("html", "left_out"),
    [
        ('<p>Hi</p><IMG alt="a" SRC = "https://img.example/a.png">', True),
        ("<p>Hi</p><img srcset='//img.example/a.png 2x'>", True),
        ("<table background=http://img.example/a.png></table>", True),
        ("<p style=\"background: url('https://img.example/a.png')\">Hi</p>", True),
        ('<p>Hi <a href="https://shop.example/">shop</a> <img src="data:image/gif;base64,R0lGOD"></p>', False),
    ],
)
def test_a_preview_says_which_images_it_leaves_out(client, login, html, left_out):
    draft = make(client, login, html=html, text="")
    put(client, draft, "email,first_name\nann@example.com,Ann\n")
    for step in ("preview", "check"):
        address = reverse(f"draft_{step}", args=[draft.pk, *([1] if step == "preview" else [])])
        page = client.get(address).content.decode()
        assert ("Images from other servers are not loaded in this preview." in page) is left_out
        german = client.get(address, headers={"Accept-Language": "de"}).content.decode()
        assert ("Bilder von anderen Servern werden in dieser Vorschau nicht geladen." in german) is left_out


def test_a_preview_of_a_text_says_nothing_of_images(client, login):
    draft = make(client, login, text="<img src='https://img.example/a.png'>")
    put(client, draft, "email,first_name\nann@example.com,Ann\n")
    page = client.get(reverse("draft_preview", args=[draft.pk, 1])).content.decode()
    assert "Images from other servers" not in page


REFUSES = {"paused": True, "paused_reason": "http 401"}


def choices(client, query=""):
    """The choices of *Sent by*, and the one that is chosen."""
    [select] = lxml.html.fromstring(client.get(f"/campaigns/new/{query}").content).xpath("//select[@name='by']")
    shown = {one.get("value"): one.text for one in select.findall("option")}
    chosen = [one.get("value") for one in select.findall("option") if one.get("selected") is not None]
    return shown, chosen


def test_a_vendor_that_cannot_send_now_is_marked_and_never_preselected(client, login):
    Vendor.objects.update(name="M Mail")
    bad, down = (factories.credential(factories.vendor(name), **more) for name, more in (("a", REFUSES), ("b", {})))
    Vendor.objects.filter(pk=bad.vendor_id).update(name="A Mail")
    factories.condition(down, failing=timedelta(hours=1), answer="no connection")
    shown, chosen = choices(client)
    assert next(iter(shown.values())) == "A Mail (E-mail): cannot send now: account paused"
    assert re.fullmatch(r"b \(E-mail\): cannot send now: failing since \d\d:\d\d", shown[f"credential:{down.pk}"])
    assert shown[f"credential:{login.pk}"] == "M Mail (E-mail)" and chosen == [f"credential:{login.pk}"]
    Credential.objects.filter(pk=login.pk).update(**REFUSES)
    shown, chosen = choices(client)
    assert next(iter(shown)) == "" and chosen in ([], [""]), "nobody is preferred where nobody can send"


def test_the_check_page_says_what_will_happen_over_a_paused_credential(client, login):
    draft = ready(client, login)
    factories.at_work(login.vendor)
    Vendor.objects.update(name="Good Mail")
    Credential.objects.filter(pk=login.pk).update(**REFUSES)
    check = reverse("draft_check", args=[draft.pk])
    page = plain(client.get(check))
    assert f"Nothing would be sent now: account {login.name} paused: http 401. The campaign waits for it" in page
    assert "Send 2 e-mails as soon as Good Mail can" in page and "Ask whoever runs mailhub" in page
    press(client, draft, "send", **SOON)
    page = plain(client.get(reverse("draft_sent", args=[draft.pk]), follow=True))
    assert "is stored, for 2 recipients." in page and f"It waits: account {login.name} paused: http 401" in page
    assert "on its way" not in page


def test_the_button_says_that_approval_is_asked_for(client, login):
    Sponsor.objects.update(approval_above=1)
    draft = ready(client, login)
    page = plain(client.get(reverse("draft_check", args=[draft.pk])))
    assert "Ask for approval to send 2 e-mails" in page and "Another person has to approve it" in page
    bea = User.objects.create_user("bea")
    bea.groups.set(Group.objects.filter(name="campaign approver"))
    draft.sponsor.users.add(bea)
    page = plain(client.get(reverse("draft_check", args=[draft.pk])))
    assert "bea must approve it before anything is sent." in page and "Another person" not in page


def test_the_check_page_says_what_happens_and_puts_cost_and_time_apart(client, login):
    draft = ready(client, login)
    factories.at_work(login.vendor)
    page = lxml.html.fromstring(client.get(reverse("draft_check", args=[draft.pk])).content)
    assert page.find(".//h1").text_content().strip() == "You will send 2 e-mails."
    names = [one.text_content() for one in page.xpath("//form[contains(@class, 'when')]/dl/dt")]
    assert names[:3] == ["When", "Cost", "Duration"] and "Vendor" in names and "Sponsor" in names
    [cost] = page.xpath("//dt[.='Cost']/following-sibling::dd[1]")
    assert cost.text_content() == "No price is known"
    letter = client.get(page.find(".//iframe").get("src")).content.decode()
    assert letter.startswith("<!doctype html><style>:root { font: 16px/1.5 system-ui, sans-serif }</style>")


def test_the_button_says_that_the_first_are_sent(client, login):
    draft = ready(client, login)
    press(client, draft, "send", **{**SOON, "first": "1", "stay": "1"})
    assert "Send the first 1 of 2 e-mails" in plain(client.get(reverse("draft_check", args=[draft.pk])))
    press(client, draft, "send", **{**SOON, "first": "1"})
    page = plain(client.get(reverse("draft_sent", args=[draft.pk]), follow=True))
    assert "is stored, for 2 recipients. Its first 1 are sent, then it waits for you." in page


def plain(answer):
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", answer.content.decode())).split())
