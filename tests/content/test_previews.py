"""Letters can be looked at before they go, and one be sent to oneself: both are made as the sender makes them."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from campaigns.engine.claiming import claims, letters
from campaigns.engine.claiming.letters import ClaimedMessage
from campaigns.models import Campaign, Job, Message
from tests import factories as make
from tests.lists.test_intake_command import files, nothing_is_stored, send, vendor

__all__ = ["files", "vendor"]
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def sponsor() -> None:
    make.sponsor("Velma")


def sent(job: Job, message: Message) -> tuple[str, str, str]:
    """As the sender makes it."""
    type(job.vendor).objects.update(settings={"url": "http://127.0.0.1:9/letters"})
    leased = letters.load_leased_job(claims.Lease(job.pk, job.fence))
    letter = leased.letter(ClaimedMessage(message.pk, message.reference, message.recipient, message.params))
    return letter.recipient, letter.subject, letter.body


def test_a_preview_shows_the_first_letters_and_stores_nothing(vendor, files: Path) -> None:
    text = send(files, "--preview", "2")
    assert text.splitlines()[:4] == ["To: ann@sandbox.example", "Subject: Hello Ann", "", "Dear Ann,"]
    assert "To: bob@sandbox.example" in text and nothing_is_stored()
    assert "bob@" not in send(files, "--preview", "1")


def test_a_preview_is_what_is_sent(vendor, files: Path) -> None:
    shown = json.loads(send(files, "--preview", "2", "--json"))
    send(files)
    job = Job.objects.get()
    made = [sent(job, message) for message in Message.objects.order_by("id")]
    assert made == [(one["to"], one["subject"], one["body"]) for one in shown]


def test_a_test_send_is_a_campaign_of_one_letter_to_oneself(vendor, files: Path) -> None:
    facts = json.loads(send(files, "--test-to", "Me@EXAMPLE.com", "--json"))
    job, message = Job.objects.get(), Message.objects.get()
    assert (facts["recipients"], facts["status"], job.campaign.name) == (1, "DISPATCHED", "Test: people")
    assert sent(job, message) == ("Me@example.com", "Hello Ann", "Dear Ann,\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--test-to", "me"], "nothing was stored\nthe test-send: 'me' is not an e-mail address"),
        (["--preview", "21"], "--preview shows 1 to 20 letters"),
        (["--preview", "-1"], "--preview shows 1 to 20 letters"),
    ],
)
def test_what_cannot_be_shown_or_sent_is_said(vendor, files: Path, options: list[str], message: str) -> None:
    with pytest.raises(CommandError) as error:
        send(files, *options)
    assert str(error.value).startswith(message) and not Campaign.objects.exists()


def test_the_whole_list_is_checked_for_both(vendor, files: Path) -> None:
    (files / "people.csv").write_text("email,name\nann@sandbox.example,Ann\nnobody,Bob\n", encoding="utf-8")
    for options in (["--preview", "1"], ["--test-to", "me@example.com"]):
        with pytest.raises(CommandError, match="row 3: 'nobody' is not an e-mail address"):
            send(files, *options)
    assert nothing_is_stored()


def test_a_link_to_unsubscribe_is_shown_by_a_preview_and_refused_where_there_is_none(
    vendor, files: Path, settings: Any
) -> None:
    (files / "body.txt").write_text("Dear {{ name }}: {{ unsubscribe_url }}")
    with pytest.raises(CommandError, match="unsubscribe_url"):
        send(files, "--preview", "1")
    settings.PUBLIC_URL = "https://mail.example.org"
    assert "Ann: https://mail.example.org/unsubscribe/preview" in send(files, "--preview", "1")
    with pytest.raises(CommandError, match="Velma may not mark campaigns as transactional"):
        send(files, "--transactional")
    with pytest.raises(CommandError, match="Velma has no topic 'offers'"):
        send(files, "--topic", "offers")
    assert nothing_is_stored()
    call_command("topic", "add", "Velma", "offers", "Weekly offers")
    send(files, "--topic", "offers")
    assert Campaign.objects.get().topic.name == "offers"
