"""A few hundred bytes of template take neither a processor nor the memory, and an error about them is a sentence."""

import io
import sys

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from campaigns.engine import sending
from campaigns.engine.finishing import finalizer
from campaigns.engine.lifecycle import move
from campaigns.lists.intake.checking import field_faults
from campaigns.models import Campaign, Job, Message
from campaigns.texts import mjml, plain_text, templates
from campaigns.texts.templates import MAX_SIZE, TemplateError
from tests import factories
from tests.campaigns.elsewhere import where
from tests.texts.bombs import LEVELS, LONGEST_FAULT, USED, nested

__all__ = ["where"]
FIELDS = {"x": "short", "y": {"a": "b"}, "l": ["a", "b"], "s": "a" * 100_000, "t": "b" * 99_999 + "a", "z": "0." * 9}


def fault(body, html=False, **fields):
    with pytest.raises(TemplateError) as found:
        templates.compile_templates("", body, html).render_letter("ann@b.example", {**FIELDS, **fields})
    assert len(str(found.value)) <= LONGEST_FAULT
    return str(found.value)


@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize("levels", LEVELS)
def test_lists_that_share_their_members_are_paid_for_where_they_are_made(levels, used):
    assert "more than 50,000 steps" in fault(nested(levels, used))


def test_so_are_tuples_before_anything_computes_with_them():
    body = nested(9, "{{ y[a] }}").replace("[", "(").replace("]", ")").replace("y(a)", "y[a]")
    assert "more than 50,000 steps" in fault(body)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("{{ y[l] }}", "dict object has no element ['a', 'b']"),
        ("{{ y[s] }}", "has no attribute 'aaa"),
        ("{{ s|date }}", "is no date"),
        ("{{ l|sort(attribute=l) }}", "names no member"),
        ("{{ l|sort(attribute=z) }}", "names no member"),
        ("{{ s|trim(t) }}", "at most 100 different characters"),
        ("{{ x." + "m" * 201 + " }}", "a name is longer than 200 characters (line 1)"),
        ("{{ " + "m" * 900_000 + " }}", "a name is longer than 200 characters (line 1)"),
        ("{{ 0x" + "f" * 5_000 + " }}", "a number is longer than 40 characters (line 1)"),
        ("{{ " + "9" * 5_000 + " }}", "a number is longer than 40 characters (line 1)"),
        ("{% " + "m" * 900_000 + " %}", "unknown tag"),
        ("{{x" + "|upper" * 200 + "}}", "nested too deeply"),
        ("{%for n in l%}" * 6 + "{%endfor%}" * 6, "nested too deeply"),
    ],
    ids=range(13),
)
def test_an_error_is_a_sentence_whatever_it_is_about(body, why):
    assert why in fault(body)


@pytest.mark.parametrize("value", [[0] * 30_000, "a" * 100_000], ids=["list", "text"])
@pytest.mark.parametrize("html", [True, False])
def test_fields_that_are_only_shown_are_measured_before_they_are_put_together(value, html):
    content = templates.compile_templates("", "{{l}}" * 1_600, html)
    assert content.is_plain
    with pytest.raises(TemplateError, match=f"more than 50,000 steps|longer than {MAX_SIZE:,}"):
        content.render_letter("ann@b.example", {"l": value})


def test_no_number_is_larger_than_those_that_a_computer_counts_with():
    """To divide numbers of a million digits takes seconds in which no other thread runs."""
    content = templates.compile_templates(
        "", "{{ s|int(0, 16) }},{{ s|float }},{{ '0x1f'|int(0, 16) }},{{ '2.5'|int }}", False
    )
    assert content.render_letter("ann@b.example", {"s": "f" * 100_000})[1] == "0,0.0,31,2"


@pytest.mark.parametrize("text", ["y" * 900_000, "y" * 10_000])
@pytest.mark.parametrize("part", ["x ~ {}", "x in {}", "{}|upper", "x == {}"])
def test_long_texts_of_the_template_itself_are_paid_for_in_each_round(text, part):
    body = f"{{% for n in l %}}{{% if {part.format(repr(text))} %}}{{% endif %}}{{% endfor %}}"
    assert "more than 50,000 steps" in fault(body, l=[0] * 9_000)


def test_filters_of_filters_are_compiled_in_a_time_that_grows_as_they_do():
    """To look for constants at each of them took cubic time; calls are counted, as no clock can be trusted."""
    count = 0

    def seen(frame, event, argument):
        nonlocal count
        count += event == "call"

    found = []
    for many in (20, 40, 80):
        count = 0
        sys.setprofile(seen)
        try:
            templates.compile_templates("", "{{x" + "|upper" * many + "}}", html=False, is_kept=True)
        finally:
            sys.setprofile(None)
        found.append(count)
    assert found[2] - found[1] < 4 * (found[1] - found[0])


