"""What rendering costs is counted, and bounded before it is spent."""

import pytest

from campaigns.texts import cost as steps
from campaigns.texts import templates
from campaigns.texts.templates import MAX_STEPS, MAX_TOKENS, Budget, OverBudget, TemplateError

ORDER = (
    "Dear {{ name }},\n{% for line in lines %}{{ loop.index }}. {{ line.what|trim }}: {{ line.price|round(2) }}"
    "{% if line.note %} ({{ line.note }}){% endif %}\n{% endfor %}"
)


class Purse(Budget):
    """A budget that counts the steps drawn and is limited."""

    def __init__(self, most=10**9):
        self.drawn, self.most = 0, most

    def draw_steps(self):
        if self.drawn >= self.most:
            raise OverBudget("no more")
        self.drawn += 1
        return 1


def cost(body, html=False, **fields):
    purse = Purse()
    templates.compile_templates("", body, html).render_letter("ann@b.example", fields, purse)
    return purse.drawn


def order(lines):
    return {"name": "Ann", "lines": [{"what": "tea ", "price": 2.5, "note": "green"}] * lines}


def test_an_order_of_forty_lines_takes_a_fiftieth_of_what_a_message_may_take():
    assert MAX_STEPS / 60 < cost(ORDER, **order(40)) < MAX_STEPS / 40


def test_the_same_letter_takes_the_same_steps_each_time_and_twice_the_lines_twice_as_many():
    ten, twenty, thirty = (cost(ORDER, **order(lines)) for lines in (10, 20, 30))
    assert ten == cost(ORDER, **order(10))
    assert thirty - twenty == twenty - ten > 0


def test_a_template_that_only_shows_fields_takes_hardly_a_step():
    assert cost("Dear {{ name }}", name="Ann") == 0


@pytest.mark.parametrize("html", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        "{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}",
        "{% for a in l|sort %}{% endfor %}",
        "{{ l|string|title|length }}",
        "{{ t|title|length }}",
        "{{ t|urlencode|length }}",
        "{% if l == m %}{% endif %}" * 20,
        "{% if 1 in l %}{% endif %}" * 20,
        "{% if 1 is in l %}{% endif %}" * 20,
        "{% if l[::2] %}{% endif %}" * 20,
        "{{ l }}" * 20,
        "{{ l }}{{ l|length }}" * 20,
        "{% if l ~ m %}{% endif %}" * 20,
        "{% if t|upper == t|lower %}{% endif %}" * 40,
    ],
)
def test_whatever_goes_through_large_values_again_and_again_ends(body, html):
    content = templates.compile_templates("", body, html)
    fields = {"l": [0] * 30_000, "m": [0] * 30_000, "t": "a " * 40_000}
    with pytest.raises(TemplateError, match="more than 50,000 steps"):
        content.render_letter("ann@b.example", fields)


def test_a_template_of_too_many_parts_is_refused_before_it_is_compiled(monkeypatch):
    monkeypatch.setattr(steps, "add_counters", None)
    for body in ("{{ a|trim }}" * MAX_TOKENS, "{{ " + " ~ ".join("a" * MAX_TOKENS) + " }}"):
        with pytest.raises(TemplateError, match="more than 5,000 parts"):
            templates.compile_templates("", body, html=False)


def test_compiling_takes_steps_too():
    purse = Purse()
    templates.compile_templates("", "{{ a|trim }}" * 10, False, purse)
    assert purse.drawn == 10 * 100 * 7


def test_a_budget_that_ends_in_the_middle_of_a_message_is_no_fault_of_the_message():
    content = templates.compile_templates("", ORDER, html=False)
    with pytest.raises(OverBudget, match="no more"):
        content.render_letter("ann@b.example", order(40), Purse(most=500))
    assert content.render_letter("ann@b.example", order(40), Purse(most=2000))[1].count("tea") == 40
