"""A mailbox is read by IMAP: what was read is put away after the commit, and read again only if it was not."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import InterfaceError, OperationalError, connection

from campaigns.audience.bounces import inbound, mailbox
from campaigns.models import Job, MessageEvent
from tests.audience.forms import FORMS, written
from tests.audience.test_inbound import address, counts, sent
from tests.audience.test_receiver import made
from tests.campaigns.rows import messages

pytestmark = pytest.mark.django_db(transaction=True)
PASSWORD = "s3 cret"


class ImapServer(socketserver.ThreadingTCPServer):
    """A small IMAP server: one folder INBOX, and one to move to. mails: by uid, each with whether it was seen."""

    allow_reuse_address, daemon_threads = True, True

    def __init__(self, *extensions: str) -> None:
        super().__init__(("127.0.0.1", 0), ImapConversation)
        self.extensions = extensions
        self.mails: dict[int, tuple[bytes, bool]] = {}
        self.moved: list[bytes] = []
        self.deleted: set[int] = set()
        self.flagged: set[int] = set()
        self.searched: list[str] = []
        self.heads: list[int] = []  # mails in each command that fetched heads
        self.fetched: list[int] = []
        self.arrived = "02-Mar-2026 10:00:00 +0000"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"imap://velma:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.server_address[1]}/INBOX"

    def put(self, *mails: bytes) -> None:
        for mail in mails:
            self.mails[len(self.mails) + 1] = (mail, False)


class ImapConversation(socketserver.StreamRequestHandler):
    server: ImapServer
    logged_in = False  # only then it tells what it can do, as Dovecot does

    def handle(self) -> None:
        self.say(b"* OK ready")
        for line in self.rfile:
            tag, _, rest = line.decode().strip().partition(" ")
            word, _, rest = rest.partition(" ")
            if word.upper() == "UID":
                word, _, rest = rest.partition(" ")
            reply = getattr(self, f"do_{word.lower()}")(rest)
            self.say(f"{tag} {reply or 'OK done'}".encode())
            if word.upper() == "LOGOUT":
                return

    def say(self, line: bytes) -> None:
        self.wfile.write(line + b"\r\n")

    def do_capability(self, _: str) -> None:
        self.say(" ".join(("* CAPABILITY IMAP4rev1", *(self.server.extensions if self.logged_in else ()))).encode())

    def do_login(self, rest: str) -> str | None:
        self.logged_in = rest == f'velma "{PASSWORD}"'
        return None if self.logged_in else "NO wrong password"

    def do_select(self, rest: str) -> str | None:
        self.say(f"* {len(self.server.mails)} EXISTS".encode())
        return None if rest == '"INBOX"' else "NO no such folder"

    def do_search(self, rest: str) -> None:
        self.server.searched.append(rest)
        numbers, which = rest.split()
        first, last = map(int, numbers.split(":"))
        among = list(self.server.mails)[first - 1 : last]
        wanted = {uid for uid, (_, seen) in self.server.mails.items() if not seen}
        if which == "UNDELETED":
            wanted = set(among) - self.server.deleted
        found = [uid for uid in among if uid in wanted]
        self.say(" ".join(("* SEARCH", *map(str, found))).encode())

    def do_fetch(self, rest: str) -> None:
        numbers, _, what = rest.partition(" ")
        if "HEADER.FIELDS" in what:
            self.server.heads.append(numbers.count(",") + 1)
            for uid in map(int, numbers.split(",")):
                self.say_head(uid)
            return
        uid = int(numbers)
        self.server.fetched.append(uid)
        mail = self.server.mails[uid][0][: mailbox.MOST]
        head = f'* 1 FETCH (UID {uid} INTERNALDATE "{self.server.arrived}" BODY[]<0> {{{len(mail)}}}'
        self.say(head.encode())
        self.wfile.write(mail + b")\r\n")

    def say_head(self, uid: int) -> None:
        """Name the UID before or after the head, as servers do either."""
        head = self.server.mails[uid][0].partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        known = f"UID {uid} " if self.server.extensions else ""
        self.say(f"* 1 FETCH ({known}BODY[HEADER.FIELDS (TO)] {{{len(head)}}}".encode())
        self.wfile.write(head + (b")" if known else f" UID {uid})".encode()) + b"\r\n")

    def do_store(self, rest: str) -> None:
        uid = int(rest.partition(" ")[0])
        if "Flagged" in rest:
            self.server.flagged.add(uid)
            return
        self.server.mails[uid] = (self.server.mails[uid][0], True)
        if "Deleted" in rest:
            self.server.deleted.add(uid)

    def do_copy(self, rest: str) -> None:
        self.server.moved.append(self.server.mails[int(rest.partition(" ")[0])][0])

    def do_expunge(self, only: str) -> None:
        for uid in {int(only)} if only else set(self.server.deleted):
            self.server.mails.pop(uid, None)

    def do_move(self, rest: str) -> None:
        self.server.moved.append(self.server.mails.pop(int(rest.partition(" ")[0]))[0])

    def do_logout(self, _: str) -> None:
        self.say(b"* BYE")


@pytest.fixture(params=[(), ("UIDPLUS",), ("MOVE",)], ids=str)
def server(request: pytest.FixtureRequest, settings: Any) -> Iterator[ImapServer]:
    one = ImapServer(*request.param)
    settings.BOUNCE_MAILBOX = one.url
    yield one
    one.shutdown()
    one.server_close()


def read(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    call_command("read_bounces", *options)
    return capsys.readouterr().out.strip()


def bounce() -> bytes:
    return written(FORMS["postfix, unknown"][0], made()[1])


def test_unread_mails_are_taken_once_and_marked(server: ImapServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.put(bounce(), written(FORMS["a person answers"][0]), b"")
    assert read(capsys) == "1 hard_bounce, 2 not_a_report"
    assert read(capsys) == "no mails"
    event = MessageEvent.objects.get()
    assert event.source == "mailbox" and event.at.isoformat() == "2026-03-02T10:00:00+00:00"


def test_what_was_read_is_moved_to_a_folder(server: ImapServer, capsys: pytest.CaptureFixture[str]) -> None:
    first = bounce()
    server.put(b"somebody has marked this one as deleted", first)
    server.deleted.add(1)
    assert read(capsys, "--move-to", "Done") == "1 hard_bounce"
    assert server.moved == [first] and 1 in server.mails
    assert server.deleted >= set(server.mails), "what cannot be removed by itself stays, marked as deleted"
    assert (2 in server.mails) == (not server.extensions)
    assert read(capsys, "--move-to", "Done") == "no mails"


def test_a_large_folder_is_searched_in_pieces_and_a_time_that_cannot_be_is_now(
    server: ImapServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "SEARCHED", 2)
    server.arrived = "01-Jan-0000 00:00:00 +0000"
    server.put(b"", b"", b"", b"", bounce())
    assert read(capsys) == "1 hard_bounce, 4 not_a_report"
    assert server.searched == ["1:2 UNSEEN", "3:4 UNSEEN", "5:5 UNSEEN"]
    assert MessageEvent.objects.get().at > datetime.now(UTC) - timedelta(hours=1)


def from_sponsor(job: Job) -> list[bytes]:
    """A bounce of each message of the job."""
    return [written(FORMS["postfix, unknown"][0], address(row)) for row in messages(job)]


def test_a_flood_of_one_sponsors_bounces_does_not_hold_up_anothers(
    server: ImapServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hers came last, and a run takes few. The middle of the flood is left to later runs."""
    for name, number in (("AT_ONCE", 4), ("CANDIDATES", 12), ("HEADS", 5), ("SEARCHED", 5)):
        monkeypatch.setattr(mailbox, name, number)
    theirs, mine = sent(20), sent(2)
    assert theirs.campaign.sponsor_id != mine.campaign.sponsor_id
    server.put(*from_sponsor(theirs), b"Subject: of nobody\r\n\r\nHi", *from_sponsor(mine))
    assert read(capsys) == "3 hard_bounce, 1 not_a_report"
    assert server.fetched == [1, 21, 22, 2]
    assert server.heads == [5, 5, 2]
    assert read(capsys) == "4 hard_bounce" and server.fetched[4:] == [3, 23, 4, 5]
    while read(capsys) != "no mails":
        pass
    assert MessageEvent.objects.count() == 22 and sorted(server.fetched) == [*range(1, 24)]


