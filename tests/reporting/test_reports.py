"""A campaign's recipients as a file: the list's columns in its order, what came of each, and no formula."""

import csv
import io
import tracemalloc
import zipfile
from datetime import UTC, datetime

import pytest
from django.core.management import CommandError, call_command

from campaigns.lists import intake
from campaigns.lists.intake import spreadsheets
from campaigns.models import Job, Message
from campaigns.reporting import export, xlsx_writer
from campaigns.reporting.export import Export
from campaigns.reporting.own_files import REPORT
from tests import factories
from tests.campaigns.rows import accepted, expired, in_doubt, logged, refused, suppressed

pytestmark = pytest.mark.django_db
SENT = datetime(2026, 5, 1, 8, tzinfo=UTC)


def read(chunks):
    return list(csv.reader(io.StringIO(b"".join(chunks).decode("utf-8-sig"))))


@pytest.fixture
def job():
    """Each kind of end, one that is in a call, one that waits; with fields that do harm in a spreadsheet."""
    shapes = [accepted() | {"sent_at": SENT}, refused(), expired(), suppressed(), in_doubt()]
    made = logged(7, shapes)
    rows = Message.objects.filter(id__gte=made.first_message, id__lt=made.end)
    rows.update(params={"zip": "01234", "name": "=HYPERLINK(1)", "a": "-5"})
    made.campaign.columns = ["name", "zip", "a"]
    made.campaign.save()
    return made


def test_the_columns_of_the_list_in_its_order_then_what_came_of_each(job):
    header, *rows = read(export.csv_chunks(Export(job.campaign, "email")))
    assert header == ["recipient", "name", "zip", "a", *REPORT]
    assert rows[0] == [
        "r1@sandbox.example", "'=HYPERLINK(1)", "01234", "-5", "Sent", "", "", "v-1", "2026-05-01T08:00:00+00:00", "",
        "1", "",
    ]  # fmt: skip
    assert [row[4] for row in rows] == [
        "Sent",
        "Failed",
        "Expired",
        "Suppressed",
        "Needs attention",
        "Stopped",
        "Stopped",
    ]
    assert rows[1][5:7] == ["The vendor has refused it, with its code bounce.", "bounce"]


def test_a_cause_stands_in_the_last_column_and_chooses_rows(job, capsysbinary):
    rows = Message.objects.filter(id__gte=job.first_message)
    rows.filter(error_code="bounce").update(cause="us")
    rows.filter(error_code="suppressed").update(cause="recipient")
    found = read(export.csv_chunks(Export(job.campaign, "email", causes=["us", "capacity"])))
    assert found[0][-1] == "cause" and [row[-1] for row in found[1:]] == ["Our account"]
    call_command("report", str(job.campaign_id), csv="-", cause=["recipient"])
    assert [row[-1] for row in read([capsysbinary.readouterr().out])[1:]] == ["The recipient"]
    with pytest.raises(CommandError, match="'fate' is no cause"):
        call_command("report", str(job.campaign_id), cause=["fate"])


def test_only_some_states_and_without_addresses(job):
    rows = read(export.csv_chunks(Export(job.campaign, "email", export.FAILURES, whole=False)))
    assert rows[0] == ["recipient", *REPORT]
    assert [row[:2] for row in rows[1:]] == [
        ["r…@sandbox.example", word] for word in ("Failed", "Expired", "Suppressed")
    ]


def test_what_is_read_in_slices_is_whole(job, monkeypatch):
    whole = read(export.csv_chunks(Export(job.campaign, "email")))
    for number in (1, 2, 3):
        monkeypatch.setattr(export, "AT_ONCE", number)
        monkeypatch.setattr(export, "LINES", number)
        assert read(export.csv_chunks(Export(job.campaign, "email"))) == whole


