"""Templates render what they should, on the fast path and by Jinja alike, and can do no harm."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from campaigns.lists.intake import checking
from campaigns.lists.intake import fields as fields_of
from campaigns.texts import templates
from campaigns.texts.templates import MAX_SIZE, Budget, StepMeter, TemplateError

text = st.text(max_size=30)
literal = text.filter(lambda t: "{" not in t and "}" not in t)


def meter():
    return StepMeter(Budget())


@st.composite
def plain_template(draw):
    names = draw(st.lists(st.sampled_from(["name", "city", "recipient", "größe"]), max_size=5))
    return "".join(draw(literal) + "{{ " + name + " }}" for name in names) + draw(literal)


@given(plain_template(), st.booleans(), st.one_of(text, st.booleans(), st.integers()), text)
@example("100 % of {{ name }}: %(city)s %s %%", True, "50 %", "Rome")
def test_a_plain_template_is_spliced_to_exactly_what_jinja_makes_of_it(source, html, name, city):
    values = {"name": name, "city": city, "größe": "<b>{{ name }}</b>", "recipient": "a@b.example"}
    spliced = templates._Part("body", source, autoescape=html)
    assert spliced.plain
    slowly = templates._Part("body", source, autoescape=html)._jinja_renderer()
    assert spliced.part_renderer()(values, meter()) == slowly(values, meter())


@given(
    plain_template(), plain_template(), st.booleans(), st.dictionaries(st.sampled_from(["name", "city", "größe"]), text)
)
def test_the_quick_look_lets_nothing_through_that_a_closer_look_would_object_to(subject, body, html, fields):
    try:
        content = templates.compile_templates(subject, body, html)
    except TemplateError:
        return
    assert not checking._is_sound("a@b.example", fields, content) or not list(
        fields_of.looked_closely("a@b.example", fields, content)
    )


def test_the_quick_look_knows_how_much_a_field_grows_in_html():
    content = templates.compile_templates("", "{{ name }}" * 100, html=True)
    longest = MAX_SIZE // 100 // len("&#34;") - len("a@b.example")
    assert checking._is_sound("a@b.example", {"name": '"' * longest}, content)
    assert not checking._is_sound("a@b.example", {"name": '"' * (longest + 1)}, content)
    assert len(content.render_letter("a@b.example", {"name": '"' * longest})[1]) <= MAX_SIZE


def test_subject_and_body_are_rendered_for_one_recipient():
    content = templates.compile_templates(
        "Hello {{ name }}", "Dear {{ name }} in {{ city }},\n{{ recipient }}\n", html=False
    )
    assert content.fields == {"name", "city"}
    assert content.subject_fields == {"name"}
    assert content.render_letter("a@b.example", {"name": "Anna", "city": "Rome", "other": 1})[:2] == (
        "Hello Anna",
        "Dear Anna in Rome,\na@b.example\n",
    )


@pytest.mark.parametrize("body", ["<p>{{ name }}</p>", "<p>{{ name|trim }}</p>"])
def test_html_bodies_escape_fields_and_subjects_do_not(body):
    content = templates.compile_templates("{{ name }}", body, html=True)
    assert content.render_letter("r", {"name": "<Bob & co>"})[:2] == ("<Bob & co>", "<p>&lt;Bob &amp; co&gt;</p>")


@pytest.mark.parametrize("body", ["{{ name }}", "{{ name|trim }}"])
def test_what_a_recipient_typed_is_never_rendered_again(body):
    content = templates.compile_templates("s", body, html=False)
    assert content.render_letter("r", {"name": "{{ name }}{% if %}"})[1] == "{{ name }}{% if %}"


def test_only_fields_that_are_shown_as_they_are_must_not_be_empty():
    content = templates.compile_templates(
        "s", "{{ name }}{% if title %}{{ title }}{% endif %}{{ nick|default('', true) }}", False
    )
    assert (content.fields, content.optional) == ({"name", "title"}, {"nick"})
    assert content.required == {"name"}


def test_choices_and_loops_work():
    body = "{% for item in items %}{{ loop.index }}.{{ item.name }}{% if not loop.last %}, {% endif %}{% endfor %}"
    content = templates.compile_templates("s", body, html=False)
    assert content.render_letter("r", {"items": [{"name": "tea"}, {"name": "milk"}]})[1] == "1.tea, 2.milk"


@pytest.mark.parametrize("body", ["{{ name }}", "{{ name|upper }}"])
def test_a_missing_field_is_an_error_and_not_a_gap(body):
    with pytest.raises(TemplateError, match="name"):
        templates.compile_templates("s", body, html=False).render_letter("r", {})


@pytest.mark.parametrize(
    "body",
    [
        "{{ name.__class__ }}",
        "{{ _private }}",
        "{{ self }}",
        "{{ 'a' * 999999999999 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ name.ljust(999999999) }}",
        "{{ name|center(999999999) }}",
        "{% set a %}{{ name }}{% endset %}",
        "{% set a.b = name %}",
        "{% set _a = name %}",
        "{% for i in range(10) %}{% endfor %}",
        "{% for i in name recursive %}{{ loop(name) }}{% endfor %}",
        "{% macro a() %}{% endmacro %}",
        "{% include 'secrets' %}",
        "{% extends 'secrets' %}",
        "{{ settings.SECRET_KEY() }}",
        "{{ name",
        "{% if name %}",
        "{{ " + "(" * 2000 + "name" + ")" * 2000 + " }}",
        "{% for i in name %}" * 30 + "{% endfor %}" * 30,
        "x" * (MAX_SIZE + 1),
    ],
)
def test_what_a_letter_does_not_need_is_refused_before_anything_is_sent(body):
    with pytest.raises(TemplateError, match="the body"):
        templates.compile_templates("s", body, html=False)


def test_a_private_attribute_is_out_of_reach_by_its_text_too():
    with pytest.raises(TemplateError, match="has no attribute"):
        templates.compile_templates("s", "{{ name['__class__'] }}", html=False).render_letter("r", {"name": "x"})


@pytest.mark.parametrize("inside", ["", "{{ c }}"])
def test_loops_within_loops_end(inside):
    body = "{% for a in x %}{% for b in x %}{% for c in x %}" + inside + "{% endfor %}{% endfor %}{% endfor %}"
    with pytest.raises(TemplateError, match="more than 50,000 steps"):
        templates.compile_templates("s", body, html=False).render_letter("r", {"x": "y" * 1000})


@pytest.mark.parametrize("body", ["{{ x }}{{ x }}", "{{ x }}{{ x|trim }}"])
def test_a_result_over_the_limit_is_an_error(body):
    content = templates.compile_templates("s", body, html=False)
    assert len(content.render_letter("r", {"x": "y" * (MAX_SIZE // 2)})[1]) == MAX_SIZE
    with pytest.raises(TemplateError, match="longer than"):
        content.render_letter("r", {"x": "y" * (MAX_SIZE // 2 + 1)})


@pytest.mark.parametrize("value", ["a\r\nBcc: all@b.example", "a\nb", "a\u2028b"])
def test_no_value_smuggles_a_line_into_the_subject(value):
    with pytest.raises(TemplateError, match="line break"):
        templates.compile_templates("Hello {{ name }}", "b", html=False).render_letter("r", {"name": value})
    with pytest.raises(TemplateError, match="line break"):
        templates.compile_templates(value, "b", html=False)


def test_a_filter_that_fails_on_a_value_is_a_template_error():
    with pytest.raises(TemplateError):
        templates.compile_templates("s", "{{ x|abs }}", html=False).render_letter("r", {"x": "text"})
