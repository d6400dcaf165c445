"""`manage.py send_campaign`: what it prints, with which exit code, and what is stored."""

import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from campaigns.engine.lifecycle import move
from campaigns.models import Campaign, Job, Message, Sponsor
from campaigns.models.states import S
from campaigns.operations import following
from tests import factories as make
from vendors.models import Vendor

GOOD = "email,name\nann@sandbox.example,Ann\nbob@sandbox.example,Bob\n"
LATER = (datetime.now(UTC) + timedelta(days=30)).replace(microsecond=0)
EVEN_LATER = LATER + timedelta(days=1)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def vendor(db: None) -> Vendor:
    made = make.vendor("amazing-mail", time_zone="Europe/London")
    make.credential(made, "default")
    return made


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "people.csv").write_text(GOOD, encoding="utf-8")
    (tmp_path / "body.txt").write_text("Dear {{ name }},\n", encoding="utf-8")
    return tmp_path


def send(files: Path, *more: str, sponsor: str = "Velma") -> str:
    out = io.StringIO()
    call_command("send_campaign", str(files / "people.csv"), *basics(files, sponsor), *more, stdout=out)
    return out.getvalue()


def basics(files: Path, sponsor: str = "Velma") -> list[str]:
    return [
        *("--sponsor", sponsor, "--vendor", "amazing-mail", "--subject", "Hello {{ name }}"),
        *("--body", str(files / "body.txt")),
    ]


def nothing_is_stored() -> bool:
    return not (Campaign.objects.exists() or Message.objects.exists() or Job.objects.exists())


def test_a_file_becomes_a_campaign_that_waits_for_the_night(vendor: Vendor, files: Path) -> None:
    make.sponsor("Velma")
    facts = json.loads(send(files, "--json"))
    job = Job.objects.get(pk=facts["job"])
    counts = {"recipients": 2, "left_out": 0, "suppressed": 0}
    shown = {"job": job.pk, "campaign": job.campaign_id, "status": S.RENDERED, "approval": None, "class": "bulk"}
    assert facts == shown | counts
    assert job.campaign.name == "people"
    assert (job.vendor, job.campaign.sponsor.name) == (vendor, "Velma")
    messages = Message.objects.order_by("id").values_list("recipient", "params")
    assert list(messages) == [("ann@sandbox.example", {"name": "Ann"}), ("bob@sandbox.example", {"name": "Bob"})]


def test_send_now_is_dispatched_at_once(vendor: Vendor, files: Path) -> None:
    make.sponsor("Velma")
    assert json.loads(send(files, "--json", "--at", "now"))["status"] == S.DISPATCHED


def test_a_send_time_waits_with_its_hours_and_its_deadline(vendor: Vendor, files: Path) -> None:
    make.sponsor("Velma")
    more = ["--hours", "8:00-20:00", "--deadline", EVEN_LATER.isoformat(), "--name", "Winter"]
    elsewhere = LATER.astimezone(timezone(timedelta(hours=1)))
    facts = json.loads(send(files, "--json", "--at", elsewhere.isoformat(), *more))
    job = Job.objects.select_related("campaign").get(pk=facts["job"])
    campaign = job.campaign
    assert facts["status"] == S.READY
    assert job.not_before == campaign.send_at == LATER
    assert (str(campaign.hours_from), str(campaign.hours_to)) == ("08:00:00", "20:00:00")
    assert (campaign.time_zone, campaign.name) == ("Europe/London", "Winter")
    assert campaign.deadline == EVEN_LATER


def test_the_command_says_what_happens_next(vendor: Vendor, files: Path) -> None:
    assert "(2 recipients) waits for the nightly dispatch: RENDERED" in send(files, "--new-sponsor")


def test_a_sponsor_whose_name_is_nearly_a_known_one_is_taken_for_a_slip(vendor: Vendor, files: Path) -> None:
    make.sponsor("Velam")
    with pytest.raises(
        CommandError, match=r"no sponsor 'Velma'; did you mean 'Velam'\? --new-sponsor creates"
    ) as error:
        send(files)
    assert error.value.returncode == 1
    assert nothing_is_stored()
    with pytest.raises(CommandError, match="entitlement add Velma amazing-mail --new-sponsor"):
        send(files, "--new-sponsor")
    call_command("entitlement", "add", "Velma", "amazing-mail", "--new-sponsor", stdout=io.StringIO())
    send(files)


def test_a_new_sponsor_is_stored_with_its_first_campaign_only(vendor: Vendor, files: Path) -> None:
    (files / "people.csv").write_text("email,name\nbad,Ann\n", encoding="utf-8")
    with pytest.raises(CommandError):
        send(files)
    assert not Sponsor.objects.exists()
    (files / "people.csv").write_text(GOOD, encoding="utf-8")
    send(files)
    assert Sponsor.objects.get().name == "Velma"


