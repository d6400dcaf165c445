"""Takes the pictures in docs/pictures/: the real pages with the demo's data, by headless Chromium (make docs-pictures).

It plays `manage.py demo`, adds some work that lasts (a job under a tight limit, one for the night, a stopped one, one
with answers lost for good), and makes campaigns as the demo's owner, with one waiting for its approver. Then it takes
each page. The demo has a home of its own and ends with this program.
"""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
LISTS = ROOT / "sandbox" / "demo"
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, PROGRAMS)), None)
FLAGS = ["--no-sandbox", "--lang=en-US", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"]
WIDTH, HEIGHT = 1280, 800
COLOURS_LEFT = 128  # in a picture
OWNERS = {"drafts": "drafts/", "templates": "templates/", "suppressions": "suppressions/", "senders": "senders/"}
OWNERS |= {"suppression-import": "suppressions/import/", "topics": "senders/topics/"}
OPERATORS = {
    "campaigns": "campaigns/campaign/",
    "messages": "campaigns/message/",
    "vendors": "vendors/vendor/",
    "costs": "campaigns/costentry/",
}
PATIENCE = 600.0  # seconds for anything, since a loaded machine takes its time
NEXT_STEPS = re.compile(
    r"Try it in a browser: (?P<pages>http://\S+/)\s.*?password (?P<password>\S+)\s.*?(?P<admin>http://\S+/)admin/\s.*?"
    r"(?P<api>http://\S+/docs)\s.*?(?P<flower>http://\S+/)\s",
    re.DOTALL,
)
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Demo:
    """The demo after its story: the addresses of its pages, and its command line."""

    def __init__(self, home: Path, said: re.Match[str]) -> None:
        self.home = home
        self.home_page = said["pages"]
        self.admin, self.api, self.flower = said["admin"], said["api"], said["flower"]
        self.password = said["password"]

    def manage(self, *words: str) -> str:
        environment = {**os.environ, "MAILHUB_HOME": str(self.home / "demo"), "COLUMNS": "100"}
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"manage.py {' '.join(words)}: {done.stderr or done.stdout}")
        return done.stdout

    def send(self, file: str, vendor: str, name: str, *more: str) -> str:
        """Return the new job's number."""
        words = ["--vendor", vendor, "--name", name, "--subject", name, "--body", str(LISTS / "news.txt"), "--json"]
        return str(
            json.loads(self.manage("send_campaign", str(LISTS / file), "--sponsor", "Velma", *words, *more))["job"]
        )

    def job(self, number: str) -> dict[str, Any]:
        rows = map(json.loads, self.manage("list_jobs", "--json").splitlines())
        return next(row for row in rows if str(row["id"]) == number)


@contextmanager
def demo() -> Iterator[Demo]:
    """Play the demo on its own terminal, where it stays up; press Ctrl-C at the end."""
    with tempfile.TemporaryDirectory(prefix="mailhub-pictures-") as folder:
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(ROOT)
            os.environ |= {"MAILHUB_HOME": folder, "TERM": "xterm", "COLUMNS": "120", "LINES": "24"}
            os.execv(sys.executable, [sys.executable, "manage.py", "demo", "--recipients", "6000"])  # noqa: S606
        try:
            yield Demo(Path(folder), _heard(terminal))
        finally:
            with suppress(OSError):
                os.kill(pid, signal.SIGINT)
                while os.read(terminal, 65536):  # it prints its shutdown, and a full terminal would block it
                    pass
            os.waitpid(pid, 0)


def _heard(terminal: int) -> re.Match[str]:
    """Return the demo's closing message."""
    text = ""
    while True:
        try:
            text += ESCAPES.sub("", os.read(terminal, 65536).decode(errors="replace"))
        except OSError:
            raise SystemExit(f"The demo has ended:\n{text}") from None
        if "Ctrl-C stops everything" in text and (found := NEXT_STEPS.search(text)):
            return found


def wait_until(true: Callable[[], bool], what: str) -> None:
    sys.stdout.write(f"Waiting: {what}\n")
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end:
            raise SystemExit(f"In {PATIENCE:g} s not: {what}")
        time.sleep(0.5)