def test_messages_in_calls_and_children(monkeypatch):
    monkeypatch.setattr(export, "AT_ONCE", 3)
    campaign = factories.campaign(8)
    top = factories.job(campaign, "P_ASSIGNING", remaining=2)
    first = campaign.first_message
    child = factories.job(campaign, "SENDING", parent=top, first_message=first, size=4)
    factories.job(campaign, "STOPPED", parent=top, first_message=first + 4, size=2)
    factories.claim(child, [1, 2])
    rows = read(export.csv_chunks(Export(campaign, "email")))[1:]
    assert [row[1] for row in rows] == [
        "Waiting",
        "Sending",
        "Sending",
        "Waiting",
        "Stopped",
        "Stopped",
        "Waiting",
        "Waiting",
    ]


def test_the_order_of_the_columns_is_kept_from_the_list():
    table = [("ann@example.com", {"zip": "1", "name": "Ann", "b": "2"})]
    made = intake.store_campaign(
        sponsor=factories.sponsor(), credential=factories.credential(), name="n", subject="s", body="b", html=False,
        recipients=table,
    )  # fmt: skip
    campaign = Job.objects.get(pk=made.pk).campaign
    assert campaign.columns == ["zip", "name", "b"]
    assert read(export.csv_chunks(Export(campaign, "email")))[0][:4] == ["recipient", "zip", "name", "b"]


def test_a_request_without_an_order_has_all_its_fields(job):
    job.campaign.columns = None
    job.campaign.save()
    Message.objects.filter(pk=job.first_message).update(params={"state": "x", "b": 1})
    header, first, *_ = read(export.csv_chunks(Export(job.campaign, "email")))
    assert header[:7] == ["recipient", "a", "b", "name", "state", "zip", "state (mailhub)"]
    assert first[:6] == ["r1@sandbox.example", "", "1", "", "x", ""]


def test_a_spreadsheet_is_read_as_it_was_written(job, tmp_path):
    Message.objects.filter(pk=job.first_message).update(recipient='<&">\x01é@example.com', params={"name": " a "})
    file = tmp_path / "report.xlsx"
    file.write_bytes(b"".join(export.xlsx_chunks(Export(job.campaign, "email"))))
    with file.open("rb") as opened:
        found = spreadsheets.convert_to_csv(opened)
        found.file.seek(0)
        rows = list(csv.reader(io.StringIO(found.file.read().decode(), newline="")))
    assert rows[0][:4] == ["recipient", "name", "zip", "a"]
    assert rows[1][:2] == ['<&">\x01é@example.com', " a "]
    assert rows[2][1] == "=HYPERLINK(1)"


@pytest.mark.slow("many")
def test_memory_does_not_grow_with_the_rows():
    def most(rows):
        tracemalloc.start()
        for _ in xlsx_writer.xlsx_chunks(["a"] * 5, (["x" * 20] * 5 for _ in range(rows)), "t"):
            pass
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    assert most(20_000) < most(2_000) + 1_000_000


def test_the_command_tells_or_writes(job, tmp_path, capsys):
    call_command("report", str(job.campaign_id))
    shown = capsys.readouterr().out
    assert "7 recipients: 1 sent, 1 failed, 1 expired, 1 suppressed, 1 needs attention, 2 waiting" in shown
    assert "1  The vendor has refused it, with its code bounce. (Failed)" in shown
    file = tmp_path / "r.csv"
    call_command("report", str(job.campaign_id), csv=str(file), state=["failed", "needs-attention"])
    assert [row[4] for row in csv.reader(io.StringIO(file.read_text("utf-8-sig")))][1:] == ["Failed", "Needs attention"]
    call_command("report", str(job.campaign_id), xlsx=str(tmp_path / "r.xlsx"), failed=True)
    assert zipfile.is_zipfile(tmp_path / "r.xlsx") and len(list(tmp_path.iterdir())) == 2
    with pytest.raises(CommandError, match="'nonsense' is no state"):
        call_command("report", str(job.campaign_id), state=["nonsense"])
    with pytest.raises(CommandError, match="there is no campaign 999999"):
        call_command("report", "999999")
    with pytest.raises(CommandError, match="cannot write"):
        call_command("report", str(job.campaign_id), csv="/nowhere/r.csv")
