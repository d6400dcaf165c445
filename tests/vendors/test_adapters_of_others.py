"""An adapter of another package: made by startadapter, held to the contract, with a secret that it demands."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from campaigns import sending
from campaigns.models import Job
from tests import factories
from tests.faults.sending import taken
from vendors import adapters
from vendors.models import Credential, Vendor

ROOT = Path(__file__).parents[2]
PUBLIC = """
PARTS WIND_UP Accepted Adapter Attachment BadReport CallError Capabilities Client InDoubt InvalidSettings Letter NotSent
NotTheVendor Option Origin Outcome Refused ReportRequest ReportSource Reported Response certificates check_protected
choice classify_error classify_http classify_smtp flag header one_unit parse_retry_after sane seconds segments text url
whole
"""
DESCRIPTION = (ROOT / "vendors/described/shipped/lob.toml").read_text()
LOB = {"description": DESCRIPTION, "return_address": "adr_210a8d4b0b76d77b", "use_type": "operational"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside") / "pigeon"
    call_command("startadapter", "pigeon", str(folder))
    return folder


def its_own_tests(project: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    """Its own pytest, as its author runs it: without mailhub's settings, servers and plugins."""
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=250, check=False)


def test_the_project_that_startadapter_makes_keeps_the_whole_contract(project: Path) -> None:
    ran = its_own_tests(project)
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert "contract of Pigeon" in ran.stdout and "nothing is left out" in ran.stdout


def test_a_class_that_calls_a_timeout_not_sent_is_found_out_in_a_sentence(project: Path, tmp_path: Path) -> None:
    for file in project.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_text(file.read_text())
    source = (tmp_path / "pigeon.py").read_text()
    right = "return classify_error(error, now=time.time())"
    assert right in source
    broken = source.replace(right, "return NotSent(error.reason)").replace(
        "    Option,", "    NotSent,\n    Option,", 1
    )
    (tmp_path / "pigeon.py").write_text(broken)
    ran = its_own_tests(tmp_path, "-k", "no_answer_at_all or (misbehaviour and no) and asyncio")
    assert ran.returncode == 1
    said = "no answer at all: the outcome must be InDoubt; it is NotSent("
    assert said in ran.stdout and "it would be sent again, and the vendor may have it" in ran.stdout, ran.stdout[-4000:]