def work(running: Demo) -> dict[str, str]:
    """Make jobs in all kinds of states. Returns them by purpose."""
    post = json.loads(running.manage("vendor", "show", "post-office", "--json"))
    url = f"url={post['settings']['url']}"
    terms = ["--limit", "100/1", "--threshold", "1000"]
    running.manage("vendor", "add", "paper-mill", "--name", "Paper Mill", "--adapter", "http", "--set", url, *terms)
    running.manage("entitlement", "add", "Velma", "paper-mill")
    running.manage("vendor", "set", "amazing-mail", "--threshold", "1000")
    running.manage("sponsor", "set", "Velma", "--approval-above=")
    lost = running.send("spring-news.csv", "paper-mill", "Spring news in print", "--at", "now")
    stopped = running.send("members.csv", "amazing-mail", "Members, second letter", "--at", "now")
    wait_until(lambda: running.job(lost)["in_doubt"] > 0, "answers are lost")
    wait_until(lambda: running.job(stopped)["accepted"] > 0, "the job that is to be stopped has begun")
    running.manage("stop_job", stopped, "--reason", "the letter names the wrong year")
    night = running.send("members.csv", "paper-mill", "Invitation")
    sending = running.send("members.csv", "amazing-mail", "Programme in print", "--at", "now")
    wait_until(lambda: running.job(sending)["accepted"] >= 20, "the job that is being sent has begun")
    running.manage("sponsor", "set", "Velma", "--approval-above=100")
    return {"lost": lost, "stopped": stopped, "night": night, "sending": sending}


def look(browser: Browser, running: Demo, jobs: dict[str, str]) -> None:
    window = _window(browser)
    page = window.new_page()
    page.goto(f"{running.admin}admin/")
    page.fill("input[name=username]", "demo")
    page.fill("input[name=password]", running.password)
    keep(page, "login", 420)
    page.click("input[type=submit]")
    page.click("#toggle-nav-sidebar")
    page.get_by_text("asking them").wait_for(state="detached")
    keep(page, "operations")
    page.goto(f"{running.admin}admin/campaigns/job/")
    page.wait_for_selector("tr.job")
    keep(page, "jobs")
    page.goto(f"{running.admin}admin/campaigns/job/{jobs['sending']}/change/")
    keep(page, "job")
    page.goto(f"{running.admin}admin/campaigns/job/{jobs['lost']}/change/")
    page.get_by_text("Needs attention: 2").click()
    page.wait_for_selector("input.pick")
    keep(page, "needs-attention")
    for name, path in OPERATORS.items():
        page.goto(f"{running.admin}admin/{path}")
        keep(page, name)
    for name in ("vendor", "message"):
        page.goto(f"{running.admin}admin/{'vendors' if name == 'vendor' else 'campaigns'}/{name}/")
        page.locator("#result_list tbody th a").first.click()
        keep(page, name)
    page.goto(running.api)
    page.wait_for_selector(".opblock")
    keep(page, "api")
    window.close()
    window = _window(browser, http_credentials={"username": "demo", "password": running.password})
    page = window.new_page()
    page.goto(f"{running.flower.rstrip('/')}/tasks")
    page.wait_for_selector("#tasks-table tbody tr td:nth-child(2)")
    keep(page, "flower")
    window.close()


def look_as_owner(browser: Browser, running: Demo) -> None:
    """Take a campaign from its message to its report, and one that another person has to approve."""
    page = _logged_in(browser, running, "owner")
    _message(page, running, "Spring news")
    keep(page, "wizard-message", 1100)
    page.get_by_role("button", name="Keep, and go on").click()
    page.locator("#list").set_input_files(LISTS / "readers.csv")
    page.get_by_role("heading", name="Rows that cannot be sent").wait_for()
    keep(page, "wizard-recipients", 1000)
    page.get_by_role("button", name="Leave these 3 rows out, and go on").click()
    page.get_by_role("button", name="Send 10 e-mails").wait_for()
    keep(page, "wizard-check", 1100)
    page.goto(page.url.replace("check/", "preview/1/"))
    keep(page, "wizard-preview")
    page.go_back()
    page.get_by_role("button", name="Send 10 e-mails").click()
    page.get_by_text("10 of 10").first.wait_for()
    campaign = page.url
    keep(page, "campaign", 900)
    for name, path in {"report": "report/", "recipients": "recipients/"}.items():
        page.goto(f"{campaign}{path}")
        keep(page, f"campaign-{name}")
    _message(page, running, "Members' evening")
    page.get_by_role("button", name="Keep, and go on").click()
    page.locator("#list").set_input_files(LISTS / "members.csv")
    page.get_by_role("link", name="Go on", exact=True).click()
    page.get_by_role("button", name="Ask for approval to send").click()
    page.get_by_text("It waits").first.wait_for()
    waiting = page.url
    page.goto(f"{waiting}stop/")
    keep(page, "campaign-stop", 500)
    _message(page, running, "Summer programme")
    page.get_by_role("button", name="Keep", exact=True).click()
    page.goto(f"{running.home_page}templates/")
    page.get_by_role("link", name="Spring news").click()
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Subject").fill("Spring at Velma's, and what is new")
    keep(page, "template-edit", 900)
    page.get_by_role("button", name="Save").click()
    keep(page, "template", 900)
    page.goto(f"{page.url.partition('?')[0]}differences/")
    keep(page, "template-differences", 600)
    for name, path in OWNERS.items():
        page.goto(f"{running.home_page}{path}")
        keep(page, name, 700)
    page.goto(running.home_page)
    keep(page, "home", 900)
    page.goto(f"{running.home_page}find/")
    page.locator("#what").fill("ada.brook@sandbox.example")
    page.get_by_role("button", name="Find").click()
    keep(page, "find", 700)
    page.goto(f"{running.home_page}senders/")
    page.locator("table a").first.click()
    keep(page, "sender", 600)
    page.context.close()
    page = _logged_in(browser, running, "approver")
    page.goto(f"{running.home_page}approvals/")
    keep(page, "approvals", 500)
    page.goto(f"{waiting.partition('?')[0]}approval/")
    page.wait_for_load_state("networkidle")
    keep(page, "approval", 1300)
    page.context.close()
    page = _logged_in(browser, running, "owner", width=390, color_scheme="dark")
    page.goto(campaign)
    keep(page, "campaign-phone", 844)
    page.context.close()


