"""The shipped description of Twilio, against a server that keeps to Twilio's own document."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest
from twilio.base.exceptions import TwilioRestException

from tests.described.calling import send, twilio_client
from tests.described.servers import ACCOUNT, TOKEN, Answer, Twilio, _twilio_error
from vendors.adapters.base import Letter, Origin
from vendors.adapters.options import InvalidSettings
from vendors.described.adapter import Described
from vendors.outcomes import Accepted, InDoubt, NotSent, Refused

SECRET = {"auth_token": TOKEN}
SMS = Letter("0190-1", "+15005550006", "", "Grüße & bye! {not a reference} 👍")


def settings(vendor: Twilio, **more: str) -> dict[str, str]:
    return {"description": "twilio", "server": vendor.url, "account": ACCOUNT, "from": "+15005550001"} | more


def test_an_sms_is_sent_as_twilio_documents_it_and_comes_to_its_sid() -> None:
    with Twilio() as vendor:
        [outcome] = send(settings(vendor, reports_to="https://mail.example.com/api/v1/receipts/sms"), SECRET, SMS)
        assert isinstance(outcome, Accepted) and outcome.vendor_id.startswith("SM")
        fields = parse_qs(vendor.calls[0].body.decode())
        assert fields == {
            "To": ["+15005550006"],
            "From": ["+15005550001"],
            "Body": [SMS.body],
            "StatusCallback": ["https://mail.example.com/api/v1/receipts/sms?reference=0190-1"],
        }
        assert vendor.books == {"0190-1": 1}


def test_a_messaging_service_sends_without_a_number() -> None:
    service = "MG" + "1" * 32
    with Twilio() as vendor:
        of = settings(vendor, messaging_service=service)
        of["from"] = ""
        [outcome] = send(of, SECRET, SMS)
        assert isinstance(outcome, Accepted)
        assert parse_qs(vendor.calls[0].body.decode()).keys() == {"To", "MessagingServiceSid", "Body"}


def test_the_sender_identity_comes_before_the_vendors_setting_also_within_a_service() -> None:
    with Twilio() as vendor:
        send(settings(vendor), SECRET, SMS._replace(origin=Origin("Brand")))
        of = settings(vendor, messaging_service="MG" + "1" * 32) | {"from": ""}
        send(of, SECRET, SMS._replace(origin=Origin("+15005550009")))
        froms = [parse_qs(call.body.decode())["From"] for call in vendor.calls]
    assert froms == [["Brand"], ["+15005550009"]]


def test_who_said_stop_is_refused_and_a_wrong_sender_pauses() -> None:
    with Twilio() as vendor:
        stopped = SMS._replace(recipient=vendor.stopped)
        nobody = SMS._replace(recipient="none")
        assert send(settings(vendor), SECRET, stopped, nobody) == [Refused("21610"), Refused("21211")]
        [outcome] = send(settings(vendor) | {"from": ""}, SECRET, SMS)
        assert outcome == NotSent("http 400: 21603", scope="credential", pause=True)
        assert not vendor.books


MISBEHAVIOURS = [
    (_twilio_error(429, 20429, "Too Many Requests"), NotSent, False),
    (_twilio_error(400, 14107, "Message rate limit exceeded"), NotSent, False),
    (_twilio_error(401, 20003, "Authenticate"), NotSent, True),
    (_twilio_error(503, 20503, "Service unavailable"), InDoubt, False),
    (Answer(201, {"sid": None}), InDoubt, False),
    (Answer(201, {"sid": "SM1"}, cut=True), InDoubt, False),
    (Answer(400, {"code": 21610}, cut=True), InDoubt, False),
]


@pytest.mark.parametrize(("answer", "kind", "pauses"), MISBEHAVIOURS)
def test_an_answer_proves_no_more_than_it_says(answer: Answer, kind: type, pauses: bool) -> None:
    with Twilio() as vendor:
        vendor.next_answer, vendor.accepts_before = answer, kind is InDoubt
        [outcome] = send(settings(vendor), SECRET, SMS)
        assert isinstance(outcome, kind), outcome
        assert outcome.pause is pauses
        assert len(vendor.calls) == 1


def test_a_wrong_token_pauses_and_no_outcome_shows_it() -> None:
    with Twilio() as vendor:
        [outcome] = send(settings(vendor), {"auth_token": "hush-hush"}, SMS)
        assert isinstance(outcome, NotSent) and outcome.pause
        assert "hush" not in repr(outcome)


def test_without_its_token_nothing_is_called() -> None:
    with Twilio() as vendor:
        [outcome] = send(settings(vendor), {}, SMS)
        assert outcome == NotSent("the credential has no secret auth_token", scope="credential", pause=True)
        assert not vendor.calls


def test_settings_and_secrets_are_checked_by_the_description() -> None:
    with pytest.raises(InvalidSettings) as error:
        Described.validate({"description": "twilio", "account": "me", "colour": "red"})
    assert len(error.value.errors) == 2
    with pytest.raises(InvalidSettings, match="the secret must hold auth_token"):
        Described({"description": "twilio", "account": ACCOUNT}, {"token": "x"})


def test_limits_count_segments() -> None:
    adapter = Described({"description": "twilio", "account": ACCOUNT}, SECRET)
    assert adapter.capabilities.cost(SMS._replace(body="a" * 161)) == 2
    assert adapter.capabilities.cost(SMS._replace(body="<p>" + "a" * 160, html=True, text="a" * 160)) == 1


def test_twilios_own_client_works_with_the_same_server() -> None:
    """So that the server is not only as strict as we are."""
    with Twilio() as vendor, twilio_client(vendor.url, ACCOUNT, TOKEN) as client:
        sent = client.messages.create(to="+15005550006", from_="+15005550001", body="Hello")
        assert sent.sid.startswith("SM") and sent.status == "queued" and sent.to == "+15005550006"
        with pytest.raises(TwilioRestException) as refused:
            client.messages.create(to=vendor.stopped, from_="+15005550001", body="Hello")
        assert (refused.value.status, refused.value.code) == (400, 21610)