def test_bad_rows_are_listed_and_nothing_is_stored(vendor: Vendor, files: Path) -> None:
    make.sponsor("Velma")
    (files / "people.csv").write_text("email,name\nann@sandbox.example,Ann\nnobody,Bob\n", encoding="utf-8")
    with pytest.raises(CommandError, match=r"^nothing was stored\nrow 3: 'nobody' is not an e-mail"):
        send(files)
    assert nothing_is_stored()


MIXED = "email,name\nann@sandbox.example,Ann\nnobody,Bob\nANN@sandbox.example,Ann\n"


def test_bad_rows_are_left_out_if_asked_and_written_to_a_new_file(vendor: Vendor, files: Path) -> None:
    make.sponsor("Velma")
    (files / "people.csv").write_text(MIXED, encoding="utf-8")
    target = files / "left out.csv"
    assert f"2 rows are left out: {target} says which, and why" in send(files, "--skip-bad-rows", str(target))
    lines = target.read_text(encoding="utf-8-sig").splitlines()
    assert [line.split(",")[:3] for line in lines] == [
        ["email", "name", "row in the list"],
        ["nobody", "Bob", "3"],
        ["ANN@sandbox.example", "Ann", "4"],
    ]
    assert list(Message.objects.values_list("recipient", flat=True)) == ["ann@sandbox.example"]
    with pytest.raises(CommandError, match="is there already: name a new file"):
        send(files, "--skip-bad-rows", str(target))
    (files / "people.csv").write_text(GOOD, encoding="utf-8")
    facts = json.loads(send(files, "--json", "--skip-bad-rows", str(files / "none.csv")))
    assert (facts["recipients"], facts["left_out"], (files / "none.csv").exists()) == (2, 0, False)


def test_if_every_row_is_bad_nothing_is_stored_and_the_file_says_why(vendor: Vendor, files: Path) -> None:
    make.sponsor("Velma")
    (files / "people.csv").write_text("email,name\nnobody,Bob\n", encoding="utf-8")
    with pytest.raises(CommandError, match="every row would be left out"):
        send(files, "--skip-bad-rows", str(files / "left out.csv"))
    assert nothing_is_stored() and "'nobody' is not an e-mail" in (files / "left out.csv").read_text(encoding="utf-8")
    with pytest.raises(CommandError, match="cannot write"):
        send(files, "--skip-bad-rows", str(files / "no folder" / "left out.csv"))


