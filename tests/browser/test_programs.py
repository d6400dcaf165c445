"""Owners' pages of webhooks, API keys, suppressions and sender identities, in a real browser: they fit."""

from datetime import timedelta

import pytest
from django.utils import timezone

from campaigns.doors.front import keys
from campaigns.integrations.webhooks import events
from campaigns.models import Identity, WebhookCall
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from tests import factories
from tests.browser.conftest import WIDTHS
from tests.front.everything import everything
from tests.front.program import Program, api_vendor, fresh

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db(transaction=True)


@WIDTHS
def test_pages_of_programs_and_senders(window, width):
    sponsor = factories.sponsor()
    everything(Program(sponsor), api_vendor())
    WebhookCall.objects.filter(kind="message.sent").update(
        tries=4, http_status=503, result="HTTP 503", next_at=timezone.now() + timedelta(hours=2)
    )
    hook = WebhookCall.objects.first().webhook
    off, _ = events.create_webhook(sponsor, "https://old.example/hook", ["message.bounced"], test=True)
    events.disable_webhook(off, "the receiver answered 410 Gone")
    keys.create_key(sponsor, "test", ["read"], timezone.now() + timedelta(days=30))
    addresses = [
        NewSuppression("bob@example.com", "stop"),
        NewSuppression("eve@example.com", "complained", "campaign 4"),
    ]
    lists.add_suppressions(sponsor.pk, "email", addresses)
    identity = Identity.objects.create(
        sponsor=sponsor, name="news", channel="email", from_address="news@one.invalid", default=True
    )
    window.resize(width)
    for name, path in {
        "webhooks": "/webhooks/",
        "webhook": f"/webhooks/{hook.pk}/",
        "webhook-add": "/webhooks/add/",
        "keys": "/keys/",
        "key-make": "/keys/make/",
        "suppressions": "/suppressions/",
        "suppression-import": "/suppressions/import/",
        "identities": "/senders/",
        "identity": f"/senders/{identity.pk}/",
        "topics": "/senders/topics/",
    }.items():
        window.open(path)
        window.fits(name)
    page = window.open("/keys/make/")
    page.get_by_role("button", name="Make").click()
    page.get_by_text("it is shown once").wait_for()
    window.fits("key-made")
