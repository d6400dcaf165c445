"""The operators' list of jobs in a real browser."""

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from tests import factories
from tests.browser.conftest import Desk
from tests.campaigns.rows import accepted, family, in_doubt, logged, refused

pytestmark = pytest.mark.django_db(transaction=True)
JOBS = "/admin/campaigns/job/"


@pytest.fixture
def night() -> None:
    """An evening as operators see it: all states, long names, a parent in parts."""
    vendor = factories.vendor("amazingmail", limits=[(5, 60)], casters=["large-only"])
    vendor.refresh_from_db()
    login = factories.credential(vendor)
    velma, hooli = factories.sponsor("Velma"), factories.sponsor("Hooli and Sons of the Very Long Name, Incorporated")
    for status in ("RENDERED", "DISPATCHED", "SENDING", "STOPPED"):
        factories.campaign_with_job(30, of=login, by=velma, status=status)
    logged(8, [accepted()] * 5 + [refused(), refused(), in_doubt()])
    long = factories.campaign(1000, of=login, by=hooli, name="Appointmentreminderwithoutanyspaceinit" * 3)
    factories.job(long, "READY")
    factories.campaign_with_job(9, of=login, by=hooli, created_at=timezone.now() - timedelta(days=30))
    family(parent="P_ASSIGNING", remaining=40, children=["LOGGED", "SENDING", "DISPATCHED"], each=20)


class TestLookingUp:
    @pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
    def test_the_list_fits_its_window(self, desk: Desk, night: None, width: int, theme: str) -> None:
        desk.page.set_viewport_size({"width": width, "height": 900})
        desk.page.emulate_media(color_scheme=theme)
        page = desk.open(JOBS)
        expect(page.locator("tr.job")).to_have_count(7)
        page.get_by_text("3 parts of job").click()
        expect(page.locator(".cut a")).to_have_count(3)
        desk.picture(f"jobs-{width}-{theme}")
        assert not desk.overflows()