def test_a_list_that_is_read_as_cp1252_is_told_and_another_encoding_can_be_named(
    vendor: Vendor, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make.sponsor("Velma")
    (files / "people.csv").write_bytes("email,name\nann@sandbox.example,José\n".encode("cp1252"))
    send(files)
    assert "people.csv is read as CP1252; if names look wrong, say --encoding" in capsys.readouterr().err
    (files / "people.csv").write_bytes("email,name\nann@sandbox.example,Wałęsa\n".encode("cp1250"))
    send(files, "--encoding", "cp1250")
    assert capsys.readouterr().err == ""
    assert list(Message.objects.order_by("id").values_list("params", flat=True)) == [
        {"name": "José"},
        {"name": "Wałęsa"},
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--encoding", "klingon"], "'klingon' is no encoding"),
        (["--at", "2001-01-01T00:00:00Z"], "is past"),
        (["--at", LATER.replace(tzinfo=None).isoformat()], "has no time zone"),
        (["--at", "9999-01-01T00:00:00Z"], "more than ten years ahead"),
        (["--at", "tomorrow"], "is not a time"),
        (["--at", "2090-01-01T00:00:00+01:60"], "is not a time"),
        (["--at", "20900101T000000+0190"], "is not a time"),
        (["--at", "2090-01-01T00:00:00+01:00:30"], "is not a time"),
        (["--deadline", "2001-01-01T00:00:00Z"], "the deadline 2001-01-01T00:00:00\\+00:00 is past"),
        (["--at", LATER.isoformat(), "--deadline", LATER.isoformat()], "not after the time to send"),
        (["--hours", "8-20"], "must look like 08:00-20:00"),
        (["--hours", "08:00-25:00"], "must look like 08:00-20:00"),
        (["--hours", "08:00-08:00"], "are no hours"),
        (["--hours", "08:00-20:00", "--time-zone", "Atlantis"], "'Atlantis' is not a time zone"),
        (["--credential", "other"], "amazing-mail has no credential 'other'; it has: default"),
        (["--subject", " "], "needs a --subject"),
        (["--subject", "{{ nme }}"], "row 1: the template needs 'nme'; the columns are email, name"),
        (["--subject", "{{ name.__class__ }}"], "is not for templates"),
        (["--body", "missing.txt"], "cannot read missing.txt"),
        (["--vendor", "nobody"], "no vendor 'nobody'; there are: amazing-mail"),
        (["--name", "x" * 201], "1 to 200 characters"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_stored(
    vendor: Vendor, files: Path, options: list[str], message: str
) -> None:
    make.sponsor("Velma")
    with pytest.raises(CommandError, match=message) as error:
        send(files, *options)
    assert error.value.returncode == 1
    assert nothing_is_stored()


def test_of_several_credentials_one_must_be_named_or_be_the_default(vendor: Vendor, files: Path) -> None:
    make.sponsor("Velma")
    second = make.credential(vendor, "second")
    assert Job.objects.get(pk=json.loads(send(files, "--json"))["job"]).credential.name == "default"
    named = json.loads(send(files, "--json", "--credential", "second"))
    assert Job.objects.get(pk=named["job"]).credential == second
    vendor.credentials.filter(name="default").update(name="first")
    with pytest.raises(CommandError, match="name one with --credential: first, second"):
        send(files)


def test_a_text_message_needs_no_subject(files: Path, db: None) -> None:
    login = make.credential(make.vendor(channel="sms"))
    (files / "people.csv").write_text("phone;name\n+44 7700 900123;Ann\n", encoding="utf-8")
    options = ["--sponsor", "Velma", "--new-sponsor", "--vendor", login.vendor.slug, "--body", str(files / "body.txt")]
    call_command("send_campaign", str(files / "people.csv"), *options, stdout=io.StringIO())
    assert Message.objects.get().recipient == "+447700900123"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("accepted", "code"), [(2, None), (1, 4)])
def test_waiting_ends_with_the_job_and_tells_whether_all_were_accepted(
    files: Path, accepted: int, code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.sponsor("Velma")
    make.credential(make.vendor("amazing-mail"))
    looks: list[str] = []

    def one_look_later(seconds: float) -> None:
        """Lets the sender get on between two looks, instead of waiting."""
        jobs = Job.objects.all()
        looks.append(jobs.get().status)
        if len(looks) == 1:
            return
        jobs.update(status=S.SENT, accepted=accepted, refused=2 - accepted)
        move(jobs, "log")

    monkeypatch.setattr(following, "sleep", one_look_later)
    out = io.StringIO()

    def run() -> None:
        options = [*basics(files), "--wait", "--at", "now"]
        call_command("send_campaign", str(files / "people.csv"), *options, stdout=out)

    if code:
        with pytest.raises(SystemExit) as end:
            run()
        assert end.value.code == code
    else:
        run()
    assert looks == [S.DISPATCHED, S.DISPATCHED]
    assert out.getvalue().splitlines()[-1].startswith(f"LOGGED: {accepted} accepted")


def manage(*arguments: str, stdin: bytes = b"", **variables: str) -> "subprocess.CompletedProcess[bytes]":
    """Runs a command in a process of its own, on this test's database."""
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    command = [sys.executable, "manage.py", "send_campaign", *arguments]
    environment = {**os.environ, "DATABASE_URL": url, **variables}
    return subprocess.run(command, input=stdin, capture_output=True, cwd=ROOT, env=environment)


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow("processes")
def test_standard_input_is_read_and_exit_codes_are_kept(files: Path) -> None:
    make.credential(make.vendor("amazing-mail"))
    done = manage("-", *basics(files), "--new-sponsor", "--json", stdin=GOOD.encode())
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    assert (facts["recipients"], facts["status"]) == (2, "RENDERED")
    refused = manage("-", *basics(files), "--json", stdin=b"email,name\nno\x8e,Ann\n")
    assert refused.returncode == 1
    assert b"row 2: column 1: byte 0x8e at position 13 of the file is not UTF-8" in refused.stderr
    assert refused.stdout == b""
    assert manage("-").returncode == 2
    assert Campaign.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow("processes")
def test_one_letter_waits_for_no_module_that_only_workers_pages_or_terminals_need(files: Path) -> None:
    make.credential(make.vendor("amazing-mail"))
    now = [*basics(files), "--new-sponsor", "--at", "now"]
    done = manage("-", *now, stdin=GOOD.encode(), PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0, done.stderr
    loaded = {line.rpartition(b"|")[2].strip().decode() for line in done.stderr.splitlines()}
    assert "campaigns.engine.dispatch.dispatcher" in loaded
    assert not loaded & {"campaigns.tasks", "campaigns.engine.sending", "mailhub.urls", "campaigns.lists.admin", "rich"}
