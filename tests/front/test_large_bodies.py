"""Who may send a large body is decided at its head: by whose it is, how many are on their way, and the disk."""

import re
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from campaigns.lists.pages import uploads
from campaigns.models import Draft, Sponsor
from mailhub import installation
from tests import factories
from tests.front.doors import Doors, ask, connect, doors, head, read, unanswered
from tests.front.program import Program, fresh
from tests.waiting import wait_until

__all__ = ["fresh"]
pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
LARGE = 9_000_000
SPOOL = {"SPOOL_MEGABYTES": "40", "LIST_MEGABYTES": "10", "BODY_SECONDS": "100"}


@pytest.fixture(scope="module")
def both(django_db_setup: None) -> Iterator[Doors]:
    with doors(**SPOOL) as running:
        yield running


@pytest.fixture
def connections() -> Iterator[ExitStack]:
    with ExitStack() as kept:
        yield kept


class Owner:
    """A campaign owner with a browser, and a draft."""

    def __init__(self, name: str = "ann", sponsor: Sponsor | None = None) -> None:
        installation.create_groups()
        self.sponsor = sponsor or factories.sponsor(f"Sponsor of {name}")
        self.user = User.objects.create_user(name, password="a long one")
        self.user.groups.set(Group.objects.filter(name="campaign owner"))
        self.sponsor.users.add(self.user)
        self.client = Client()
        self.client.force_login(self.user)
        self.draft = Draft.objects.create(sponsor=self.sponsor, name="May", created_by=self.user)
        self.client.get(f"/drafts/{self.draft.pk}/recipients/")

    def asks(self, path: str = "", size: int = LARGE) -> bytes:
        """The head of a body that does not come."""
        cookies = "; ".join(f"{name}={one.value}" for name, one in self.client.cookies.items() if one.value)
        path = path or f"/drafts/{self.draft.pk}/list/"
        return head("POST", path, Cookie=cookies, Content_Type="text/csv", Content_Length=size)


def begin(connections: ExitStack, port: int, request: bytes) -> socket.socket:
    """Sends the head, and all of the body but its last byte; comes back when the door has read it."""

    def opened() -> socket.socket | int:
        """The connection, or the status of the refusal; the room of a test before is free in a moment."""
        tried = connect(port)
        if is_taken(tried, request):
            return connections.enter_context(tried)
        with tried:
            status, _ = read(tried)
        return 0 if status == 429 else status

    begun = wait_until(opened, "there is room")
    assert isinstance(begun, socket.socket), begun
    return begun


def is_taken(connection: socket.socket, request: bytes) -> bool:
    """Whether the door reads the body, which is larger than what the machine keeps of it by itself; else it answers."""
    length = re.search(rb"Content-Length: (\d+)", request)
    assert length and int(length[1]) >= 2_000_000
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    connection.sendall(request)
    left, poll = int(length[1]) - 1, select.poll()
    poll.register(connection, select.POLLIN | select.POLLOUT)
    while left:
        (_, events), *_ = poll.poll()
        if events != select.POLLOUT:
            return False
        left -= connection.send(bytes(min(left, 65_536)), socket.MSG_DONTWAIT)
    return True


def is_read(port: int, request: bytes) -> bool:
    with ExitStack() as kept:
        return bool(begin(kept, port, request))


def test_an_owner_may_send_a_list_to_a_draft_of_the_own_sponsor(both: Doors, fresh: None) -> None:
    ann = Owner()
    assert is_read(both.web, ann.asks())
    assert is_read(both.web, ann.asks("/campaigns/new/"))
    assert ask(both.web, ann.asks("/admin/"))[0] == 413, "no page for a large body"


def test_a_large_body_to_no_draft_of_the_user_is_refused_before_it_is_read(both: Doors, fresh: None) -> None:
    ann, bob = Owner(), Owner("bob")
    gone = Draft.objects.create(sponsor=ann.sponsor, name="gone")
    path = f"/drafts/{gone.pk}/list/"
    assert is_read(both.web, ann.asks(path))
    gone.delete()
    sent = Draft.objects.create(sponsor=ann.sponsor, name="sent", busy=Draft.SENDING)
    done = Draft.objects.create(sponsor=ann.sponsor, campaign=factories.campaign_with_job().campaign)
    others = [f"/drafts/{number}/list/" for number in (bob.draft.pk, 999_999, sent.pk, done.pk, 10**17)]
    for size in (LARGE, 200_000):
        for one in (path, *others):
            status, answer = ask(both.web, ann.asks(one, size))
            assert status == 404 and b"no such draft" in answer, (one, size, answer)


