"""Templates format dates, numbers, money and lists by locale, name values, and never print what is no value."""

import pytest

from campaigns.lists.intake import checking
from campaigns.texts import templates
from campaigns.texts.templates import MAX_STEPS, TemplateError
from tests.campaigns.test_cost import cost
from tests.lists.test_intake_csv_reader import problems


def render(body, html=False, **fields):
    text = templates.compile_templates("s", body, html).render_letter("ann@b.example", fields)[1]
    return text.replace("\xa0", " ").replace("\u202f", " ")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("{{ due|date }}", "Nov 23, 2026"),
        ("{{ due|date('long', locale='de_DE') }}", "23. November 2026"),
        ("{{ due|date('EEEE d MMMM', locale='fr') }}", "lundi 23 novembre"),
        ("{{ start|datetime('short', locale='en-GB') }}", "23/11/2026, 18:30"),
        ("{{ start|datetime('short', zone='America/New_York', locale='en_GB') }}", "23/11/2026, 13:30"),
        ("{{ start|time }} {{ '09:05'|time(locale='de') }}", "6:30 PM 09:05"),
        ("{{ amount|number }} {{ amount|number(2) }} {{ '1000'|number(0, locale='de') }}", "1,234.5 1,234.50 1.000"),
        ("{{ 0.256|percent }} {{ 0.256|percent(1, locale='de') }}", "26% 25,6 %"),
        ("{{ amount|money('EUR') }} {{ amount|money('EUR', locale='de') }}", "€1,234.50 1.234,50 €"),
        ("{{ amount|money('JPY', 'ja') }}", "￥1,234"),
        ("{{ names|sentence }}; {{ names|sentence('or') }}", "Ann, Bob, and Eve; Ann, Bob, or Eve"),
        ("{{ names|sentence(locale='de') }}; {{ []|sentence }}", "Ann, Bob und Eve; "),
        ("{{ names|join(', ') }} {{ [1, 2]|join }}", "Ann, Bob, Eve 12"),
        ("{{ 'a-b-c'|replace('-', '+') }}", "a+b+c"),
        ("{{ nick|default('friend') }} {{ none|d('x', true) }}", "friend x"),
        ("{% set locale = 'de' %}{% set sum = amount %}{{ sum|number }} {{ due|date }}", "1.234,5 23.11.2026"),
        ("{% set a, b = names[0], names[1] %}{{ a }}{{ b }}", "AnnBob"),
        (
            "{{ names|reverse }} {{ [1, 1]|unique }} {{ 'abc'|reverse }}",
            "['Eve', 'Bob', 'Ann'] [1] cba",
        ),
        ("{% for key, value in order|items %}{{ key }}={{ value }} {% endfor %}{{ order.items }}", "items=3 3"),
        (
            "{{ 1.25|round(1) }}{% for n in names %} {{ loop.index }}{% endfor %}",
            "1.2 1 2 3",
        ),
    ],
)
def test_values_are_shown_as_readers_write_them(body, text):
    fields = {"due": "2026-11-23", "start": "2026-11-23T18:30:00+00:00", "amount": "1234.5", "order": {"items": 3}}
    assert render(body, names=["Ann", "Bob", "Eve"], none=None, **fields) == text


def test_a_field_called_locale_is_each_recipients_own():
    content = templates.compile_templates("", "{{ amount|money('EUR') }}", html=False)
    shown = [content.render_letter("a@b.example", {"amount": 5, "locale": one})[1] for one in ("en", "de", "", "pt-BR")]
    assert [text.replace("\xa0", " ") for text in shown] == ["€5.00", "5,00 €", "€5.00", "€ 5,00"]


def test_what_joins_escaped_and_other_text_escapes_the_other():
    assert render("{{ [a|e, a]|join(a) }}", html=True, a="<b>") == "&lt;b&gt;" * 3
    assert render("{{ l|join('<br>') }}", html=True, l=["<", ">"]) == "&lt;&lt;br&gt;&gt;"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{{ due|date }}", "date: '23/11/2026' is no date like 2026-03-31"),
        ("{{ '25:00'|time }}", "time: '25:00' is no time like 18:30"),
        ("{{ due|number }}", "number: '23/11/2026' is no number like 1234.5"),
        ("{{ '1e999999'|number }}", "is no number like 1234.5"),
        ("{{ '1e-999999'|money('EUR') }}", "is no number like 1234.5"),
        ("{{ true|number }}", "is no number"),
        ("{{ 1|number(21) }}", "0 to 20 digits after the point, not 21"),
        ("{{ 1|round(999999999, 'ceil') }}", "round: 999999999 are no digits"),
        ("{{ 1|money('EURO') }}", "money: 'EURO' is no currency, like EUR"),
        ("{{ 1|money('EUR', 'xx_YY') }}", "'xx_YY' is no locale, like de_DE"),
        ("{{ 1|money('EUR', '../../etc') }}", "is no locale, like de_DE"),
        ("{{ '2026-11-23'|date('x' * 2) }}", "'mul' is not for templates"),
        ("{{ '2026-11-23'|date(due|string ~ due ~ due ~ due ~ due ~ due ~ due) }}", "is no format"),
        ("{{ '2026-11-23T10:00+00:00'|datetime(zone='Mars') }}", "'Mars' is no time zone"),
        ("{{ due|join }}", "join: '23/11/2026' is no list"),
        ("{{ [[1]]|sentence }}", r"\[1\] is no text or number"),
        ("{{ [due]|sentence('nor') }}", "'nor' is neither 'and' nor 'or'"),
        ("{{ due|replace('', 'x') }}", "replace: what is to be replaced is empty"),
        ("{{ order.price }}", "has no attribute 'price'"),
        ("{{ nothing }}{{ due|trim }}", "a field is null and would be shown"),
        ("{{ due ~ nothing }}", "a field is null and would be shown"),
        ("{{ missing|number }}", "'missing'"),
    ],
)
def test_what_cannot_be_shown_is_told(body, message):
    fields = {"due": "23/11/2026", "order": {"item": "tea"}, "nothing": None}
    with pytest.raises(TemplateError, match=message):
        render(body, **fields)


