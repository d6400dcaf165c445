"""Jobs over a vendor that takes print files: real rows, a real sender, a real SFTP server; its files decide."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from campaigns.engine import audit, fetched_reports
from campaigns.engine.doubts import reconciler
from campaigns.lists import estimates
from campaigns.models import Job, Message, MessageEvent
from campaigns.reporting import accounts
from mailhub.operations import dashboard
from tests import factories, forks, programs
from tests.faults.checker import sums
from tests.faults.sending import send_the_rest, taken
from tests.lock_waits import count_lock_waits
from tests.print.printed_once import printed_once
from tests.print.sftp_server import SftpVendor
from tests.waiting import exit_of, wait_until
from vendors import prices
from vendors.history import Actor
from vendors.models import Price
from vendors.printing import acknowledgements, pages

__all__ = ["printed_once"]
pytestmark = [
    pytest.mark.slow("processes"),
    pytest.mark.usefixtures("printed_once"),  # a sender that is killed is a process of its own and prints itself
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(bool(pages.missing_libraries("asyncssh")), reason=pages.missing_libraries("asyncssh")),
]

BY = Actor("ann")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SftpVendor]:
    with SftpVendor(tmp_path) as running:
        yield running


def job(server: SftpVendor, size: int, **more: Any) -> Job:
    vendor = factories.vendor(adapter="print_file", channel="print", settings=server.settings(**more))
    made = taken(
        [f"Ann {n}\nMain Street {n}" for n in range(size)], factories.credential(vendor, secret=server.secret())
    )
    made.campaign.body, made.campaign.html = "<p>Dear {{ recipient }}</p>", True
    made.campaign.save()
    return made


def references() -> list[str]:
    return [row.reference for row in Message.objects.order_by("id")]


def file_of(*rows: tuple[str, str]) -> str:
    return "reference,status,id,reason\n" + "".join(
        f"{name},{status},am-{name},{'no such town' if status == 'refused' else ''}\n" for name, status in rows
    )


def fetched() -> fetched_reports.FetchedFromVendor:
    (found,) = fetched_reports.fetch_all()
    assert not found.why, found.why
    return found


def broken() -> list[str]:
    return [f"{check.question}: {check.examples}" for check in audit.ask_all_questions() if not check.is_kept]


def test_each_letter_is_accepted_when_the_vendors_file_says_so_and_no_earlier(server: SftpVendor) -> None:
    made = send_the_rest(job(server, 6))
    assert sums() == {"in doubt": 6} and sum(server.visible.values()) == 1
    assert dashboard.read_dashboard().attention == 0, "it is too early for alarm"
    names = references()
    server.acknowledge("a.csv", file_of(*[(name, "accepted") for name in names[:3]], (names[3], "refused")))
    assert fetched().reports == 4
    assert sums() == {"accepted": 3, "refused": 1, "in doubt": 2}
    refused = Message.objects.get(error_code__isnull=False)
    assert (
        refused.error_sub_type == "no such town" and Message.objects.filter(message_id__startswith="am-").count() == 3
    )
    assert not fetched().files, "it was named as read"
    server.acknowledge("b.csv", file_of(*[(name, "accepted") for name in names], ("strange", "accepted")))
    found = fetched()
    assert (found.reports, found.unknown) == (7, 1)
    assert sums() == {"accepted": 6}, "acceptance overrules what the vendor refused before"
    made.refresh_from_db()
    assert (made.accepted, made.refused, made.in_doubt) == (6, 0, 0) and broken() == []
    server.acknowledge("c.csv", file_of((names[0], "failed"), (names[1], "delivered")))
    fetched()
    assert Message.objects.filter(report="bounced").count() == Message.objects.filter(report="delivered").count() == 1
    assert MessageEvent.objects.filter(kind="failed").count() == 2 and broken() == []


def test_a_batch_that_nobody_acknowledges_is_never_called_again_and_is_an_alarm_in_the_end(server: SftpVendor) -> None:
    send_the_rest(job(server, 3, acknowledged_within="86400"))
    assert reconciler.reconcile_due_doubts() == 0, "it is not due"
    Message.objects.update(settle_at=timezone.now(), sent_at=timezone.now() - timedelta(days=1))
    assert reconciler.reconcile_due_doubts() == 3
    assert sums() == {"in doubt": 3} and sum(server.visible.values()) == 1
    assert dashboard.read_dashboard().attention == 3
    assert not Message.objects.filter(settle_at__isnull=False).exists(), "only a person or the vendor's file settles it"
    server.acknowledge("late.csv", file_of(*[(name, "accepted") for name in references()]))
    fetched()
    assert sums() == {"accepted": 3} and broken() == []


def test_a_file_that_is_still_written_is_read_again_until_it_is_whole(server: SftpVendor) -> None:
    send_the_rest(job(server, 2))
    first, second = references()
    path = server.acknowledge("a.csv", file_of((first, "accepted")) + second[:20])
    fetched()
    assert sums() == {"accepted": 1, "in doubt": 1} and path.exists()
    path.write_text(file_of((first, "accepted"), (second, "accepted")))
    fetched()
    assert sums() == {"accepted": 2} and not path.exists()
    path = server.acknowledge("never-ended.csv", file_of((first, "accepted")).rstrip("\n"))
    fetched()
    assert path.exists()
    path.write_text(f"reference,status\n{first},delivered")
    os.utime(path, (time.time() - 700,) * 2)
    fetched()
    assert not path.exists() and Message.objects.get(report="delivered").reference == first, "also its last line"


def test_garbage_is_told_and_harms_no_row_beside_it(server: SftpVendor, caplog: Any) -> None:
    send_the_rest(job(server, 2))
    first, second = references()
    server.acknowledge("a.csv", f"\ufeffStatus;Reference\nwhatever;{first}\n;\nACCEPTED;{second}\naccepted;\n\0\n")
    server.acknowledge("b.csv", "these are not;the columns\n1;2\n")
    server.acknowledge("c.csv", "")
    found = fetched()
    assert (found.files, found.left_out) == (3, 3)
    assert sums() == {"accepted": 1, "in doubt": 1}
    assert "a.csv: row 2 has the status 'whatever'" in caplog.text and "b.csv: it has no columns" in caplog.text


def test_a_refusal_that_comes_before_the_answer_of_the_call_waits_for_it(server: SftpVendor) -> None:
    made = job(server, 1)
    path = server.acknowledge("early.csv", file_of((references()[0], "refused")))
    fetched()
    assert path.exists() and sums() == {"waiting": 1}
    send_the_rest(made)
    fetched()
    assert not path.exists() and sums() == {"refused": 1} and broken() == []


def test_a_vendor_that_is_away_is_told_and_read_later(server: SftpVendor) -> None:
    send_the_rest(job(server, 1))
    server.acknowledge("a.csv", file_of((references()[0], "accepted")))
    server.stop()
    with pytest.raises(CommandError, match="no connection"):
        call_command("fetch_reports")
    assert sums() == {"in doubt": 1}
    server.start(server.port)
    call_command("fetch_reports")
    assert sums() == {"accepted": 1}


def test_many_letters_are_few_batches_and_each_is_in_one(server: SftpVendor) -> None:
    send_the_rest(job(server, 250, batch="100"))
    assert sums() == {"in doubt": 250}
    found = [line.partition(",")[0] for path in server.manifests() for line in path.read_text().splitlines()[1:]]
    own = [name for name in found if len(name) > 36]
    assert sorted(own) == sorted(references()) and len(server.manifests()) < 10


def program(code: str, **more: str) -> forks.Process:
    settings = {"DJANGO_SETTINGS_MODULE": "mailhub.settings", **more}
    text = f"import django; django.setup(); {code}"
    return forks.start(["-c", text], env=programs.environment(**settings))


def killed_while_sending(server: SftpVendor, made: Job, step: str, end: str, wild: str) -> None:
    """By SIGKILL, when the server does not answer this step."""
    server.wild[step, end] = wild
    sender = program(f"from campaigns.engine import sending; sending.send_claimed_job({made.pk}, {made.fence})")
    try:
        wait_until(lambda: not server.wild and (wild == "hang" or bool(server.visible)), "it comes to this step")
    finally:
        sender.send_signal(signal.SIGKILL)
        sender.wait()


def settle_now() -> None:
    past = timezone.now() - timedelta(hours=1)
    Message.objects.update(settle_at=past, sent_at=past)
    while Message.objects.filter(settle_at__lte=timezone.now()).exists():
        reconciler.reconcile_due_doubts()


def in_manifests(server: SftpVendor) -> list[str]:
    rows = [line for path in server.manifests() for line in path.read_text().splitlines()[1:]]
    return sorted(name for line in rows if len(name := line.partition(",")[0]) > 36)


@pytest.mark.parametrize(
    ("step", "end"), [("open", ".pdf"), ("write", ".pdf"), ("write", ".part"), ("rename", ".pdf"), ("rename", "")]
)
def test_whoever_kills_the_sender_before_a_batch_is_visible_loses_nothing_and_makes_no_second_one(
    server: SftpVendor, step: str, end: str
) -> None:
    made = job(server, 3, manifests_stay="yes", timeout="20", making="60", uploading="5")
    killed_while_sending(server, made, step, end, "hang")
    send_the_rest(made)
    assert sums() == {"in doubt": 3} and not server.visible
    settle_now()
    assert sums() == {"in doubt": 3} and not server.visible, "the rename may still come: a person decides"
    assert dashboard.read_dashboard().attention == 3


@pytest.mark.parametrize("stays", ["yes", "no"])
def test_whoever_kills_the_sender_before_it_records_a_batch_that_is_visible_makes_no_second_one(
    server: SftpVendor, stays: str
) -> None:
    made = job(server, 3, manifests_stay=stays, timeout="20", making="60", uploading="5")
    killed_while_sending(server, made, "rename", "", "done and hang")
    send_the_rest(made)
    assert sums() == {"in doubt": 3} and dashboard.read_dashboard().attention == 3
    settle_now()
    assert sums() == {"in doubt": 3} and in_manifests(server) == sorted(references())
    server.acknowledge("a.csv", file_of(*[(name, "accepted") for name in references()]))
    fetched()
    assert sums() == {"accepted": 3} and broken() == []


def test_a_sender_killed_before_its_batch_without_a_promise_about_manifests_leaves_it_to_a_person(
    server: SftpVendor,
) -> None:
    made = job(server, 3, timeout="20", making="60", uploading="5")
    killed_while_sending(server, made, "write", ".pdf", "hang")
    send_the_rest(made)
    settle_now()
    assert sums() == {"in doubt": 3} and not server.visible and dashboard.read_dashboard().attention == 3


def test_whoever_kills_the_reader_after_it_stored_a_file_has_it_read_again(server: SftpVendor) -> None:
    send_the_rest(job(server, 2))
    path = server.acknowledge("a.csv", file_of((references()[0], "accepted"), (references()[1], "refused")))
    reader = program(
        "from campaigns.engine import fetched_reports as f; f.fetch_all()", MAILHUB_FAILPOINTS="after_fetched"
    )
    assert exit_of(reader) == -signal.SIGKILL
    assert path.exists() and sums() == {"accepted": 1, "refused": 1}
    fetched()
    assert not path.exists() and sums() == {"accepted": 1, "refused": 1} and broken() == []


def test_whoever_kills_the_reader_before_it_commits_has_it_read_again(server: SftpVendor) -> None:
    made = send_the_rest(job(server, 2))
    path = server.acknowledge("a.csv", file_of(*[(name, "accepted") for name in references()]))
    with psycopg.connect(programs.environment()["DATABASE_URL"]) as other, other.transaction():
        other.execute("SELECT FROM campaigns_job WHERE id = %s FOR UPDATE", [made.pk])
        reader = program("from campaigns.engine import fetched_reports as f; f.fetch_all()")
        try:
            wait_until(count_lock_waits, "it waits for the job")
        finally:
            reader.send_signal(signal.SIGKILL)
            reader.wait()
    assert path.exists() and sums() == {"in doubt": 2}
    fetched()
    assert not path.exists() and sums() == {"accepted": 2} and broken() == []


def test_two_readers_at_once_store_each_report_once(server: SftpVendor) -> None:
    made = send_the_rest(job(server, 40))
    server.acknowledge("a.csv", file_of(*[(name, "accepted") for name in references()]))
    server.acknowledge("b.csv", file_of(*[(name, "delivered") for name in references()]))
    readers = [program("from campaigns.engine import fetched_reports as f; f.fetch_all()") for _ in range(3)]
    assert [exit_of(one) for one in readers] == [0, 0, 0]
    fetched()
    made.refresh_from_db()
    assert sums() == {"accepted": 40} and (made.accepted, made.in_doubt, made.delivered) == (40, 0, 40)
    assert broken() == []


def test_files_that_cannot_be_named_as_read_hold_up_no_other(server: SftpVendor, caplog: Any) -> None:
    send_the_rest(job(server, 2))
    for number, name in enumerate(references()):
        server.acknowledge(f"{number}.csv", file_of((name, "accepted")))
    server.wild["rename", ".read"] = "denied"
    [found] = fetched_reports.fetch_all()
    assert sums() == {"accepted": 2} and "cannot be named as read" in found.why
    assert "reports of" in caplog.text and len(list((server.root / "acks").glob("*.csv"))) == 1
    fetched()
    assert not list((server.root / "acks").glob("*.csv"))


def test_of_more_files_than_are_read_at_once_each_is_read(server: SftpVendor, monkeypatch: Any) -> None:
    monkeypatch.setattr(acknowledgements, "MOST_FILES", 2)
    send_the_rest(job(server, 1))
    for number in range(6):
        (server.root / "acks" / f"{number}.csv").write_text("reference,status\nstill writ")
    server.acknowledge("z.csv", file_of((references()[0], "accepted")))
    for _ in range(200):
        fetched()
        if sums() == {"accepted": 1}:
            return
    raise AssertionError("the last one is never read")


def test_a_folder_that_is_not_there_is_told(server: SftpVendor, caplog: Any) -> None:
    send_the_rest(job(server, 1))
    (server.root / "acks").rmdir()
    with pytest.raises(CommandError, match="NoSuchFile"):
        call_command("fetch_reports")
    assert "cannot be fetched" in caplog.text and sums() == {"in doubt": 1}


def test_an_acknowledgement_says_nothing_of_another_vendors_letters(server: SftpVendor) -> None:
    send_the_rest(job(server, 1))
    mine = references()
    other = taken(["Bob\nStreet 1"], factories.credential(factories.vendor()))
    theirs = [one.reference for one in Message.objects.filter(campaign=other.campaign)]
    server.acknowledge("a.csv", file_of((theirs[0], "accepted"), (theirs[0], "refused"), (mine[0], "accepted")))
    found = fetched()
    assert found.unknown >= 1 and sums() == {"accepted": 1, "waiting": 1}


def test_a_large_file_is_read_part_by_part(server: SftpVendor, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(acknowledgements, "PART", 200)
    send_the_rest(job(server, 20))
    names = references()
    rows = [(name, "accepted") for name in names[:18]] + [(names[18], "lost"), (names[19], "refused")]
    path = server.acknowledge("a.csv", file_of(*rows))
    found = fetched()
    assert sums() == {"accepted": 18, "refused": 1, "in doubt": 1} and not path.exists()
    assert found.files > 5 and "a.csv: row 20 has the status 'lost'" in caplog.text


def test_of_a_file_without_end_only_so_much_is_read(server: SftpVendor, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(acknowledgements, "PART", 1000)
    monkeypatch.setattr(acknowledgements, "MOST", 5000)
    send_the_rest(job(server, 1))
    path = server.acknowledge("bomb.csv", "PK\x03\x04" + "\0" * 100_000)
    assert fetched().files <= 5 and path.exists() and "what follows is not read" in caplog.text


def test_pages_are_told_before_taken_in_the_window_and_charged_once_they_are_accepted(server: SftpVendor) -> None:
    made = job(server, 4, unit="page")
    vendor = made.vendor
    prices.add_price(
        Price(
            vendor=vendor,
            currency="EUR",
            per_unit=Decimal("0.19"),
            per_message=Decimal("0.62"),
            since=prices.pricing_day(),
        ),
        BY,
    )
    made.campaign.body = "<p>Dear</p>" + "<p style='break-before: page'>more</p>" * 2
    made.campaign.save()
    amount = 4 * Decimal("0.62") + 12 * Decimal("0.19")
    sentence = estimates.describe_stored_campaign(made.campaign)
    assert "4 messages: 12 pages or sheets" in sentence and f"{amount} EUR" in sentence, sentence
    send_the_rest(made)
    made.refresh_from_db()
    [account] = accounts.accounts_of_months(*accounts.past_twelve_months())
    assert made.units == 12 and sums() == {"in doubt": 4}
    assert (account.messages, account.in_doubt, account.in_doubt_amount) == (0, 4, amount)
    server.acknowledge("a.csv", file_of(*[(name, "accepted") for name in references()]))
    fetched()
    [account] = accounts.accounts_of_months(*accounts.past_twelve_months())
    assert (account.messages, account.units, account.amount) == (4, 12, amount) and broken() == []
    assert account.in_doubt == 0


def test_what_acknowledgement_files_may_look_like() -> None:
    now = datetime.now(UTC)
    for text in (
        b'"reference";"status"\r\n"a";"accepted"\r\n',
        "id,Status,reference\n7,Accepted,a\n".encode("utf-8-sig"),
    ):
        said = acknowledgements.read_acknowledgements(text, now)
        assert [(one.reference, one.kind) for one in said.reported] == [("a", "accepted")] and said.whole
    said = acknowledgements.read_acknowledgements("reference,status,reason\na,refused,Straße\n".encode("cp1252"), now)
    assert said.reported[0].note == "Straße"
    said = acknowledgements.read_acknowledgements(
        b'reference,status,reason\na,accepted,"never closed\nb,accepted,\n', now
    )
    assert [one.reference for one in said.reported] == ["a", "b"], "a quote costs no other row"
    long = acknowledgements.read_acknowledgements(
        b"reference,status\n" + b'"' + b"x" * 200_000 + b"\na,accepted\n", now
    )
    assert long.left_out >= 1
