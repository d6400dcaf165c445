"""POST /api/v1/messages: what is taken, what is refused and where it is wrong, and never twice."""

import json
from datetime import UTC, datetime, time, timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from campaigns.models import Campaign, Job, Message, Session
from tests import factories
from tests.factories import at_work
from tests.front.program import Program, api_vendor, fresh, letter, pointers, problem
from vendors import health
from vendors.health import HealthPolicy
from waiter.models import ParkedTask

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db


def stored():
    return [model.objects.count() for model in (Session, Campaign, Job, Message)]


def test_a_letter_is_taken_with_a_session_and_a_forecast():
    program, vendor = Program(), at_work(api_vendor(limits=[(5, 60)]))
    answer = program.send(
        letter(vendor, recipients=[{"to": "Ann@Sandbox.Example", "fields": {"n": 1}, "reference": "a"}])
    )
    assert answer.status_code == 202
    content = answer.json()
    assert answer.headers["Location"] == content["links"]["self"] == f"/api/v1/sessions/{content['id']}"
    assert (content["status"], content["accepted"], content["vendor"], content["mode"]) == (
        "waiting",
        1,
        vendor.slug,
        "live",
    )
    assert content["forecast"]["basis"] == "5 per 60 s, 0 ahead of you"
    session = Session.objects.select_related("job__campaign").get()
    job, message = session.job, Message.objects.get()
    assert session.name == content["id"] and session.references == ["a"] and session.sponsor == program.sponsor
    assert (job.status, job.size, job.vendor, job.first_message) == ("DISPATCHED", 1, vendor, message.pk)
    assert (message.recipient, message.params, message.campaign) == ("Ann@sandbox.example", {"n": 1}, job.campaign)
    assert job.campaign.sponsor == program.sponsor and job.dispatched_at and not job.not_before


def test_a_thousand_are_one_job_that_is_cut_and_the_ids_are_one_block():
    program, vendor = Program(), api_vendor(small_audience_threshold=100)
    addresses = [f"p{number}@sandbox.example" for number in range(1000)]
    assert program.send(letter(vendor, addresses)).status_code == 202
    job = Job.objects.get()
    assert (job.status, job.size, job.remaining) == ("P_QUEUED", 1000, 1000)
    rows = list(Message.objects.order_by("id").values_list("id", "recipient"))
    assert rows == [(job.first_message + number, person) for number, person in enumerate(addresses)]


def test_the_forecast_counts_what_waits_before():
    program, vendor = Program(), at_work(api_vendor(limits=[(5, 60)]))
    program.send(letter(vendor, [f"p{number}@sandbox.example" for number in range(10)]))
    alone = program.send(letter(vendor)).json()["forecast"]
    assert alone["basis"] == "5 per 60 s, 0 ahead of you", "a single letter is urgent"
    forecast = program.send(letter(vendor, ["ann@sandbox.example", "bob@sandbox.example"])).json()["forecast"]
    assert forecast["basis"] == "5 per 60 s, 11 ahead of you"
    first = datetime.fromisoformat(forecast["first_at"])
    assert timedelta(seconds=100) < first - datetime.now(UTC) <= timedelta(seconds=120)


def test_the_same_request_again_gets_the_same_answer_and_stores_nothing():
    program, vendor = Program(), api_vendor()
    first = program.send(letter(vendor), "one")
    before = stored()
    again = program.send(json.dumps(letter(vendor), indent=3), "one")
    assert (again.status_code, again.content) == (202, first.content)
    assert again.headers["Idempotent-Replayed"] == "true" and "Idempotent-Replayed" not in first.headers
    assert again.headers["Location"] == first.headers["Location"]
    assert stored() == before == [1, 1, 1, 1]


def test_a_repeat_is_answered_as_the_first_time_whatever_has_changed_since():
    program, vendor = Program(), api_vendor()
    soon = (timezone.now() + timedelta(hours=1)).isoformat()
    first = program.send(letter(vendor, expires_at=soon), "one")
    vendor.paused = True
    vendor.save()
    Program(program.sponsor)  # a test's way to forget nothing
    api_vendor()  # makes the front look at its vendors again
    again = program.send(letter(vendor, expires_at=soon), "one")
    assert again.content == first.content
    problem(program.send(letter(vendor)), "vendor-paused", 503)