def test_a_row_that_lacks_many_fields_is_told_in_a_sentence():
    content = templates.compile_templates(
        "", "".join(f"{{{{ {'m' * 150}{number} }}}}" for number in range(900)), html=False
    )
    found = list(field_faults("ann@b.example", {}, content))
    assert found and all(len(one) <= LONGEST_FAULT for one in found)


@pytest.mark.parametrize(
    "html",
    ["<p " + " ".join(f"a{number}=1" for number in range(60_000)) + ">x", "<ul>x" * 240 + "<li>x" * 190_000],
    ids=["attributes", "lists"],
)
@pytest.mark.slow("processes")
def test_long_html_is_read_as_text_by_a_process_with_limits(html, monkeypatch):
    monkeypatch.setattr("campaigns.texts.apart.SECONDS", 3)
    with pytest.raises(TemplateError, match="no text can be made from the HTML"):
        plain_text.made_from(html)


def test_html_is_read_the_same_within_this_process_and_in_one_of_its_own(monkeypatch):
    html = "<h1>Dear {{ name }}</h1><p>See <a href='https://b.example/é'>this</a><br>&amp; <img alt=that></p>" * 30
    here = plain_text.made_from(html)
    monkeypatch.setattr(plain_text, "SHORT", 0)
    assert plain_text.made_from(html) == here


def test_mjml_of_more_parts_than_a_template_may_have_is_refused():
    parts = "".join(f"{{{{ v{number} }}}}" for number in range(5_001))
    with pytest.raises(TemplateError, match="more than 5,000 parts"):
        mjml.mjml_to_html(
            f"<mjml><mj-body><mj-section><mj-column><mj-text>{parts}</mj-text></mj-column></mj-section></mj-body></mjml>"
        )


@pytest.mark.django_db
@pytest.mark.parametrize("levels", LEVELS)
def test_the_command_refuses_a_bomb_in_sentences(levels, tmp_path):
    vendor = factories.vendor("amazing-mail", time_zone="Europe/London")
    factories.credential(vendor, "default")
    (tmp_path / "people.csv").write_text("email,x,y\nann@sandbox.example,short,b\n")
    (tmp_path / "body.txt").write_text(nested(levels))
    printed = io.StringIO()
    with pytest.raises(CommandError) as found:
        call_command(
            "send_campaign", str(tmp_path / "people.csv"), "--sponsor", "Velma", "--vendor", "amazing-mail",
            "--subject", "Hi", "--body", str(tmp_path / "body.txt"), stdout=printed, stderr=printed,
        )  # fmt: skip
    assert "steps" in f"{found.value}" and len(f"{found.value}{printed.getvalue()}") < 2_000
    assert not Campaign.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("levels", LEVELS)
def test_a_campaign_whose_fields_became_bombs_is_refused_recipient_by_recipient(levels, sandbox):
    """Stored by an older version, or changed by hand: the sender refuses those letters, and sends the others."""
    vendor = factories.vendor(settings={"url": sandbox.url})
    campaign = factories.campaign(3, of=factories.credential(vendor))
    body = f"{{% if bomb %}}{nested(levels)}{{% endif %}}Good day"
    Campaign.objects.filter(pk=campaign.pk).update(body=body)
    Message.objects.filter(campaign=campaign).update(params={"bomb": "", "x": "short", "y": {}})
    first, second, _ = Message.objects.filter(campaign=campaign).order_by("pk")
    Message.objects.filter(pk=first.pk).update(params={"bomb": "1", "x": "short", "y": {"a": "b"}})
    Message.objects.filter(pk=second.pk).update(params={"bomb": "1", "x": "long" * 25_000, "y": "text"})
    job = factories.job(campaign, "DISPATCHED")
    move(Job.objects.filter(pk=job.pk), "enqueue", fence=1, heartbeat_at=timezone.now())
    sending.send_claimed_job(job.pk, 1)
    finalizer.finalise_job(job.pk)
    job.refresh_from_db()
    assert (job.status, job.accepted, job.refused) == ("LOGGED", 1, 2)
    sentences = Message.objects.filter(error_code="template").values_list("error_sub_type", flat=True)
    assert len(sentences) == 2 and all("steps" in one and len(one) <= LONGEST_FAULT for one in sentences)


def test_long_numbers_are_paid_for_where_they_are_divided():
    """A field of JSON may have 4,300 digits. The longest that comes out of the database as a number has 309."""
    body = "{% for n in m %}{% if a is divisibleby(b) or a is even or a == b %}{% endif %}{% endfor %}x"
    assert "more than 50,000 steps" in fault(body, m=[0] * 1_000, a=10**4_299 + 1, b=10**2_150 + 1)
    fields = {**FIELDS, "m": [0] * 1_000, "a": int(1e308), "b": 10**154 + 1}
    assert templates.compile_templates("", body, False).render_letter("ann@b.example", fields)[1] == "x"
