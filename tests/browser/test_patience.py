"""What a test of the browser waited for in vain is a missed deadline; what it finds to be wrong is not."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import in_vain
from tests.waiting import DeadlineMissed, their_waits

pytestmark = pytest.mark.django_db(transaction=True)
BRIEFLY = 50  # milliseconds


def sold(page: Page) -> None:
    assert page.locator("p").inner_text() == "sold", "what is there at once is asserted"


@pytest.mark.parametrize(
    ("waits", "ends"),
    [
        (lambda page: expect(page.locator("p")).to_have_text("sold", timeout=BRIEFLY), DeadlineMissed),
        (lambda page: page.wait_for_selector("#later", timeout=BRIEFLY), DeadlineMissed),
        (lambda page: page.locator("#later").click(timeout=BRIEFLY), DeadlineMissed),
        (sold, AssertionError),
    ],
    ids=["expect", "wait_for", "click", "assert"],
)
def test_only_what_playwright_waited_for_is_late(browser: Browser, waits: Callable[[Page], object], ends: type) -> None:
    page = browser.new_page()
    page.set_content("<p>open</p>")
    with pytest.raises((DeadlineMissed, AssertionError)) as ended, their_waits(in_vain):
        waits(page)
    page.close()
    assert ended.type is ends
