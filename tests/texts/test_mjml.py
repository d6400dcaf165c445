"""A body in MJML becomes HTML when a campaign is accepted; whatever it is, no process of ours ends by it."""

from pathlib import Path

import pytest

from campaigns.models import Campaign
from campaigns.texts import mjml, templates
from campaigns.texts.templates import OverBudget, TemplateError
from tests import factories as make
from tests.campaigns.test_cost import Purse
from tests.lists.test_intake_command import files, send, vendor

__all__ = ["files", "vendor"]


def page(inside: str) -> str:
    return f"<mjml><mj-body><mj-section><mj-column>{inside}</mj-column></mj-section></mj-body></mjml>"


LETTER = page(
    '<mj-text>Dear {{ name|default("friend", true) }}{% if 2 > count %} é{% endif %}</mj-text>'
    "{% for one in lines %}<mj-text>{{ one }};</mj-text>{% endfor %}"
    '<mj-button href="{{ link }}?a=1&amp;b={{ name|urlencode }}">Go</mj-button>'
)


def test_templates_in_mjml_are_templates_in_html() -> None:
    html = mjml.mjml_to_html(LETTER)
    assert html.startswith("<!doctype html>") and "<mj-" not in html
    fields = {"name": "A & B", "count": 1, "lines": ["tea", "milk"], "link": "https://example.com/"}
    body = templates.compile_templates("", html, html=True).render_letter("a@b.example", fields)[1]
    assert "Dear A &amp; B é" in body and body.index("tea;") < body.index("milk;")
    assert 'href="https://example.com/?a=1&amp;b=A%20%26%20B"' in body


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "the MJML cannot be read: unable to find mjml element"),
        ("<html></html>", "the MJML cannot be read: unexpected token"),
        ("<mjml>", "the MJML cannot be read: unexpected end of stream"),
        (page("<mj-text>{% if count < 2 %}x{% endif %}</mj-text>"), "cannot have the sign <"),
        ('<mjml><mj-head><mj-title a="{{ c }}">t</mj-title></mj-head><mj-body></mj-body></mjml>', "{{ c }} is lost in"),
        (page('<mj-include path="/etc/passwd" />'), "unable to load included template"),
        (page("<mj-raw>" + "<div>" * 100_000 + "</div>" * 100_000 + "</mj-raw>"), "the body is longer than 1,000,000"),
        (page("<mj-raw>" + "<b>" * 100_000 + "</b>" * 100_000 + "</mj-raw>"), "nested too deeply, or makes too much"),
        (page("<mj-text>x</mj-text>" * 20_000), "the HTML of the MJML is longer than 1,000,000 characters"),
    ],
)
def test_what_is_no_mjml_is_told_and_ends_no_process_of_ours(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        mjml.mjml_to_html(source)


def test_converting_takes_steps() -> None:
    with pytest.raises(OverBudget):
        mjml.mjml_to_html(LETTER, Purse(most=1_000))


@pytest.mark.django_db
def test_a_campaign_in_mjml_is_stored_as_html(vendor, files: Path) -> None:
    make.sponsor("Velma")
    (files / "body.txt").write_text(page("<mj-text>Dear {{ name }}</mj-text>"), encoding="utf-8")
    assert "Dear Ann" in send(files, "--mjml", "--preview", "1")
    send(files, "--mjml")
    campaign = Campaign.objects.get()
    assert campaign.html and campaign.body.startswith("<!doctype html>") and "Dear {{ name }}" in campaign.body
