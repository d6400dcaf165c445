"""A campaign by the wizard, as people run it: by plain HTTP forms to the shipped processes, for a sandbox vendor.

`python -m benchmarks.wizard [messages] [rows]`. First a list of this many messages, from the upload to the campaign's
end. Then a list of this many rows, from the upload to its check page, with the memory that the web server and the
worker of the hub use meanwhile and used before. The check page is requested several times, because it must not read the
list.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from benchmarks.installation import Installation, end_at_sigterm
from benchmarks.processes_seen import proportional_mb
from benchmarks.results import keep
from benchmarks.sending import login
from benchmarks.stage import console, numbers, stage
from tests import sandbox
from tests.plain_browser import PlainBrowser, by_socket
from tests.waiting import wait_until

PASSWORD = "benchmark"
LONGEST = 900.0  # seconds that a step may take
LOOKS = 5  # requests for the check page
PARTS = ("web", "worker of the hub")
TEXT = "Good day {{ first_name }} in {{ city }}, your number is {{ number }}"


def a_list(rows: int) -> bytes:
    lines = (f"person{n}@example.org,Ann,Newtown,{n:08}" for n in range(rows))
    return "\n".join(["email,first_name,city,number", *lines]).encode()


@contextlib.contextmanager
def most_memory(at: Installation) -> Iterator[dict[str, float]]:
    """Yield the peak MB of all processes of each part, up to date when the block ends."""
    found, over = dict.fromkeys(PARTS, 0.0), threading.Event()

    def look() -> None:
        while not over.is_set():
            for part in PARTS:
                found[part] = max(found[part], sum(proportional_mb(at.processes_of(part))))
            over.wait(0.25)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        over.set()
        looking.join()


class Times:
    """Seconds by step."""

    def __init__(self) -> None:
        self.of: dict[str, list[float]] = {}

    def __call__(self, step: str, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        work()
        self.of[step] = [time.perf_counter() - began]


def begin(browser: PlainBrowser, name: str) -> None:
    browser.open("/campaigns/new/")
    browser.submit("Keep, and go on", name=name, subject="Hello", text=TEXT)
    assert browser.address.endswith("/recipients/"), browser.text


def checked(browser: PlainBrowser) -> bool:
    browser.open(browser.address)
    return "is being checked" not in browser.text


def upload(browser: PlainBrowser, rows: int, times: Times) -> None:
    """Upload a list, wait for its check, and time the check page."""
    file = {"list": ("list.csv", a_list(rows))}
    times("upload", lambda: browser.submit("Upload and check", files=file))
    times("check", lambda: wait_until(lambda: checked(browser), "the list is checked", LONGEST, 0.1))
    assert f"of {rows:,} rows in list.csv" in browser.text, browser.text
    browser.follow("Go on")
    address, looks = browser.address, []
    for _ in range(LOOKS):
        began = time.perf_counter()
        browser.open(address)
        looks.append(time.perf_counter() - began)
    assert f"{rows:,} messages;" in browser.text, browser.text
    times.of["the check page"] = looks


def send(browser: PlainBrowser, messages: int, times: Times) -> None:
    from campaigns.models import Campaign, Job

    def stored() -> bool:
        return Campaign.objects.filter(size=messages).exists()

    def send_and_store() -> None:
        browser.submit(f"Send to {messages:,} recipients")
        wait_until(stored, "the campaign is stored", LONGEST, 0.05)

    times("send, until it is stored", send_and_store)
    ended = Job.objects.filter(campaign__size=messages, parent=None, finished_at__isnull=False)
    times("until all are sent", lambda: wait_until(ended.first, "the campaign ends", LONGEST, 0.05))
    job = ended.get()
    assert job.accepted == messages, f"{job.status}: {job.accepted} of {messages}"


def tell(title: str, unit: str, rows: dict[str, list[float]]) -> None:
    keep(title, unit, rows)
    console.print(title)
    for name, values in rows.items():
        console.print(f"  {name:40} {max(values):10.2f} {unit}")


def main() -> None:
    messages, rows = numbers(50_000, 1_000_000)
    end_at_sigterm()
    with stage(), sandbox.running() as vendor:
        from django.contrib.auth.models import User

        from tests import factories

        User.objects.create_superuser("ann", password=PASSWORD)
        factories.sponsor("Velma")
        login(vendor.url, None)
        at = Installation()
        with at.up():
            browser = PlainBrowser(by_socket(f"http://127.0.0.1:{at.environment['PORT']}"))
            wait_until(lambda: _answers(browser), "the web server answers", every=0.2)
            browser.submit("Log in", username="ann", password=PASSWORD)
            whole = Times()
            begin(browser, "small")
            upload(browser, messages, whole)
            send(browser, messages, whole)
            tell(f"The wizard, {messages:,} messages, as people run it", "s", whole.of)
            arrived = len(vendor.books().arrivals())
            assert arrived == messages, f"{arrived:,} arrived of {messages:,}"
            large = Times()
            begin(browser, "large")
            before = {part: [sum(proportional_mb(at.processes_of(part)))] for part in PARTS}
            with most_memory(at) as most:
                upload(browser, rows, large)
            tell(f"The wizard, a list of {rows:,} rows", "s", large.of)
            tell("The wizard: memory before it", "MB", before)
            tell(f"The wizard: memory at most, {rows:,} rows", "MB", {part: [one] for part, one in most.items()})


def _answers(browser: PlainBrowser) -> bool:
    with contextlib.suppress(OSError):
        browser.open("/login/")
        return browser.status == 200
    return False


if __name__ == "__main__":
    main()
