"""manage.py vendor describe, and the admin: how a description is checked, tried and given to a vendor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command

from tests.described.servers import ACCOUNT, TOKEN, Answer, Twilio
from tests.described.test_descriptions import GOOD
from tests.vendors.test_admin import admin_user  # noqa: F401  a fixture
from tests.vendors.test_admin import form as vendor_form
from vendors.described import reading
from vendors.models import Vendor

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(capsys: pytest.CaptureFixture) -> Any:
    """Runs `manage.py vendor ...` and gives what it printed."""

    def go(*args: str) -> str:
        call_command("vendor", *args)
        return str(capsys.readouterr().out)

    return go


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pigeon.toml"
    path.write_text(GOOD)
    return path


def test_a_right_file_is_summed_up(run: Any, file: Path) -> None:
    assert run("describe", str(file), "--check") == (
        "Pigeon (email): no mistake\n  setting team: which team (default '')\n  secret token: the token of the team\n"
    )
    assert json.loads(run("describe", "twilio", "--json"))["secret"] == {"auth_token": "the Auth Token of the account"}


def test_every_mistake_is_told_with_file_and_line(run: Any, file: Path) -> None:
    file.write_text(GOOD.replace('"email"', '"fax"').replace("{recipient}", "{who}"))
    with pytest.raises(CommandError) as error:
        run("describe", str(file))
    first, second = str(error.value).splitlines()
    assert first.startswith(f"{file}:3: vendor.channel: must be one of")
    assert second.startswith(f"{file}:21: request.content.to: {{who}} is not known")
    assert error.value.returncode == 1
    for wrong in ("nowhere.toml", str(file.parent)):
        with pytest.raises(CommandError, match="the shipped descriptions are"):
            run("describe", wrong)


def secret_file(tmp_path: Path, token: str = TOKEN) -> str:
    path = tmp_path / "secret.json"
    path.write_text(json.dumps({"auth_token": token}))
    return str(path)


def trial(vendor: Twilio, secret: str, *more: str) -> list[str]:
    own = ["--set", f"server={vendor.url}", f"account={ACCOUNT}", "from=+15005550001", "--secret-file", secret]
    return ["describe", "twilio", "--try", *own, *more]


def test_a_test_letter_goes_out_once_and_is_shown_without_the_secret(run: Any, tmp_path: Path) -> None:
    with Twilio() as vendor:
        shown = run(*trial(vendor, secret_file(tmp_path), "--to", "+15005550006", "--body", f"Hi {TOKEN}"))
        assert len(vendor.calls) == sum(vendor.books.values()) == 1
    assert f"POST /2010-04-01/Accounts/{ACCOUNT}/Messages.json HTTP/1.1" in shown
    assert "Authorization: Basic ***" in shown and "To=%2B15005550006" in shown
    assert "HTTP 201" in shown and '"status": "queued"' in shown and "Accepted: the vendor's id is SM" in shown
    assert TOKEN not in shown


def test_a_refused_test_letter_ends_with_1_and_nobody_is_called_without_a_recipient(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    with Twilio() as vendor:
        with pytest.raises(CommandError) as error:
            run(*trial(vendor, secret_file(tmp_path)))
        assert error.value.returncode == 2 and not vendor.calls
        with pytest.raises(CommandError, match="was not accepted"):
            run(*trial(vendor, secret_file(tmp_path), "--to", vendor.stopped))
        assert "Refused: 21610." in capsys.readouterr().out
        vendor.next_answer = Answer(401, {"message": "wrong hush-hush"})
        with pytest.raises(CommandError):
            run(*trial(vendor, secret_file(tmp_path, "hush-hush"), "--to", "+15005550006", "--json"))
        printed = capsys.readouterr().out
        assert "hush" not in printed and json.loads(printed)["outcome"] == "NotSent"


def test_a_vendor_is_added_by_a_shipped_name_and_keeps_the_text(run: Any) -> None:
    run("add", "sms", "--adapter", "described", "--channel", "sms", "--set", "description=twilio", f"account={ACCOUNT}")
    row = Vendor.objects.get(slug="sms")
    assert row.settings["description"] == reading.source_of("twilio")
    shown = run("show", "sms")
    assert "sha256" in shown and "StatusCallback" not in shown
    assert run("describe", "--for", "sms") == reading.source_of("twilio")
    with pytest.raises(CommandError, match="has not the form"):
        run("set", "sms", "account=me")


def test_a_changed_description_is_recorded_and_forgets_the_secret_only_if_it_goes_elsewhere(
    run: Any, file: Path
) -> None:
    run("add", "pigeon", "--adapter", "described", "--set", f"description={GOOD}")
    call_command("credential", "set", "pigeon", "default", "--set", "token=s3cr3t")
    file.write_text(GOOD.replace("which team", "the team"))
    assert "already so" not in run("describe", str(file), "--for", "pigeon")
    row = Vendor.objects.get(slug="pigeon")
    assert row.settings["description"] == file.read_text()
    assert row.credentials.get().secret == {"token": "s3cr3t"}
    entry = LogEntry.objects.filter(object_id=str(row.pk), object_repr__startswith="vendor").first()
    assert entry is not None and entry.change_message.count("sha256") == 2 and "api.pigeon" not in entry.change_message
    assert "already so" in run("describe", str(file), "--for", "pigeon")
    file.write_text(GOOD.replace("api.pigeon.example", "api.hawk.example"))
    assert "is paused: its secret is forgotten" in run("describe", str(file), "--for", "pigeon")
    assert row.credentials.get().secret == {}
    run("set", "pigeon", "team=north")
    file.write_text(GOOD.replace("[settings.team]", "[settings.side]").replace("{settings.team}", "x"))
    with pytest.raises(CommandError, match="team is not a setting"):
        run("describe", str(file), "--for", "pigeon")


def test_the_admin_takes_a_description_as_a_file(admin_client: Any) -> None:
    url = "/admin/vendors/vendor/add/"
    form = vendor_form(adapter="described", settings="{}")
    wrong = SimpleUploadedFile("pigeon.toml", GOOD.replace("{recipient}", "{who}").encode())
    page = admin_client.post(url, form | {"description": wrong})
    assert page.status_code == 200 and "line 21: request.content.to" in page.text
    page = admin_client.post(url, form | {"description": SimpleUploadedFile("pigeon.toml", GOOD.encode())})
    assert page.status_code == 302
    row = Vendor.objects.get(slug=form["slug"])
    assert row.settings == {"description": GOOD}
    again = GOOD.replace("which team", "the team")
    own = form | {"settings": json.dumps(row.settings), "description": SimpleUploadedFile("p.toml", again.encode())}
    assert admin_client.post(f"/admin/vendors/vendor/{row.pk}/change/", own).status_code == 302
    row.refresh_from_db()
    assert row.settings == {"description": again}


def test_names_of_kinds_for_codes_are_advised_against(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "old.toml"
    source = reading.source_of("vonage").replace('3 = "gone"', '3 = "hard bounce"\n6 = "blocked"')
    file.write_text(source)
    said = run("describe", str(file), "--check")
    assert "no mistake" in said
    assert "advice: [reports.codes] says hard bounce for 3; write the cause: gone" in said
    assert "[reports.codes] says blocked for 6; write the cause: us or capacity or content" in said
    assert "advice" not in run("describe", "vonage", "--check")
