"""Templates that sponsors keep: versions, what they differ in, and by the command."""

import io
import json
import threading
from pathlib import Path

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.db import connection

from campaigns.content.template_versions import comparing, versions
from campaigns.content.template_versions.versions import NewerVersion, TemplateContent, TemplateRefused
from campaigns.models import Campaign, Template, TemplateVersion
from campaigns.texts.templates import TemplateError
from tests import factories as make
from vendors.history import Actor

pytestmark = pytest.mark.django_db
ANN, BOB = Actor("ann"), Actor("bob")
FIRST = TemplateContent("Hello {{ name }}", "Dear {{ name }},\nwelcome.\n")
SECOND = TemplateContent("Hello {{ name }}", "Dear {{ name }},\nbe welcome.\n")


@pytest.fixture
def sponsor():
    return make.sponsor()


def add(sponsor, content=FIRST, name="Welcome", by=ANN, **more):
    return versions.add_version(sponsor.pk, name, "email", content, by, **more)


def test_a_save_is_the_next_version_and_a_repeat_of_it_is_none(sponsor):
    first = add(sponsor)
    again = add(sponsor, based_on=0)
    second = add(sponsor, SECOND, by=BOB, remark="friendlier", based_on=1)
    assert (first.new, again.new, again.version.pk) == (True, False, first.version.pk)
    assert [str(one) for one in TemplateVersion.objects.all()] == ["Welcome@2", "Welcome@1"]
    assert (second.version.made_by, second.version.remark) == ("bob", "friendlier")
    said = LogEntry.objects.order_by("pk").values_list("change_message", flat=True)
    assert list(said) == ["version 1 added by ann", "version 2 added by bob. Reason: friendlier"]
    with pytest.raises(TypeError, match="never changes"):
        second.version.save()


def test_line_ends_of_a_browser_are_no_other_text(sponsor):
    add(sponsor)
    assert not add(sponsor, TemplateContent(FIRST.subject, FIRST.body.replace("\n", "\r\n"))).new


def test_who_started_from_an_older_version_stores_nothing(sponsor):
    add(sponsor)
    newest = add(sponsor, SECOND, by=BOB).version
    with pytest.raises(NewerVersion, match="version 2 by bob is newer") as found:
        add(sponsor, TemplateContent("Hi", "Hi"), based_on=1)
    assert found.value.newest == newest and TemplateVersion.objects.count() == 2
    with pytest.raises(NewerVersion):
        add(sponsor, TemplateContent("Hi", "Hi"), based_on=0)


@pytest.mark.parametrize(
    ("channel", "content", "why"),
    [
        ("email", TemplateContent("Hi", "Dear {{ name }},\n{% if x %}"), "the body, line 2"),
        ("email", TemplateContent("Hi {{ name.upper() }}", "Hi"), "the subject: 'call' is not for templates"),
        ("email", TemplateContent(" ", "Hi"), "an e-mail needs one"),
        ("email", TemplateContent("Hi", "Hi", text="Hi"), "this body is a text itself"),
        ("email", TemplateContent("Hi", "Hi", headers=[("From", "ann@x.example")]), "mailhub's own"),
        ("email", TemplateContent("Hi", "H\0i"), "NUL"),
        ("sms", TemplateContent("", "<b>Hi</b>", html=True), "not HTML"),
        ("sms", TemplateContent("", "Hi", headers=[("X-A", "b")]), "only e-mails"),
    ],
)
def test_what_cannot_be_compiled_is_not_stored(sponsor, channel, content, why):
    with pytest.raises(TemplateError, match=why):
        versions.add_version(sponsor.pk, "Welcome", channel, content, ANN)
    assert not Template.objects.exists()


@pytest.mark.parametrize("name", ["a@1", "a/b", " a", "a ", "", "a\nb", "a\0b", "x" * 101])
def test_a_name_that_no_request_could_say_is_refused(sponsor, name):
    with pytest.raises(TemplateRefused):
        add(sponsor, name=name)
    assert not Template.objects.exists()


def test_a_name_and_a_number_mean_a_version(sponsor):
    first, second = add(sponsor).version, add(sponsor, SECOND).version
    assert versions.find_template_version(sponsor.pk, "Welcome", "email") == second
    assert versions.find_template_version(sponsor.pk, "Welcome@1", "email") == first
    for wrong, channel in (("Welcome@3", "email"), ("Welcome@x", "email"), ("W\0", "email"), ("Welcome", "sms")):
        with pytest.raises(TemplateRefused):
            versions.find_template_version(sponsor.pk, wrong, channel)
    with pytest.raises(TemplateRefused):
        versions.find_template_version(make.sponsor().pk, "Welcome", "email")


def test_an_archived_template_is_kept_and_cannot_be_named(sponsor):
    template = add(sponsor).version.template
    assert versions.archive_template(template, ANN) and not versions.archive_template(template, ANN)
    with pytest.raises(TemplateRefused, match="archived"):
        versions.find_template_version(sponsor.pk, "Welcome", "email")
    with pytest.raises(TemplateRefused, match="archived"):
        add(sponsor, SECOND)
    assert versions.restore_template(template, ANN) and versions.find_template_version(sponsor.pk, "Welcome", "email")
    assert LogEntry.objects.filter(change_message__startswith="archived").count() == 1


