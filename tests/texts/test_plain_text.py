"""The text beside an HTML mail, as it is made from the HTML template."""

import time
from typing import Any

import pytest

from campaigns.texts import templates
from campaigns.texts.plain_text import made_from
from campaigns.texts.templates import TemplateError

ORDER = """<html><head><title>Order</title><style>p { color: red }</style></head><body>
<div style="display:none">{{ name }}, your order</div>
<h1>Your order</h1><p>Dear {{ name|e }},<br>tea &amp; more: <a href="{{ link }}">look at it</a>.</p>
<table>{% for row in rows %}<tr><td style="padding-left:99999999px">{{ row.what }}</td><td>{{ row.price }}</td></tr>
{% endfor %}</table>
{# nobody reads this #}<ul>{% for one in notes %}<li>{{ one|default("a > b", true) }}</li>{% endfor %}</ul>
{% if total > 9 %}<p>Thank you!</p>{% else %}<p>Thanks</p>{% endif %}
<img src="cid:logo.png" alt="Our logo"></body></html>"""


def shown(html: str, **fields: Any) -> str:
    return templates.compile_templates("", html, html=True, text=made_from(html)).render_letter(
        "ann@example.org", fields
    )[2]


def test_a_template_does_in_the_text_what_it_does_in_the_html() -> None:
    rows = [{"what": "tea", "price": 3}, {"what": "milk", "price": 8}]
    text = shown(ORDER, name="Ann & <Bob>", link="https://example.org/?a=1&b=2", rows=rows, notes=["x", ""], total=11)
    lines = [line for line in text.splitlines() if line]
    assert lines == [
        "Your order",
        "Dear Ann & <Bob>,",
        "tea & more: [look at it](https://example.org/?a=1&b=2).",
        "tea 3",
        "milk 8",
        "  * x",
        "  * a > b",
        "Thank you!",
        "[Our logo]",
    ]
    assert "\n\n\n" not in text


@pytest.mark.parametrize("html", ["", "<p></p>", "<style>p{}</style>", "<div>" * 50_000])
def test_html_that_shows_nothing_has_no_text(html: str) -> None:
    assert made_from(html) == ""


@pytest.mark.parametrize(
    ("html", "why"),
    [
        ("<p>{{ name</p>", "the body, line 1"),
        ("{{ name }}" * 5_001, "the body has more than 5,000 parts"),
        ("{% for one in all %}<style>{% endfor %}</style>{{ name }}", "no text can be made from the HTML"),
        ("<title>{% for one in all %}</title><p>{{ one }}</p>{% endfor %}", "give one"),
    ],
)
def test_a_text_that_would_not_be_a_template_is_not_made(html: str, why: str) -> None:
    with pytest.raises(TemplateError, match=why):
        made_from(html)


@pytest.mark.parametrize(
    "piece",
    [
        "<div style='padding-left:99999em'>",
        "<table><tr><td>",
        "<p>x</p>",
        "<b ",
        "&#0;\0",
        "{{",
        "{% ",
        "<pre>" + " " * 1000,
    ],
)
def test_the_largest_html_is_read_without_much_time_or_memory(piece: str) -> None:
    began = time.process_time()
    try:
        text = made_from((piece * 50_000)[: templates.MAX_SIZE])
    except TemplateError:
        text = ""
    assert len(text) < templates.MAX_SIZE and time.process_time() - began < 60


def test_signs_that_stand_for_tokens_are_no_tokens_in_the_html() -> None:
    assert shown("<p>\U000f0000 {{ name }} \U000f0001&#983041;</p>", name="Ann").split() == ["Ann"]
