"""manage.py vendor, credential, mailcaster: one clear answer, exit code 1 where something is wrong."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django_celery_beat.models import PeriodicTask

from tests import factories
from vendors import adapters
from vendors.models import Credential, Mailcaster, RateLimit, Vendor

pytestmark = pytest.mark.django_db
URL = "url=http://127.0.0.1:1/letters"


@pytest.fixture
def run(capsys: pytest.CaptureFixture) -> Any:
    """Runs a command line and gives what it printed."""

    def go(*args: str) -> str:
        call_command(*args)
        return capsys.readouterr().out

    return go


@pytest.fixture
def fails(run: Any) -> Any:
    """Runs a command line that must fail with exit code 1 and gives its message."""

    def go(*args: str) -> str:
        with pytest.raises(CommandError) as error:
            run(*args)
        assert error.value.returncode == 1
        return str(error.value)

    return go


class TestVendorAdd:
    def test_it_comes_with_a_credential_and_casters_and_says_what_its_limit_costs(self, run: Any) -> None:
        shown = run("vendor", "add", "amazing-mail", "--adapter", "http", "--set", URL, "--limit", "5/60")
        assert "amazing-mail: added, with the credential default and 4 casters" in shown
        assert "5 × 60/(60 + the vendor's latency): 4.983 with 0.2 s, 4.918 with 1 s" in shown
        row = Vendor.objects.get(slug="amazing-mail")
        assert row.settings == {"url": "http://127.0.0.1:1/letters"}
        assert [login.name for login in row.credentials.all()] == ["default"]
        assert [str(limit) for limit in row.limits.all()] == ["5/60 s"]

    def test_the_channel_stays_as_it_is(self, run: Any) -> None:
        run("vendor", "add", "letters", "--adapter", "http", "--set", URL, "--channel", "print")
        with pytest.raises(CommandError, match="letters delivers print; for email add another vendor"):
            run("vendor", "set", "letters", "--channel", "email")
        run("vendor", "set", "letters", "--channel", "print")

    def test_all_that_can_be_said_is_stored(self, run: Any) -> None:
        args = "--name Letters --channel print --threshold 50 --dispatch-at 21:30 --time-zone Europe/London"
        more = "--weekdays 1-3,5 --catch-up 2:30 --no-casters --limit 1/0.5 100/86400 --set concurrency=3"
        run("vendor", "add", "letters", "--adapter", "http", "--set", URL, *args.split(), *more.split())
        (facts,) = [json.loads(run("vendor", "show", "letters", "--json"))]
        assert facts == {
            "slug": "letters",
            "name": "Letters",
            "owner": None,
            "channel": "print",
            "adapter": "http",
            "settings": {"url": "http://127.0.0.1:1/letters", "concurrency": 3},
            "limits": ["1/0.5", "100/86400"],
            "credentials": ["default"],
            "casters": [],
            "threshold": 50,
            "floor": 10,
            "dispatch_at": "21:30",
            "time_zone": "Europe/London",
            "weekdays": [1, 2, 3, 5],
            "catch_up": "2:30",
            "sandbox": False,
            "paused": None,
        }

    def test_the_same_again_is_already_there(self, run: Any) -> None:
        args = ("vendor", "add", "twice", "--adapter", "http", "--set", URL, "--limit", "5/60")
        run(*args)
        assert run(*args) == "twice: already there\n"
        assert Credential.objects.filter(vendor__slug="twice").count() == 1

    def test_the_same_with_other_values_is_an_error_that_names_the_difference(self, run: Any, fails: Any) -> None:
        run("vendor", "add", "v", "--adapter", "http", "--set", URL, "--limit", "5/60")
        shown = fails("vendor", "add", "v", "--adapter", "http", "--set", URL, "--limit", "6/60", "--threshold", "7")
        assert shown == ("v is already there, and differs: small_audience_threshold is 100, not 7; the limits are 5/60")

    @pytest.mark.parametrize(
        ("args", "complaint"),
        [
            (["--set", "colour=red", URL], "colour is not a setting"),
            (["--set", "concurrency=many", URL], "concurrency must be a whole number"),
            (["--set", "url"], "'url' is not KEY=VALUE"),
            ([], "url is missing"),
            (["--set", URL, "--limit", "5"], "'5' is not a limit"),
            (["--set", URL, "--limit", "5/0"], "'5/0': the number must be"),
            (["--set", URL, "--limit=-1/60"], "the number must be 0 or more"),
            (["--set", URL, "--limit", "5/nan"], "the window from 0.01 to 31622400 (a leap year) seconds"),
            (["--set", URL, "--limit", "5/1e300"], "'5/1e300': the number must be"),
            (["--set", URL, "--limit", "5/60", "6/60"], "two limits have the same window"),
            (["--set", URL, "--dispatch-at", "25:00"], "'25:00' is not a time of day"),
            (["--set", URL, "--catch-up", "6"], "'6' is not a span of time: write HH:MM"),
            (["--set", URL, "--catch-up", "1:60"], "'1:60' is not a span of time"),
            (["--set", URL, "--catch-up", "0:00"], "'0:00' is not a span of time"),
            (["--set", URL, "--weekdays", "0-4"], "'0-4' are not weekdays"),
            (["--set", URL, "--weekdays", "1-99999999999"], "'1-99999999999' are not weekdays"),
            (["--set", URL, "--weekdays", "5-2"], "'5-2' are not weekdays"),
            (["--set", URL, "--time-zone", "Mars/Crater"], "'Mars/Crater' is not a time zone"),
            (["--set", URL, "--threshold", "-3"], "small_audience_threshold: Ensure this value"),
        ],
    )
    def test_a_bad_value_stores_nothing(self, fails: Any, args: list[str], complaint: str) -> None:
        assert complaint in fails("vendor", "add", "bad", "--adapter", "http", *args)
        assert not Vendor.objects.filter(slug="bad").exists()

    def test_the_sandbox_vendor_is_a_vendor_that_is_called_over_http(self, run: Any) -> None:
        run("vendor", "add", "trial", "--adapter", "sandbox", "--set", URL)
        assert Vendor.objects.get(slug="trial").adapter == "sandbox"
        assert adapters.load("sandbox") is adapters.load("http")

    def test_a_slug_that_cannot_name_a_queue_is_refused(self, fails: Any) -> None:
        assert "slug" in fails("vendor", "add", "two words", "--adapter", "http", "--set", URL)


@pytest.mark.parametrize("args", [["add", "v", "--adapter", "http", "--set", URL], ["set", "v", URL]])
def test_the_settings_of_a_vendor_are_not_taken_for_the_settings_of_django(args: list[str]) -> None:
    """handle_default_options puts what is called settings into the environment of the process."""
    parsed = load_command_class("vendors", "vendor").create_parser("manage.py", "vendor").parse_args(args)
    assert (parsed.settings, parsed.values) == (None, [URL])


class TestVendorLater:
    def test_limits_are_replaced_as_a_whole_shown_and_cleared(self, run: Any) -> None:
        row = factories.vendor("v", limits=[(5, 60), (100, 3600)])
        kept = row.limits.get(seconds=3600).pk
        assert "v: changed\n3/60: never more than 3 calls in any 60 s" in run(
            "vendor", "limit", "v", "3/60", "100/3600"
        )
        assert [str(limit) for limit in row.limits.all()] == ["3/60 s", "100/3600 s"]
        assert row.limits.get(seconds=3600).pk == kept
        assert run("vendor", "limit", "v", "0/60") == "v: changed\n0/60: paused\n"
        assert run("vendor", "limit", "v", "0/60").startswith("v: already so")
        assert run("vendor", "limit", "v").startswith("v: 0/60: paused")
        assert run("vendor", "limit", "v", "--clear") == "v: changed\nno limit\n"

    def test_a_credential_has_limits_of_its_own(self, run: Any) -> None:
        row = factories.vendor("v", limits=[(5, 60)])
        factories.credential(row, "second")
        run("vendor", "limit", "v", "2/60", "--credential", "second")
        assert str(RateLimit.objects.get(credential__name="second")) == "2/60 s"
        assert str(RateLimit.objects.get(vendor=row, credential=None)) == "5/60 s"

    def test_settings_change_one_by_one_and_are_checked(self, run: Any, fails: Any) -> None:
        row = factories.vendor("v", settings={"url": "http://127.0.0.1:1/a", "concurrency": 3})
        assert run("vendor", "set", "v", "timeout=4", "concurrency=") == "v: changed\n"
        row.refresh_from_db()
        assert row.settings == {"url": "http://127.0.0.1:1/a", "timeout": 4.0}
        assert run("vendor", "set", "v", "timeout=4.0") == "v: already so\n"
        assert "timeout must be" in fails("vendor", "set", "v", "timeout=soon")
        assert "url is missing" in fails("vendor", "set", "v", "url=")

    def test_its_night_is_changed_and_beat_hears_of_it(
        self, run: Any, fails: Any, django_capture_on_commit_callbacks: Any
    ) -> None:
        row = factories.vendor(dispatch_at="18:00", weekdays=[1, 2], settings={"url": "http://127.0.0.1:1/letters"})
        night = ["--dispatch-at", "21:30", "--weekdays", "1-5", "--time-zone", "Europe/London", "--name", "Letters"]
        night += ["--catch-up", "26:00"]
        with django_capture_on_commit_callbacks(execute=True):
            assert "changed" in run("vendor", "set", row.slug, *night)
        row.refresh_from_db()
        assert (row.name, f"{row.dispatch_at:%H:%M}", row.weekdays) == ("Letters", "21:30", [1, 2, 3, 4, 5])
        assert row.catch_up == timedelta(hours=26)
        crontab = PeriodicTask.objects.get(args=f"[{row.pk}]").crontab
        assert crontab and (crontab.hour, crontab.minute, str(crontab.timezone)) == ("21", "30", "Europe/London")
        assert "already so" in run("vendor", "set", row.slug, *night)
        assert "time_zone" in fails("vendor", "set", row.slug, "--time-zone", "Mars/Phobos")
        with pytest.raises(CommandError, match="say what is to be changed"):
            run("vendor", "set", row.slug)

    def test_pause_and_resume_say_what_they_found(self, run: Any) -> None:
        factories.vendor("v")
        assert run("vendor", "pause", "v", "--reason", "invoice") == "v: paused: no new call starts\n"
        assert json.loads(run("vendor", "show", "v", "--json"))["paused"] == "invoice"
        assert run("vendor", "pause", "v") == "v: was paused already\n"
        assert run("vendor", "resume", "v") == "v: resumed\n"
        assert run("vendor", "resume", "v") == "v: was not paused\n"

    def test_a_vendor_with_campaigns_stays_for_the_record(self, run: Any, fails: Any) -> None:
        used, unused = factories.vendor("used"), factories.vendor("unused", casters=None)
        factories.campaign(of=factories.credential(used))
        factories.credential(unused)
        assert "used has campaigns and stays" in fails("vendor", "remove", "used")
        assert used.credentials.count() == 1
        assert run("vendor", "remove", "unused") == "unused: removed\n"
        assert not Vendor.objects.filter(slug="unused").exists()

    def test_the_list_is_a_table_or_one_object_a_line(self, run: Any, django_assert_num_queries: Any) -> None:
        for n in range(3):
            factories.vendor(f"v{n}", limits=[(5, 60)], casters=None)
        with django_assert_num_queries(5):
            lines = run("vendor", "list", "--json").splitlines()
        assert [json.loads(line)["slug"] for line in lines] == ["v0", "v1", "v2"]
        table = run("vendor", "list").splitlines()
        assert table[0].split()[:3] == ["slug", "name", "channel"]
        assert "MC1, MC2, MC3, MC4" in table[1] and "5 per 60 s" in table[1]

    @pytest.mark.parametrize("verb", ["show", "limit", "pause", "resume", "remove"])
    def test_an_unknown_vendor_is_named_with_those_that_there_are(self, fails: Any, verb: str) -> None:
        factories.vendor("known")
        assert fails("vendor", verb, "unknown") == "there is no vendor 'unknown'; there are: known"


class TestCredential:
    def test_a_secret_goes_in_and_never_comes_out(self, run: Any, tmp_path: Path) -> None:
        factories.vendor("v", settings={"url": "http://127.0.0.1:1/a"})
        file = tmp_path / "secret.json"
        file.write_text('{"X-Key": "from-the-file"}')
        run("credential", "add", "v", "login", "--exclusive", "--set", "X-More=typed", "--secret-file", str(file))
        row = Credential.objects.get(name="login")
        assert (row.secret, row.exclusive) == ({"X-Key": "from-the-file", "X-More": "typed"}, True)
        shown = run("credential", "list", "v") + run("credential", "list", "v", "--json")
        assert "X-Key" in shown
        assert "from-the-file" not in shown and "typed" not in shown

    def test_the_same_again_is_already_there_and_another_secret_is_not_shown(self, run: Any, fails: Any) -> None:
        factories.vendor("v", settings={"url": "http://127.0.0.1:1/a"})
        run("credential", "add", "v", "login", "--set", "X-Key=one")
        assert run("credential", "add", "v", "login", "--set", "X-Key=one") == "v/login: already there\n"
        shown = fails("credential", "add", "v", "login", "--set", "X-Key=two", "--exclusive")
        assert shown == ("v/login is already there, and differs: exclusive is False, not True; secret is another one")

    def test_a_new_secret_replaces_the_old_one(self, run: Any, fails: Any) -> None:
        of = factories.vendor("v", settings={"url": "http://127.0.0.1:1/a"})
        factories.credential(of, "login", secret={"X-Key": "old"}, paused=True)
        assert run("credential", "set", "v", "login", "--set", "X-Key=new").endswith("it is still paused\n")
        assert Credential.objects.get(name="login").secret == {"X-Key": "new"}
        assert "give the new secret" in fails("credential", "set", "v", "login")

    def test_a_secret_that_the_adapter_cannot_use_is_refused(self, fails: Any, tmp_path: Path) -> None:
        factories.vendor("v", settings={"url": "http://127.0.0.1:1/a"})
        assert "must not set the header Host" in fails("credential", "add", "v", "a", "--set", "Host=evil")
        rubbish = tmp_path / "rubbish"
        rubbish.write_text("[1]")
        assert "must hold one JSON object" in fails("credential", "add", "v", "a", "--secret-file", str(rubbish))
        assert "No such file" in fails("credential", "add", "v", "a", "--secret-file", str(tmp_path / "none"))

    def test_pause_resume_and_unknown_names(self, run: Any, fails: Any) -> None:
        of = factories.vendor("v")
        factories.credential(of, "login")
        assert run("credential", "pause", "v", "login") == "v/login: paused: no new call starts\n"
        assert run("credential", "resume", "v", "login") == "v/login: resumed\n"
        assert fails("credential", "pause", "v", "nobody") == "v has no credential 'nobody'; it has: login"


class TestMailcaster:
    ADD = ("mailcaster", "add", "v", "MC9", "--kind", "large-only", "--min", "10", "--max", "20", "--percentage", "4")

    def test_add_list_disable_enable_remove(self, run: Any) -> None:
        factories.vendor("v")
        assert run(*self.ADD) == "v/MC9: added\n"
        assert run(*self.ADD) == "v/MC9: already there\n"
        assert json.loads(run("mailcaster", "list", "v", "--json")) == {
            "vendor": "v",
            "name": "MC9",
            "kind": "large-only",
            "min": 10,
            "max": 20,
            "percentage": 4.0,
            "enabled": True,
        }
        assert run("mailcaster", "disable", "v", "MC9") == "v/MC9: disabled: it takes no further job\n"
        assert run("mailcaster", "disable", "v", "MC9") == "v/MC9: already so\n"
        assert run("mailcaster", "enable", "v", "MC9") == "v/MC9: enabled\n"
        assert run("mailcaster", "remove", "v", "MC9") == "v/MC9: removed\n"
        assert run("mailcaster", "list", "v") == "nothing to show\n"

    def test_other_values_under_the_same_name_are_named(self, run: Any, fails: Any) -> None:
        factories.vendor("v")
        run(*self.ADD)
        assert fails(*self.ADD[:-1], "5").endswith("differs: percentage is 4.0, not 5.0")

    def test_sizes_and_kind_are_changed_in_place(self, run: Any) -> None:
        factories.vendor("v")
        run(*self.ADD)
        change = ("mailcaster", "set", "v", "MC9", "--kind", "small-only", "--max", "30", "--percentage", "5")
        assert run(*change) == "v/MC9: changed\n"
        facts = json.loads(run(*change, "--json"))
        assert (facts["kind"], facts["min"], facts["max"], facts["percentage"]) == ("small-only", 10, 30, 5.0)
        assert run(*change) == "v/MC9: already so\n"

    def test_set_without_a_value_says_which_there_are(self, run: Any) -> None:
        factories.vendor("v")
        run(*self.ADD)
        with pytest.raises(CommandError, match="say what is to be changed: --kind, --min") as error:
            run("mailcaster", "set", "v", "MC9")
        assert error.value.returncode == 2

    @pytest.mark.parametrize("verb", ["set", "enable", "remove"])
    def test_an_unknown_mailcaster_is_named_with_those_that_there_are(self, run: Any, fails: Any, verb: str) -> None:
        factories.vendor("v", casters=None)
        assert fails("mailcaster", verb, "v", "MC7").startswith("v has no mailcaster 'MC7'; it has: MC1, MC2")

    @pytest.mark.parametrize(
        ("sizes", "complaint"),
        [
            (["--min", "21"], "the minimum is over the maximum"),
            (["--max", "9"], "the minimum is over the maximum"),
            (["--min", "0"], "the minimum must be 1 or more"),
            (["--max", "99999999999"], "max_size: Ensure this value is less than"),
            (["--percentage", "nan"], "the percentage over 0"),
            (["--percentage", "101"], "at most 100"),
        ],
    )
    def test_a_change_that_makes_no_sense_changes_nothing(
        self, run: Any, fails: Any, sizes: list[str], complaint: str
    ) -> None:
        factories.vendor("v")
        run(*self.ADD)
        before = run("mailcaster", "list", "--json")
        assert complaint in fails("mailcaster", "set", "v", "MC9", *sizes)
        assert run("mailcaster", "list", "--json") == before

    @pytest.mark.parametrize(
        ("sizes", "complaint"),
        [
            (["--min", "30", "--max", "20"], "the minimum is over the maximum"),
            (["--min", "0"], "the minimum must be 1 or more"),
            (["--percentage", "0"], "the percentage over 0"),
            (["--percentage", "nan"], "the percentage over 0"),
            (["--percentage", "101"], "at most 100"),
        ],
    )
    def test_sizes_that_make_no_sense_are_refused(self, fails: Any, sizes: list[str], complaint: str) -> None:
        factories.vendor("v")
        assert complaint in fails("mailcaster", "add", "v", "bad", "--kind", "small-only", *sizes)
        assert not Mailcaster.objects.filter(name="bad").exists()
