"""Programs hear of complaints by a webhook, and see kinds of bounces and complaints in a session's counts."""

import json
from typing import Any

import pytest

from campaigns.integrations.webhooks import events
from campaigns.models import Webhook, WebhookCall
from tests.campaigns.rows import accepted
from tests.front.program import Program, fresh
from tests.front.test_delivery_reports import finished
from tests.front.vendor import NOON, receipt, reporting

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
NONE = {"hard_bounce": 0, "soft_bounce": 0, "blocked": 0, "failed": 0, "complaint": 0}
URL = "http://127.0.0.1:8443/hook"


@pytest.fixture(autouse=True)
def own_network(settings: Any) -> None:
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]


def test_a_complaint_is_an_event_once_however_often_it_is_reported() -> None:
    program, other, vendor = Program(), Program(), reporting()
    hook, _ = events.create_webhook(program.sponsor, URL, [], test=False)
    for sponsor, kinds, test in [
        (program.sponsor, ["message.bounced"], False),
        (program.sponsor, [], True),
        (other.sponsor, [], False),
    ]:
        events.create_webhook(sponsor, URL, kinds, test=test)
    links, names = finished(program, vendor.row, [accepted("v-0"), accepted("v-1")])
    for minute in (5, 9):
        vendor.post([receipt(names[1], "complained", minute, reason="abuse")])
    call = WebhookCall.objects.get()
    assert (call.webhook, call.kind) == (hook, "message.complained")
    posted = json.loads(call.body)["data"]
    assert posted == {
        "session_id": links["self"].rpartition("/")[2],
        "id": program.get(links["messages"]).json()["data"][1]["id"],
        "reference": "r1",
        "reason": {"code": "complained", "text": "abuse"},
        "reported_at": NOON.replace(minute=5).isoformat(),
    }
    assert "message.complained" in Webhook._meta.get_field("events").get_default()


def test_a_session_counts_its_bounces_by_kind_and_its_complaints() -> None:
    program, other, vendor = Program(), Program(), reporting()
    links, names = finished(program, vendor.row, [accepted(f"v-{number}") for number in range(5)])
    assert program.get(links["self"]).json()["events"] == NONE
    vendor.post(
        [
            receipt(names[0], "bounced", bounce="hard"),
            receipt(names[1], "bounced"),
            receipt(names[2], "bounced", bounce="blocked"),
            receipt(names[3], "complained"),
        ]
    )
    vendor.tell((names[1], "delivered", 5), (names[1], "complained", 6))
    session = program.get(links["self"]).json()
    assert session["events"] == NONE | {"hard_bounce": 1, "soft_bounce": 1, "blocked": 1, "complaint": 2}
    counts = {word: count for word, count in session["counts"].items() if count}
    assert counts == {"sent": 2, "delivered": 1, "bounced": 2}, "a complaint is no state of a letter"
    its, _ = finished(other, vendor.row, [accepted("v-9")])
    assert other.get(its["self"]).json()["events"] == NONE
