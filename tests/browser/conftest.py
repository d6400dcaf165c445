"""A real browser for the operators' stories: Debian's Chromium, driven by playwright. Skipped where there is none."""

import os
import shutil
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Literal

import pytest
from django.contrib.auth.models import Group, User
from playwright.sync_api import Browser, ConsoleMessage, Error, Locator, Page, Request, expect, sync_playwright
from playwright.sync_api import TimeoutError as Waited

from campaigns.models import Sponsor
from tests.waiting import their_waits, wait_until

# The shell is the same Chromium without the windows of a desktop, which take half of a processor's time.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, PROGRAMS)), None)
STOPS = 200  # of the tab key on one page
PATIENCE = 120_000  # milliseconds; a loaded machine takes its time
expect.set_options(timeout=PATIENCE)
WIDTHS = pytest.mark.parametrize("width", [1280, 390])
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
FLAGS = ["--no-sandbox", "--lang=en-US", "--disable-dev-shm-usage", "--disable-gpu"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow("programs"))
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason="no chromium here: install the package chromium to run it"))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    with their_waits(in_vain):
        return (yield)


def in_vain(error: Exception) -> bool:
    """Whether playwright has waited for it all its patience; what a test itself asserts is not waited for."""
    where = traceback.extract_tb(error.__traceback__)[-1].filename
    return isinstance(error, Waited) or (isinstance(error, AssertionError) and "playwright" in Path(where).parts)


# While it is open, no test of the same process can run an event loop, and Django's connection is another one: the
# database is made before by the connection that removes it.
@pytest.fixture(scope="module")
def browser(django_db_setup: object) -> Iterator[Browser]:
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    with sync_playwright() as playwright:
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # playwright's loop runs in this thread; nothing awaits the rows
        try:
            try:
                running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE)
            except Error as why:
                pytest.skip(f"{CHROMIUM} cannot be started here: {why.message.splitlines()[0]}")
            yield running
            running.close()
            let_go()
        finally:
            os.environ.pop("DJANGO_ALLOW_ASYNC_UNSAFE")
            if before is not None:
                os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before


def let_go() -> None:
    """The server's threads end when their browser has gone, and with them their sessions on the test database."""
    wait_until(
        lambda: not any("process_request_thread" in one.name for one in threading.enumerate()),
        "the server's threads have ended",
    )


WITHOUT_EDGE = """[...document.querySelectorAll(".owners .button.second")]
    .filter((one) => one.offsetParent && getComputedStyle(one).borderTopWidth === "0px")
    .map((one) => one.textContent)"""


