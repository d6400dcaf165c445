"""A campaign owner finds one recipient's letter in a browser."""

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from campaigns.models import Message, MessageEvent
from tests.browser.conftest import Browsing
from tests.campaigns.rows import accepted, logged, refused

pytestmark = pytest.mark.django_db(transaction=True)


def test_one_box_tells_what_became_of_her_letters(window: Browsing) -> None:
    jobs = [logged(1, [shape]) for shape in (accepted("v-8f3c"), refused())]
    for job in jobs:
        Message.objects.filter(pk=job.first_message).update(recipient="ann@sandbox.example")
    MessageEvent.objects.create(
        message_id=jobs[0].first_message, campaign=jobs[0].campaign, resend_no=0, kind="soft_bounce", source="vendor",
        at=timezone.now() + timedelta(minutes=5), code="4.2.2", note="mailbox full",
    )  # fmt: skip
    page = window.open("/find/")
    page.get_by_role("searchbox").fill("Ann@sandbox.example")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Soft bounce")).to_be_visible()
    expect(page.get_by_text("Refused by the vendor")).to_be_visible()
    for width in (1280, 390):
        window.resize(width)
        window.fits("find")
