"""Every page, in light and dark and on four widths: no wider than its window, and axe finds no barrier in it.

axe-core is no dependency, and all looks take minutes. So they are taken where MAILHUB_AXE is the path of its script
(CONTRIBUTING.md). Without that each page has an address and rows to show; with MAILHUB_NIGHTLY=1 each is asked for.
MAILHUB_PAGES chooses pages by a part of their names.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from playwright.sync_api import Page

from tests.browser import every_page
from tests.browser.conftest import THEMES, Browsing
from tests.front.program import fresh
from tests.plugin import NIGHTLY

__all__ = ["fresh"]
AXE, ONLY = os.environ.get("MAILHUB_AXE"), os.environ.get("MAILHUB_PAGES", "")
WIDTHS = (390, 768, 1280, 1920)
WIDE = """() => {
  if (document.scrollingElement.scrollWidth <= window.innerWidth) return []
  const right = (one) => one.getBoundingClientRect().right
  const out = [...document.querySelectorAll("body *")].filter((one) => right(one) > window.innerWidth + 1)
  return ["page", ...out.map((one) => `${one.tagName}.${one.className}`).slice(-4)]
}"""
FAULTS = """async () => {
  const found = await axe.run(document, {resultTypes: ["violations"], iframes: false})
  const why = (node) => (node.any[0] || node.all[0] || node.none[0] || {message: ""}).message
  return found.violations.map((one) => [one.id, one.impact, one.nodes.length,
    ...one.nodes.slice(0, 3).map((node) => `${node.target} ${node.html.slice(0, 120)} ${why(node).slice(0, 150)}`)])
}"""
SEND = """([path, fields]) => {
  const form = document.createElement("form")
  const token = document.querySelector("[name=csrfmiddlewaretoken]").value
  Object.assign(form, {method: "post", action: path})
  for (const [name, value] of Object.entries({...fields, csrfmiddlewaretoken: token})) {
    form.append(Object.assign(document.createElement("input"), {name, value}))
  }
  document.body.append(form)
  form.submit()
}"""


@pytest.mark.django_db
def test_each_page_is_there_with_something_on_it(fresh: None, admin_client: Client) -> None:
    rows = every_page.rows(admin_client)
    assert every_page.missing() == []
    wrong = {}
    pages, others = every_page.owners(rows), every_page.operators(rows)
    assert not [path for path in (*pages.values(), *others.values()) if "<" in path]
    if not (AXE or NIGHTLY):  # by day test_live_pages.py asks for most of them
        return
    for name, path in (pages | others).items():
        client = Client() if name in every_page.LOGGED_OUT else admin_client
        status = client.get(path).status_code
        if status != (404 if path in every_page.NOWHERE else 200):
            wrong[name] = (path, status)
    for name, (path, fields) in every_page.pressed(rows).items():
        status = (Client() if name in every_page.LOGGED_OUT else admin_client).post(path, fields).status_code
        if status not in ((200, 409, 422) if name.endswith("-mistake") else (200,)):
            wrong[name] = (path, status)
    assert not wrong, "\n".join(map(str, wrong.items()))


class Looking:
    """Opens pages in a window of each kind of visitor, and takes down what is wrong with them."""

    def __init__(self, window: Browsing, visitor: Browsing) -> None:
        self._window, self._visitor = window, visitor
        self.pages, self.looks, self.wrong = 0, 0, dict[str, Any]()

    def at(self, name: str, open_it: Callable[[Page], Any], language: str = "en") -> None:
        if ONLY not in name:
            return
        self.pages += 1
        of = self._visitor if name in every_page.LOGGED_OUT else self._window
        of.page.context.add_cookies([{"name": "django_language", "value": language, "url": of.home}])
        open_it(of.page)
        for width in WIDTHS if language == "en" else WIDTHS[:1]:
            of.resize(width)
            for theme in THEMES:
                of.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
                self._look(of, f"{name}-{width}-{theme}-{language}")

    def _look(self, of: Browsing, name: str) -> None:
        self.looks += 1
        found = [*of.page.evaluate(WIDE), *of.page.evaluate(FAULTS)]
        of.screenshot(name)
        if found:
            self.wrong[name] = found
            sys.stderr.write(f"WRONG {name}: {found}\n")


FADING = """() => [...document.querySelectorAll("body *")].filter((one) => {
  const style = getComputedStyle(one)
  return /all|color|background|border|fill/.test(style.transitionProperty) && /[1-9]/.test(style.transitionDuration)
}).map((one) => `${one.tagName}.${one.className}`)"""


@pytest.mark.parametrize("path", ["/admin/", "/admin/vendors/vendor/add/", "/", "/campaigns/new/"])
@pytest.mark.django_db(transaction=True)
def test_a_change_of_the_theme_changes_all_colours_at_once(window: Browsing, path: str) -> None:
    """Text that fades from one ground to the other cannot be read on either for a moment."""
    assert window.open(path).evaluate(FADING) == []


@pytest.fixture
def looking(window: Browsing) -> Iterator[Looking]:
    browser = window.page.context.browser
    assert browser
    nobody = browser.new_context(locale="en-GB")
    for of in (nobody, window.page.context):
        of.add_init_script(path=str(AXE))  # also in a page that loads itself again
    yield Looking(window, Browsing(nobody.new_page(), window.home))
    nobody.close()
    window.console.clear()  # 404 and 403 are meant; a frame with a letter says what it may not do
    window.strangers.clear()


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not AXE, reason="MAILHUB_AXE names no script of axe-core")
@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize(("whose", "part"), [("owners", 0), ("owners", 1), ("operators", 0), ("operators", 1)])
@pytest.mark.django_db(transaction=True)
def test_each_page_fits_and_has_no_barrier(
    fresh: None, client: Client, looking: Looking, live_server: Any, whose: str, part: int, language: str
) -> None:
    """Every second one, so that two processes have half of it each."""
    rows, home = every_page.rows(client), live_server.url
    pages = (every_page.owners if whose == "owners" else every_page.operators)(rows)
    for name, path in list(pages.items())[part::2]:
        looking.at(name, lambda page, path=path: page.goto(home + path), language)  # type: ignore[misc]

    def press(page: Page, path: str, fields: dict[str, Any]) -> None:
        page.goto(f"{home}/")
        with page.expect_navigation():
            page.evaluate(SEND, [path, fields])

    def shown(page: Page, status: int, body: bytes) -> None:
        page.route("**/broken/", lambda route: route.fulfill(status=status, body=body, content_type="text/html"))
        page.goto(f"{home}/broken/")
        page.unroute("**/broken/")

    mine = {n: sent for n, sent in every_page.pressed(rows).items() if n.startswith("admin-") == (whose == "operators")}
    for name, (path, fields) in mine.items():
        looking.at(name, lambda page, path=path, fields=fields: press(page, path, fields), language)  # type: ignore[misc]
    mine = dict(list(mine.items())[part::2])
    broken = every_page.errors(language) if whose == "owners" and not part else {}
    for name, (status, body) in broken.items():
        looking.at(name, lambda page, status=status, body=body: shown(page, status, body), language)  # type: ignore[misc]
    sys.stderr.write(f"{whose}, {language}: {looking.pages} pages, {looking.looks} looks\n")
    assert not looking.wrong, "\n".join(map(str, looking.wrong.items()))