def look_at_programs(browser: Browser, running: Demo) -> None:
    """Take webhooks and API keys, which are for integrators; here the operator is one, too."""
    page = _logged_in(browser, running, "demo")
    page.goto(f"{running.home_page}webhooks/add/")
    page.locator("#id_url").fill("https://crm.example.org/mailhub")
    keep(page, "webhook-add", 700)
    page.get_by_role("button", name="Add").click()
    page.goto(f"{running.home_page}webhooks/")
    keep(page, "webhooks", 500)
    page.goto(f"{running.home_page}keys/make/")
    page.get_by_role("button", name="Make").click()
    page.get_by_text("it is shown once").wait_for()
    page.goto(f"{running.home_page}keys/")
    keep(page, "keys", 500)
    page.context.close()


def _logged_in(browser: Browser, running: Demo, user: str, **more: Any) -> Page:
    page = _window(browser, **more).new_page()
    page.goto(f"{running.home_page}login/")
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", running.password)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(running.home_page)
    return page


def _message(page: Page, running: Demo, name: str) -> None:
    page.goto(f"{running.home_page}campaigns/new/")
    page.get_by_label("Name of the campaign").fill(name)
    vendor = page.locator("#id_by option", has_text="Post Office").first.get_attribute("value")
    page.locator("#id_by").select_option(vendor)
    page.get_by_label("Subject").fill(f"{name} from the library")
    page.get_by_label("Text", exact=True).fill("Good day {{ name }},\n\nthe library opens at nine from Monday on.\n")


def _window(browser: Browser, width: int = WIDTH, color_scheme: str = "light", **more: Any) -> BrowserContext:
    size: Any = {"width": width, "height": HEIGHT}
    scheme: Any = color_scheme
    return browser.new_context(viewport=size, locale="en-GB", color_scheme=scheme, **more)


def keep(page: Page, name: str, height: int = HEIGHT) -> None:
    """Save the top of the page at this height, with as few colours as look the same, to keep the picture small."""
    page.wait_for_load_state("networkidle") if name == "login" else page.wait_for_timeout(1000)
    width = page.viewport_size["width"] if page.viewport_size else WIDTH
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("scrollTo(0, 0)")
    path = PICTURES / f"{name}.png"
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(COLOURS_LEFT, dither=Image.Dither.NONE).save(path, optimize=True)
    page.set_viewport_size({"width": width, "height": HEIGHT})


def main() -> None:
    if CHROMIUM is None:
        raise SystemExit("The pictures need Chromium: install the package chromium")
    PICTURES.mkdir(exist_ok=True)
    sys.stdout.write("Playing the demo\n")
    with demo() as running:
        jobs = work(running)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            look_as_owner(browser, running)
            look_at_programs(browser, running)
            look(browser, running, jobs)
            browser.close()
    for picture in sorted(PICTURES.glob("*.png")):
        sys.stdout.write(f"{picture.relative_to(ROOT)}  {picture.stat().st_size // 1000} kB\n")


if __name__ == "__main__":
    main()
