"""Ten letters to oneself in an hour, for each login and key of a sponsor: one count, whatever door stores them."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from campaigns.lists import intake
from campaigns.lists.intake import BadInput, to_oneself
from campaigns.lists.intake.to_oneself import HOUR, MOST, TooManyToOneself
from campaigns.models import Campaign, Draft, Job, Session, Sponsor
from tests import factories
from tests.front.program import Program, api_vendor, fresh, letter, problem
from tests.lists.test_intake_command import files, send, vendor
from tests.lock_waits import count_lock_waits
from tests.owners.test_wizard import ann, login, ready
from tests.waiting import wait_until
from vendors.history import Actor
from vendors.management import arguments
from vendors.models import Credential

__all__ = ["ann", "files", "fresh", "login", "vendor"]
pytestmark = pytest.mark.django_db
ANN = Actor("ann")


def sent_already(by: str, of: Sponsor, number: int = MOST, ago: timedelta = timedelta(minutes=1)) -> None:
    """So many letters to oneself of the last minutes; the oldest one first."""
    login = Credential.objects.first() or factories.credential()
    now = timezone.now()
    Campaign.objects.bulk_create(
        Campaign(
            sponsor=of,
            credential=login,
            name="Test: May",
            first_message=1,
            size=1,
            made_by=by,
            to_oneself=True,
            created_at=now - ago + timedelta(seconds=one),
        )
        for one in range(number)
    )


def stored() -> int:
    return Job.objects.count()


def accept(of: Sponsor, login: Credential, by: Actor | None = ANN, **more: Any) -> Job:
    facts = {"name": "May", "subject": "", "body": "Hello", "html": False, "at": "now", "to_oneself": True, **more}
    facts.setdefault("recipients", [("ann@own.example", {})])
    return intake.store_campaign(sponsor=of, credential=login, by=by, **facts)


def test_by_the_command_the_eleventh_is_refused_and_the_list_itself_still_goes(vendor, files) -> None:
    velma = factories.sponsor("Velma")
    sent_already(arguments.shell_user(), velma, MOST - 1)
    assert "is on its way" in send(files, "--test-to", "me@example.com")
    with pytest.raises(CommandError, match=r"^nothing was stored\n10 letters to oneself .*, the next one at .* UTC"):
        send(files, "--test-to", "me@example.com")
    assert stored() == 1
    send(files)
    assert stored() == 2


def test_by_a_key_the_eleventh_is_told_when_and_a_repeat_is_none() -> None:
    program, vendor = Program(), api_vendor()
    sent_already(program.key.prefix, program.sponsor, MOST - 1, HOUR - timedelta(minutes=10))
    body = letter(vendor, [f"p{one}@sandbox.example" for one in range(3)], test_to="me@sandbox.example")
    assert program.send(body, "tenth").status_code == 202
    answer = program.send(body, "eleventh")
    assert "10 letters to oneself" in problem(answer, "rate-limited", 429)["detail"]
    assert 590 <= int(answer.headers["Retry-After"]) <= 601
    assert program.send(body, "tenth").headers["Idempotent-Replayed"] == "true"
    assert (stored(), Session.objects.count()) == (1, 1)
    assert program.send({**body, "test_to": None}, "all").status_code == 202
    assert Program(program.sponsor).send(body).status_code == 202, "another key"
    Campaign.objects.filter(to_oneself=True).update(created_at=timezone.now() - HOUR)
    assert program.send(body, "eleventh").status_code == 202, "an hour later, by the same key"


def test_by_a_page_drafts_and_the_command_are_counted_together(client: Client, login, ann) -> None:
    draft, of = ready(client, login), Sponsor.objects.get()

    def test() -> str:
        draft.refresh_from_db()
        fields = {"number": "1", "tests": draft.tests, "address": "ann@own.example"}
        return client.post(reverse("draft_test", args=[draft.pk]), fields, follow=True).content.decode()

    sent_already("ann", of, MOST - 2)
    accept(of, login, Actor("ann"))
    assert "A test is on its way" in test()
    assert "10 letters to oneself can be sent in an hour" in test()
    assert (stored(), Draft.objects.get().tests) == (2, 1)


def test_what_others_have_sent_or_is_an_hour_old_does_not_count() -> None:
    of, login = factories.sponsor(), factories.credential()
    sent_already("ann", factories.sponsor())
    sent_already("bob", of)
    sent_already("ann", of, MOST, HOUR + timedelta(minutes=1))
    sent_already("ann", of, MOST - 1)
    accept(of, login)
    with pytest.raises(TooManyToOneself) as refused:
        accept(of, login)
    in_an_hour = datetime.now(UTC) + HOUR - timedelta(minutes=1)
    assert abs(refused.value.again - in_an_hour) < timedelta(seconds=30)


def test_it_has_one_recipient_and_somebody_who_sends_it() -> None:
    of, login = factories.sponsor(), factories.credential()
    with pytest.raises(BadInput, match="it must be known who sends"):
        accept(of, login, None)
    with pytest.raises(BadInput, match="has one recipient"):
        accept(of, login, recipients=[("a@own.example", {}), ("b@own.example", {})])
    assert stored() == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("door", ["api", "others"])
def test_who_comes_while_the_tenth_is_being_stored_waits_for_it_and_is_refused(door: str) -> None:
    program, vendor = Program(), api_vendor()
    by, login = Actor(program.key.prefix), vendor.credentials.get()
    sent_already(by.name, program.sponsor, MOST - 1)

    def ask() -> bool:
        try:
            if door == "api":
                body = letter(vendor, "p@sandbox.example", test_to="me@sandbox.example")
                return bool(program.send(body).status_code != 429)
            accept(program.sponsor, login, by)
        except TooManyToOneself:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic(), connection.cursor() as cursor:
            sent_already(by.name, program.sponsor, 1)
            to_oneself.count_letter(cursor, factories.job(Campaign.objects.first()).pk)
            asked = pool.submit(ask)
            wait_until(lambda: asked.done() or count_lock_waits(), "the second one waits")
        assert not asked.result()
    assert stored() == 1