def test_its_entry_point_names_its_class(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = tomllib.loads((project / "pyproject.toml").read_text())["project"]["entry-points"]["mailhub.adapters"]
    monkeypatch.syspath_prepend(str(project))
    kind = EntryPoint("pigeon", points["pigeon"], adapters.GROUP).load()
    assert issubclass(kind, adapters.Adapter) and kind.needs_secret == ("token",)


@pytest.mark.parametrize(("name", "word"), [("Pigeon", "capitals"), ("smtp", "already"), ("two words", "identifier")])
def test_a_name_that_cannot_be_one_is_refused(name: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=word):
        call_command("startadapter", name, str(tmp_path / "x"))


def test_what_is_public_is_what_this_list_has() -> None:
    """Who takes a name away breaks packages of others: deprecate it for a version."""
    assert adapters.__all__ == PUBLIC.split()
    page = (ROOT / "docs/reference/adapters.md").read_text()
    assert [name for name in adapters.__all__ if f"`{name}`" not in page] == []


@pytest.fixture
def newly_installed(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The package as pip installs it, beside what was there when this process began."""
    (tmp_path / "pigeon.py").write_text((project / "pigeon.py").read_text())
    info = tmp_path / "mailhub_pigeon-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mailhub-pigeon\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[mailhub.adapters]\npigeon = pigeon:Pigeon\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("pigeon", None)
    yield "pigeon"
    adapters.load.cache_clear()
    sys.modules.pop("pigeon", None)


def test_a_name_that_was_not_found_is_looked_for_again(project: Path, request: pytest.FixtureRequest) -> None:
    with pytest.raises(adapters.UnknownAdapter, match="needs a restart"):
        adapters.load("pigeon")
    assert adapters.load(request.getfixturevalue("newly_installed")).__name__ == "Pigeon"


def test_a_package_that_cannot_be_imported_is_told_in_a_sentence(newly_installed: str, tmp_path: Path) -> None:
    (tmp_path / "pigeon.py").write_text("import a_module_that_nobody_has")
    with pytest.raises(adapters.UnknownAdapter, match="cannot be loaded: ModuleNotFoundError"):
        adapters.load("pigeon")


@pytest.mark.django_db
def test_who_adds_a_vendor_of_another_package_hears_of_the_restart_and_of_the_secret(
    newly_installed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("vendor", "add", "birds", "--adapter", "pigeon", "--channel", "sms")
    said = capsys.readouterr().out
    assert "processes that were started before the adapter pigeon was installed need a restart" in said
    login = Credential.objects.get(vendor__slug="birds")
    assert login.paused and "the secret must have token" in login.paused_reason and login.paused_reason in said
    with pytest.raises(CommandError, match="stays paused: the secret must have token"):
        call_command("credential", "resume", "birds", "default")
    with pytest.raises(CommandError, match="the secret must have token; there is no token"):
        call_command("credential", "set", "birds", "default", "--set", "password=x")
    call_command("credential", "set", "birds", "default", "--set", "token=x")
    login.refresh_from_db()
    assert not login.paused and not login.paused_reason


@pytest.mark.django_db(transaction=True)
class TestAJobWhoseCallsCannotBegin:
    """No message of it fails: it is tried again each minute, and says what it waits for."""

    def put_back(self, adapter: str, settings: dict[str, Any]) -> Job:
        of = factories.credential(factories.vendor(adapter=adapter, settings=settings))
        job = taken(3, of)
        assert sending.send(job.pk, job.fence).left
        job.refresh_from_db()
        assert (job.status, job.refused, job.in_doubt, job.accepted) == ("DISPATCHED", 0, 0, 0)
        assert job.not_before is not None
        return job

    def test_as_this_process_does_not_know_the_adapter(self) -> None:
        assert (
            "there is no adapter 'pigeon' here, or this process needs a restart"
            in self.put_back("pigeon", {}).waits_for
        )

    def test_as_the_credential_has_no_secret(self) -> None:
        assert "the secret must have api_key" in self.put_back("described", LOB).waits_for


@pytest.mark.django_db
class TestASecretThatIsDemanded:
    def test_a_vendor_can_be_added_with_it(self, tmp_path: Path) -> None:
        file = tmp_path / "secret.json"
        file.write_text(json.dumps({"api_key": "k"}))
        typed = [f"{name}={value}" for name, value in LOB.items()]
        args = ("--adapter", "described", "--channel", "print", "--set", *typed)
        call_command("vendor", "add", "letters", *args, "--secret-file", str(file))
        login = Credential.objects.get(vendor__slug="letters")
        assert login.secret == {"api_key": "k"} and not login.paused

    def test_no_credential_is_added_without_it(self) -> None:
        factories.vendor("letters", adapter="described", settings=LOB)
        with pytest.raises(CommandError, match="the secret must have api_key"):
            call_command("credential", "add", "letters", "second")
        assert not Credential.objects.filter(name="second").exists()

    def test_the_admin_stores_one_without_it_only_paused(self, admin_client: Any) -> None:
        of: Vendor = factories.vendor("letters", adapter="described", settings=LOB)
        form: dict[str, Any] = {"vendor": of.pk, "name": "third", "secret": "", "limits-TOTAL_FORMS": "0"}
        form |= {"limits-INITIAL_FORMS": "0"}
        page = admin_client.post("/admin/vendors/credential/add/", form)
        assert b"the secret must have api_key" in page.content and b"can only be paused" in page.content
        admin_client.post("/admin/vendors/credential/add/", form | {"paused": "on", "paused_reason": "later"})
        login = Credential.objects.get(name="third")
        assert login.paused
        page = admin_client.post(f"/admin/vendors/credential/{login.pk}/change/", form)
        assert b"the secret must have api_key" in page.content
        admin_client.post(f"/admin/vendors/credential/{login.pk}/change/", form | {"secret": '{"api_key": "k"}'})
        login.refresh_from_db()
        assert not login.paused and login.secret == {"api_key": "k"}
