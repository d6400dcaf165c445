"""A list of which only a part arrives at the web server is none: nothing of it is stored."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from campaigns.models import Draft
from mailhub import installation
from tests import factories
from tests.front.doors import connect, doors, head
from tests.front.program import fresh

__all__ = ["fresh"]
pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
ROWS = b"".join(b"reader%d@sandbox.example\r\n" % number for number in range(100_000))
PARTS = b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'


@pytest.fixture(scope="module")
def web(django_db_setup: None) -> Any:
    with doors() as running:
        yield running.web


def test_of_a_list_that_is_cut_off_nothing_is_stored(web: int, fresh: None) -> None:
    installation.create_groups()
    sponsor = factories.sponsor("Acme")
    login = factories.credential(factories.vendor(casters=None))
    ann = User.objects.create_user("ann")
    ann.groups.set(Group.objects.filter(name="campaign owner"))
    sponsor.users.add(ann)
    client = Client()
    client.force_login(ann)
    given = {"sponsor": sponsor.pk, "name": "May", "subject": "Hi", "text": "Hi", "by": f"credential:{login.pk}"}
    client.post("/campaigns/new/", given)
    draft = Draft.objects.get()
    path = reverse("draft_list", args=[draft.pk])
    client.get(reverse("draft_recipients", args=[draft.pk]))
    token = client.cookies["csrftoken"].value
    fields = [(b"csrfmiddlewaretoken", b"", token.encode()), (b"seen", b"", draft.seen.encode())]
    body = b"".join(PARTS % one for one in fields)
    body += PARTS % (b"list", b'; filename="large.csv"', b"email\r\n" + ROWS) + b"--b--\r\n"
    cookies = "; ".join(f"{name}={one.value}" for name, one in client.cookies.items())
    kind = "multipart/form-data; boundary=b"

    def sent(part: bytes) -> bytes:
        with connect(web) as connection:
            connection.sendall(head("POST", path, Cookie=cookies, Content_Type=kind, Content_Length=len(body)) + part)
            if len(part) < len(body):
                connection.shutdown(1)  # nothing more comes
            return connection.recv(500)

    answer = sent(body[: len(body) // 2])
    draft.refresh_from_db()
    assert (draft.list_name, draft.list_bytes) == ("", 0), answer
    assert b" 302 " in sent(body)
    draft.refresh_from_db()
    assert draft.list_bytes == len(ROWS) + 7
