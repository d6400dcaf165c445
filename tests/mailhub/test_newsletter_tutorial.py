"""Follows docs/newsletter.md: runs its commands, over a relay and a DNS server of our own, and checks their output.

A line `...` of the page stands for any lines, and `...` within a line for any text; any number matches any other. Any
state of an unfinished job matches too: the worker runs while the command looks.
"""

import io
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from django.core.management import CommandError, call_command
from django.db.models import QuerySet

from campaigns.models import Job, Message
from tests.dns_server import DnsServer, dns_server
from tests.programs import sweeping, worker
from vendors.testing.certificates import authority, server_tls

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "newsletter.md").read_text()
PUBLIC_URL = "https://mail.example.com"
BLOCK = re.compile(r"(?:^    .*\n|^\n(?=    ))+", re.MULTILINE)
"""Indented lines; an empty line between them ends a command's output."""


def steps() -> list[tuple[str, str]]:
    """Return each command of the page with its output; empty: not shown on the page."""
    found: list[tuple[str, str]] = []
    for block in BLOCK.findall(PAGE):
        for part in re.split(r"\n\s*\n", block.strip("\n")):
            text = "\n".join(line[4:] for line in part.splitlines())
            if re.match(r"manage\.py |printf |rm |\(umask ", text):
                found.append((text.replace("\\\n", " "), ""))
            elif text.strip():
                command, shown = found[-1]
                assert not shown, f"two outputs of {command}"
                found[-1] = (command, text)
    return found


def pattern(shown: str) -> str:
    """Return the pattern of an output on the page."""
    lines = []
    for line in shown.splitlines():
        parts = [re.escape(re.sub(r"\s+", " ", part)) for part in line.strip().split("...")]
        if " is on its way" in line:
            parts[-1] = re.sub("[A-Z_]+$", "[A-Z_]+", parts[-1])
        lines.append(re.sub(r"[0-9]+", "[0-9]+", ".*".join(parts)))
    return r"\n".join(lines)


class Mailbox:
    """The relay's mailbox: the mails it took."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], bytes]] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append((envelope.rcpt_tos, envelope.content))
        return "250 2.0.0 Ok: queued"


class Relay(Controller):
    """On a port of its own."""

    def _trigger_server(self) -> None:
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    def login(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        return AuthResult(success=(data.login, data.password) == (b"velma", b"s3cret"))

    relay = Relay(
        Mailbox(), "127.0.0.1", 0, tls_context=server_tls(), require_starttls=True, auth_required=True,
        authenticator=login,
    )  # fmt: skip
    relay.start()
    relay.handler.port = relay.port
    yield relay.handler
    relay.stop()


@pytest.fixture
def dns(settings: Any) -> Iterator[DnsServer]:
    """Knows the reader's installation, mail server and relay."""
    settings.PUBLIC_URL = PUBLIC_URL
    with dns_server(settings) as server:
        server.records["mail.example.com", "A"] = ["198.51.100.8"]
        server.text("_spf.relay.example.net", "v=spf1 ip4:192.0.2.0/28 -all")
        server.records["example.com", "MX"] = ["10 mx.example.com."]
        server.records["mx.example.com", "A"] = ["198.51.100.7"]
        yield server


def enter(printed: str, dns: DnsServer) -> None:
    """Enter the DNS records that the doctor prints, as the reader does."""
    for name, text in re.findall(r"enter +(\S+) TXT (.+)", printed):
        dns.text(name, text)


def accepted() -> QuerySet[Message]:
    return Message.objects.filter(message_id__isnull=False)


def job(typed: re.Match[str]) -> str:
    """The number here of the job that the page counts so."""
    return str(Job.objects.order_by("pk").values_list("pk", flat=True)[int(typed[0]) - 1])


def run(command: str) -> str:
    """Return the command's output; for an error, the text that manage.py would print."""
    out = io.StringIO()
    if not command.startswith("manage.py "):
        subprocess.run(["bash", "-c", command], check=True)
        return ""
    _, *arguments = shlex.split(command)
    try:
        call_command(*arguments, stdout=out)
    except CommandError as error:
        out.write(f"CommandError: {error}\n")
    except SystemExit:  # with --wait: the job's outcome
        pass
    return out.getvalue()


def test_the_tutorial_is_what_happens(
    mailbox: Any, dns: DnsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sandbox").symlink_to(ROOT / "sandbox")
    monkeypatch.chdir(tmp_path)
    here = f"host=127.0.0.1 port={mailbox.port} ca_file={authority()}"
    others: list[str] = []  # outputs unlike those on the page
    with worker(PUBLIC_URL=PUBLIC_URL), sweeping(pauses=True):
        for command, shown in steps():
            printed = run(re.sub(r"(?<=_job )[0-9]+", job, command).replace("host=relay.example.net", here))
            if "--first 2" in command:
                assert accepted().count() == 3, "the first two have it, and the one before"
            seen = "\n".join(re.sub(r"\s+", " ", line).strip() for line in printed.strip().splitlines())
            if shown and not re.fullmatch(pattern(shown), seen, re.DOTALL):
                others.append(f"{command}\n{printed}\nthe page shows:\n{shown}\n")
            enter(printed, dns)
    assert not others, "\n".join(others)
    assert [to for to, _ in mailbox.mails][:1] == [["you@example.com"]]
    assert sorted(to[0] for to, _ in mailbox.mails[1:]) == ["ann@example.org", "bob@example.org", "cyd@example.org"]
    for _, mail in mailbox.mails:
        assert b"DKIM-Signature: " in mail and f"List-Unsubscribe: <{PUBLIC_URL}/unsubscribe/".encode() in mail
    assert accepted().count() == 4
