"""Takes docs/pictures/ anew: the real pages with the demo's data, by a headless Chromium (make docs-pictures).

`python -m docs.tooling.screenshots`. It plays `manage.py demo`, adds some work that does not end at once (a job under a
tight limit, one for the night, one that is stopped, one with answers lost for good), and looks at each page. The demo
has a home of its own and ends with this program.
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

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
LISTS = ROOT / "sandbox" / "demo"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--lang=en-US", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"]
WIDTH, HEIGHT = 1280, 800
PATIENCE = 600.0  # seconds for anything; a loaded machine takes its time
NEXT_STEPS = re.compile(
    r"Try it in a browser: (?P<pages>http://\S+/)\s.*?password (?P<password>\S+)\s.*?(?P<admin>http://\S+/)admin/\s.*?"
    r"(?P<api>http://\S+/docs)\s.*?(?P<flower>http://\S+/)\s",
    re.DOTALL,
)
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Demo:
    """The demo when its story is over: where its pages are, and its command line."""

    def __init__(self, home: Path, said: re.Match[str]) -> None:
        self.home = home
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
        """The new job's number."""
        words = ["--vendor", vendor, "--name", name, "--subject", name, "--body", str(LISTS / "news.txt"), "--json"]
        return str(
            json.loads(self.manage("send_campaign", str(LISTS / file), "--sponsor", "Velma", *words, *more))["job"]
        )

    def job(self, number: str) -> dict[str, Any]:
        rows = map(json.loads, self.manage("list_jobs", "--json").splitlines())
        return next(row for row in rows if str(row["id"]) == number)


@contextmanager
def demo() -> Iterator[Demo]:
    """Play it on a terminal of its own, where it stays up; Ctrl-C at the end."""
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
                while os.read(terminal, 65536):  # it says how it ends; a full terminal would hold it up
                    pass
            os.waitpid(pid, 0)


def _heard(terminal: int) -> re.Match[str]:
    """What the demo says when it stays."""
    text = ""
    while True:
        try:
            text += COLOURS.sub("", os.read(terminal, 65536).decode(errors="replace"))
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
    """Jobs in all kinds of states, by what they are for."""
    post = json.loads(running.manage("vendor", "show", "post-office", "--json"))
    url = f"url={post['settings']['url']}"
    terms = ["--limit", "100/1", "--threshold", "1000"]
    running.manage("vendor", "add", "paper-mill", "--name", "Paper Mill", "--adapter", "http", "--set", url, *terms)
    running.manage("entitlement", "add", "Velma", "paper-mill")
    running.manage("vendor", "set", "amazing-mail", "--threshold", "1000")
    lost = running.send("spring-news.csv", "paper-mill", "Spring news in print", "--at", "now")
    stopped = running.send("members.csv", "amazing-mail", "Members, second letter", "--at", "now")
    wait_until(lambda: running.job(lost)["in_doubt"] > 0, "answers are lost")
    wait_until(lambda: running.job(stopped)["accepted"] > 0, "the job that is to be stopped has begun")
    running.manage("stop_job", stopped, "--reason", "the letter names the wrong year")
    night = running.send("members.csv", "paper-mill", "Invitation")
    sending = running.send("members.csv", "amazing-mail", "Programme in print", "--at", "now")
    wait_until(lambda: running.job(sending)["accepted"] >= 20, "the job that is being sent has begun")
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


def _window(browser: Browser, **more: Any) -> BrowserContext:
    size = {"width": WIDTH, "height": HEIGHT}
    return browser.new_context(viewport=size, locale="en-GB", color_scheme="light", **more)  # type: ignore[arg-type]


def keep(page: Page, name: str, height: int = HEIGHT) -> None:
    page.wait_for_load_state("networkidle") if name == "login" else page.wait_for_timeout(1000)
    page.screenshot(path=PICTURES / f"{name}.png", clip={"x": 0, "y": 0, "width": WIDTH, "height": height})


def main() -> None:
    if CHROMIUM is None:
        raise SystemExit("The pictures need Chromium: install the package chromium")
    PICTURES.mkdir(exist_ok=True)
    sys.stdout.write("Playing the demo\n")
    with demo() as running:
        jobs = work(running)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            look(browser, running, jobs)
            browser.close()
    for picture in sorted(PICTURES.glob("*.png")):
        sys.stdout.write(f"{picture.relative_to(ROOT)}  {picture.stat().st_size // 1000} kB\n")


if __name__ == "__main__":
    main()
