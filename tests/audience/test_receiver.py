"""The receiver: 250 only after the commit, for addresses of ours only, with bounded memory, time and connections."""

import asyncio
import os
import signal
import smtplib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, connection

from campaigns.audience.bounces import inbound, receiver
from campaigns.content import return_paths
from campaigns.content.return_paths import ReturnPaths
from campaigns.models import Identity, MessageEvent
from sandbox.vendor.server import hold_port
from tests.audience.forms import FORMS, written
from tests.audience.test_inbound import MAILBOX, address, counts, sent
from tests.campaigns.rows import messages
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
UNKNOWN = FORMS["postfix, unknown"][0]


class Receiving:
    """A receiver in a thread of its own. notified: how often calls to webhooks were due."""

    def __init__(self, protocol: str) -> None:
        self.notified = 0
        self._protocol = protocol
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._ready.wait(60)

    async def _run(self) -> None:
        self._over, self._loop = asyncio.Event(), asyncio.get_running_loop()
        server, self.handler = await receiver.listen_for_mail(self._protocol, "127.0.0.1", 0, self._notify)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        await self.handler.close()

    def _notify(self) -> None:
        self.notified += 1

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def client(self) -> smtplib.SMTP:
        make = smtplib.LMTP if self._protocol == "lmtp" else smtplib.SMTP
        made = make("127.0.0.1", self.port, local_hostname="localhost")
        made.timeout = 60
        return made


@contextmanager
def receiving(protocol: str = "smtp") -> Iterator[Receiving]:
    one = Receiving(protocol)
    try:
        yield one
    finally:
        one.stop()


def made() -> tuple[Any, str]:
    """A message that was sent, and its return path."""
    (row,) = messages(sent())
    return row, ReturnPaths(MAILBOX, return_paths.return_path_keys()).of(row.reference)


def deliver(client: smtplib.SMTP, to: str, mail: bytes, sender: str = "") -> tuple[int, bytes]:
    """The reply to the first command that is refused, or to the mail."""
    if client.sock is None:
        client.connect()
    client.ehlo_or_helo_if_needed()
    for code, text in (client.mail(sender), client.rcpt(to)):
        if code >= 300:
            return code, text
    return client.data(mail)


@pytest.mark.parametrize("protocol", ["smtp", "lmtp"])
def test_a_bounce_is_taken_once_however_often_it_comes(protocol: str) -> None:
    row, to = made()
    with receiving(protocol) as one, one.client() as client:
        assert [deliver(client, to, written(UNKNOWN, to))[0] for _ in range(3)] == [250] * 3
    assert MessageEvent.objects.get().message_id == row.pk
    assert counts() == {"hard_bounce": 1, "repeated": 2}


def test_only_addresses_of_ours_are_taken() -> None:
    _, to = made()
    wrong = to.replace("+", "+a").replace("+aa", "+b")
    with receiving() as one, one.client() as client:
        for nobody in ("somebody@brand.example", MAILBOX, wrong, "x" * 300 + "@brand.example"):
            assert 500 <= deliver(client, nobody, b"Hi")[0] < 600, nobody
            client.rset()
    assert not MessageEvent.objects.exists()


def test_refused_addresses_are_counted_together_and_end_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[int] = []
    count = inbound.count_mails
    monkeypatch.setattr(inbound, "count_mails", lambda what, mails=1: (stored.append(mails), count(what, mails)))
    monkeypatch.setattr(receiver, "COUNT_EVERY", 3600.0)
    with receiving() as one, one.client() as client:
        client.ehlo()
        client.mail("")
        codes = [client.rcpt("nobody@brand.example")[0] for _ in range(receiver.REFUSALS + 1)]
        assert codes == [550] * receiver.REFUSALS + [421]
        with pytest.raises(smtplib.SMTPServerDisconnected):
            client.noop()
    assert stored == [receiver.REFUSALS + 1]
    assert counts()["refused"] == receiver.REFUSALS + 1


def test_a_server_of_our_own_in_front_may_ask_for_many_addresses() -> None:
    _, to = made()
    with receiving("lmtp") as one, one.client() as client:
        client.ehlo_or_helo_if_needed()
        client.mail("")
        assert {client.rcpt("nobody@brand.example")[0] for _ in range(receiver.REFUSALS + 5)} == {550}
        assert client.rcpt(to)[0] == 250


def test_feedback_loops_may_use_the_mailbox_of_an_identity() -> None:
    row, to = made()
    Identity.objects.create(
        sponsor=row.campaign.sponsor, name="news", from_address="hello@brand.example", return_path=MAILBOX, verp=True
    )
    with receiving() as one, one.client() as client:
        mail = written(FORMS["yahoo, feedback"][0], to)
        assert deliver(client, MAILBOX.upper(), mail, "feedback@yahoo.example")[0] == 250
    assert MessageEvent.objects.get().kind == "complaint"


def test_what_cannot_be_stored_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _, to = made()

    def away(*_: Any) -> None:
        raise DatabaseError("the server is away")

    with receiving() as one, one.client() as client:
        with monkeypatch.context() as broken:
            broken.setattr(inbound, "store_mail", away)
            assert deliver(client, to, written(UNKNOWN, to))[0] == 451
        assert deliver(client, to, written(UNKNOWN, to))[0] == 250
    assert MessageEvent.objects.count() == 1


