"""The command and the admin's page about whom nobody writes to again."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.test import Client

from campaigns.lists.intake import BadInput
from campaigns.lists.intake.suppression_file import SuppressionFile, suppression_lines
from campaigns.models import Sponsor, Suppression, Topic
from campaigns.suppression import lists
from campaigns.suppression.admin import suppression_import
from campaigns.suppression.lists import NewSuppression
from tests import factories
from tests.campaigns.rows import accepted, logged, suppressed

pytestmark = pytest.mark.django_db
PAGE = "/admin/campaigns/suppression/"
NO_ADDRESS = NewSuppression("", "by_hand")


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("suppression", *arguments, stdout=out)
    return out.getvalue()


def rows() -> list[tuple[Any, ...]]:
    return list(Suppression.objects.order_by("id").values_list("address", "reason", "source"))


class TestCommand:
    def test_add_brings_addresses_into_their_stored_form_and_says_how_many_are_new(self) -> None:
        answer = run(
            "add", "--all-sponsors", "Ann@EXAMPLE.com", "bob@example.com", "--reason", "stop", "--source", "call"
        )
        assert answer.startswith("2 suppressed")
        assert rows() == [("Ann@example.com", "stop", "call"), ("bob@example.com", "stop", "call")]
        again = json.loads(run("add", "--all-sponsors", "ann@example.com", "--reason", "stop", "--json"))
        assert again == {"given": 1, "added": 0}

    def test_a_bad_address_or_an_unknown_sponsor_stores_nothing(self) -> None:
        with pytest.raises(CommandError, match="nothing was changed\n'nobody' is not an e-mail address"):
            run("add", "--all-sponsors", "ann@example.com", "nobody")
        with pytest.raises(CommandError, match="there is no sponsor 'Nobody'"):
            run("add", "--sponsor", "Nobody", "ann@example.com")
        assert rows() == []

    def test_a_file_is_imported_exported_and_read_again(self, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
        sponsor = factories.sponsor()
        file = tmp_path / "list.csv"
        file.write_text(
            "address,reason,source,since,until\n"
            "ann@example.com,unsubscribed,page,2026-01-02T03:04:05+00:00,\n"
            "=bob@example.com,bounced,,,2099-01-01T00:00:00+00:00\n"
            "carl@example.com,,,,\n"
        )
        assert run("import", "--sponsor", sponsor.name, str(file), "--source", "old tool").startswith("3 suppressed")
        assert rows() == [
            ("ann@example.com", "unsubscribed", "page"),
            ("=bob@example.com", "bounced", "old tool"),
            ("carl@example.com", "by_hand", "old tool"),
        ]
        written = run("export", "--sponsor", sponsor.name)
        assert "ann@example.com,unsubscribed,page,2026-01-02T03:04:05+00:00," in written
        assert "'=bob@example.com" in written
        other = factories.sponsor()
        (tmp_path / "again.csv").write_text(written)
        assert run("import", "--sponsor", other.name, str(tmp_path / "again.csv")).startswith("3 suppressed")
        assert run("export", "--sponsor", other.name) == written
        assert run("export", "--all-sponsors").splitlines() == ["address,reason,source,since,until,topic"]

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("address\nann@example.com\nnobody\n", "row 3: 'nobody' is not an e-mail address"),
            ("address,untill\nann@example.com,x\n", "there is no column 'untill'"),
            ("address,reason\nann@example.com,dislikes\n", "row 2: there is no reason 'dislikes'"),
            ("address,until\nann@example.com,soon\n", "row 2: until 'soon' is not a time with its zone"),
            ("address,until\nann@example.com,2090-01-01T00:00+01:60\n", "row 2: until '2090-01-01T00:00+01:60' is not"),
            ("address,until\nann@example.com\n", "row 2: 1 cell, but the header has 2"),
            ("ann@example.com\nbob@example.com\n", "there is no header"),
            ("address\n", "there are no addresses"),
        ],
    )
    def test_a_bad_file_is_told_by_its_row_and_stores_nothing(self, tmp_path: Path, text: str, sentence: str) -> None:
        (tmp_path / "list.csv").write_text(text)
        with pytest.raises(CommandError, match="nothing was changed") as refusal:
            run("import", "--all-sponsors", str(tmp_path / "list.csv"))
        assert sentence in str(refusal.value) and rows() == []

    def test_lift_and_erase_by_address_and_by_file_leave_a_record(self, tmp_path: Path) -> None:
        run("add", "--all-sponsors", "ann@example.com", "bob@example.com")
        (tmp_path / "list.csv").write_text("address\nANN@example.com\nnew@example.com\n")
        assert run("erase", "--all-sponsors", "--file", str(tmp_path / "list.csv")).startswith("1 address is erased")
        assert rows()[0][0] is None
        assert run("lift", "--all-sponsors", "ann@example.com", "--reason", "asked by phone").startswith("1 lifted")
        found = [json.loads(line) for line in run("check", "--all-sponsors", "ann@example.com", "--json").splitlines()]
        assert [(one["address"], one["holds"]) for one in found] == [("erased", False)]
        said = list(LogEntry.objects.order_by("id").values_list("change_message", flat=True))
        assert said[0].startswith("2 of email added for all sponsors by ")
        assert said[1].startswith("address erased by ") and said[2].endswith("Reason: asked by phone")

    def test_what_comes_from_one_source_is_lifted_together(self) -> None:
        of = {"1@example.com": "campaign 1, refused: 550 5.1.1", "2@example.com": "campaign 12, refused: 550 5.1.1"}
        lists.add_suppressions(
            None, "email", [NewSuppression(address, "bounced", source) for address, source in of.items()]
        )
        assert run("lift", "--all-sponsors", "--source", "campaign 1").startswith("1 lifted")
        assert list(Suppression.objects.filter(until=None).values_list("address", flat=True)) == ["2@example.com"]

    def test_whom_a_job_has_left_out_is_listed(self) -> None:
        job = logged(3, [accepted(), suppressed(), suppressed()])
        found = [json.loads(line) for line in run("recipients", str(job.pk), "--json").splitlines()]
        assert [(one["recipient"], one["reason"]) for one in found] == [
            ("r2@sandbox.example", "unsubscribed"),
            ("r3@sandbox.example", "unsubscribed"),
        ]

    def test_what_a_spreadsheet_would_take_for_a_formula_is_text_and_read_back(self) -> None:
        sponsor, source = factories.sponsor(), "from;=cmd|' /C calc'!A0"
        topic = Topic.objects.create(sponsor=sponsor, name="-news")
        lists.add_suppressions(
            sponsor.pk, "email", [NewSuppression("=ann@example.com", "unsubscribed", source, topic_id=topic.pk)]
        )
        text = "".join(suppression_lines(Suppression.objects.all()))
        assert "'=ann@" in text and "from;'=cmd" in text and "'-news" in text
        read = SuppressionFile(io.BytesIO(text.encode()), "email", NO_ADDRESS, {topic.name: topic.pk})
        [one] = read
        assert (one.address, one.source, one.topic_id) == ("=ann@example.com", source, topic.pk)


@pytest.fixture
def operator(client: Client) -> Client:
    """An operator of one sponsor, who may not change what holds for all."""
    user = User.objects.create(username="olga", is_staff=True)
    user.groups.set(Group.objects.filter(name="operator"))
    factories.sponsor("Hers").users.add(user)
    client.force_login(user)
    return client


def typed(**fields: Any) -> dict[str, Any]:
    return {
        "sponsor": "",
        "channel": "email",
        "address": "Ann@EXAMPLE.com",
        "reason": "by_hand",
        "source": "",
        **fields,
    }


class TestPage:
    def test_an_operator_adds_lifts_and_erases_those_of_her_sponsor(self, operator: Client) -> None:
        hers = factories.sponsor("Hers")
        assert operator.post(f"{PAGE}add/", typed(sponsor=hers.pk)).status_code == 302
        row = Suppression.objects.get()
        assert (row.address, row.sponsor) == ("Ann@example.com", hers)
        assert b"Ann@example.com" in operator.get(PAGE, {"q": "ann@example.com"}).content
        assert b"Ann@example.com" not in operator.get(PAGE, {"q": "ann@"}).content
        for action in ("erase", "lift"):
            operator.post(PAGE, {"action": action, "_selected_action": [row.pk]})
        row.refresh_from_db()
        assert row.address is None and row.until is not None

    def test_she_neither_adds_nor_sees_nor_lifts_those_for_all_sponsors_or_of_others(self, operator: Client) -> None:
        lists.add_suppressions(None, "email", [NewSuppression("all@example.com", "stop")])
        lists.add_suppressions(factories.sponsor().pk, "email", [NewSuppression("other@example.com", "stop")])
        page = operator.get(PAGE).content
        assert b"all@example.com" not in page and b"other@example.com" not in page
        operator.post(
            PAGE, {"action": "lift", "_selected_action": list(Suppression.objects.values_list("pk", flat=True))}
        )
        assert operator.post(f"{PAGE}add/", typed()).status_code == 200
        assert Suppression.objects.filter(until=None).count() == 2 == Suppression.objects.count()

    def test_a_file_is_imported_and_nothing_of_one_with_a_bad_row_or_for_all_without_the_permission(
        self, operator: Client
    ) -> None:
        hers = factories.sponsor("Hers")

        def post(text: str, **fields: Any) -> Any:
            file = SimpleUploadedFile("old tool.csv", text.encode("utf-16"))
            given = {"sponsor": hers.pk, "channel": "email", "reason": "bounced", "source": "", "file": file}
            return operator.post(f"{PAGE}import/", given | fields)

        bad = post("address\nann@example.com\nnobody\n").content.decode()
        assert "row 3: &#x27;nobody&#x27; is not an e-mail address" in bad
        for fields in ({"sponsor": ""}, {"sponsor": factories.sponsor().pk}, {"file": ""}):
            assert post("address\nann@example.com\n", **fields).status_code == 200
        assert rows() == [] and b"Import a file" in operator.get(PAGE).content
        answer = post("address,reason,source\nAnn@EXAMPLE.com,stop,call\nbob@example.com,,\nBob@example.com,,\n")
        assert answer.status_code == 302 and Suppression.objects.filter(sponsor=hers).count() == 2
        assert rows() == [("Ann@example.com", "stop", "call"), ("Bob@example.com", "bounced", "old tool.csv")]
        assert LogEntry.objects.get().change_message.startswith("2 of email added for sponsor")
        assert b"2 addresses are suppressed. 1 was so already" in operator.get(PAGE).content

    def test_an_export_of_a_topic_is_imported_for_that_topic_alone(self, operator: Client) -> None:
        hers, out = factories.sponsor("Hers"), io.StringIO()
        offers = Topic.objects.create(sponsor=hers, name="offers", title="Offers")
        lists.add_suppressions(
            hers.pk, "email", [NewSuppression("ann@example.com", "unsubscribed", topic_id=offers.pk)]
        )
        call_command("suppression", "export", "--sponsor", hers.name, stdout=out)
        Suppression.objects.all().delete()

        def post(text: str) -> Any:
            file = SimpleUploadedFile("a.csv", text.encode())
            given = {"sponsor": hers.pk, "channel": "email", "reason": "stop", "source": "", "file": file}
            return operator.post(f"{PAGE}import/", given)

        bad = post("address,reason,topic\nann@example.com,unsubscribed,others\n").content.decode()
        assert "row 2: there is no topic &#x27;others&#x27;; there are offers" in bad and rows() == []
        assert post(out.getvalue()).status_code == 302 and Suppression.objects.get().topic == offers

    def test_a_topic_in_a_file_for_all_sponsors_is_an_error_with_its_row(self) -> None:
        Topic.objects.create(sponsor=factories.sponsor(), name="offers", title="Offers")
        file = io.BytesIO(b"address,reason,topic\nann@example.com,unsubscribed,offers\n")
        uploaded = SimpleUploadedFile("a.csv", file.read())
        given = {"sponsor": "", "channel": "email", "reason": "stop", "source": ""}
        everybody = Sponsor.objects.all()
        form = suppression_import.ImportForm(given, {"file": uploaded}, sponsors=everybody, for_all=True)
        assert form.errors == {"file": ["row 2: there is no topic 'offers'; there are none"]}

    def test_who_may_add_none_may_not_import_either_and_a_huge_file_is_for_the_command(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(suppression_import, "MOST", 1)
        file = SimpleUploadedFile("a.csv", b"address\nann@example.com\nbob@example.com\n")
        given = {"sponsor": factories.sponsor("Hers").pk, "channel": "email", "reason": "stop", "file": file}
        assert "it has more than 1 addresses" in operator.post(f"{PAGE}import/", given).content.decode()
        with pytest.raises(BadInput, match="more than 1 addresses") as refusal:  # the bad third row is not read
            SuppressionFile(io.BytesIO(b"address\na@b.example\nb@b.example\nbad\n"), "email", NO_ADDRESS, {}, 1)
        assert "row" not in str(refusal.value)
        User.objects.get().groups.clear()
        assert operator.get(f"{PAGE}import/").status_code == 403 and rows() == []

    @pytest.mark.parametrize(
        ("fields", "sentence"),
        [
            ({"address": "nobody"}, "is not an e-mail address"),
            ({"until_0": "2020-01-01", "until_1": "0:00"}, "is past"),
            ({"until_0": "9999-12-31", "until_1": "23:59:59"}, "Enter a valid date"),  # not all zones have it
            ({"until_0": "0001-01-01", "until_1": "0:00"}, "Enter a valid date"),
        ],
    )
    def test_a_bad_value_is_told_and_stores_nothing(self, operator: Client, fields: Any, sentence: str) -> None:
        answer = operator.post(f"{PAGE}add/", typed(sponsor=factories.sponsor("Hers").pk, **fields))
        assert sentence in answer.content.decode() and not Suppression.objects.exists()