def test_a_repeat_with_the_new_key_of_a_rotation_sends_nothing_twice():
    old, vendor = Program(), api_vendor()
    new = Program(old.sponsor)
    first = old.send(letter(vendor), "one")
    assert new.send(letter(vendor), "one").content == first.content
    assert stored() == [1, 1, 1, 1]


def test_another_body_under_a_used_key_is_refused():
    program, vendor = Program(), api_vendor()
    program.send(letter(vendor), "one")
    problem(program.send(letter(vendor, "bob@sandbox.example"), "one"), "idempotency-key-reused", 422)
    assert stored() == [1, 1, 1, 1]


def test_two_sponsors_may_use_the_same_key():
    vendor = api_vendor()
    assert {Program().send(letter(vendor), "one").status_code for _ in range(2)} == {202}
    assert Session.objects.count() == 2


def test_a_request_that_sends_must_have_a_key_that_can_be_kept():
    program, vendor = Program(), api_vendor()
    problem(program.send(letter(vendor), None), "idempotency-key-missing", 400)
    for key in ("x" * 256, "h\u00e9llo", "a\tb"):
        found = problem(program.send(letter(vendor), key), "validation", 422)
        assert found["errors"][0]["parameter"] == "Idempotency-Key"
    assert stored() == [0, 0, 0, 0]


def test_a_dry_run_checks_and_forecasts_and_stores_nothing():
    program, vendor = Program(), at_work(api_vendor(limits=[(5, 60)]))
    answer = program.send(letter(vendor), None, "/api/v1/messages?dry_run=true")
    assert answer.status_code == 200
    content = answer.json()
    assert (content["status"], content["id"], content["links"], content["accepted"]) == ("valid", None, None, 1)
    assert content["forecast"]["first_at"]
    assert pointers(program.send(letter(vendor, "bad"), None, "/api/v1/messages?dry_run=true"))
    assert stored() == [0, 0, 0, 0]


class TestWhatIsWrongIsNamed:
    def test_every_recipient_by_its_place(self):
        recipients = [
            {"to": "ann@sandbox.example", "fields": {"name": "Ann"}},
            {"to": "nobody", "fields": {"name": "Bob"}},
            {"to": "cid@sandbox.example"},
            {"to": "dan@sandbox.example", "fields": {"name": "x\0"}},
            {"to": "ANN@SANDBOX.EXAMPLE".replace("ANN", "ann"), "fields": {"name": "Ann"}},
            {"to": "eve@sandbox.example", "fields": {"name": [[[[[]]]]]}},
        ]
        found = pointers(Program().send(letter(api_vendor(), body="Dear {{ name }}", recipients=recipients)))
        assert found == {
            "/recipients/1/to": "address",
            "/recipients/2/fields": "fields",
            "/recipients/3/fields": "fields",
            "/recipients/4/to": "duplicate",
            "/recipients/5/fields": "depth",
        }
        assert stored() == [0, 0, 0, 0]

    @pytest.mark.parametrize(
        ("members", "pointer"),
        [
            ({"subject": ""}, "/subject"),
            ({"subject": "{{"}, "/subject"),
            ({"subject": "a\nb"}, "/subject"),
            ({"body": "{% include 'x' %}"}, "/body"),
            ({"body": ""}, "/body"),
            ({"body": "a\0b"}, "/body"),
            ({"recipients": []}, "/recipients"),
            ({"recipients": [{"to": "a@sandbox.example"}] * 1001}, "/recipients"),
            ({"recipients": "ann"}, "/recipients"),
            ({"recipients": [{"to": 7}]}, "/recipients/0/to"),
            ({"recipients": [{"to": "a@sandbox.example", "color": 1}]}, "/recipients/0/color"),
            ({"send_at": "2026-01-01T00:00:00"}, "/send_at"),
            ({"send_at": "2126-01-01T00:00:00Z"}, "/send_at"),
            ({"expires_at": "2020-01-01T00:00:00Z"}, "/expires_at"),
            ({"metadata": {str(number): "" for number in range(21)}}, "/metadata"),
            ({"colour": "red"}, "/colour"),
            ({"vendor": "nobody"}, "/vendor"),
            ({"channel": "email"}, "/vendor"),
        ],
    )
    def test_each_member_by_its_name(self, members, pointer):
        assert pointer in pointers(Program().send({**letter(api_vendor()), **members}))
        assert stored() == [0, 0, 0, 0]

    def test_two_messages_to_one_person_need_references(self):
        program, vendor = Program(), api_vendor()
        twice = [{"to": "ann@sandbox.example", "reference": name} for name in ("a", "b")]
        assert program.send(letter(vendor, recipients=twice)).status_code == 202

    @pytest.mark.parametrize("body", ["", "{", "[]", "null", '{"recipients": NaN}', b"\xff", '"\\ud800"', "[" * 3000])
    def test_what_is_no_request_is_refused_before_anything_else(self, body):
        answer = Program().send(body)
        assert answer.status_code in (400, 422) and answer.headers["Content-Type"] == "application/problem+json"

    def test_a_body_that_is_too_large_is_not_read(self):
        problem(Program().send("x" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)), "payload-too-large", 413)

    def test_a_path_and_a_method_that_are_not_there_are_problems_too(self):
        program = Program()
        problem(program.get("nothing"), "not-found", 404)
        refused = program.get("messages")
        problem(refused, "method-not-allowed", 405)
        assert refused.headers["Allow"] == "POST"