def test_who_uses_a_version_is_found_by_its_index(sponsor):
    first, second = add(sponsor).version, add(sponsor, SECOND).version
    used = [make.campaign(1, by=sponsor, template_version=first, name=f"News {number}") for number in (1, 2)]
    assert versions.campaign_uses([first, second]) == {first.pk: versions.VersionUse(2, used[1].pk, "News 2")}
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN {versions.USES}", [[first.pk], 10])
        assert "campaign_template" in str(cursor.fetchall())


@pytest.mark.django_db(transaction=True)
def test_of_two_first_saves_at_once_one_is_the_first_version(sponsor):
    came: list[object] = []

    def save(content):
        try:
            came.append(add(sponsor, content, based_on=0).version.number)
        except NewerVersion:
            came.append("newer")
        finally:
            connection.close()

    both = [threading.Thread(target=save, args=(content,)) for content in (FIRST, SECOND)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert sorted(map(str, came)) == ["1", "newer"]


def test_differences_are_the_lines_that_differ_with_those_around_them():
    lines = [f"line {number}" for number in range(20)]
    changed = [*lines[:10], "another line", *lines[11:]]
    old, new = (TemplateContent("Hi", "\n".join(some)) for some in (lines, changed))
    (body,) = comparing.find_differences(old, new)
    assert body.name == "Body"
    said = comparing.comparison_as_text([body]).splitlines()
    assert said == [
        "Body:", "@ 7 equal lines", "  line 7", "  line 8", "  line 9", "- line 10", "+ another line",
        "  line 11", "  line 12", "  line 13", "@ 6 equal lines",
    ]  # fmt: skip
    assert [line.after for line in body.lines if line.kind == "same"] == [8, 9, 10, 12, 13, 14]
    assert comparing.find_differences(old, old) == []


def test_of_long_texts_that_have_nothing_in_common_each_line_is_told_once():
    old, new = (TemplateContent("Hi", "\n".join(f"{word} {n}" for n in range(5_000))) for word in ("a", "b"))
    (body,) = comparing.find_differences(old, new)
    assert len(body.lines) == 10_000
    old, new = (TemplateContent("Hi", "\n".join(f"{word} {n}" for n in range(30_000))) for word in ("a", "b"))
    (body,) = comparing.find_differences(old, new)
    assert (len(body.lines), body.lines[-1].text) == (20_001, "40,000 further lines that differ")


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("template", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_adds_compares_and_archives(sponsor, tmp_path: Path):
    body = tmp_path / "body.txt"
    body.write_text("Dear {{ name }},\nwelcome.\n")
    add_it = ("add", sponsor.name, "Welcome", "--subject", "Hello", "--body", str(body))
    with pytest.raises(CommandError, match="needs a --channel"):
        run(*add_it)
    assert "Welcome@1: added" in run(*add_it, "--channel", "email")
    body.write_text("Dear {{ name }},\nbe welcome.\n")
    assert json.loads(run(*add_it, "--remark", "friendlier", "--json"))["version"] == 2
    assert "nothing was added" in run(*add_it)
    with pytest.raises(CommandError, match="is newer"):
        run("add", sponsor.name, "Welcome", "--subject", "Hi", "--body", str(body), "--based-on", "1")
    assert run("diff", sponsor.name, "Welcome", "1", "2").splitlines()[2:] == ["- welcome.", "+ be welcome."]
    assert "Subject: Hello" in run("show", sponsor.name, "Welcome") and "\nwelcome." in run(
        "show", sponsor.name, "Welcome@1"
    )
    assert [json.loads(line)["campaigns"] for line in run("versions", sponsor.name, "Welcome", "--json").splitlines()]
    assert "archived" in run("archive", sponsor.name, "Welcome")
    assert run("list", sponsor.name) == "nothing to show\n" and "Welcome" in run("list", sponsor.name, "--archived")
    assert "restored" in run("restore", sponsor.name, "Welcome")
    for wrong in (("show", sponsor.name, "Nobody"), ("show", sponsor.name, "Welcome@9")):
        with pytest.raises(CommandError):
            run(*wrong)


@pytest.fixture
def list_file(tmp_path: Path) -> Path:
    file = tmp_path / "list.csv"
    file.write_text("email,name\nann@sandbox.example,Ann\n")
    return file


def test_a_campaign_by_a_template_has_a_copy_of_its_content(sponsor, list_file):
    make.credential(make.vendor("amazing-mail"), "default")
    make.entitle([sponsor], [])
    first = add(sponsor).version
    add(sponsor, SECOND)
    basics = (str(list_file), "--sponsor", sponsor.name, "--vendor", "amazing-mail")
    call_command("send_campaign", *basics, "--template", "Welcome@1", stdout=io.StringIO())
    stored = Campaign.objects.get()
    assert stored.template_version == first
    assert (stored.subject, stored.body, stored.html) == (FIRST.subject, FIRST.body, False)
    for more, why in (
        (("--template", "Welcome", "--subject", "Hi"), "one of both"),
        ((), "give a --body, or a --template"),
        (("--template", "Nobody"), "it has|has: Welcome"),
    ):
        with pytest.raises(CommandError, match=why):
            call_command("send_campaign", *basics, *more, stdout=io.StringIO())
    assert Campaign.objects.count() == 1
