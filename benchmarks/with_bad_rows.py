"""A list with three bad rows, sent by an owner in a browser: clicks, pages and seconds (docs/comparison.md).

`python -m benchmarks.with_bad_rows [rows] [rounds]`. `up` runs the shipped Procfile. Chromium logs in as a campaign
owner, makes the campaign, and follows its page; mails go by SMTP to Postfix's smtp-sink. Seconds count from the click
on "New campaign". Typing takes no time here; a person needs longer.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from benchmarks import smtp, smtp_sink
from benchmarks.installation import Installation, end_at_sigterm
from benchmarks.results import keep
from benchmarks.smtp_sink import SmtpSink
from benchmarks.stage import console, numbers, stage
from tests.plain_browser import PlainBrowser, by_socket
from tests.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

PASSWORD = "a long pass phrase"
BAD = ["no address,Cy", "neither this,Dee", "nor@this@one,Eli"]
CHECKED, ON_ITS_WAY = "the bad rows are shown", "it is on its way"
SENT, ENDED = "the last mail", "its page says the end"


class Measured:
    """The clicks, pages and seconds of one campaign."""

    def __init__(self, page: "Page") -> None:
        self.page = page
        self.clicks: list[str] = []
        self.paths: list[str] = []
        self.seconds: dict[str, float] = {}
        self.began = 0.0

    def click(self, on: "Locator") -> None:
        self.began = self.began or time.monotonic()
        self.clicks.append(on.inner_text())
        on.click()

    def seen(self, what: str, sign: "Locator") -> None:
        sign.wait_for(timeout=600_000)
        self.seconds[what] = time.monotonic() - self.began

    def between(self) -> None:
        """Record a page other than the first one and the campaign's."""
        path = urlsplit(self.page.url).path
        if path not in self.paths:
            self.paths.append(path)


def a_list(rows: int, folder: Path) -> Path:
    file = folder / "list.csv"
    good = (f"person{n}@example.org,Ann {n}" for n in range(rows - len(BAD)))
    file.write_text("\n".join(["email,first_name", *good, *BAD]) + "\n")
    return file


def campaign(page: "Page", relay: SmtpSink, file: Path, good: int, home: str) -> Measured:
    page.goto(home)
    relay.begin()
    it = Measured(page)
    it.click(page.get_by_role("link", name="New campaign").first)
    page.get_by_label("Name of the campaign").fill("May")
    it.between()
    page.get_by_label("Subject").fill("Hello {{ first_name }}")
    page.get_by_label("Text", exact=True).fill("Good day {{ first_name }}")
    it.click(page.get_by_role("button", name="Keep, and go on"))
    page.get_by_label("A spreadsheet").set_input_files(file)
    leave_out = page.get_by_role("button", name=f"Leave these {len(BAD)} rows out, and go on")
    it.seen(CHECKED, leave_out)
    it.between()
    it.click(leave_out)
    send = page.get_by_role("button", name=f"Send to {good:,} recipients")
    send.wait_for()
    it.between()
    it.click(send)
    it.seen(ON_ITS_WAY, page.get_by_text(f"on its way to {good:,} recipients"))
    it.seen(ENDED, page.get_by_text("It has been sent to everybody."))
    wait_until(lambda: relay.count >= good, "smtp-sink has counted")
    it.seconds[SENT] = relay.last() - it.began
    assert relay.count == good, f"{relay.count:,} mails of {good:,}"
    return it


@contextlib.contextmanager
def owner(home: str) -> Iterator["Page"]:
    """Yield a browser page of a campaign owner who has logged in."""
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import CHROMIUM, FLAGS

    with sync_playwright() as playwright:
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # playwright's loop runs in this thread; nothing awaits the rows
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(locale="en-GB")
        page.goto(home)
        page.get_by_label("User name").fill("ann")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("button", name="Log out").wait_for()
        yield page
        browser.close()


def owner_and_vendor(port: int) -> None:
    from django.contrib.auth.models import Group, User

    from mailhub import installation
    from tests import factories

    installation.create_groups()
    ann = User.objects.create_user("ann", password=PASSWORD)
    ann.groups.add(Group.objects.get(name="campaign owner"))
    factories.sponsor("Velma").users.add(ann)
    smtp.login(port)


def answers(home: str) -> bool:
    with contextlib.suppress(OSError):
        browser = PlainBrowser(by_socket(home))
        browser.open("/login/")
        return browser.status == 200
    return False


def main() -> None:
    rows, rounds = numbers(10_000, 3)
    end_at_sigterm()
    with stage(), smtp_sink.running() as relay, tempfile.TemporaryDirectory() as folder:
        if relay is None:
            return
        owner_and_vendor(relay.port)
        file, at = a_list(rows, Path(folder)), Installation()
        home = f"http://127.0.0.1:{at.environment['PORT']}"
        with at.up():
            wait_until(lambda: answers(home), "the web server answers", every=0.2)
            with owner(home) as page:
                done = [campaign(page, relay, file, rows - len(BAD), home) for _ in range(rounds)]
    seconds = {what: [one.seconds[what] for one in done] for what in (CHECKED, ON_ITS_WAY, SENT, ENDED)}
    counts = {"clicks": [float(len(one.clicks)) for one in done], "pages": [float(len(one.paths)) for one in done]}
    keep(f"{rows:,} rows, three of them bad, by the browser", "s", seconds)
    keep(f"{rows:,} rows, three of them bad: clicks and pages between", "", counts)
    console.print(f"{rows:,} rows, three of them bad; load of the machine {os.getloadavg()[0]:.1f}")
    console.print(f"  clicks: {', '.join(done[0].clicks)}")
    for what, measured in {**counts, **seconds}.items():
        console.print(f"  {what:30} {', '.join(f'{one:.1f}' for one in measured)}")


if __name__ == "__main__":
    main()
