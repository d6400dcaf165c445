"""An adapter of another package: made by startadapter, held to the contract, with a secret that it demands."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from campaigns.engine import sending
from campaigns.models import Job
from tests import factories
from tests.faults.sending import taken
from tests.vendors.test_admin import form
from tests.workers import worker
from vendors import adapters, redis_clients, restarts
from vendors.models import Credential, Vendor

ROOT = Path(__file__).parents[2]
PUBLIC = """
PARTS WIND_UP Accepted Adapter AnswerCause Attachment BadReport CallError Capabilities Client InDoubt InvalidSettings
Letter LoginAnswer NotSent NotTheVendor Option Origin Outcome Refused ReportRequest ReportSource Reported Response
UnreadableEntry certificates check_protected choice classify_error classify_http classify_smtp flag header one_unit
parse_retry_after sane seconds segments text url whole
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


@pytest.mark.slow("processes")
def test_the_project_that_startadapter_makes_keeps_the_whole_contract(project: Path) -> None:
    ran = its_own_tests(project)
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert "contract of Pigeon" in ran.stdout and "nothing is left out" in ran.stdout


@pytest.mark.slow("processes")
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


@pytest.mark.parametrize(
    ("name", "word"), [("Pigeon", "capitals"), ("smtp", "already"), ("two words", "identifier"), ("class", "a word of")]
)
def test_a_name_that_cannot_be_one_is_refused(name: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=word):
        call_command("startadapter", name, str(tmp_path / "x"))


def test_the_folder_that_it_makes_is_not_in_its_own_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder from which it is called, which is on Python's path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    (tmp_path / "gull").mkdir()
    call_command("startadapter", "gull")
    assert (tmp_path / "gull/gull.py").exists()
    (tmp_path / "swift.py").touch()
    with pytest.raises(CommandError, match="conflicts with the name of an existing"):
        call_command("startadapter", "swift")
    assert not (tmp_path / "swift").exists()


def test_what_is_public_is_what_this_list_has() -> None:
    """Who takes a name away breaks packages of others: deprecate it for a version."""
    assert adapters.__all__ == PUBLIC.split()
    page = (ROOT / "docs/reference/adapters.md").read_text()
    assert [name for name in adapters.__all__ if f"`{name}`" not in page] == []


def install(project: Path, folder: Path, version: str = "0.1.0") -> None:
    """The package as pip installs it."""
    for old in folder.glob("*.dist-info"):
        shutil.rmtree(old)
    (folder / "pigeon.py").write_text((project / "pigeon.py").read_text())
    info = folder / f"mailhub_pigeon-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mailhub-pigeon\nVersion: {version}\n")
    (info / "entry_points.txt").write_text("[mailhub.adapters]\npigeon = pigeon:Pigeon\n")