class TestVendors:
    def test_a_channel_is_served_by_the_first_vendor_that_takes_work(self):
        program = Program()
        api_vendor(slug="a-paused", channel="sms", paused=True)
        ill = api_vendor(slug="b-ill", channel="sms", min_requests=10)
        well = api_vendor(slug="c-well", channel="sms")
        health.health_store(settings.REDIS_URL).note(ill.pk, HealthPolicy.of(ill), 0, 50)
        answer = program.send({"channel": "sms", "body": "Hi", "recipients": [{"to": "+442079460000"}]})
        assert answer.status_code == 202 and answer.json()["vendor"] == well.slug
        health.health_store(settings.REDIS_URL).reset(ill.pk)

    def test_an_unhealthy_vendor_is_503_with_the_time_to_come_back_and_nothing_is_stored(self):
        program, vendor = Program(), api_vendor(min_requests=10, min_ratio=0.8, retry_after=30)
        health.health_store(settings.REDIS_URL).note(vendor.pk, HealthPolicy.of(vendor), 61, 39)
        answer = program.send(letter(vendor))
        found = problem(answer, "vendor-unhealthy", 503)
        assert 15 < int(answer.headers["Retry-After"]) <= 30
        assert found["service"] == {"good": 61, "bad": 39, "ratio": 0.61, "threshold": 0.8}
        assert "61% good of the last 100 answers; 80% is needed" in found["detail"]
        assert stored() == [0, 0, 0, 0]
        health.health_store(settings.REDIS_URL).reset(vendor.pk)
        assert program.send(letter(vendor)).status_code == 202

    def test_a_paused_vendor_and_a_paused_credential_are_503(self):
        program = Program()
        answer = program.send(letter(api_vendor(paused=True, paused_reason="stocktaking", retry_after=7)))
        assert "stocktaking" in problem(answer, "vendor-paused", 503)["detail"]
        assert answer.headers["Retry-After"] == "7"
        locked = api_vendor()
        locked.credentials.update(paused=True, paused_reason="http 401")
        assert "http 401" in problem(program.send(letter(locked)), "vendor-paused", 503)["detail"]


def test_a_letter_for_later_waits_in_the_waiter_and_is_not_dispatched():
    program, vendor = Program(), api_vendor()
    at = timezone.now() + timedelta(hours=2)
    answer = program.send(letter(vendor, send_at=at.isoformat()))
    assert answer.json()["status"] == "scheduled"
    assert datetime.fromisoformat(answer.json()["forecast"]["first_at"]) >= at.replace(microsecond=0)
    job = Job.objects.get()
    assert (job.status, job.not_before) == ("READY", at)
    parked = ParkedTask.waiting.get(task="campaigns.tasks.dispatch_one")
    assert parked.due_at == at and str(job.pk) in parked.message