def test_a_second_recipient_comes_by_itself() -> None:
    _, to = made()
    with receiving() as one, one.client() as client:
        client.ehlo()
        assert (client.mail("")[0], client.rcpt(to)[0], client.rcpt(to)[0]) == (250, 250, 452)


def test_long_lines_dots_and_large_mails_are_taken_and_their_rest_is_forgotten() -> None:
    _, to = made()
    mail = written(UNKNOWN, to) + b"\r\n.a line\r\n.\r\n" + b"x" * 100_000 + b"\r\n" + b"y" * 990 * 2_000 + b"\r\n"
    with receiving() as one, one.client() as client:
        assert deliver(client, to, mail)[0] == 250
    assert MessageEvent.objects.count() == 1


def test_a_mail_that_is_larger_than_any_report_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _, to = made()
    monkeypatch.setattr(receiver, "LARGEST", 10_000)
    with receiving() as one, one.client() as client:
        assert deliver(client, to, b"x" * 20_000)[0] == 552
        client.rset()
        assert deliver(client, to, written(UNKNOWN, to))[0] == 250


def test_one_connection_too_many_is_told_to_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "CONNECTIONS", 2)
    with receiving() as one, one.client(), one.client():
        with socket.create_connection(("127.0.0.1", one.port), timeout=60) as third:
            assert third.recv(100).startswith(b"421 ")
            assert third.recv(100) == b""
        wait_until(lambda: len(one.handler.open) == 2, "the third is forgotten")


def test_mails_of_one_sponsor_leave_half_of_the_connections_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "CONNECTIONS", 4)
    to_theirs, to_mine = address(messages(sent())[0]), address(messages(sent())[0])
    with receiving() as one, ExitStack() as clients:

        def begun(to: str) -> tuple[smtplib.SMTP, int]:
            client = clients.enter_context(one.client())
            client.ehlo()
            client.mail("")
            return client, client.rcpt(to)[0]

        flood = [begun(to_theirs) for _ in range(3)]
        assert [code for _, code in flood] == [250, 250, 421]
        with pytest.raises(smtplib.SMTPServerDisconnected):
            flood[2][0].noop()
        client, code = begun(to_mine)
        assert code == 250 and client.data(written(UNKNOWN, to_mine))[0] == 250
        assert flood[0][0].data(written(UNKNOWN, to_theirs))[0] == 250
        assert begun(to_theirs)[1] == 250, "its first mail has been taken"
    assert MessageEvent.objects.count() == 2


def test_a_connection_ends_after_its_time_whatever_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "LIFE", 0.2)
    with receiving() as one, socket.create_connection(("127.0.0.1", one.port), timeout=60) as slow:
        try:
            while slow.recv(100):
                pass
        except ConnectionResetError:
            pass
        wait_until(lambda: not one.handler.open, "the connections are closed")


def test_a_client_that_goes_away_within_a_mail_leaves_nothing() -> None:
    _, to = made()
    with receiving() as one:
        client = one.client()
        client.ehlo()
        client.mail("")
        client.rcpt(to)
        client.docmd("DATA")
        client.sock.sendall(written(UNKNOWN, to))
        client.close()
        wait_until(lambda: not one.handler.open, "the connections are closed")
        with one.client() as other:
            assert deliver(other, to, b"Hi\r\n")[0] == 250
    assert not MessageEvent.objects.exists()


def test_nonsense_is_answered_and_harms_nothing() -> None:
    _, to = made()
    with receiving() as one:
        for junk in (b"\0\xff\r\n" * 50, b"GET / HTTP/1.1\r\n\r\n", b"A" * 100_000, b"DATA\r\nRCPT TO:<>\r\nMAIL\r\n"):
            with socket.create_connection(("127.0.0.1", one.port), timeout=60) as wild:
                wild.sendall(junk)
        wait_until(lambda: not one.handler.open, "the connections are closed")
        with one.client() as client:
            assert deliver(client, to, written(UNKNOWN, to))[0] == 250
    assert MessageEvent.objects.count() == 1


def test_the_first_of_two_that_bring_the_same_mail_at_once_counts() -> None:
    _, to = made()
    with receiving() as one:

        def bring() -> None:
            with one.client() as client:
                replies.append(deliver(client, to, written(UNKNOWN, to))[0])

        replies: list[int] = []
        threads = [threading.Thread(target=bring) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert replies == [250] * 8 and MessageEvent.objects.count() == 1
    connection.close()


@pytest.mark.parametrize("address", ["", "smtp://127.0.0.1:{port}"])
@pytest.mark.slow("processes")
def test_the_process_of_the_procfile_ends_when_it_is_told_to(address: str) -> None:
    with hold_port("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
    environment = {**os.environ, "BOUNCE_RECEIVER": address.format(port=port)}
    command = [sys.executable, "manage.py", "receive_bounces"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout
        said = process.stdout.readline()
        assert ("bounces are taken at" if address else "no bounces are taken here") in said
        if address:
            with smtplib.SMTP("127.0.0.1", port, timeout=60) as client:
                assert client.ehlo()[0] == 250
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
