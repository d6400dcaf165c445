"""One recipient's messages are found exactly, by an index, and only those of the asked sponsors."""

import json
from datetime import timedelta

import pytest
from django.core.management import CommandError
from django.db import connection
from django.utils import timezone

from campaigns.audience import finding
from campaigns.models import Job, Message, MessageEvent, Resolution, Sponsor, Suppression, VendorMessageId
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from tests import factories
from tests.campaigns.rows import accepted, expired, in_doubt, logged, manage, refused

pytestmark = pytest.mark.django_db


def to(address: str, shape: dict | None = None, **fields) -> Job:
    job = logged(1, [shape or accepted()], **fields)
    Message.objects.filter(pk=job.first_message).update(recipient=address)
    return job


def numbers(text: str, sponsors: list[int] | None = None) -> list[int]:
    return [one.message.pk for one in finding.look_for(text, sponsors).messages]


def test_an_address_is_found_in_any_capitals_and_nothing_that_only_looks_alike() -> None:
    first, second = to("Ann.Lee@sandbox.example"), to("ann.lee@sandbox.example")
    for other in ("ann@sandbox.example", "ann.lee+x@sandbox.example", "bann.lee@sandbox.example"):
        to(other)
    both = [second.first_message, first.first_message]
    assert numbers("ann.lee@sandbox.example") == numbers("  ANN.LEE@Sandbox.Example ") == both
    assert numbers("ann.lee") == numbers("%") == numbers("") == numbers("a\0b") == numbers("x" * 3_000) == []


def test_phone_numbers_are_read_as_an_import_reads_them_and_print_addresses_as_they_are_written() -> None:
    mobile, paper = to("+491701234567"), to("Key-0042")
    assert numbers("+49 170 1234567") == [mobile.first_message]
    assert numbers("0170 1234567") == []
    Sponsor.objects.filter(pk=mobile.sponsor_id).update(phone_region="DE")
    assert numbers("0170 1234567", [mobile.sponsor_id]) == [mobile.first_message]
    assert numbers("Key-0042") == [paper.first_message]
    assert numbers("key-0042") == []


def test_only_what_the_sponsors_have_sent_is_found_by_whatever_name() -> None:
    mine, theirs = to("ann@sandbox.example"), to("ann@sandbox.example")
    of = [mine.sponsor_id]
    assert numbers("ann@sandbox.example", of) == [mine.first_message]
    assert numbers("ann@sandbox.example", []) == []
    row = Message.objects.get(pk=theirs.first_message)
    VendorMessageId.objects.create(vendor=theirs.vendor, name="v-7", message=row.pk, uuid=row.uuid, resend_no=0)
    for name in (row.reference, str(row.uuid), f"msg_{row.pk}", str(row.pk), "v-7", str(row.uuid).upper()):
        assert numbers(name) == [row.pk]
        assert numbers(name, of) == []
    wrong = f"{str(row.uuid)[:-1]}{'0' if str(row.uuid)[-1] != '0' else '1'}"
    assert numbers(wrong) == []


def test_what_became_of_each_is_in_the_order_of_time() -> None:
    job = to("ann@sandbox.example", accepted("v-1"))
    now = timezone.now()
    row = Message.objects.get(pk=job.first_message)
    MessageEvent.objects.create(
        message=row, campaign=job.campaign, resend_no=0, kind="hard_bounce", at=now + timedelta(hours=1),
        source="vendor", code="5.1.1", note="unknown",
    )  # fmt: skip
    to("ann@sandbox.example", refused())
    to("ann@sandbox.example", expired())
    doubt = to("ann@sandbox.example", in_doubt())
    Resolution.objects.create(message_id=doubt.first_message, decision="sent", reason="asked them", decided_by="bob")
    found = finding.look_for("ann@sandbox.example", None).messages
    assert [one.state for one in found] == ["Needs attention", "Expired", "Failed", "Sent"]
    for one in found:
        times = [happening.at for happening in one.happenings]
        assert times == sorted(times) and one.vendor == Job.objects.get(campaign=one.message.campaign_id).vendor.slug
    kinds = [happening.what for happening in found[-1].happenings]
    assert kinds[-1] == "Hard bounce" and {"Called at the vendor", "Accepted by the vendor"} <= set(kinds)
    assert "Settled by bob: Sent" in [happening.what for happening in found[0].happenings]


def test_whether_she_may_be_written_to_is_shown_of_her_sponsors_and_of_all() -> None:
    mine, theirs = to("ann@sandbox.example"), to("ann@sandbox.example")
    for sponsor in (mine.sponsor_id, theirs.sponsor_id, None):
        lists.add_suppressions(
            sponsor, "email", [NewSuppression("ann@sandbox.example", Suppression.Reason.UNSUBSCRIBED)]
        )
    found = finding.look_for("Ann@sandbox.example", [mine.sponsor_id])
    assert {row.sponsor_id for row in found.suppressed} == {mine.sponsor_id, None}
    by_number = finding.look_for(f"msg_{mine.first_message}", [mine.sponsor_id])
    assert {row.sponsor_id for row in by_number.suppressed} == {mine.sponsor_id, None}


def test_the_newest_are_shown_and_that_there_are_more() -> None:
    job = logged(finding.MOST + 1, [])
    Message.objects.filter(campaign=job.campaign).update(recipient="ann@sandbox.example")
    found = finding.look_for("ann@sandbox.example", None)
    assert (len(found.messages), found.more) == (finding.MOST, True)


def test_addresses_are_found_by_the_index() -> None:
    logged(300, [])
    asked = {"addresses": ["r7@sandbox.example"], "mail": "r7@sandbox.example", "sponsors": None, "most": 51}
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE campaigns_message")
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN (COSTS OFF) {finding.BY_ADDRESS}", asked)
        assert "message_recipient" in str(cursor.fetchall())


def test_the_command_tells_people_and_programs() -> None:
    job = to("ann@sandbox.example", accepted("v-1"))
    lists.add_suppressions(None, "email", [NewSuppression("ann@sandbox.example", Suppression.Reason.COMPLAINED)])
    text = manage("find_recipient", "ANN@sandbox.example")
    assert f"message {job.first_message} to ann@sandbox.example: Sent" in text and "Accepted by the vendor: v-1" in text
    assert "suppressed for all sponsors (complained)" in text
    message, entry = map(json.loads, manage("find_recipient", str(job.first_message), "--json").splitlines())
    assert (message["status"], message["vendor_message_id"], entry["reason"]) == ("sent", "v-1", "complained")
    other = factories.sponsor()
    with pytest.raises(CommandError, match="nothing is known of it"):
        manage("find_recipient", f"msg_{job.first_message}", "--sponsor", other.name)
