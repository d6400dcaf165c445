"""What somebody meets on the first day: an empty message, a wait that cannot end, a webhook without a server."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from campaigns.integrations import listening
from campaigns.integrations.results import writer
from campaigns.integrations.webhooks import delivery, events
from campaigns.lists.intake.contents import is_blank
from campaigns.models import Campaign, Identity, Job, Session, Sponsor, WebhookCall
from campaigns.operations import job_commands, pausing
from tests import factories
from tests.campaigns.rows import accepted, logged, manage
from tests.front.program import Program, api_vendor, fresh, letter, pointers
from tests.front.test_sessions import end
from vendors import webhook_http
from vendors.history import Actor
from vendors.models import Credential

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
EMPTY = "the message is empty: write its text"


@pytest.mark.parametrize(
    ("body", "html", "blank"),
    [
        ("", False, True),
        (" \n\t\n", False, True),
        ("{{ name }}", False, False),
        ("<html><head><style>p {color: red}</style></head><body><p>&nbsp;</p></body></html>", True, True),
        ("<!-- nothing --><br>", True, True),
        ('<img src="cid:logo">', True, False),
        ("<p>{{ text }}</p>", True, False),
        ("<table background=http://img.example/a.png></table>", True, False),
        ('<div style="background: url(cid:logo)"></div>', True, False),
        ("<p></p>", False, False),
    ],
)
def test_a_message_is_empty_if_nobody_sees_anything(body: str, html: bool, blank: bool) -> None:
    assert is_blank(body, html) is blank


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "list.csv").write_text("email,name\nann@example.org,Ann\n")
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "terms.txt").write_text("the terms")
    return tmp_path


def order(files: Path, *more: str) -> list[str]:
    sponsor = Sponsor.objects.get_or_create(name="Velma")[0]
    of = {"sponsor": sponsor, "name": "news", "channel": "email", "default": True}
    Identity.objects.get_or_create(**of, defaults={"from_address": "velma@one.invalid"})
    vendor = factories.credential(factories.vendor(adapter="smtp", settings={"host": "127.0.0.1", "port": 9})).vendor
    basics = ["--sponsor", "Velma", "--vendor", vendor.slug, "--subject", "Hello", "--body", str(files / "empty.txt")]
    return [str(files / "list.csv"), *basics, *more]


def test_the_command_stores_no_empty_campaign(files: Path) -> None:
    factories.sponsor("Velma")
    with pytest.raises(CommandError, match=EMPTY):
        manage("send_campaign", *order(files))
    assert not Campaign.objects.exists()
    manage("send_campaign", *order(files, "--attach", str(files / "terms.txt")))
    assert Campaign.objects.count() == 1, "a mail may consist of a file alone"


def test_the_api_answers_422_to_an_empty_message(fresh: None) -> None:
    program, vendor = Program(), api_vendor()
    assert pointers(program.send(letter(vendor) | {"body": " \n"})) == {"/body": "empty"}
    assert pointers(program.send(letter(vendor) | {"body": "<p> </p>", "html": True})) == {"/body": "empty"}


def test_who_waits_for_a_paused_campaign_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    job = logged(3, [])
    Credential.objects.filter(pk=job.credential_id).update(paused=True, paused_reason="http 401")
    with pytest.raises(SystemExit) as ended:
        call_command("retry_job", str(job.pk), "--wait", "--yes")
    said = capsys.readouterr().out
    assert ended.value.code == 4, said
    assert "1 job: 3 not sent; " in said and "http 401" in said and "manage.py credential resume" in said


def test_the_sentence_after_sending_says_that_its_login_is_paused(files: Path) -> None:
    factories.sponsor("Velma")
    (files / "empty.txt").write_text("Good day")
    command = order(files, "--at", "now")
    Credential.objects.update(paused=True, paused_reason="http 401")
    said = manage("send_campaign", *command)
    assert "is on its way" not in said and "waits: " in said and "http 401" in said


def test_a_campaign_paused_by_a_person_ends_the_wait(capsys: pytest.CaptureFixture[str]) -> None:
    job = factories.campaign_with_job(3, status="DISPATCHED")
    pausing.pause_jobs([job.pk], Actor("ann"), "the picture is missing")
    with pytest.raises(SystemExit) as ended:
        job_commands.wait_for_jobs(BaseCommand(), [job.pk], {"json": True}, ())
    facts = json.loads(capsys.readouterr().out)
    assert ended.value.code == 4 and facts["paused"] == "paused by ann: the picture is missing"


def test_http_is_refused_with_the_setting_that_allows_it(settings: Any) -> None:
    settings.WEBHOOK_NETWORKS = []
    with pytest.raises(webhook_http.Forbidden, match=re.escape("WEBHOOK_NETWORKS=127.0.0.0/8")):
        webhook_http.check_url("http://127.0.0.1:8055/")


def test_a_webhook_is_tried_with_the_local_receiver(settings: Any, fresh: None) -> None:
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    program, lines = Program(), list[str]()
    secret = events.secret_of(b"s" * 32)
    for known in ([secret], [events.secret_of(b"o" * 32)]):
        server = listening.listen_for_events(0, known, lines.append)
        url = f"http://127.0.0.1:{server.server_port}/"
        hook, _ = events.create_webhook(program.sponsor, url, ["message.sent"], test=False, secret=secret)
        thread = threading.Thread(target=listening.take_posts, args=(server, 1))
        thread.start()
        program.send(letter(api_vendor()))
        job = Job.objects.latest("id")
        end(job, [accepted()])
        writer.write_result(Session.objects.latest("id").pk)
        delivery.deliver_due()
        thread.join()
        events.remove_webhook(hook.pk)
    assert "message.sent" in lines[0] and lines[0].endswith("(signature right)")
    assert "(the signature is not" in lines[1]
    assert WebhookCall.objects.count() == 0
