"""One phone number has one form, E.164, whichever way it is written and through whichever door it comes."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.test import Client

from campaigns.lists.intake import AddressReader
from campaigns.models import Job, Message, Sponsor, Suppression
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from tests import factories
from tests.front.program import Program, api_vendor, fresh, letter, pointers

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
SPELLINGS = [
    "07700 900123",
    "+44 7700 900123",
    "0044 7700-900123",
    "(07700) 900 123",
    "+44 (0)7700 900123",
    "+44·7700·900123",
]
PAGE = "/admin/campaigns/suppression/"


@pytest.fixture
def british() -> Sponsor:
    sponsor = factories.sponsor()
    call_command("sponsor", "set", sponsor.name, "--region", "GB", stdout=io.StringIO())
    sponsor.refresh_from_db()
    return sponsor


@pytest.fixture
def sms() -> Any:
    return api_vendor(channel="sms")


def send(tmp_path: Path, sponsor: Sponsor, vendor: Any, *numbers: str, **options: Any) -> Job:
    (tmp_path / "body.txt").write_text("Hello")
    with (tmp_path / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["phone"], *([number] for number in numbers)])
    call_command(
        "send_campaign", str(tmp_path / "list.csv"), sponsor=sponsor.name, vendor=vendor.slug,
        body=str(tmp_path / "body.txt"), json=True, stdout=io.StringIO(), **options,
    )  # fmt: skip
    return Job.objects.latest("pk")


def recipients(job: Job) -> list[str]:
    return list(Message.objects.filter(campaign=job.campaign).order_by("id").values_list("recipient", flat=True))


@pytest.mark.parametrize("typed", SPELLINGS)
def test_every_spelling_is_stored_in_one_form(typed: str) -> None:
    assert AddressReader("sms", "GB")(typed) == "+447700900123"


def test_a_number_that_keeps_its_zero_keeps_it() -> None:
    assert AddressReader("sms", "IT")("06 698 12345") == "+390669812345"


@pytest.mark.parametrize("typed", ["900123", "07700 9001234567", "ann", "07700 900123 ext 5"])
def test_what_is_no_number_in_that_region_is_said_so(typed: str) -> None:
    with pytest.raises(ValueError, match="is not a phone number"):
        AddressReader("sms", "GB")(typed)


STRANGERS = [  # each would reach somebody else's phone if its words became keys, or if only a part of it were read
    ("+49 171 1234567 (Anna)", "", "'Anna'"),
    ("+44 7700 900 abc", "", "'abc'"),
    ("+49 30 12345 Tel", "", "'Tel'"),
    ("Tel +49 171 1234567", "", "'Tel'"),
    ("0171 1234567 (Mama)", "DE", "'Mama'"),
    ("0171 1234567 oder", "DE", "'oder'"),
    ("1-800-FLOWERS", "US", "'FLOWERS'"),
    ("(202) 555-0143 home", "US", "'home'"),
    ("+49 171 1234567, +49 172 7654321", "", "','"),
    ("+49 171 1234567 / +49 172 7654321", "", "not one number"),
    ("+49 171 1234567 & 8", "", "'&'"),
    ("+49 171 1234567#12", "", "'#'"),
    ("+49 171 1234567;ext=5", "", "';ext='"),
    ("+4915123456789x5", "", "'x'"),
    ("+49 171 123456з", "", "'з'"),  # a Cyrillic letter that looks like a 3
    ("++49 171 1234567", "", "not one number"),
    ("+", "", "no digits"),
    ("+49 171 1234567¹", "", "'¹'"),  # a footnote
    ("+49 171 123456②", "", "'②'"),
    ("+49 171 1234567 / 68", "", "not one number"),
    ("0171 1234567/8", "DE", "not one number"),
    ("0171 1234\n0172 7654321", "DE", "not one number"),
    ("+49 171 1234567.0", "", "decimals"),
    ("0171 1234567.0", "DE", "decimals"),
    ("+999 1234567", "", "no country has this code"),
    ("+4", "", "is not a phone number"),
]


@pytest.mark.parametrize(("typed", "region", "said"), STRANGERS)
def test_a_cell_with_more_than_one_number_in_it_is_refused_with_what_stands_there(
    typed: str, region: str, said: str
) -> None:
    with pytest.raises(ValueError, match="is not a phone number") as refused:
        AddressReader("sms", region)(typed)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("typed", "region", "number"),
    [
        ("‪+49 171 1234567‬", "", "+491711234567"),  # as address books of telephones copy it
        ("﻿+49 171​1234567", "", "+491711234567"),
        ("tel:+49-171-1234567", "", "+491711234567"),
        ("＋４９ １７１ １２３４５６７", "", "+491711234567"),
        ("+٤٩١٧١١٢٣٤٥٦٧", "", "+491711234567"),
        ("0171/1234567", "DE", "+491711234567"),
        ("(+49) 171.123-45 67", "", "+491711234567"),
        ("+49 – 171 – 1234567", "", "+491711234567"),
        ("+52 1 55 1234 5678", "", "+525512345678"),  # Mexico's plan until 2019
        ("+54 11 15 2345 6789", "", "+5491123456789"),
        ("+49 171\t1234567", "", "+491711234567"),
        ("491711234567", "DE", "+491711234567"),  # a spreadsheet has dropped the +
        ("447700900123", "GB", "+447700900123"),
        ("393331234567", "IT", "+393331234567"),
        ("0491 711234", "DE", "+49491711234"),
        ("491 711234", "DE", "+49491711234"),
    ],
)
def test_signs_between_digits_and_invisible_ones_change_nothing(typed: str, region: str, number: str) -> None:
    assert AddressReader("sms", region)(typed) == number


@pytest.mark.parametrize("typed", ["+49 900 1234567", "+1 900 555 0143", "+800 1234 5678", "+49 800 1234567"])
def test_a_kind_of_number_that_gets_no_messages_is_told_before_sending(typed: str) -> None:
    with pytest.raises(ValueError, match="gets no messages"):
        AddressReader("sms", is_for_sending=True)(typed)
    assert AddressReader("sms")(typed), "it can be suppressed and searched for"


def test_toll_free_numbers_of_america_get_messages() -> None:
    assert AddressReader("sms", is_for_sending=True)("+1 800 555 0143") == "+18005550143"


class TestCampaigns:
    def test_a_list_with_words_behind_its_numbers_calls_nobody(self, tmp_path: Path, sms: Any) -> None:
        with pytest.raises(CommandError, match=r"row 2: .*'Anna' is no part of a number"):
            send(tmp_path, factories.sponsor(), sms, "+49 171 1234567 (Anna)", "+44 7700 900123")
        assert not Message.objects.exists()

    def test_the_sponsors_region_reads_a_list(self, tmp_path: Path, british: Sponsor, sms: Any) -> None:
        assert recipients(send(tmp_path, british, sms, "07700 900123", "+49 1512 3456789")) == [
            "+447700900123",
            "+4915123456789",
        ]

    def test_the_campaigns_region_comes_before_the_sponsors(self, tmp_path: Path, british: Sponsor, sms: Any) -> None:
        assert recipients(send(tmp_path, british, sms, "0151 23456789", region="DE")) == ["+4915123456789"]

    def test_without_a_region_the_country_code_is_asked_for(self, tmp_path: Path, sms: Any) -> None:
        with pytest.raises(CommandError, match=r"row 2: '07700 900123' is not a phone number: it must start with \+"):
            send(tmp_path, factories.sponsor(), sms, "07700 900123")
        assert not Message.objects.exists()

    def test_two_spellings_are_one_recipient(self, tmp_path: Path, british: Sponsor, sms: Any) -> None:
        with pytest.raises(CommandError, match=r"row 3: the same recipient as in row 2: \+447700900123"):
            send(tmp_path, british, sms, "07700 900123", "+44 (0) 7700 900 123")

    def test_bad_rows_are_left_out_with_a_sentence(self, tmp_path: Path, british: Sponsor, sms: Any) -> None:
        out = tmp_path / "out.csv"
        job = send(tmp_path, british, sms, "07700 900123", "900", "0044 7700 900123", skip_bad_rows=str(out))
        assert recipients(job) == ["+447700900123"]
        assert "not a phone number that can get a message in GB" in out.read_text()
        assert "the same recipient as in row 2" in out.read_text()

    def test_a_region_goes_with_phone_numbers_and_must_be_one(self, tmp_path: Path, british: Sponsor, sms: Any) -> None:
        with pytest.raises(CommandError, match="--region goes with the channel sms"):
            send(tmp_path, british, api_vendor(), "ann@example.com", region="GB", subject="Hello")
        with pytest.raises(CommandError, match="'UK' is not a region"):
            send(tmp_path, british, sms, "07700 900123", region="UK")
        with pytest.raises(CommandError, match="'UK' is not a region"):
            call_command("sponsor", "set", british.name, "--region", "UK", stdout=io.StringIO())

    def test_a_test_send_reads_its_number_alike(self, tmp_path: Path, british: Sponsor, sms: Any) -> None:
        assert recipients(send(tmp_path, british, sms, "07700 900123", test_to="07700 900456")) == ["+447700900456"]

    def test_a_suppressed_number_is_found_in_another_spelling(self, tmp_path: Path, british: Sponsor, sms: Any) -> None:
        lists.add_suppressions(british.pk, "sms", [NewSuppression("+447700900123", "stop")])
        assert send(tmp_path, british, sms, "(07700) 900123", "07700 900456").suppressed == 1


class TestApi:
    def test_the_requests_region_else_the_sponsors(self, british: Sponsor, sms: Any) -> None:
        program = Program(british)
        assert program.send(letter(sms, ["07700 900123"])).status_code == 202
        assert program.send(letter(sms, ["0151 23456789"], region="DE")).status_code == 202
        found = Message.objects.order_by("id").values_list("recipient", flat=True)
        assert list(found) == ["+447700900123", "+4915123456789"]

    def test_what_is_wrong_is_named(self, british: Sponsor, sms: Any) -> None:
        program = Program(british)
        assert pointers(program.send(letter(sms, ["07700 900123"], region="UK"))) == {"/region": "region"}
        assert pointers(program.send(letter(api_vendor(), region="GB"))) == {"/region": "region"}
        twice = letter(sms, ["07700 900123", "+447700900123"])
        assert pointers(program.send(twice)) == {"/recipients/1/to": "duplicate"}
        assert pointers(Program().send(letter(sms, ["07700 900123"]))) == {"/recipients/0/to": "address"}

    def test_words_behind_a_number_are_refused_at_every_door(self, sms: Any) -> None:
        program, here = Program(), "/api/v1/suppressions"
        assert pointers(program.send(letter(sms, ["+49 171 1234567 (Anna)"]))) == {"/recipients/0/to": "address"}
        body = {"channel": "sms", "suppressions": [{"address": "+44 7700 900 abc", "reason": "stop"}]}
        assert program.send(body, None, here).status_code == 422
        assert not Suppression.objects.exists()

    def test_suppressions_are_of_the_same_numbers(self, british: Sponsor, sms: Any) -> None:
        program, here = Program(british), "/api/v1/suppressions"
        body = {"channel": "sms", "suppressions": [{"address": "07700 900123", "reason": "stop"}]}
        assert program.send(body, None, here).json() == {"changed": 1}
        shown = program.get(f"{here}?channel=sms&address=0044 7700 900123").json()["data"]
        assert [row["address"] for row in shown] == ["+447700900123"]
        program.send(letter(sms, ["07700 900123"]))
        assert Message.objects.get().error_code == "suppressed"
        lifted = {"channel": "sms", "addresses": ["(07700) 900123"]}
        assert program.send(lifted, None, f"{here}/lift").json() == {"changed": 1}


class TestSuppressions:
    def run(self, *arguments: str) -> str:
        out = io.StringIO()
        call_command("suppression", *arguments, "--channel", "sms", stdout=out)
        return out.getvalue()

    def test_the_command_reads_numbers_as_campaigns_do(self, tmp_path: Path, british: Sponsor) -> None:
        whose = ("--sponsor", british.name)
        assert self.run("add", *whose, "07700 900123").startswith("1 suppressed")
        (tmp_path / "list.csv").write_text("number\n0044 7700 900123\n07700 900456\n")
        assert self.run("import", *whose, str(tmp_path / "list.csv")).startswith("1 suppressed; 1 was so already")
        assert self.run("add", "--all-sponsors", "--region", "DE", "0151 23456789").startswith("1 suppressed")
        shown = json.loads(self.run("check", *whose, "0151 23456789", "--region", "DE", "--json").splitlines()[0])
        assert (shown["address"], shown["sponsor"]) == ("+4915123456789", "all")
        assert self.run("lift", *whose, "--file", str(tmp_path / "list.csv")).startswith("2 lifted")
        assert self.run("erase", *whose, "(07700) 900123").startswith("1 address is erased")

    def test_so_do_the_pages(self, british: Sponsor) -> None:
        user = User.objects.create(username="opal", is_staff=True)
        user.groups.set(Group.objects.filter(name="operator"))
        british.users.add(user)
        page = Client()
        page.force_login(user)
        form = {"sponsor": british.pk, "channel": "sms", "reason": "stop", "topic": "", "source": ""}
        page.post(f"{PAGE}add/", {**form, "address": "07700 900123", "until_0": "", "until_1": ""})
        file = SimpleUploadedFile("list.csv", b"number\n0044 7700 900123\n07700 900456\n")
        page.post(f"{PAGE}import/", {**form, "file": file})
        found = Suppression.objects.order_by("id").values_list("address", flat=True)
        assert list(found) == ["+447700900123", "+447700900456"]
        answer = page.get(f"{PAGE}?q=07700 900456")
        assert [row.address for row in answer.context["cl"].result_list] == ["+447700900456"]
