"""Why messages failed: the counts of a campaign, the list behind each, and the sentence of one message agree."""

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.doors import labels
from campaigns.engine import progress
from campaigns.engine.casting import mailcaster
from campaigns.engine.failover import queries as failover
from campaigns.integrations.results import reader
from campaigns.models import Job, Message, MessageEvent
from campaigns.reporting import message_rows, reasons
from tests import factories
from tests.campaigns.rows import accepted, expired, family, in_doubt, logged, messages, recount, refused, suppressed
from vendors.adapters.letter_faults import LetterPart
from vendors.causes import AnswerCause
from vendors.causes.wording import CAUSE_LABELS, read_causes, word_cause

pytestmark = pytest.mark.django_db


def no(code, sub=None):
    return refused() | {"error_code": code, "error_sub_type": sub}


def back():
    return accepted() | {"report": "bounced", "report_at": timezone.now(), "report_no": 0}


SHAPES = [
    accepted(), expired(), suppressed(), in_doubt(),
    no("550", "5.1.1"), no("550", "5.1.1"), no("Invalid-Recipient"), no("552", "5.2.2 mailbox full"),
    no("550", "5.2.1"), no("552", "5.3.4"), no("21610"), no("550", "opt_out"), no("person", "unknown_recipient"),
    no("template", "no name"),
    no("too_dear"), no("http_422", "ann@example.com is odd"), no("http_422"), no("550", "5.1.1 (unclear)"),
    back(), back(), back(),
]  # fmt: skip
COUNTS = {
    "expired": 1, "suppressed:unsubscribed": 1, "in_doubt": 1, "unknown": 3, "full": 1, "disabled": 1, "too_large": 1,
    "stop": 2, "person": 1, "template": 1, "too_dear": 1, "vendor:http_422": 2, "vendor:550": 1,
    "bounced:hard_bounce": 2, "bounced:": 1,
}  # fmt: skip


@pytest.fixture
def job():
    made = recount(logged(len(SHAPES) + 2, SHAPES))
    first = made.first_message + SHAPES.index(back_of(SHAPES))
    for message, kind in ((first, "soft_bounce"), (first, "hard_bounce"), (first + 1, "hard_bounce")):
        MessageEvent.objects.create(
            message_id=message, campaign=made.campaign, resend_no=0, kind=kind, at=timezone.now(), source="x"
        )
    return made


def back_of(shapes):
    return next(one for one in shapes if one.get("report"))


def counted(job, channel="email"):
    return reasons.reasons_of_campaign(
        job.campaign, channel, progress.progress_of_campaigns([job.campaign_id])[job.campaign_id]
    )


def test_each_failure_is_counted_once_and_found_behind_its_count(job):
    found = counted(job)
    assert {one.key: one.messages for one in found} == COUNTS
    assert [one.messages for one in found] == sorted(COUNTS.values(), reverse=True)
    for one in found:
        rows = message_rows.page_of_recipients(job.campaign, "email", one.state, one.key).rows
        events = 1 if one.key == "bounced:soft_bounce" else 0
        assert len(rows) == one.messages + events, one
        for row in rows:
            assert reasons.key_of(row).rstrip(":") == (one.key if one.state != labels.BOUNCED else "bounced")


def test_sentences_depend_on_the_channel_and_name_no_recipient(job):
    by_key = {one.key: one.sentence for one in counted(job)}
    assert by_key["unknown"] == "There is no mailbox at this address."
    assert by_key["vendor:http_422"] == "The vendor has refused it, with its code http_422."
    assert "ann@example.com" not in str(by_key)
    assert {one.key: one.sentence for one in counted(job, "sms")}["unknown"].startswith("There is no such number")


def test_a_reason_names_the_cause_that_all_its_messages_have():
    job = recount(
        logged(5, [no("550") | {"cause": "us"}] * 2 + [no("554") | {"cause": "us"}, no("554"), no("http_422")])
    )
    found = {one.key: (one.sentence, one.messages, one.causes) for one in counted(job)}
    because = "The vendor has refused it because of our account or sender, with its code 550."
    assert found["vendor:550"] == (because, 2, {"us": 2})
    assert found["vendor:554"] == ("The vendor has refused it, with its code 554.", 2, {"us": 1})
    assert found["vendor:http_422"][1:] == (1, {}), "from before mailhub stored causes"
    blamed = message_rows.page_of_recipients(job.campaign, "email", labels.FAILED, cause="us").rows
    assert [row.error_code for row in blamed] == ["550", "550", "554"]
    assert [row.why for row in blamed] == [because] * 2 + [because.replace("550", "554")]


