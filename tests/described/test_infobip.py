"""The shipped description of Infobip, which answers 200 to what it rejects, too."""

import base64
import json
from typing import Any

import pytest

from tests.described.calling import send
from tests.described.servers import Answer, Called, VendorServer
from vendors.adapters.base import Letter
from vendors.adapters.reports import NotTheVendor, Reported, ReportRequest, ReportSource
from vendors.described.adapter import Described
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

SECRET = {"api_key": "key-1"}
SMS = Letter("0190-1", "+447700900000", "", "Grüße & bye")


class Infobip(VendorServer):
    """POST /sms/3/messages: a status for each message."""

    def answer(self, called: Called) -> Answer:
        if called.headers.get("authorization") != "App key-1":
            return Answer(401, {"requestError": {"serviceException": {"messageId": "UNAUTHORIZED"}}})
        assert (called.method, called.path) == ("POST", "/sms/3/messages")
        [one] = json.loads(called.body)["messages"]
        [to] = one["destinations"]
        assert to["to"].isdigit() and one["sender"] and one["content"]["text"]
        self.books[one["webhooks"]["callbackData"]] += 1
        return self.status("PENDING", "PENDING_ACCEPTED")

    def status(self, group: str, name: str) -> Answer:
        status = {"groupName": group, "name": name, "description": "as its name says"}
        return Answer(200, {"bulkId": "b-1", "messages": [{"messageId": f"m-{len(self.calls)}", "status": status}]})


def settings(vendor: Infobip) -> dict[str, str]:
    return {"description": "infobip", "server": vendor.url, "from": "Velma"}


def test_an_sms_comes_to_its_id_and_a_wrong_key_pauses() -> None:
    with Infobip() as vendor:
        assert send(settings(vendor), SECRET, SMS) == [Accepted("m-1")]
        assert vendor.books == {"0190-1": 1}
        [outcome] = send(settings(vendor), {"api_key": "other"}, SMS)
    assert isinstance(outcome, NotSent) and outcome.pause


@pytest.mark.parametrize(
    ("group", "name", "expected"),
    [
        ("REJECTED", "REJECTED_PREFIX_MISSING", Refused("REJECTED_PREFIX_MISSING")),
        ("REJECTED", "REJECTED_DESTINATION", Refused("REJECTED_DESTINATION")),
        ("REJECTED", "REJECTED_NETWORK", Refused("REJECTED_NETWORK")),
        ("REJECTED", "REJECTED_NOT_ENOUGH_CREDITS", NotSent("", scope="credential", pause=True)),
        ("REJECTED", "REJECTED_DESTINATION_NOT_REGISTERED", NotSent("", scope="credential", pause=True)),
        ("UNDELIVERABLE", "UNDELIVERABLE_REJECTED_OPERATOR", InDoubt("")),
    ],
)
def test_a_status_proves_what_infobips_list_says_and_no_more(group: str, name: str, expected: Outcome) -> None:
    with Infobip() as vendor:
        vendor.next_answer = vendor.status(group, name)
        [outcome] = send(settings(vendor), SECRET, SMS)
    assert type(outcome) is type(expected)
    if isinstance(expected, Refused):
        assert outcome == expected
    if isinstance(outcome, NotSent):
        assert (outcome.pause, outcome.scope) == (True, "credential")


def result(group: str, error: str, **more: Any) -> dict[str, Any]:
    status = {"groupName": group, "name": f"{group}_X"}
    named = {"messageId": "m-1", "callbackData": "0190-1", "doneAt": "2026-11-01T10:00:00.000+0000"}
    return named | {"status": status, "error": {"name": error, "description": ""}} | more


def read(body: Any, login: str = "us:pass") -> list[Reported]:
    basic = "Basic " + base64.b64encode(login.encode()).decode()
    request = ReportRequest("POST", "https://mail.example.com/r", {"authorization": basic}, json.dumps(body).encode())
    return list(Described.read_report(request, ReportSource({"description": "infobip", "from": "Velma"}, ["us:pass"])))


@pytest.mark.parametrize(
    ("group", "error", "found"),
    [
        ("DELIVERED", "NO_ERROR", ("delivered", "soft", "")),
        ("UNDELIVERABLE", "EC_UNKNOWN_SUBSCRIBER", ("bounced", "hard", "recipient")),
        ("UNDELIVERABLE", "EC_ABSENT_SUBSCRIBER", ("bounced", "soft", "recipient")),
        ("EXPIRED", "EC_SM_DF_MEMORYCAPACITYEXCEEDED", ("bounced", "soft", "recipient")),
        ("UNDELIVERABLE", "EC_UNIDENTIFIED_SUBSCRIBER", ("bounced", "soft", "recipient")),
        ("UNDELIVERABLE", "EC_DEACTIVATED_LIST", ("bounced", "hard", "recipient")),
        ("REJECTED", "EC_SYSTEM_FAILURE", ("bounced", "soft", "vendor")),
    ],
)
def test_its_reports_name_our_reference_and_the_cause(group: str, error: str, found: tuple[str, str, str]) -> None:
    [one] = read({"results": [result(group, error)]})
    assert (one.kind, one.bounce, one.cause) == found and one.reference == "0190-1"
    assert (one.at.hour, one.timed) == (10, True)


def test_nobody_else_reports_for_infobip_and_what_is_on_its_way_is_no_report() -> None:
    assert read({"results": [result("PENDING", "NO_ERROR")]}) == []
    with pytest.raises(NotTheVendor):
        read({"results": []}, "us:wrong")