class Browsing:
    """An operator's browser window: logged in, with an eye on what no page may do."""

    def __init__(self, page: Page, home: str) -> None:
        self.page, self.home = page, home
        self.console: list[str] = []
        self.strangers: list[str] = []
        page.context.set_default_timeout(PATIENCE)  # also of pages that it opens
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console.append(message.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.home, "data:")):
            self.strangers.append(request.url)

    def open(self, path: str) -> Page:
        self.page.goto(self.home + path)
        return self.page

    def follow(self, wanted: Locator) -> None:
        """Clicks what leads to another page; until that has loaded, its scripts do not know what is done there."""
        with self.page.expect_navigation():
            wanted.click()

    def come_back(self) -> None:
        """As somebody who was in another tab; to playwright a page never loses the focus."""
        self.page.evaluate("window.dispatchEvent(new Event('focus'))")

    def screenshot(self, name: str) -> None:
        """A screenshot in the folder MAILHUB_SCREENSHOTS, if that is set."""
        if folder := os.environ.get("MAILHUB_SCREENSHOTS"):
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)

    def tab_to(self, wanted: Locator, back: bool = False) -> None:
        """By the tab key alone, as somebody without a mouse; where the keys stop, it is seen."""
        self.page.wait_for_load_state()
        for _ in range(STOPS):
            if wanted.evaluate("one => one === document.activeElement"):
                assert wanted.evaluate("one => getComputedStyle(one).outlineStyle") != "none", "nobody sees the focus"
                return
            self.page.keyboard.press("Shift+Tab" if back else "Tab")
        raise AssertionError(f"{STOPS} times Tab do not reach {wanted}")

    def choose(self, wanted: str, box: Locator) -> None:
        """In a list box, by the arrow keys alone: letters count as one word only if they come fast."""
        self.tab_to(box)
        for _ in range(box.locator("option").count()):
            if box.input_value() == wanted:
                return
            self.page.keyboard.press("ArrowDown")
        raise AssertionError(f"the arrow keys do not reach {wanted}")

    def resize(self, width: int) -> None:
        self.page.set_viewport_size({"width": width, "height": 900})

    def fits(self, name: str) -> None:
        """In light and in dark: a screenshot; the page, once it is there, is not wider than its window, and each
        secondary button has an edge."""
        self.page.wait_for_load_state()
        for theme in THEMES:
            self.page.emulate_media(color_scheme=theme)
            self.screenshot(f"{name}-{self.page.evaluate('window.innerWidth')}-{theme}")
            assert not self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1"), (name, theme)
            assert self.page.evaluate(WITHOUT_EDGE) == [], (name, theme)
            self.accessible(f"{name}, {theme}")

    def accessible(self, name: str) -> None:
        """Asks axe-core, if MAILHUB_AXE is the path of its script."""
        if script := os.environ.get("MAILHUB_AXE"):
            self.page.evaluate(Path(script).read_text())
            found = self.page.evaluate("axe.run().then((answer) => answer.violations)")
            faults = [(one["id"], one["impact"], [node["target"] for node in one["nodes"]][:5]) for one in found]
            assert not faults, (name, faults)


@pytest.fixture
def served(live_server) -> Iterator[str]:
    """The server's address. It does nothing any more when the rows are put back; a poll may have been on its way."""
    yield live_server.url
    let_go()


@pytest.fixture
def window(browser: Browser, served: str, client) -> Iterator[Browsing]:
    """Logged in as a superuser by a session of its own."""
    user = User.objects.create(username="ann", is_staff=True, is_superuser=True)
    client.force_login(user)
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB", color_scheme="light")
    cookie = client.cookies["sessionid"].value
    context.add_cookies([{"name": "sessionid", "value": cookie, "url": served}])
    opened = Browsing(context.new_page(), served)
    try:
        yield opened
    finally:
        context.close()
    assert opened.console == []
    assert opened.strangers == []


PASSWORD = "a long pass phrase"
LoggedIn = Callable[..., Browsing]


@pytest.fixture
def logged_in(browser: Browser, served: str) -> Iterator[LoggedIn]:
    """Opens windows of new users of these groups and this sponsor, who log in through the form.

    scripts=False: their browser runs none.
    """
    opened: list[Browsing] = []

    def one(name: str, *groups: str, of: Sponsor, page: str = "/", scripts: bool = True) -> Browsing:
        staff = page.startswith("/admin/")
        user = User.objects.create_user(name, f"{name}@own.example", PASSWORD, is_staff=staff)
        user.groups.set(Group.objects.filter(name__in=groups))
        of.users.add(user)
        context = browser.new_context(
            viewport={"width": 1280, "height": 900}, locale="en-GB", color_scheme="light", java_script_enabled=scripts
        )
        opened.append(Browsing(context.new_page(), served))
        log_in(opened[-1], name, page)
        return opened[-1]

    try:
        yield one
    finally:
        for window in opened:
            window.page.context.close()
    for window in opened:
        assert window.console == []
        assert window.strangers == []


def log_in(window: Browsing, name: str, page: str = "/") -> None:
    """Opens the page, which asks for a login first."""
    shown = window.open(page)
    shown.get_by_label("User name").or_(shown.get_by_label("Username")).fill(name)
    shown.get_by_label("Password").fill(PASSWORD)
    shown.get_by_role("button", name="Log in").click()
    expect(shown).to_have_url(window.home + page)
    shown.wait_for_load_state()