def test_each_part_for_which_a_letter_could_not_be_made_has_its_own_sentence():
    parts = [no("unsendable", f"{part}: it is so") | {"cause": "content"} for part in LetterPart]
    job = recount(logged(len(parts) + 2, [*parts, parts[0], no("unsendable", "one of its files is gone")]))
    found = {one.key: one for one in counted(job)}
    assert set(found) == {"unsendable", *(f"unsendable:{part}" for part in LetterPart)}
    assert len({one.sentence for one in found.values()}) == len(found) and found["unsendable:file"].messages == 2
    assert found["unsendable:header"].sentence == "Its subject or one of its headers cannot be sent."
    for key, one in found.items():
        rows = message_rows.page_of_recipients(job.campaign, "email", labels.FAILED, key).rows
        assert len(rows) == one.messages and {reasons.key_of(row) for row in rows} == {key}
        assert {row.why for row in rows} == {one.sentence}
    named = reader.message_facts(messages(job)[0], None, (), stopped=False)["reason"]
    assert named == {"code": "unsendable", "text": "One of its files or images is missing or cannot be used: it is so"}


def test_a_letter_that_came_back_says_because_of_whom():
    back_again = [back() | {"cause": cause} for cause in ("recipient", "capacity", "unknown", None)]
    rows = message_rows.page_of_recipients(recount(logged(4, back_again)).campaign, "email").rows
    assert [row.why for row in rows] == [
        "It came back because of the recipient.", "It came back because of a limit of ours.",
        "It came back.", "It came back.",
    ]  # fmt: skip


def test_each_cause_has_a_word_and_each_word_a_cause():
    assert set(CAUSE_LABELS) == set(AnswerCause) and word_cause(None) == ""
    assert read_causes(["US", " capacity"]) == ["us", "capacity"]
    with pytest.raises(ValueError, match="'fate' is no cause; there are recipient, content, us"):
        read_causes(["fate"])


def test_what_is_waiting_or_sent_has_no_reason(job):
    quiet = Message.objects.filter(id__gte=job.first_message, id__lt=job.end, error_code=None, in_doubt_at=None)
    assert {reasons.reason_of_message(one, "email") for one in quiet if one.report is None} == {""}


def test_the_failed_are_found_by_an_index_of_their_own(job):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(
            "EXPLAIN SELECT error_code, error_sub_type FROM campaigns_message"
            " WHERE id >= 1 AND id < 9000000 AND error_code IS NOT NULL ORDER BY id LIMIT 100000"
        )
        assert "message_failed" in str(cursor.fetchall())


def test_a_list_goes_on_where_it_ended(job, monkeypatch):
    monkeypatch.setattr(message_rows, "ON_A_PAGE", 5)
    seen, after = [], 0
    while after is not None:
        page = message_rows.page_of_recipients(job.campaign, "email", after=after)
        seen += [row.pk for row in page.rows]
        after = page.after
    assert seen == list(range(job.first_message, job.end))


def test_a_list_that_finds_nothing_in_time_says_where_to_go_on(job, monkeypatch):
    monkeypatch.setattr(message_rows, "AT_ONCE", 1)
    monkeypatch.setattr(message_rows, "SECONDS", 0)
    page = message_rows.page_of_recipients(job.campaign, "email", labels.BOUNCED)
    assert (page.rows, page.after) == ([], job.first_message)