@pytest.mark.parametrize("each", [False, True])
def test_a_letter_goes_in_the_hours_that_the_request_names(each):
    program, vendor = Program(), api_vendor(channel="sms")
    hours = {"start": "20:00", "end": "08:30", "time_zone": "Europe/Paris", "of_each": each}
    asked = {"vendor": vendor.slug, "body": "Hi", "recipients": [{"to": "+44 20 7946 0000"}], "hours": hours}
    answer = program.send(asked)
    assert answer.status_code == 202, answer.content
    whose = "each recipient's clock" if each else "Europe/Paris"
    assert answer.json()["forecast"]["basis"] == f"it goes from 20:00 to 08:30 by {whose}"
    made = Campaign.objects.get()
    here, elsewhere = (made.each_from, made.each_to), (made.hours_from, made.hours_to)
    kept, empty = (here, elsewhere) if each else (elsewhere, here)
    assert (kept, empty, made.time_zone) == ((time(20), time(8, 30)), (None, None), "Europe/Paris")
    for wrong in ({"time_zone": "Europe/Nowhere"}, {"end": "20:00"}, {"end": "8"}):
        assert program.send(asked | {"hours": hours | wrong}).status_code == 422


def test_hours_of_each_recipient_need_to_know_where_it_is():
    program, vendor = Program(), api_vendor()
    hours = {"start": "09:00", "end": "18:00", "time_zone": "UTC", "of_each": True}
    assert "time_zone" in problem(program.send(letter(vendor, hours=hours)), "validation", 422)["errors"][0]["detail"]
    there = [{"to": "ann@example.com", "fields": {"time_zone": "Asia/Tokyo"}}]
    assert program.send(letter(vendor, hours=hours, body="Hi", recipients=there)).status_code == 202


def test_a_zone_of_a_recipient_that_there_is_not_is_an_error_of_that_recipient():
    program, vendor = Program(), api_vendor()
    hours = {"start": "09:00", "end": "18:00", "time_zone": "UTC", "of_each": True}
    to = {"ann": "Asia/Tokyo", "bob": "Mars/Base", "cy": "", "dee": 5}
    rows = [{"to": f"{who}@example.com", "fields": {"time_zone": zone}} for who, zone in to.items()]
    asked = letter(vendor, hours=hours, body="Hi", recipients=rows)
    errors = problem(program.send(asked), "validation", 422)["errors"]
    assert [one["pointer"] for one in errors] == ["/recipients/1/fields", "/recipients/3/fields"]
    assert errors[0]["detail"].startswith("time_zone: 'Mars/Base' is no time zone of the IANA list")
    assert program.send(asked | {"skip_bad_recipients": True}).status_code == 202
    assert Job.objects.get().size == 2
    assert program.send(asked | {"hours": hours | {"of_each": False}}).status_code == 202


def test_a_time_that_is_past_means_now():
    program, vendor = Program(), api_vendor()
    asked = letter(vendor, send_at=(timezone.now() - timedelta(hours=23)).isoformat())
    assert program.send(asked).json()["status"] == "waiting"
    assert Job.objects.get().status == "DISPATCHED"


def test_names_and_metadata_are_kept():
    program, vendor = Program(), api_vendor()
    program.send(letter(vendor, name="March run", metadata={"run": "march"}))
    session = Session.objects.get()
    assert session.metadata == {"run": "march"} and session.job.campaign.name == "March run"
    assert session.key_prefix == program.key.prefix and not session.test


def test_an_sms_address_is_stored_in_its_one_form():
    program, vendor = Program(), api_vendor(channel="sms")
    answer = program.send({"vendor": vendor.slug, "body": "Hi", "recipients": [{"to": "+44 20 7946 0000"}]})
    assert answer.status_code == 202 and Message.objects.get().recipient == "+442079460000"


def test_the_factories_of_other_tests_never_get_an_id_of_the_front():
    program, vendor = Program(), api_vendor()
    program.send(letter(vendor))
    factories.campaign_with_job(50)
    program.send(letter(vendor, [f"p{number}@sandbox.example" for number in range(50)]))
    assert Message.objects.count() == 101


MIXED = [
    {"to": "ann@sandbox.example", "reference": "a", "fields": {"name": "Ann"}},
    {"to": "nobody", "reference": "b", "fields": {"name": "Bob"}},
    {"to": "eve@sandbox.example", "reference": "c", "fields": {}},
    {"to": "eve@sandbox.example", "reference": "c", "fields": {"name": "Eve"}},
    {"to": "ANN@sandbox.example", "reference": "a", "fields": {"name": "Again"}},
]