def test_a_run_that_was_full_is_followed_by_the_next_at_once(
    server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(BaseException):
        pass

    def ended(seconds: float) -> None:
        assert seconds == 86_400
        raise Ended

    monkeypatch.setattr(mailbox, "AT_ONCE", 2)
    monkeypatch.setattr("time.sleep", ended)
    server.put(*from_sponsor(sent(5)))
    with pytest.raises(Ended):
        call_command("read_bounces", "--every", "86400")
    assert MessageEvent.objects.count() == 5


@contextmanager
def not_stored(job: Job) -> Iterator[None]:
    """The database refuses the events of the job's messages."""
    body = f"""BEGIN IF NEW.message_id BETWEEN {job.first_message} AND {job.first_message + job.size - 1} THEN
        RAISE EXCEPTION 'no such event' USING ERRCODE = 'data_exception'; END IF; RETURN NEW; END"""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE FUNCTION refuse_event() RETURNS trigger LANGUAGE plpgsql AS $${body}$$")
        cursor.execute("""CREATE TRIGGER refused BEFORE INSERT ON campaigns_messageevent
            FOR EACH ROW EXECUTE FUNCTION refuse_event()""")
        try:
            yield
        finally:
            cursor.execute("DROP FUNCTION refuse_event CASCADE")


@pytest.mark.parametrize("options", [(), ("--move-to", "Done")])
def test_a_mail_that_cannot_be_stored_is_flagged_and_holds_nobody_up(
    options: tuple[str, ...], server: ImapServer, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    theirs, mine = sent(2), sent(1)
    server.put(*from_sponsor(theirs), *from_sponsor(mine))
    with not_stored(theirs):
        assert read(capsys, *options) == "1 hard_bounce"
        assert read(capsys, *options) == "no mails"
    assert server.flagged == {1, 2} and counts() == {"flagged": 2, "hard_bounce": 1}
    assert caplog.text.count("could not be stored and is flagged there: DataError") == 2
    assert MessageEvent.objects.get().message_id == mine.first_message


def test_where_no_mail_can_be_stored_few_are_flagged_and_the_reading_ends(
    server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "MOST_FLAGGED", 2)
    theirs = sent(5)
    server.put(*from_sponsor(theirs))
    with not_stored(theirs), pytest.raises(CommandError, match="more than 2 mails could not be stored"):
        call_command("read_bounces")
    assert server.flagged == {1, 2} and not server.mails[3][1]


@pytest.mark.slow("time")
def test_a_database_that_is_away_ends_no_repeated_reading(server: ImapServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.put(bounce())
    take, tries = inbound.store_mail, [OperationalError("away"), InterfaceError("away")]

    class Ended(BaseException):
        pass

    def away_at_first(*given: Any) -> Any:
        if tries:
            raise tries.pop()
        take(*given)
        raise Ended

    monkeypatch.setattr(inbound, "store_mail", away_at_first)
    with pytest.raises(Ended):
        call_command("read_bounces", "--every", "1")
    assert MessageEvent.objects.count() == 1


def test_a_reading_that_was_killed_in_between_counts_nothing_twice(
    server: ImapServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.put(bounce(), bounce())

    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as interrupted:
        interrupted.setattr(mailbox, "_put_away", killed)
        with pytest.raises(Killed):
            call_command("read_bounces")
    assert MessageEvent.objects.count() == 1
    assert read(capsys) == "1 hard_bounce, 1 repeated"
    assert MessageEvent.objects.count() == 2
    assert counts() == {"hard_bounce": 2, "repeated": 1}


def test_a_database_that_is_away_leaves_the_mail_unread(server: ImapServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.put(bounce())

    def away(*_: Any) -> None:
        raise OSError("away")

    with monkeypatch.context() as broken:
        broken.setattr(inbound, "store_mail", away)
        with pytest.raises(CommandError):
            call_command("read_bounces")
    assert not server.mails[1][1]


def test_a_wrong_password_or_folder_is_told_without_the_password(settings: Any) -> None:
    one = ImapServer()
    port = one.server_address[1]
    for wrong in (f"imap://velma:hunter2@127.0.0.1:{port}", f"{one.url}x", "imap://velma:hunter2@127.0.0.1:1/INBOX"):
        settings.BOUNCE_MAILBOX = wrong
        with pytest.raises(CommandError) as caught:
            call_command("read_bounces")
        assert "hunter2" not in str(caught.value) and PASSWORD not in str(caught.value)
    one.shutdown()
    one.server_close()


@pytest.mark.parametrize("url", ["imaps://host", "imaps://user@host", "http://a:b@host", ""])
def test_an_address_that_cannot_be_one_is_refused(url: str, settings: Any) -> None:
    settings.BOUNCE_MAILBOX = url
    with pytest.raises(CommandError, match="imaps://user:password@host/INBOX"):
        call_command("read_bounces")