def test_only_those_parts_are_read_that_have_such_messages(admin_client, django_assert_max_num_queries):
    parent, parts = family(parent="P_ASSIGNING", remaining=10, children=["LOGGED"] * 4, each=5)
    first, end, campaign = parent.first_message, parent.end, parent.campaign
    shapes = [[accepted()] * 5, [back(), accepted()], [suppressed()], [back()]]
    for part, some in zip(parts, shapes, strict=True):
        for number, shape in enumerate(some):
            Message.objects.filter(pk=part.first_message + number).update(dequeued_at=timezone.now(), **shape)
        recount(part)
    Job.objects.filter(pk=parent.pk).update(remaining_suppressed=2)

    def found(state):
        return [(one.first - first, one.end - first, one.messages) for one in stretches(campaign.pk, first, end, state)]

    stretches = message_rows.find_stretches
    assert found(labels.BOUNCED) == [(5, 10, 1), (15, 20, 1)] and found(labels.SENT) == [(0, 5, 5), (5, 10, 1)]
    assert found(labels.SUPPRESSED) == [(10, 15, 1), (20, 30, 2)] and found(labels.FAILED) == []
    assert stretches(campaign.pk, first, end, labels.OPEN) is None
    for state in labels.SHAPES:
        whole = [*Message.objects.filter(labels.SHAPES[state], pk__range=(first, end - 1)).values_list("pk", flat=True)]
        page = message_rows.page_of_recipients(campaign, "email", state)
        assert [row.pk for row in page.rows] == sorted(whole) and page.after is None
        for of in (f"job={parent.pk}", f"campaign={campaign.pk}"):
            listed = admin_client.get(f"/admin/campaigns/message/?{of}&state={state}").context["cl"]
            assert [row.pk for row in listed.result_list] == sorted(whole, reverse=True)
            known = 3 if state == labels.SUPPRESSED else len(whole)  # two of what is not cut have no mark here
            assert listed.result_count == known
    with django_assert_max_num_queries(1):
        assert message_rows.page_of_recipients(campaign, "email", labels.FAILED).rows == []


def test_doubts_of_a_takeover_are_listed_though_no_part_of_the_campaign_counts_them(admin_client):
    job = factories.campaign_with_job(6, status="P_QUEUED")
    failover.doubt_granted(job.first_message, job.first_message, job.end, 2, timezone.now())

    def listed():
        at = f"/admin/campaigns/message/?campaign={job.campaign_id}&state={labels.ATTENTION}"
        page, list_of_all = (
            message_rows.page_of_recipients(job.campaign, "email", labels.ATTENTION),
            admin_client.get(at).context["cl"],
        )
        assert len(page.rows) == len(list_of_all.result_list) == list_of_all.result_count
        return len(page.rows)

    assert listed() == 2
    job.refresh_from_db()
    mailcaster.cut_child(job, factories.caster(job.vendor), 3, timezone.now())
    assert listed() == 2
    failover.doubt_all(job.vendor_id, timezone.now(), None, [])
    assert listed() == 6


def test_all_messages_on_one_page_are_all_and_a_part_of_a_campaign_is_a_part(admin_client, monkeypatch):
    monkeypatch.setattr("campaigns.operations.admin.messages.MessageAdmin.list_per_page", 2)
    parent, parts = family(parent="P_FINISHED", remaining=0, children=["LOGGED"] * 3, each=2)
    for part in parts:
        Message.objects.filter(pk__range=(part.first_message, part.end - 1)).update(
            dequeued_at=timezone.now(), **refused()
        )
        recount(part)
    for asked, count in (("all=", 6), (f"job={parts[0].pk}", 2)):
        at = f"/admin/campaigns/message/?campaign={parent.campaign_id}&state={labels.FAILED}&{asked}"
        listed = admin_client.get(at).context["cl"]
        assert (listed.result_count, len(listed.result_list)) == (count, count)


def test_a_search_that_finds_more_campaigns_than_it_lists_says_so(admin_client, monkeypatch):
    for _ in range(3):
        made = factories.campaign_with_job(1).campaign
        made.name = f"summer {made.pk}"
        made.save()
    said = "older ones may be missing"
    for model, name in (("campaign", "lists.admin.MOST_FOUND"), ("job", "operations.admin.jobs.MOST_CAMPAIGNS")):
        at = f"/admin/campaigns/{model}/?q=summer"
        assert said not in admin_client.get(at).content.decode()
        monkeypatch.setattr(f"campaigns.{name}", 2)
        assert said in admin_client.get(at).content.decode()