@pytest.mark.parametrize("path", ["/api/v1/messages", "/api/v1/messages?dry_run=true"])
def test_bad_recipients_are_left_out_if_asked_and_named(path):
    program, vendor = Program(), api_vendor()
    body = letter(vendor, body="Dear {{ name }}", recipients=MIXED, skip_bad_recipients=True)
    answer = program.send(body, path=path).json()
    assert [(one["pointer"], one["code"]) for one in answer["left_out"]] == [
        ("/recipients/1/to", "address"),
        ("/recipients/2/fields", "fields"),
        ("/recipients/4/to", "duplicate"),
    ]
    assert answer["left_out"][2]["detail"].startswith("the same recipient as /recipients/0")
    assert answer["accepted"] == 2
    kept = [("ann@sandbox.example", {"name": "Ann"}), ("eve@sandbox.example", {"name": "Eve"})]
    assert list(Message.objects.order_by("id").values_list("recipient", "params")) == ([] if "?" in path else kept)
    assert "?" in path or Session.objects.get().references == ["a", "c"]


def test_if_all_are_bad_or_nobody_asked_to_skip_them_all_is_refused():
    program, vendor = Program(), api_vendor()
    body = letter(vendor, body="Dear {{ name }}", recipients=MIXED)
    assert len(pointers(program.send(body))) == 3
    skipping = {**body, "recipients": MIXED[1:3], "skip_bad_recipients": True}
    assert pointers(program.send(skipping)) == {"/recipients/1/fields": "fields", "/recipients/0/to": "address"}
    assert stored() == [0, 0, 0, 0]


def test_a_dry_run_shows_the_first_letters_as_they_will_be_sent():
    program, vendor = Program(), api_vendor()
    recipients = [{"to": f"p{number}@sandbox.example", "fields": {"n": number}} for number in range(5)]
    body = letter(vendor, subject="No. {{ n }}", body="{{ n|number(1) }}", recipients=recipients, preview=2)
    answer = program.send(body, path="/api/v1/messages?dry_run=true").json()
    assert [(one["to"], one["subject"], one["body"]) for one in answer["preview"]] == [
        ("p0@sandbox.example", "No. 0", "0.0"),
        ("p1@sandbox.example", "No. 1", "1.0"),
    ]
    assert stored() == [0, 0, 0, 0]
    assert pointers(program.send(body)) == {"/preview": "preview"}
    assert pointers(program.send({**body, "preview": 21})) == {"/preview": "less_than_equal"}


def test_a_test_send_is_a_session_of_one_letter_to_oneself():
    program, vendor = Program(), api_vendor()
    recipients = [{"to": f"p{number}@sandbox.example", "fields": {"n": number}} for number in range(5)]
    body = letter(vendor, body="{{ n }}", recipients=recipients, name="March", test_to="Me@EXAMPLE.com")
    answer = program.send(body, "one").json()
    assert (answer["accepted"], answer["status"], stored()) == (1, "waiting", [1, 1, 1, 1])
    message = Message.objects.select_related("campaign").get()
    assert (message.recipient, message.params, message.campaign.name) == ("Me@example.com", {"n": 0}, "Test: March")
    assert program.send(body, "one").headers["Idempotent-Replayed"] == "true"
    assert program.send({**body, "test_to": None}, "one").status_code == 422, "another body"
    assert pointers(program.send({**body, "test_to": "me"})) == {"/test_to": "address"}


def test_a_body_in_mjml_is_stored_as_html():
    program, vendor = Program(), api_vendor()
    inside = "<mj-section><mj-column><mj-text>Dear {{ name }}</mj-text></mj-column></mj-section>"
    recipients = [{"to": "ann@sandbox.example", "fields": {"name": "<Ann>"}}]
    body = letter(vendor, body=f"<mjml><mj-body>{inside}</mj-body></mjml>", recipients=recipients, mjml=True, preview=1)
    shown = program.send(body, path="/api/v1/messages?dry_run=true").json()["preview"][0]
    assert "Dear &lt;Ann&gt;" in shown["body"]
    assert program.send({**body, "preview": 0}).status_code == 202
    campaign = Campaign.objects.get()
    assert campaign.html and "Dear {{ name }}" in campaign.body
    assert pointers(program.send({**body, "body": "<mjml>"})) == {"/body": "template"}