@pytest.mark.parametrize(
    "value",
    [
        *("name.encode", "name.upper", "number.real", "number.bit_length", "order.keys", "order.items", "lines.append"),
        *("name['encode']", "order['keys']", "lines['pop']", "loop", "loop.cycle", "loop.changed", "loop['cycle']"),
    ],
)
@pytest.mark.parametrize("form", ["{{ %s }}", "{{ %s ~ 'x' }}", "{{ %s|string }}", "{{ [%s]|join }}", "{{ [%s] }}"])
def test_no_object_of_the_program_is_ever_printed(value, form):
    body = "{% for one in lines %}" + form % value + "{% endfor %}"
    with pytest.raises(TemplateError, match=r"has no|would be shown|is undefined"):
        assert "<" not in render(body, name="Ann", number=5, order={"a": 1}, lines=[1, 2])


def test_a_field_that_may_be_missing_has_a_default_or_is_asked_for():
    content = templates.compile_templates(
        "", "{{ a|default('x') }}{% if b is defined %}{{ b }}{% endif %}{{ c }}", html=False
    )
    assert (content.fields, content.optional) == ({"c"}, {"a", "b"})
    assert list(checking.field_faults("r", {"c": "1"}, content)) == []
    assert content.render_letter("r", {"c": "1"})[1] == "x1"
    assert "the template needs 'c'" in list(checking.field_faults("r", {"a": "1"}, content))


def test_a_list_must_have_the_columns_that_the_template_names_even_if_they_may_be_empty():
    content = templates.compile_templates("", "{{ nmae|default('friend', true) }}", html=False)
    (problem,) = problems("email,name\nann@sandbox.example,Ann\n", content)
    assert str(problem) == "row 1: the template needs 'nmae'; the columns are email, name"


def test_a_value_that_cannot_be_shown_is_told_with_its_row():
    content = templates.compile_templates("", "{{ due|date }} {{ amount|money('EUR') }}", html=False)
    rows = "email,due,amount\nann@sandbox.example,2026-01-01,5\nbob@sandbox.example,01.02.2026,5\n"
    (problem,) = problems(rows + "eve@sandbox.example,2026-01-01,5\n", content)
    assert str(problem) == "row 3: date: '01.02.2026' is no date like 2026-03-31"


SQUARED = "{% set b = [" + "t," * 900 + "] %}{% set c = [" + "b," * 900 + "] %}"


@pytest.mark.parametrize("html", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        "{{ t|replace('a', t)|length }}",
        "{% set u = t|replace('a', 'aaaaaaaaaaaaaaaaaaaa') %}" * 8,
        "{% set u = t ~ t %}" + "{% set u = u ~ u %}" * 40,
        "{{ l|join(t)|length }}",
        "{{ l|sentence }}",
        "{{ l[:1000]|sentence|length }}" * 200,
        SQUARED + "{{ c|string|length }}",
        SQUARED + "{{ c|join|length }}",
        SQUARED + "{{ c|list|reverse|string|length }}",
        "{% set b = [" + "l," * 900 + "] %}{{ b }}",
        "{% for one in l %}{{ 5|money('EUR') }}{% endfor %}",
        "{% for one in l %}{{ '2026-01-01'|date('full') }}{% endfor %}",
    ],
)
def test_no_filter_makes_much_of_little(body, html):
    content = templates.compile_templates("", body, html)
    fields = {"l": ["x"] * 20_000, "t": "a " * 40_000}
    with pytest.raises(TemplateError, match=r"than 50,000 steps|than 1,000,000|than 1,000 values|is no text"):
        content.render_letter("ann@b.example", fields)


def test_formatting_takes_so_many_steps_wherever_it_runs():
    one, two = (cost("{{ a|money('EUR') }}" * number, a=5) for number in (1, 2))
    assert 100 < two - one < 110 < MAX_STEPS
