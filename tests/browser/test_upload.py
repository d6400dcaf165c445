"""Uploads of a large list over a slow line: the bar moves and is announced, and a broken upload is reported."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from campaigns.models import Draft
from tests import factories
from tests.browser.conftest import Browsing, let_go

pytestmark = pytest.mark.django_db(transaction=True)
ROWS, LONG = 30_000, "with a long name " * 25  # 13 MB; rows are checked, one by one
SMALL_BUFFER = 65_536  # bytes; a part of the list has to wait in the browser
RESET = struct.pack("ii", 1, 0)  # closing a connection with this resets it
SEEN = """() => {
  window.seen = []
  const bar = document.querySelector("[data-progress] progress")
  new MutationObserver(() => window.seen.push(bar.value)).observe(bar, {attributes: true})
}"""
POLLS_SAID = "() => document.addEventListener('htmx:beforeRequest', () => console.log('a poll'))"  # asked or not
MIDWAY = "() => window.seen.some((one) => one > 0 && one < 100)"


@pytest.fixture(autouse=True)
def ended(browser: Browser) -> Iterator[None]:
    """Once browser and line have gone: the server reads no broken upload while the next test begins."""
    yield
    let_go()


class SlowLine:
    """A line to the server that can be held: a set number of bytes of each connection pass, then none until it is free.

    url: of the server, by this line.
    """

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self._to = parts.hostname or "", parts.port or 0
        self._listening = socket.create_server((self._to[0], 0))
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)  # its connections have it, too
        self.url = f"http://{self._to[0]}:{self._listening.getsockname()[1]}"
        self._most, self._free, self._open = 0, threading.Event(), set[socket.socket]()
        self._closed, self._lock = False, threading.Lock()
        self._free.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, after: int) -> None:
        self._most = after
        self._free.clear()

    def let_go(self) -> None:
        self._free.set()

    def cut(self) -> None:
        """Resets all connections, on which nothing more passes."""
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            self._open.clear()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._listening.close()
        self.cut()
        self.let_go()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                with self._lock:
                    if self._closed:  # it came just before the end
                        near.close()
                        return
                    far = socket.create_connection(self._to)
                    self._open |= {near, far}
                for pair in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, held: bool) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while part := source.recv(SMALL_BUFFER):
                passed += len(part)
                if held and passed > self._most:
                    self._free.wait()
                target.sendall(part)
            target.shutdown(socket.SHUT_WR)


@pytest.fixture
def line(window: Browsing) -> Iterator[SlowLine]:
    made = SlowLine(window.home)
    window.home = made.url
    yield made
    made.close()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    file = tmp_path / "large.csv"
    lines = (f"reader{n}@sandbox.example,A reader {LONG}{n}" for n in range(ROWS))
    file.write_text("\n".join(["email,Given", *lines]) + "\n")
    return file


@pytest.fixture
def page(window: Browsing, line: SlowLine) -> Iterator[Page]:
    """The second step of a draft that has a small list already."""
    factories.sponsor("Acme")
    factories.credential(factories.vendor(casters=None))
    page = window.open("/campaigns/new/")
    page.get_by_label("Name of the campaign").fill("May")
    page.get_by_label("Subject").fill("Hello")
    page.get_by_label("Text", exact=True).fill("Good day {{ first_name }}")
    window.follow(page.get_by_role("button", name="Keep, and go on"))
    small = {"name": "small.csv", "mimeType": "text/csv", "buffer": b"email,Given\nann@sandbox.example,Ann\n"}
    page.get_by_label("A spreadsheet").set_input_files(small)  # type: ignore[arg-type]
    expect(page.get_by_role("heading", name="Take another list")).to_be_visible()
    yield page
    page.goto("about:blank")  # it asks how far the check is; what the browser notes of a last question has come by then
    window.console[:] = [one for one in window.console if "Failed to load" not in one and "htmx:" not in one]


def on_its_way(page: Page, line: SlowLine, large: Path) -> None:
    page.evaluate(SEEN)
    line.hold(after=large.stat().st_size // 10)
    page.get_by_label("A spreadsheet").set_input_files(large)
    page.wait_for_function(MIDWAY)


def test_the_bar_of_a_large_upload_moves_forward_and_is_announced(
    window: Browsing, page: Page, line: SlowLine, large: Path
) -> None:
    bar = page.get_by_role("progressbar", name="How much is uploaded")
    expect(bar).to_have_count(0)
    on_its_way(page, line, large)
    expect(bar).to_be_visible()
    expect(page.get_by_role("button", name="Upload and check")).to_be_disabled()
    for width in (390, 1280):
        window.resize(width)
        window.fits("wizard-upload")
    assert Draft.objects.get().list_name == "small.csv"
    line.let_go()
    expect(page.get_by_text("large.csv").first).to_be_visible()
    seen = page.evaluate("window.seen")
    assert seen == sorted(seen) and seen[-1] == 100
    assert Draft.objects.get().list_name == "large.csv"


def test_a_page_that_loads_itself_again_asks_nothing_meanwhile(page: Page) -> None:
    """The answer would begin the loading anew; on a slow line it would never end."""
    asked, held = list[str](), list[Route]()
    Draft.objects.update(busy=Draft.CHECKING)
    page.reload()
    expect(page.get_by_text("small.csv is being checked")).to_be_visible()
    page.evaluate(POLLS_SAID)
    page.on("request", lambda request: asked.append(request.url))
    page.route("**/recipients/", lambda route: held.append(route))
    with page.expect_request("**/recipients/"):
        Draft.objects.update(busy="")
    before = len(asked)
    for _ in range(2):
        page.wait_for_event("console", lambda message: message.text == "a poll")
    assert asked[before:] == []
    held[0].continue_()
    expect(page.get_by_role("heading", name="Take another list")).to_be_visible()


def test_an_upload_that_is_cut_off_says_so_keeps_what_was_typed_and_is_sent_again(
    window: Browsing, page: Page, line: SlowLine, large: Path
) -> None:
    page.get_by_label("The name of Given in the message").fill("first_name")
    on_its_way(page, line, large)
    line.cut()
    alert = page.get_by_role("alert").filter(has_text="The list did not arrive")
    expect(alert).to_be_visible()
    for width in (390, 1280):
        window.resize(width)
        window.fits("wizard-cut-off")
    expect(page.get_by_role("progressbar", name="How much is uploaded")).to_have_count(0)
    expect(page.locator("#cut-off")).to_have_count(0)
    expect(page.get_by_label("The name of Given in the message")).to_have_value("first_name")
    assert page.get_by_label("A spreadsheet").evaluate("one => one.files[0].name") == "large.csv"
    assert Draft.objects.get().list_name == "small.csv"
    line.let_go()
    page.get_by_role("button", name="Upload and check").click()
    expect(page.get_by_text("large.csv").first).to_be_visible()
    expect(alert).to_have_count(0)
    assert Draft.objects.get().list_name == "large.csv"
