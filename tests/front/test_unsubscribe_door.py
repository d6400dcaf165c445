"""The public door over real sockets: a provider's one-click request, and what strangers may send to it."""

import pytest

from campaigns.models import Campaign, Message, Suppression
from campaigns.suppression import links
from tests import factories
from tests.front.doors import connect, doors, get, head, read
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
BASE = "https://news.example.org"
KIND = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def both(django_db_setup):
    with doors(PUBLIC_URL=BASE) as running:
        yield running


def link() -> str:
    made = factories.campaign(1, of=factories.credential(factories.vendor(channel="email")))
    message = Message.objects.get(campaign=made)
    known = links.links_of(Campaign.objects.get(pk=made.pk), "email", {"headers"}, links.link_keys())
    return known.url(message.pk, message.recipient).removeprefix(BASE)


def post(both, path, body=b"List-Unsubscribe=One-Click"):
    with connect(both.web) as connection:
        request = head("POST", path, Connection="close", Content_Type=KIND, Content_Length=len(body))
        connection.sendall(request.replace(b"Host: localhost", b"Host: news.example.org") + body)
        return read(connection)


def test_a_provider_unsubscribes_by_one_request_without_cookie_or_redirect(both, settings) -> None:
    settings.PUBLIC_URL = BASE
    where = link()
    wait_until(lambda: get(both.web, where)[0] == 200, "the server has read this database's keys")
    assert not Suppression.objects.exists()
    for _ in range(2):
        status, answer = post(both, where)
        assert status == 200 and b"set-cookie" not in answer.lower()
    assert Suppression.objects.get().source.startswith("one-click, campaign ")


def test_a_large_body_is_not_read_and_a_foreign_link_changes_nothing(both, settings) -> None:
    settings.PUBLIC_URL = BASE
    where = link()
    assert post(both, where, b"x" * 5_000)[0] in (413, 0)
    assert post(both, where[:-2] + "AA")[0] == 404
    assert not Suppression.objects.exists()