def test_a_large_body_is_no_more_allowed_than_its_user_is_let_in(both: Doors, fresh: None) -> None:
    ends = (
        (lambda one: one.client.logout(), 413),
        (lambda one: (one.user.set_password("another long one"), one.user.save()), 413),
        (lambda one: User.objects.filter(pk=one.user.pk).update(is_active=False), 413),
        (lambda one: one.user.groups.clear(), 403),
        (lambda one: one.sponsor.users.clear(), 404),
    )
    for number, (end, status) in enumerate(ends):
        owner = Owner(f"ann{number}")
        asks = owner.asks()
        assert is_read(both.web, asks)
        end(owner)
        assert ask(both.web, asks)[0] == status, number
    forged = owner.asks().replace(b"sessionid=", b"sessionid=x")
    assert ask(both.web, forged)[0] == 413


def test_of_one_user_and_of_one_sponsor_only_so_much_is_on_its_way(
    both: Doors, fresh: None, connections: ExitStack
) -> None:
    ann, bob = Owner(), Owner("bob")
    eve = Owner("eve", ann.sponsor)
    first = begin(connections, both.web, ann.asks(size=15_000_000))
    for who in (ann, eve):  # of the same sponsor
        status, answer = ask(both.web, who.asks())
        assert status == 429 and b"too-many-uploads" in answer and b"retry-after: 5" in answer.lower(), answer
    assert is_read(both.web, bob.asks()), "somebody else's"
    assert unanswered([first])
    first.close()
    assert is_read(both.web, eve.asks()), "its place is free"


def test_at_the_api_a_larger_body_needs_a_key_and_a_share(both: Doors, fresh: None, connections: ExitStack) -> None:
    def asks(token: str, path: str = "/api/v1/files", size: int = 3_000_000) -> bytes:
        return head("POST", path, Authorization=f"Bearer {token}", Content_Length=size)

    one, other = Program(), Program()
    for path in ("/api/v1/files", "/api/v1/messages"):
        assert ask(both.api, asks("mh_live_nobody", path))[0] == 401
    first = begin(connections, both.api, asks(one.token))
    for path in ("/api/v1/files", "/api/v1/messages"):
        assert ask(both.api, asks(one.token, path))[0] == 429
    assert is_read(both.api, asks(other.token))
    chunked = head("POST", "/api/v1/files", Authorization=f"Bearer {one.token}", Transfer_Encoding="chunked")
    assert ask(both.api, chunked)[0] == 429, "nobody knows how large it becomes"
    assert unanswered([first])
    assert is_read(both.api, asks("", "/api/v1/receipts/vendor")), "its signature proves it, once it is here"


@pytest.mark.parametrize("first", ["receipts", "inbound"])
def test_reports_and_what_recipients_write_do_not_take_each_others_room(
    both: Doors, fresh: None, connections: ExitStack, first: str
) -> None:
    def asks(kind: str) -> bytes:
        return head("POST", f"/api/v1/{kind}/vendor", Content_Length=3_000_000)

    slow = begin(connections, both.api, asks(first))
    (other,) = {"receipts", "inbound"} - {first}
    assert ask(both.api, asks(first))[0] == 429 and is_read(both.api, asks(other))
    assert unanswered([slow])


def test_a_disk_that_is_nearly_full_takes_no_larger_body_and_all_others(fresh: None) -> None:
    program = Program()
    with doors(SPOOL_FREE_MEGABYTES="9e8", BODY_SECONDS="100") as both:
        ann = Owner()
        for port, request in (
            (both.web, ann.asks()),
            (both.api, head("POST", "/api/v1/files", Authorization=f"Bearer {program.token}", Content_Length=200_000)),
        ):
            status, answer = ask(port, request)
            assert status == 507 and b"insufficient-storage" in answer and b"nearly full" in answer
        status, _ = read_all(both.web, ann.asks(size=50_000) + bytes(50_000))
        assert status == 403, "it came to Django, which wants a token of the page"


def test_a_look_at_a_session_changes_none(settings: Any) -> None:
    """Django's own would give a session of the key before a new name, which the browser never hears."""
    ann = Owner()
    cookies = f"sessionid={ann.client.cookies['sessionid'].value}"
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "new" * 20, [settings.SECRET_KEY]
    assert uploads.logged_in(cookies) == uploads.logged_in(cookies) == ann.user
    settings.SECRET_KEY_FALLBACKS = []
    assert uploads.logged_in(cookies) is None
    assert uploads.logged_in("sessionid=") is uploads.logged_in("a;;=") is uploads.logged_in("") is None


def test_the_bodies_of_two_who_are_served_are_read_and_answered(both: Doors, fresh: None) -> None:
    ann = Owner()
    status, answer = read_all(both.web, ann.asks(size=200_000) + bytes(200_000))
    assert status == 403 and b"text/html" in answer, "it came to Django, which wants a token of the page"


def read_all(port: int, request: bytes) -> tuple[int, bytes]:
    with connect(port) as connection:
        connection.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        return read(connection)