def begin_anew() -> None:
    """This process looks again what is installed, as one that has just begun does."""
    for kept in (adapters._find_entry_points, adapters.load, adapters.list_others):
        kept.cache_clear()
    sys.modules.pop("pigeon", None)
    importlib.invalidate_caches()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this process finds packages, beside those that there are."""
    monkeypatch.syspath_prepend(str(tmp_path))
    begin_anew()
    yield tmp_path
    monkeypatch.undo()
    begin_anew()


@pytest.fixture
def newly_installed(project: Path, site: Path) -> str:
    """In a process that began afterwards."""
    install(project, site)
    begin_anew()
    return "pigeon"


def test_a_process_knows_what_was_installed_when_it_began(project: Path, site: Path) -> None:
    with pytest.raises(adapters.UnknownAdapter, match="needs a restart"):
        adapters.load("pigeon")
    install(project, site)
    with pytest.raises(adapters.UnknownAdapter, match="needs a restart"):
        adapters.load("pigeon")
    begin_anew()
    assert adapters.load("pigeon").__name__ == "Pigeon" and adapters.list_others() == {"pigeon": "0.1.0"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow("processes")
class TestAWorkerThatBeganBeforeAnAdapterWasInstalled:
    @pytest.fixture(autouse=True)
    def alone(self) -> None:
        for one in redis_clients.registered_workers(settings.REDIS_URL):
            redis_clients.unregister_worker(settings.REDIS_URL, one.name)

    def test_is_named_until_it_is_restarted(
        self, project: Path, site: Path, capsys: pytest.CaptureFixture[str], admin_client: Any
    ) -> None:
        name, command = factories.unique("early") + "@test", ("vendor", "add", "birds", "--adapter", "pigeon")

        def registered() -> list[redis_clients.Worker]:
            there = redis_clients.registered_workers(settings.REDIS_URL)
            return [one for one in there if one.name == name]

        with worker(factories.unique("hub"), name=name, PYTHONPATH=str(site)) as early:
            early.until(registered)
            install(project, site)
            begin_anew()
            absent = f"worker {name} does not know the adapter pigeon: restart what began before"
            call_command(*command, "--channel", "sms")
            assert absent in capsys.readouterr().out
            with pytest.raises(CommandError, match="workers need a restart"):
                call_command("status", "--check")
            assert absent in capsys.readouterr().out
            assert absent in " ".join(early.until(lambda: page(admin_client, "early")).split())
            early.end()
        with worker(factories.unique("hub"), name=name, PYTHONPATH=str(site)) as later:
            later.until(lambda: [one.adapters for one in registered()] == [{"pigeon": "0.1.0"}])
            call_command("status", "--check")
            install(project, site, "0.2.0")
            begin_anew()
            exchanged = f"worker {name} has version 0.1.0 of the adapter pigeon, and 0.2.0 is installed: restart"
            assert restarts.needed_restarts() == [exchanged]
            later.end()

    def test_is_named_to_who_adds_the_vendor_in_the_admin(self, newly_installed: str, admin_client: Any) -> None:
        early = redis_clients.Worker(factories.unique("early"), frozenset(["hub"]), 1)
        redis_clients.register_worker(settings.REDIS_URL, early, 60)
        filled = form(slug="birds", adapter=newly_installed, settings="{}")
        page = admin_client.post("/admin/vendors/vendor/add/", filled, follow=True)
        assert Vendor.objects.filter(slug="birds").exists(), page.content.decode()[:3000]
        said = [str(one) for one in page.context["messages"]]
        assert f"worker {early.name} does not know the adapter pigeon: restart what began before" in said
        redis_clients.unregister_worker(settings.REDIS_URL, early.name)


def page(client: Any, word: str) -> str:
    """What the operations page says of workers, once it has the word."""
    text: str = client.get("/admin/operations/workers/").content.decode()
    return text if word in text else ""


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
    assert "web and API, if they began before the adapter pigeon was installed, need a restart too" in said
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
        assert sending.send_claimed_job(job.pk, job.fence).left
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

    def test_one_of_which_there_are_two_kinds_is_waited_for_too(self) -> None:
        key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
        typed = ("host=sftp.vendor.example", "user=us", f"host_key={key}", "folder=/in", "accepted=uploaded")
        call_command("vendor", "add", "press", "--adapter", "print_file", "--channel", "print", "--set", *typed)
        login = Credential.objects.get(vendor__slug="press")
        assert login.paused and "the secret must hold password or private_key" in login.paused_reason
        with pytest.raises(CommandError, match="stays paused: the secret must hold password or private_key"):
            call_command("credential", "resume", "press", "default")
        call_command("credential", "set", "press", "default", "--set", "password=x")
        login.refresh_from_db()
        assert not login.paused

    def test_no_credential_is_added_without_it(self) -> None:
        factories.vendor("letters", adapter="described", settings=LOB)
        with pytest.raises(CommandError, match="the secret must have api_key"):
            call_command("credential", "add", "letters", "second")
        assert not Credential.objects.filter(name="second").exists()

    def test_the_admin_stores_one_without_it_only_paused(self, admin_client: Any) -> None:
        of: Vendor = factories.vendor("letters", adapter="described", settings=LOB)
        form: dict[str, Any] = {"vendor": of.pk, "name": "third", "secret": "", "limits-TOTAL_FORMS": "0"}
        form |= {"limits-INITIAL_FORMS": "0"}
        page = admin_client.post("/admin/vendors/credential/add/", form, follow=True)
        assert b"etters/third is paused: it waits for its secret" in page.content
        login = Credential.objects.get(name="third")
        assert login.paused and login.awaits_secret
        admin_client.post(f"/admin/vendors/credential/{login.pk}/change/", form | {"exclusive": "on"})
        login.refresh_from_db()
        assert login.paused and login.exclusive, "anything else can be changed meanwhile"
        page = admin_client.post(f"/admin/vendors/credential/{login.pk}/change/", form | {"secret": '{"key": "k"}'})
        assert b"the secret must have api_key" in page.content and b"can only be paused" in page.content
        admin_client.post(f"/admin/vendors/credential/{login.pk}/change/", form | {"secret": '{"api_key": "k"}'})
        login.refresh_from_db()
        assert not login.paused and login.secret == {"api_key": "k"}
