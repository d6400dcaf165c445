"""No sponsor's templates hold up the others: a request, a message and a minute have so many steps (campaigns/steps)."""

import pytest

from campaigns.doors.front.rate_limits import REQUEST_STEPS
from campaigns.models import Message
from campaigns.texts.templates import MAX_STEPS
from tests.front.program import Program, api_vendor, fresh, letter, pointers, problem

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db(transaction=True)
LOOPS = "{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}x"
DRY = "/api/v1/messages?dry_run=true"


def loops(vendor, size, side, **more):
    """Letters with side × side rounds each."""
    recipients = [{"to": f"p{number}@sandbox.example", "fields": {"l": [0] * side}} for number in range(size)]
    return letter(vendor, body=LOOPS, recipients=recipients, **more)


@pytest.mark.parametrize("path", ["/api/v1/messages", DRY])
def test_a_message_over_its_steps_is_refused_and_named(path):
    vendor = api_vendor()
    recipients = loops(vendor, 3, 10)["recipients"]
    recipients[1]["fields"]["l"] = [0] * 300
    answer = Program().send(letter(vendor, body=LOOPS, recipients=recipients), path=path)
    assert pointers(answer) == {"/recipients/1/fields": "fields"}
    assert f"{MAX_STEPS:,} steps" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/api/v1/messages", DRY])
def test_a_request_over_its_steps_is_refused_at_the_recipient_that_used_them_up(path):
    answer = Program().send(loops(api_vendor(), 70, 200), path=path)
    assert pointers(answer) == {f"/recipients/{REQUEST_STEPS // (200 * 201)}": "budget"}
    assert f"{REQUEST_STEPS:,} steps" in answer.json()["detail"] and not Message.objects.exists()


def test_many_messages_that_are_over_their_steps_end_at_those_of_the_request():
    answer = Program().send(loops(api_vendor(), 1000, 300))
    last = REQUEST_STEPS // MAX_STEPS
    assert pointers(answer) in ({f"/recipients/{last}": "budget"}, {f"/recipients/{last - 1}": "budget"})


def test_an_order_of_forty_lines_for_each_of_several_hundred_is_taken():
    lines = [{"what": "tea", "price": 2.5}] * 40
    body = "{% for line in lines %}{{ line.what }} {{ line.price }}\n{% endfor %}"
    recipients = [{"to": f"p{number}@sandbox.example", "fields": {"lines": lines}} for number in range(500)]
    assert Program().send(letter(api_vendor(), body=body, recipients=recipients)).status_code == 202


def test_a_sponsor_that_had_the_steps_of_its_minute_waits_with_all_its_keys_and_others_do_not(settings):
    settings.RENDER_STEPS = 500_000
    one, other, vendor = Program(requests_per_minute=0), Program(), api_vendor()
    answers = [one.send(loops(vendor, 1, 200), path=DRY) for _ in range(20)]
    codes = [answer.status_code for answer in answers]
    taken = codes.index(429)
    assert 6 <= taken <= 12 and set(codes[taken:]) == {429}, codes
    problem(answers[-1], "rate-limited", 429)
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 60
    assert Program(one.sponsor).send(loops(vendor, 1, 200)).status_code == 429
    assert one.send(letter(vendor)).status_code == 202, "what costs nothing is taken"
    assert other.send(loops(vendor, 1, 200)).status_code == 202


def test_what_is_refused_in_the_middle_is_counted(settings):
    settings.RENDER_STEPS = 2 * REQUEST_STEPS
    program, vendor = Program(requests_per_minute=0), api_vendor()
    codes = [program.send(loops(vendor, 70, 200)).status_code for _ in range(4)]
    assert codes == [422, 422, 429, 429]


def test_new_templates_cost_what_it_takes_to_compile_them_and_known_ones_do_not(settings):
    settings.RENDER_STEPS = 200_000
    program, vendor = Program(requests_per_minute=0), api_vendor()

    def send(word):
        body = word + "{% if name %}{{ name }}{% endif %}" * 60
        return program.send(letter(vendor, body=body, recipients=[{"to": "ann@b.example", "fields": {"name": "Ann"}}]))

    assert {send("always the same").status_code for _ in range(8)} == {202}
    assert 429 in [send(f"new {number}").status_code for number in range(8)]


def test_without_the_store_that_counts_them_no_steps_are_taken(settings):
    settings.REDIS_URL, settings.STORE_PATIENCE = "redis://127.0.0.1:1/0", 0.1
    answer = Program(requests_per_minute=0).send(loops(api_vendor(), 1, 200))
    problem(answer, "storage-unavailable", 503)
    assert not Message.objects.exists()
